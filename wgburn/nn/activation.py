"""Activation layers."""

from __future__ import annotations

from typing import Any

from ..core.errors import ShapeError
from ..tensor.creation import full
from . import functional as F
from .module import Module
from .parameter import Parameter


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return F.relu(input)


class ReLU6(Module):
    """x limited to 0..6."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return F.hardtanh(input, 0.0, 6.0)


class GELU(Module):
    """x times the normal distribution function of x; approximate: "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return F.silu(input)


class Mish(Module):
    """x * tanh(softplus(x))."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return F.mish(input)


class Tanh(Module):
    def forward(self, input: Any) -> Any:
        return input.tanh()


class Sigmoid(Module):
    def forward(self, input: Any) -> Any:
        return input.sigmoid()


class LogSigmoid(Module):
    def forward(self, input: Any) -> Any:
        return F.logsigmoid(input)


class Softsign(Module):
    def forward(self, input: Any) -> Any:
        return F.softsign(input)


class Tanhshrink(Module):
    def forward(self, input: Any) -> Any:
        return F.tanhshrink(input)


class Hardswish(Module):
    """x times hardsigmoid(x)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return F.hardswish(input)


class Hardsigmoid(Module):
    """x / 6 + 1 / 2, limited to 0..1."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return F.hardsigmoid(input)


class SELU(Module):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return F.selu(input)


class Hardtanh(Module):
    """x limited to min_val..max_val."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val, self.max_val = min_val, max_val

    def forward(self, input: Any) -> Any:
        return F.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class ELU(Module):
    """x where positive, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class CELU(ELU):
    """x where positive, else alpha * (exp(x / alpha) - 1)."""

    def forward(self, input: Any) -> Any:
        return F.celu(input, self.alpha)


class LeakyReLU(Module):
    """x where positive, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, input: Any) -> Any:
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class PReLU(Module):
    """LeakyReLU with a trained slope: one, or one a channel."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), dtype, device))

    def forward(self, input: Any) -> Any:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softplus(Module):
    """log(1 + exp(beta x)) / beta."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Any) -> Any:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """x moved towards 0 by lambd, 0 within lambd of it."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Any) -> Any:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(Softshrink):
    """x, but 0 within lambd of 0."""

    def forward(self, input: Any) -> Any:
        return F.hardshrink(input, self.lambd)


class Threshold(Module):
    """x where above threshold, else value."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value = threshold, value

    def forward(self, input: Any) -> Any:
        return F.threshold(input, self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class GLU(Module):
    """First half times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _Along(Module):
    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def _dim(self) -> int:
        if self.dim is None:
            raise ShapeError(
                f"{type(self).__name__} needs the dimension to normalise: "
                f"{type(self).__name__}(dim=-1)"
            )
        return self.dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_Along):
    """exp(x) normalised to sum 1 along dim."""

    def forward(self, input: Any) -> Any:
        return F.softmax(input, self._dim())


class Softmin(_Along):
    """softmax(-x)."""

    def forward(self, input: Any) -> Any:
        return F.softmin(input, self._dim())


class LogSoftmax(_Along):
    """log(softmax(x)) without lost digits."""

    def forward(self, input: Any) -> Any:
        return F.log_softmax(input, self._dim())
