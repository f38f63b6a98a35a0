"""Initial values, by torch's names and formulas, drawn from the device's random stream.

Owns: fans, gains, the fill functions. Equal on every backend for a seed. Must not know: modules.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..autodiff.functional import no_grad
from ..core.errors import ShapeError, ValueRangeError
from ..tensor.creation import eye, full, rand, randn, tensor
from ..tensor.tensor import Tensor

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much a nonlinearity shrinks a signal, to be made up by the weights.
    Raises ValueRangeError.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        raise ValueRangeError(
            f"calculate_gain: no gain for {nonlinearity!r}; use leaky_relu, {', '.join(_GAINS)}"
        )
    return _GAINS[nonlinearity]


def fans(t: Tensor) -> tuple[int, int]:
    """(fan in, fan out) of a weight [out, in, *kernel]. Raises ShapeError for vectors."""
    if t.ndim < 2:
        raise ShapeError(
            f"init: a weight of shape {t.shape} has no fan in and fan out; use uniform_ or normal_"
        )
    window = math.prod(t.shape[2:])
    return t.shape[1] * window, t.shape[0] * window


def _fill(t: Tensor, value: Tensor) -> Tensor:
    with no_grad():
        return t.copy_(value)


def _home(t: Tensor) -> Any:
    return t.device.inner()


def uniform_(t: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform on [a, b)."""
    return _fill(t, rand(t.shape, device=_home(t)) * (b - a) + a)


def normal_(t: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return _fill(t, randn(t.shape, device=_home(t)) * std + mean)


def trunc_normal_(
    t: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Normal, cut off outside [a, b], by the inverse of its distribution."""
    low = math.erf((a - mean) / std / math.sqrt(2.0))
    high = math.erf((b - mean) / std / math.sqrt(2.0))
    u = rand(t.shape, device=_home(t)) * (high - low) + low
    return _fill(t, (u.erfinv() * (std * math.sqrt(2.0)) + mean).clamp(a, b))


def constant_(t: Tensor, val: float) -> Tensor:
    return _fill(t, full(t.shape, val, t.dtype, _home(t)))


def zeros_(t: Tensor) -> Tensor:
    return constant_(t, 0)


def ones_(t: Tensor) -> Tensor:
    return constant_(t, 1)


def eye_(t: Tensor) -> Tensor:
    if t.ndim != 2:
        raise ShapeError(f"eye_ takes a matrix, got {t.shape}")
    return _fill(t, eye(t.shape[0], t.shape[1], dtype=t.dtype, device=_home(t)))


def dirac_(t: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight that passes its input through."""
    if not 3 <= t.ndim <= 5:
        raise ShapeError(f"dirac_ takes a convolution weight of 3 to 5 dimensions, got {t.shape}")
    if t.shape[0] % groups:
        raise ShapeError(
            f"dirac_: {t.shape[0]} output channels are not divisible by groups={groups}"
        )
    values = np.zeros(t.shape, t.dtype.np)
    each = t.shape[0] // groups
    middle = tuple(s // 2 for s in t.shape[2:])
    for group in range(groups):
        for channel in range(min(each, t.shape[1])):
            values[(group * each + channel, channel, *middle)] = 1
    return _fill(t, tensor(values, dtype=t.dtype, device=_home(t)))


def xavier_uniform_(t: Tensor, gain: float = 1.0) -> Tensor:
    fan_in, fan_out = fans(t)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(t, -bound, bound)


def xavier_normal_(t: Tensor, gain: float = 1.0) -> Tensor:
    fan_in, fan_out = fans(t)
    return normal_(t, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def _kaiming_std(t: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueRangeError(f"init: mode {mode!r}; use 'fan_in' or 'fan_out'")
    fan = fans(t)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    t: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    bound = math.sqrt(3.0) * _kaiming_std(t, a, mode, nonlinearity)
    return uniform_(t, -bound, bound)


def kaiming_normal_(
    t: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    return normal_(t, 0.0, _kaiming_std(t, a, mode, nonlinearity))


def orthogonal_(t: Tensor, gain: float = 1.0) -> Tensor:
    """Rows (or columns, whichever are fewer) of length `gain` at right angles.
    Computed on the host.
    """
    if t.ndim < 2:
        raise ShapeError(f"orthogonal_ needs at least two dimensions, got {t.shape}")
    rows, columns = t.shape[0], math.prod(t.shape[1:])
    drawn = randn(rows, columns, device=_home(t)).numpy().astype(np.float64)
    q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
    q = q * np.sign(np.diag(r))
    values = (q.T if rows < columns else q) * gain
    return _fill(
        t, tensor(np.ascontiguousarray(values).reshape(t.shape), dtype=t.dtype, device=_home(t))
    )


def sparse_(t: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Normal values with a share `sparsity` of every column zero."""
    if t.ndim != 2:
        raise ShapeError(f"sparse_ takes a matrix, got {t.shape}")
    rows, columns = t.shape
    order = rand(rows, columns, device=_home(t)).numpy().argsort(axis=0, kind="stable")
    keep = np.ones((rows, columns), t.dtype.np)
    zero = math.ceil(sparsity * rows)
    np.put_along_axis(keep, order[:zero], 0, axis=0)
    drawn = randn(rows, columns, device=_home(t)) * std
    return _fill(t, drawn * tensor(keep, dtype=t.dtype, device=_home(t)))
