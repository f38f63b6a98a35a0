"""Activation functions. `inplace` is torch's, and changes nothing: tensors are values."""

from __future__ import annotations

import math
from typing import Any

from ...autodiff.custom import attach, recording
from ...autodiff.functional import no_grad
from ...core.errors import ShapeError, ValueRangeError
from .checks import need_float


def relu(input: Any, inplace: bool = False) -> Any:
    return input.relu()


def relu6(input: Any, inplace: bool = False) -> Any:
    return _clamped(input, 0.0, 6.0)


def sigmoid(input: Any) -> Any:
    return input.sigmoid()


def tanh(input: Any) -> Any:
    return input.tanh()


_ROOT_HALF = math.sqrt(0.5)
_PDF = 1.0 / math.sqrt(2.0 * math.pi)
_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBE = 0.044715


def _normal_cdf(x: Any) -> Any:
    return ((x * _ROOT_HALF).erf() + 1.0) * 0.5


def _gelu_grad(c: Any, g: Any) -> tuple[Any, None]:
    x = c.ins[0]
    cdf = _normal_cdf(x) if recording() else c.ins[1]
    return g * (cdf + x * ((x * x * -0.5).exp() * _PDF)), None


def gelu(input: Any, approximate: str = "none") -> Any:
    """x times the normal distribution function of x: exact, or by tanh. Raises ValueRangeError."""
    need_float("gelu", input=input)
    if approximate == "none":
        with no_grad():
            cdf = _normal_cdf(input)
            out = input * cdf
        return attach(out, "gelu", (input, cdf), _gelu_grad, ((0, 1), ()))
    if approximate == "tanh":
        inner = (input + input * input * input * _TANH_CUBE) * _TANH_SCALE
        return input * 0.5 * (inner.tanh() + 1.0)
    raise ValueRangeError(f"gelu: approximate={approximate!r}; use 'none' or 'tanh'")


def silu(input: Any, inplace: bool = False) -> Any:
    return input * input.sigmoid()


def mish(input: Any, inplace: bool = False) -> Any:
    return input * input.softplus().tanh()


def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    scaled = input if beta == 1 else input * beta
    soft = scaled.softplus()
    soft = soft if beta == 1 else soft / beta
    return (scaled > threshold).where(input, soft)


def logsigmoid(input: Any) -> Any:
    return -((-input).softplus())


def softsign(input: Any) -> Any:
    return input / (input.abs() + 1.0)


def tanhshrink(input: Any) -> Any:
    return input - input.tanh()


def softshrink(input: Any, lambd: float = 0.5) -> Any:
    return (input > lambd).where(input - lambd, (input < -lambd).where(input + lambd, input * 0.0))


def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    return ((input >= -lambd) & (input <= lambd)).where(0.0, input)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    return _clamped(input, min_val, max_val)


def _clamped(x: Any, low: float, high: float) -> Any:
    """Limits to [low, high]; the gradient is 0 on the limits (clamp shares it between equals)."""
    return (x <= low).where(low, (x >= high).where(high, x))


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    return _clamped(input / 6.0 + 0.5, 0.0, 1.0)


def hardswish(input: Any, inplace: bool = False) -> Any:
    inside = input * (input + 3.0) / 6.0
    return (input <= -3.0).where(0.0, (input >= 3.0).where(input, inside))


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return _elu(input, alpha, 1.0)


def _elu(x: Any, alpha: float, stretch: float) -> Any:
    """x where positive, else alpha * (exp(x / stretch) - 1), whose overflow never reaches a
    gradient.
    """
    low = (x > 0).where(0.0, x)
    low = low if stretch == 1 else low / stretch
    return (x > 0).where(x, low.expm1() * alpha)


def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return _elu(input, alpha, alpha)


_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


def selu(input: Any, inplace: bool = False) -> Any:
    return _elu(input, _SELU_ALPHA, 1.0) * _SELU_SCALE


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return (input > 0).where(input, input * negative_slope)


def threshold(input: Any, threshold: float, value: float) -> Any:
    return (input > threshold).where(input, value)


def prelu(input: Any, weight: Any) -> Any:
    """x where positive, else weight * x; one weight, or one a channel (dimension 1).
    Raises ShapeError.
    """
    if weight.size != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.size != channels:
            raise ShapeError(
                f"prelu: weight {weight.shape} must have 1 element or {channels}, the channels of "
                f"{input.shape}"
            )
        weight = weight.reshape((1, channels, *[1] * (input.ndim - 2)))
    return (input > 0).where(input, input * weight)


def glu(input: Any, dim: int = -1) -> Any:
    """First half times the sigmoid of the second. Raises ShapeError for an odd size."""
    n = input.shape[dim]
    if n % 2:
        raise ShapeError(
            f"glu: dimension {dim} of {input.shape} is odd; it must split into two halves"
        )
    a, b = input.split(n // 2, dim)
    return a * b.sigmoid()


def softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    return (input if dtype is None else input.to(dtype)).softmax(dim)


def softmin(input: Any, dim: int) -> Any:
    return (-input).softmax(dim)


def log_softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    return (input if dtype is None else input.to(dtype)).log_softmax(dim)
