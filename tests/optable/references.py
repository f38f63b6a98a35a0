"""What the element-wise primitives compute, written apart from the op table.

Owns: one `Fn` an op: references in float64 and in Python integers, the domain that is sampled and
the one where derivatives exist. Must not know: records, devices, shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .case import Tol


@dataclass(frozen=True)
class Fn:
    """References of one element-wise op by kind of operand; None where it does not take the kind.

    `domain`: where random operands of values come from, `smooth`: those of derivatives (one range
    an operand, or one for all). `result`: "same" or a dtype name.
    """

    f: Callable[..., Any] | None = None
    i: Callable[..., int] | None = None
    b: Callable[..., Any] | None = None
    domain: tuple[float, float] = (-8.0, 8.0)
    smooth: Any = (-2.0, 2.0)
    result: str = "same"
    tol: Tol = Tol()  # noqa: RUF009 - frozen
    close: float = 1e-5


def _floor_div(a: int, b: int) -> int:
    return a // b if b else 0


def _trunc_mod(a: int, b: int) -> int:
    return int(math.copysign(1, a)) * (abs(a) % abs(b)) if b else 0


def _int_pow(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64)
    return 1 if a == 1 else (-1 if b & 1 else 1) if a == -1 else 0


def _acosh(x: Any) -> Any:
    # numpy's own is not NaN for some x < 1 in WebAssembly.
    return np.where(x < 1, np.nan, np.arccosh(np.where(x < 1, 1, x)))


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _erfinv_one(x: float) -> float:
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    if x == 0:
        return x
    # Bisection on the tail, then Newton where the slope is known exactly.
    low, high = 0.0, 6.0
    for _ in range(60):
        mid = 0.5 * (low + high)
        if (math.erf(mid) < abs(x)) if abs(x) < 0.5 else (math.erfc(mid) > 1 - abs(x)):
            low = mid
        else:
            high = mid
    y = 0.5 * (low + high)
    if abs(x) < 0.5:
        y = abs(x) * math.sqrt(math.pi) / 2 if abs(x) < 1e-9 else y
        for _ in range(3):
            y -= (math.erf(y) - abs(x)) * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _compare(fn: Any, with_bool: bool = False) -> Fn:
    return Fn(fn, lambda a, b: bool(fn(a, b)), fn if with_bool else None, result="bool")


_POSITIVE = (0.05, 8.0)
#: Away from the places where a function bends or ends.
_KINK = (0.2, 2.0)

UNARY: dict[str, Fn] = {
    "neg": Fn(np.negative, lambda a: -a),
    "abs": Fn(np.abs, abs, smooth=_KINK),
    "sign": Fn(np.sign, lambda a: (a > 0) - (a < 0)),
    "exp": Fn(np.exp, domain=(-90, 90)),
    "exp2": Fn(np.exp2, domain=(-130, 130)),
    "expm1": Fn(np.expm1, domain=(-20, 88)),
    "log": Fn(np.log, domain=_POSITIVE, smooth=_KINK),
    "log2": Fn(np.log2, domain=_POSITIVE, smooth=_KINK),
    "log10": Fn(np.log10, domain=_POSITIVE, smooth=_KINK),
    "log1p": Fn(np.log1p, domain=(-0.99, 8), smooth=(-0.7, 2.0)),
    "sqrt": Fn(np.sqrt, domain=_POSITIVE, smooth=_KINK),
    "rsqrt": Fn(lambda x: 1 / np.sqrt(x), domain=_POSITIVE, smooth=_KINK),
    "reciprocal": Fn(lambda x: 1 / x, smooth=(0.5, 2.0)),
    "sin": Fn(np.sin, domain=(-50, 50)),
    "cos": Fn(np.cos, domain=(-50, 50)),
    "tan": Fn(np.tan, domain=(-50, 50), smooth=(-1.0, 1.0)),
    "asin": Fn(np.arcsin, domain=(-1, 1), smooth=(-0.8, 0.8)),
    "acos": Fn(np.arccos, domain=(-1, 1), smooth=(-0.8, 0.8)),
    "atan": Fn(np.arctan),
    "sinh": Fn(np.sinh, domain=(-88, 88)),
    "cosh": Fn(np.cosh, domain=(-88, 88)),
    "tanh": Fn(np.tanh),
    "asinh": Fn(np.arcsinh),
    "acosh": Fn(_acosh, domain=(1, 8), smooth=(1.3, 3.0)),
    "atanh": Fn(np.arctanh, domain=(-1, 1), smooth=(-0.8, 0.8)),
    "sigmoid": Fn(_sigmoid, domain=(-87, 40)),
    "softplus": Fn(lambda x: np.logaddexp(x, 0.0), domain=(-87, 40)),
    "erf": Fn(_erf, domain=(-4, 4)),
    "erfc": Fn(np.vectorize(math.erfc, otypes=[np.float64]), domain=(-4, 9), tol=Tol(ulp=8.0)),
    "erfinv": Fn(
        lambda x: np.vectorize(_erfinv_one, otypes=[np.float64])(x),
        domain=(-1, 1),
        smooth=(-0.8, 0.8),
    ),
    "relu": Fn(lambda x: np.maximum(x, 0.0), lambda a: max(a, 0), smooth=_KINK),
    "floor": Fn(np.floor),
    "ceil": Fn(np.ceil),
    "trunc": Fn(np.trunc),
    "round": Fn(np.rint),
    "isnan": Fn(np.isnan, result="bool"),
    "isinf": Fn(np.isinf, result="bool"),
    "isfinite": Fn(np.isfinite, result="bool"),
    "logical_not": Fn(b=np.logical_not, result="bool"),
    "bitwise_not": Fn(i=lambda a: ~a),
    "copy": Fn(lambda x: x, lambda a: a, lambda x: x),
}

BINARY: dict[str, Fn] = {
    "add": Fn(np.add, lambda a, b: a + b),
    "sub": Fn(np.subtract, lambda a, b: a - b),
    "mul": Fn(np.multiply, lambda a, b: a * b),
    "div": Fn(np.divide, smooth=(0.5, 2.0)),
    "pow": Fn(np.power, _int_pow, domain=(0.1, 4.0), smooth=(0.5, 2.0)),
    "maximum": Fn(np.maximum, max),
    "minimum": Fn(np.minimum, min),
    "atan2": Fn(np.arctan2, smooth=(0.3, 2.0)),
    "hypot": Fn(np.hypot, smooth=(0.3, 2.0)),
    "fmod": Fn(np.fmod, _trunc_mod, smooth=((3.2, 3.8), (0.81, 0.99))),
    "remainder": Fn(
        np.remainder,
        lambda a, b: a - _floor_div(a, b) * b if b else 0,
        smooth=((3.2, 3.8), (0.81, 0.99)),
    ),
    "floor_divide": Fn(lambda a, b: np.floor(a / b), _floor_div),
    "eq": _compare(np.equal, True),
    "ne": _compare(np.not_equal, True),
    "lt": _compare(np.less),
    "le": _compare(np.less_equal),
    "gt": _compare(np.greater),
    "ge": _compare(np.greater_equal),
    "bitwise_and": Fn(i=lambda a, b: a & b, b=np.logical_and),
    "bitwise_or": Fn(i=lambda a, b: a | b, b=np.logical_or),
    "bitwise_xor": Fn(i=lambda a, b: a ^ b, b=np.logical_xor),
    "shift_left": Fn(i=lambda a, b: a << (b & 31)),
    "shift_right": Fn(i=lambda a, b: a >> (b & 31)),
}
