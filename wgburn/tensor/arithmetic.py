"""Element-wise tensor methods and operators. Each is one line on the bridge."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..core import dtype as dt
from ..core.errors import DTypeError
from ..ops import elementwise as ew
from ..ops.record import Op
from . import bridge

if TYPE_CHECKING:
    from .tensor import Tensor


def _binary(self: Any, op: Op, other: Any, reflected: bool = False) -> Any:
    operands = bridge.pair(op.name, self, other)
    if operands is None:
        return NotImplemented
    a, b = operands
    if a._node.dtype.kind == "b" and "b" not in op.dtypes:
        # Two booleans compute as int32 where the op is arithmetic.
        a, b = bridge.cast(a, dt.int32), bridge.cast(b, dt.int32)
    return bridge.apply(op, (b, a) if reflected else (a, b))


def _reflected(self: Any, op: Op, other: Any) -> Any:
    return _binary(self, op, other, reflected=True)


def _named(self: Any, op: Op, other: Any) -> Any:
    """A binary op called by name: an operand it doesn't know is an error."""
    out = _binary(self, op, other)
    if out is NotImplemented:
        raise DTypeError(f"{op.name}: cannot use {type(other).__name__} as a tensor")
    return out


def _unary(op: Op, doc: str) -> Any:
    def method(self: Any) -> Any:
        return bridge.apply(op, (self,))

    method.__name__ = op.name
    method.__doc__ = doc
    return method


def _floating(op: Op, doc: str) -> Any:
    """A function of floats; integers and booleans become float32."""

    def method(self: Any) -> Any:
        return bridge.apply(op, (bridge.need_float(op.name, self),))

    method.__name__ = op.name
    method.__doc__ = doc
    return method


def _float_pair(self: Any, other: Any, op: str) -> Any:
    operands = bridge.pair(op, self, other)
    if operands is None:
        return None
    return bridge.need_float(op, operands[0]), bridge.need_float(op, operands[1])


class Arithmetic:
    """Operators and element-wise methods; broadcasting as numpy, promotion as torch."""

    __slots__ = ()

    # -- operators --------------------------------------------------------------------------------
    def __add__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.add, other)

    __radd__ = __add__

    def __sub__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.sub, other)

    def __rsub__(self: Any, other: Any) -> Tensor:
        return _reflected(self, ew.sub, other)

    def __mul__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.mul, other)

    __rmul__ = __mul__

    def __truediv__(self: Any, other: Any) -> Tensor:
        operands = _float_pair(self, other, "div")
        return NotImplemented if operands is None else bridge.apply(ew.div, operands)

    def __rtruediv__(self: Any, other: Any) -> Tensor:
        operands = _float_pair(self, other, "div")
        return NotImplemented if operands is None else bridge.apply(ew.div, operands[::-1])

    def __floordiv__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.floor_divide, other)

    def __rfloordiv__(self: Any, other: Any) -> Tensor:
        return _reflected(self, ew.floor_divide, other)

    def __mod__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.remainder, other)

    def __rmod__(self: Any, other: Any) -> Tensor:
        return _reflected(self, ew.remainder, other)

    def __pow__(self: Any, other: Any) -> Tensor:
        return _power(self, other)

    def __rpow__(self: Any, other: Any) -> Tensor:
        return _reflected(self, ew.pow_, other)

    def __neg__(self: Any) -> Tensor:
        return bridge.apply(ew.neg, (_numeric(self),))

    def __pos__(self: Any) -> Tensor:
        return self

    def __abs__(self: Any) -> Tensor:
        return bridge.apply(ew.abs_, (self,))

    def __invert__(self: Any) -> Tensor:
        return bridge.apply(ew.logical_not if self.dtype.kind == "b" else ew.bitwise_not, (self,))

    def __eq__(self: Any, other: Any) -> Any:
        return _binary(self, ew.eq, other)

    def __ne__(self: Any, other: Any) -> Any:
        return _binary(self, ew.ne, other)

    def __lt__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.lt, other)

    def __le__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.le, other)

    def __gt__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.gt, other)

    def __ge__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.ge, other)

    def __and__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.bitwise_and, other)

    __rand__ = __and__

    def __or__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.bitwise_or, other)

    __ror__ = __or__

    def __xor__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.bitwise_xor, other)

    __rxor__ = __xor__

    def __lshift__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.shift_left, other)

    def __rshift__(self: Any, other: Any) -> Tensor:
        return _binary(self, ew.shift_right, other)

    # -- named forms of the operators -------------------------------------------------------------
    def add(self: Any, other: Any, alpha: float = 1) -> Tensor:
        return _named(self, ew.add, other * alpha if alpha != 1 else other)

    def sub(self: Any, other: Any, alpha: float = 1) -> Tensor:
        return _named(self, ew.sub, other * alpha if alpha != 1 else other)

    subtract = sub

    def mul(self: Any, other: Any) -> Tensor:
        return _named(self, ew.mul, other)

    multiply = mul

    def div(self: Any, other: Any) -> Tensor:
        return self / other

    divide = true_divide = div

    def floor_divide(self: Any, other: Any) -> Tensor:
        return _named(self, ew.floor_divide, other)

    def remainder(self: Any, other: Any) -> Tensor:
        """The remainder with the divisor's sign (Python's %)."""
        return _named(self, ew.remainder, other)

    def fmod(self: Any, other: Any) -> Tensor:
        """The remainder with the dividend's sign (C's fmod)."""
        return _named(self, ew.fmod, other)

    def pow(self: Any, other: Any) -> Tensor:
        return _power(self, other)

    def maximum(self: Any, other: Any) -> Tensor:
        """Element-wise maximum; NaN propagates."""
        return _named(self, ew.maximum, other)

    def minimum(self: Any, other: Any) -> Tensor:
        """Element-wise minimum; NaN propagates."""
        return _named(self, ew.minimum, other)

    def atan2(self: Any, other: Any) -> Tensor:
        """The angle of (other, self)."""
        return bridge.apply(ew.atan2, _float_pair(self, other, "atan2"))

    arctan2 = atan2

    def eq(self: Any, other: Any) -> Tensor:
        return _named(self, ew.eq, other)

    def ne(self: Any, other: Any) -> Tensor:
        return _named(self, ew.ne, other)

    def lt(self: Any, other: Any) -> Tensor:
        return _named(self, ew.lt, other)

    def le(self: Any, other: Any) -> Tensor:
        return _named(self, ew.le, other)

    def gt(self: Any, other: Any) -> Tensor:
        return _named(self, ew.gt, other)

    def ge(self: Any, other: Any) -> Tensor:
        return _named(self, ew.ge, other)

    def logical_not(self: Any) -> Tensor:
        return bridge.apply(ew.logical_not, (_truth(self),))

    def logical_and(self: Any, other: Any) -> Tensor:
        return _named(_truth(self), ew.bitwise_and, _truth_of(self, other))

    def logical_or(self: Any, other: Any) -> Tensor:
        return _named(_truth(self), ew.bitwise_or, _truth_of(self, other))

    def logical_xor(self: Any, other: Any) -> Tensor:
        return _named(_truth(self), ew.bitwise_xor, _truth_of(self, other))

    def bitwise_and(self: Any, other: Any) -> Tensor:
        return _named(self, ew.bitwise_and, other)

    def bitwise_or(self: Any, other: Any) -> Tensor:
        return _named(self, ew.bitwise_or, other)

    def bitwise_xor(self: Any, other: Any) -> Tensor:
        return _named(self, ew.bitwise_xor, other)

    def bitwise_not(self: Any) -> Tensor:
        return ~self

    # -- functions of one tensor ------------------------------------------------------------------
    neg = negative = __neg__
    abs = absolute = __abs__
    sign = _unary(ew.sign, "-1, 0 or 1; NaN stays NaN.")
    relu = _unary(ew.relu, "max(x, 0); NaN stays NaN.")
    exp = _floating(ew.exp, "e to the x.")
    exp2 = _floating(ew.exp2, "2 to the x.")
    expm1 = _floating(ew.expm1, "exp(x) - 1 without cancellation.")
    log = _floating(ew.log, "Natural logarithm.")
    log2 = _floating(ew.log2, "Logarithm to base 2.")
    log10 = _floating(ew.log10, "Logarithm to base 10.")
    log1p = _floating(ew.log1p, "log(1 + x) without cancellation.")
    sqrt = _floating(ew.sqrt, "Square root.")
    rsqrt = _floating(ew.rsqrt, "1 / sqrt(x).")
    reciprocal = _floating(ew.reciprocal, "1 / x.")
    sin = _floating(ew.sin, "Sine.")
    cos = _floating(ew.cos, "Cosine.")
    tan = _floating(ew.tan, "Tangent.")
    asin = arcsin = _floating(ew.asin, "Inverse sine.")
    acos = arccos = _floating(ew.acos, "Inverse cosine.")
    atan = arctan = _floating(ew.atan, "Inverse tangent.")
    sinh = _floating(ew.sinh, "Hyperbolic sine.")
    cosh = _floating(ew.cosh, "Hyperbolic cosine.")
    tanh = _floating(ew.tanh, "Hyperbolic tangent.")
    asinh = arcsinh = _floating(ew.asinh, "Inverse hyperbolic sine.")
    acosh = arccosh = _floating(ew.acosh, "Inverse hyperbolic cosine.")
    atanh = arctanh = _floating(ew.atanh, "Inverse hyperbolic tangent.")
    sigmoid = _floating(ew.sigmoid, "1 / (1 + exp(-x)).")
    softplus = _floating(ew.softplus, "log(1 + exp(x)).")
    erf = _floating(ew.erf, "The error function.")
    erfinv = _floating(ew.erfinv, "Inverse error function.")

    def floor(self: Any) -> Tensor:
        return self if self.dtype.is_int else bridge.apply(ew.floor, (self,))

    def ceil(self: Any) -> Tensor:
        return self if self.dtype.is_int else bridge.apply(ew.ceil, (self,))

    def trunc(self: Any) -> Tensor:
        return self if self.dtype.is_int else bridge.apply(ew.trunc, (self,))

    isnan = _floating(ew.isnan, "True where NaN.")
    isinf = _floating(ew.isinf, "True where infinite.")
    isfinite = _floating(ew.isfinite, "True where neither NaN nor infinite.")

    def square(self: Any) -> Tensor:
        return self * self

    def clamp(self: Any, min: Any = None, max: Any = None) -> Tensor:
        """Limit to [min, max]; either may be None or a tensor. NaN stays NaN."""
        if min is None and max is None:
            raise DTypeError("clamp needs min, max or both")
        out: Any = self
        # Not maximum and minimum: at a bound the whole gradient is the tensor's, as in torch.
        if min is not None:
            out = (out < min).where(min, out)
        return out if max is None else (out > max).where(max, out)

    clip = clamp

    def where(self: Any, a: Any, b: Any) -> Tensor:
        """`a` where this condition is true, else `b` (also as wb.where(cond, a, b))."""
        return where(self, a, b)


def _numeric(t: Any) -> Any:
    """Booleans compute as int32."""
    return bridge.cast(t, dt.int32) if t._node.dtype.kind == "b" else t


def _truth(t: Any) -> Any:
    return bridge.cast(t, dt.bool_)


def _truth_of(t: Any, other: Any) -> Any:
    found = bridge.operand(t, other, "logical")
    return other if found is None else _truth(found)


def _power(base: Any, exponent: Any) -> Any:
    """x ** n: small whole exponents become products (exact, differentiable twice, cheap)."""
    base = _numeric(base)
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        if exponent == 2:
            return base * base
        if exponent == 1:
            return base
        if exponent == 3:
            return base * base * base
        if base.dtype.is_float:
            if exponent == -1:
                return base.reciprocal()
            if exponent == 0.5:
                return base.sqrt()
            if exponent == -0.5:
                return base.rsqrt()
            if exponent == 4:
                square = base * base
                return square * square
            if exponent == math.inf or exponent != exponent:
                return _named(base, ew.pow_, exponent)
    return _binary(base, ew.pow_, exponent)


def where(condition: Any, a: Any, b: Any) -> Any:
    """Elements of `a` where `condition` is true, else of `b`; all three broadcast.

    Raises DTypeError unless the condition is boolean.
    """
    if condition._node.dtype.kind != "b":
        raise DTypeError(
            f"where: the condition is {condition.dtype.name}, not bool_; compare it, e.g. x != 0"
        )
    cls = type(condition)
    a_tensor, b_tensor = hasattr(a, "_node"), hasattr(b, "_node")
    if a_tensor:
        operands = bridge.pair("where", a, b)
        assert operands is not None
        a, b = operands
    elif b_tensor:
        operands = bridge.pair("where", b, a)
        assert operands is not None
        b, a = operands
    else:
        both = dt.promote(_scalar_dtype(a), _scalar_dtype(b))
        backend = condition._node.backend
        a, b = bridge.constant(cls, a, both, backend), bridge.constant(cls, b, both, backend)
    return bridge.apply(ew.where, (condition, a, b))


def _scalar_dtype(value: Any) -> dt.DType:
    return (
        dt.bool_ if isinstance(value, bool) else dt.int32 if isinstance(value, int) else dt.float32
    )
