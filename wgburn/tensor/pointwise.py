"""Element-wise functions made of others: interpolation, fused multiply-adds, comparisons within a
tolerance, and torch's further names of what `arithmetic` has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..core import dtype as dt
from ..core.errors import DTypeError, ValueRangeError
from ..ops import elementwise as ew
from . import bridge
from .arithmetic import Arithmetic, _float_pair, _floating

if TYPE_CHECKING:
    from .tensor import Tensor


def _pair(self: Any, other: Any, op: str) -> tuple[Any, Any]:
    found = bridge.pair(op, self, other)
    if found is None:
        raise DTypeError(f"{op}: cannot use {type(other).__name__} as a tensor")
    return found


def _floats(self: Any, other: Any, op: str) -> tuple[Any, Any]:
    found = _float_pair(self, other, op)
    if found is None:
        raise DTypeError(f"{op}: cannot use {type(other).__name__} as a tensor")
    return found


class Pointwise:
    """Broadcasting and promotion as in `Arithmetic`."""

    __slots__ = ()

    # -- further names ----------------------------------------------------------------------------
    not_equal = Arithmetic.ne
    greater = Arithmetic.gt
    greater_equal = Arithmetic.ge
    less = Arithmetic.lt
    less_equal = Arithmetic.le
    fix = Arithmetic.trunc
    sgn = Arithmetic.sign
    bitwise_left_shift = Arithmetic.__lshift__
    bitwise_right_shift = Arithmetic.__rshift__
    positive = Arithmetic.__pos__
    erfc = _floating(ew.erfc, "1 - erf(x) without cancellation.")

    def round(self: Any, decimals: int = 0) -> Tensor:
        """To the nearest integer (or decimal place), halves to even."""
        if self.dtype.is_int or self.dtype.kind == "b":
            return self
        if not decimals:
            return bridge.apply(ew.round_, (self,))
        scale = 10.0 ** abs(decimals)
        if decimals > 0:
            return bridge.apply(ew.round_, (self * scale,)) / scale
        return bridge.apply(ew.round_, (self / scale,)) * scale

    def frac(self: Any) -> Tensor:
        """What follows the decimal point, with the sign."""
        return self - self.trunc().detach()

    def rsub(self: Any, other: Any, alpha: float = 1) -> Tensor:
        return other - self * alpha if alpha != 1 else other - self

    def clamp_min(self: Any, min: Any) -> Tensor:
        return self.maximum(min)

    def clamp_max(self: Any, max: Any) -> Tensor:
        return self.minimum(max)

    def float_power(self: Any, exponent: Any) -> Tensor:
        return bridge.need_float("float_power", self).pow(exponent)

    def deg2rad(self: Any) -> Tensor:
        return self * (math.pi / 180)

    def rad2deg(self: Any) -> Tensor:
        return self * (180 / math.pi)

    def hypot(self: Any, other: Any) -> Tensor:
        """sqrt(self^2 + other^2) without overflow."""
        return bridge.apply(ew.hypot, _floats(self, other, "hypot"))

    def logaddexp(self: Any, other: Any) -> Tensor:
        """log(exp(self) + exp(other)) without overflow."""
        a, b = _floats(self, other, "logaddexp")
        # Equal infinities have no difference; their sum is the infinity itself.
        gap = (a == b).where(0.0, a - b)
        return a.maximum(b) + (-gap.abs()).exp().log1p()

    def logaddexp2(self: Any, other: Any) -> Tensor:
        """log2(2^self + 2^other) without overflow."""
        a, b = _floats(self, other, "logaddexp2")
        gap = (a == b).where(0.0, a - b)
        return a.maximum(b) + (-gap.abs()).exp2().log1p() * (1 / math.log(2))

    def xlogy(self: Any, other: Any) -> Tensor:
        """self * log(other), 0 where self is 0 (unless other is NaN)."""
        a, b = _floats(self, other, "xlogy")
        zero = (a == 0) & ~b.isnan()
        return zero.where(0.0, a * zero.where(1.0, b).log())

    def logit(self: Any, eps: float | None = None) -> Tensor:
        """log(x / (1 - x)); with eps, x is first limited to [eps, 1 - eps]."""
        x = bridge.need_float("logit", self)
        x = x if eps is None else x.clamp(eps, 1 - eps)
        return (x / (1.0 - x)).log()

    def sinc(self: Any) -> Tensor:
        """sin(pi x) / (pi x), 1 at 0."""
        x = bridge.need_float("sinc", self) * math.pi
        zero = x == 0
        safe = zero.where(1.0, x)
        return zero.where(1.0, safe.sin() / safe)

    def signbit(self: Any) -> Tensor:
        """True where the sign is negative, -0 included."""
        if not self.dtype.is_float:
            return self < 0
        # The angle of (-1, -0) is -pi, that of (-1, 0) is pi.
        return (self < 0) | ((self == 0) & (self.atan2(-1.0) < 0))

    def copysign(self: Any, other: Any) -> Tensor:
        """The magnitude of self with the sign of other."""
        a, b = _floats(self, other, "copysign")
        flip = a.signbit().logical_xor(b.signbit())
        return flip.where(-a, a)

    def heaviside(self: Any, values: Any) -> Tensor:
        """0 below 0 and for NaN, 1 above, `values` at 0."""
        a, b = _pair(self, values, "heaviside")
        return (a == 0).where(b, (a > 0).to(a.dtype))

    def fmax(self: Any, other: Any) -> Tensor:
        """Maximum that prefers a number to NaN."""
        a, b = _pair(self, other, "fmax")
        return a.maximum(b) if not a.dtype.is_float else _numbers(a, b, a.maximum(b))

    def fmin(self: Any, other: Any) -> Tensor:
        """Minimum that prefers a number to NaN."""
        a, b = _pair(self, other, "fmin")
        return a.minimum(b) if not a.dtype.is_float else _numbers(a, b, a.minimum(b))

    def ldexp(self: Any, other: Any) -> Tensor:
        """self * 2^other."""
        return self * bridge.need_float("ldexp", other).exp2()

    # -- three operands ---------------------------------------------------------------------------
    def lerp(self: Any, end: Any, weight: Any) -> Tensor:
        """self + weight * (end - self), exact at both ends."""
        a, b = _floats(self, end, "lerp")
        gap = b - a
        if not hasattr(weight, "_node"):
            return a + gap * weight if abs(weight) < 0.5 else b - gap * (1.0 - weight)
        weight = bridge.cast(weight, a.dtype)
        return (weight.abs() < 0.5).where(a + gap * weight, b - gap * (1.0 - weight))

    def addcmul(self: Any, tensor1: Any, tensor2: Any, value: float = 1) -> Tensor:
        """self + value * tensor1 * tensor2."""
        product = tensor1 * tensor2
        return self + (product if value == 1 else product * value)

    def addcdiv(self: Any, tensor1: Any, tensor2: Any, value: float = 1) -> Tensor:
        """self + value * tensor1 / tensor2."""
        quotient = tensor1 / tensor2
        return self + (quotient if value == 1 else quotient * value)

    # -- special numbers --------------------------------------------------------------------------
    def nan_to_num(
        self: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Tensor:
        """NaN and infinities replaced by numbers (infinities: the dtype's largest)."""
        if not self.dtype.is_float:
            return self
        top = float(_largest(self.dtype))
        out = self.isnan().where(nan, self)
        out = (self == math.inf).where(top if posinf is None else posinf, out)
        return (self == -math.inf).where(-top if neginf is None else neginf, out)

    def isposinf(self: Any) -> Tensor:
        return bridge.need_float("isposinf", self) == math.inf

    def isneginf(self: Any) -> Tensor:
        return bridge.need_float("isneginf", self) == -math.inf

    def isclose(
        self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Tensor:
        """|self - other| <= atol + rtol * |other|, or equal (infinities of one sign are)."""
        a, b = _pair(self, other, "isclose")
        if rtol < 0 or atol < 0:
            raise ValueRangeError(f"isclose: rtol {rtol} and atol {atol} must not be negative")
        same = a == b
        if a.dtype.kind == "b":
            return same
        x, y = bridge.need_float("isclose", a), bridge.need_float("isclose", b)
        gap = (x - y).abs()
        near = same | ((gap <= y.abs() * rtol + atol) & gap.isfinite())
        return near | (x.isnan() & y.isnan()) if equal_nan else near

    def allclose(
        self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close (see isclose). Reads the result."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    def equal(self: Any, other: Any) -> bool:
        """Whether shape and every element are equal. Reads the result."""
        return self.shape == other.shape and bool((self == other).all())


def _numbers(a: Any, b: Any, both: Any) -> Any:
    return a.isnan().where(b, b.isnan().where(a, both))


def _largest(dtype: dt.DType) -> float:
    return {16: 65504.0, 32: 3.4028234663852886e38, 64: 1.7976931348623157e308}[dtype.bits]
