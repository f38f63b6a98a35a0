"""Element-wise primitives: unary, binary, comparison, logical, bitwise, where, cast.

WGSL expressions see operands as {0}, {1}, {2}; a dict picks the text by the kind of the first
operand ("f" f32, "i" i32, "u" u32, "b" bool). Functions named wb_* come from the shader library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtype import DType, promote
from ..core.shape import Shape, broadcast
from . import numerics as nm
from .record import NONDIFF, OUT, Array, Call, Op, Unsupported, _bool, binary, register, unary

# -- unary ----------------------------------------------------------------------------------------
neg = unary(
    "neg",
    np.negative,
    {"f": "(-{0})", "i": "(-{0})", "u": "(0u - {0})"},
    lambda c, g: (-g,),
    dtypes="iuf",
    onnx="Neg",
)
abs_ = unary(
    "abs",
    np.abs,
    {"f": "abs({0})", "i": "abs({0})", "u": "{0}"},
    lambda c, g: (g * c.ins[0].sign(),),
    saves=(0,),
    dtypes="iuf",
    onnx="Abs",
)
sign = unary(
    "sign",
    nm.sign,
    {"f": "wb_sign({0})", "i": "sign({0})", "u": "min({0}, 1u)"},
    NONDIFF,
    dtypes="iuf",
    onnx="Sign",
)
exp = unary("exp", np.exp, "wb_exp({0})", lambda c, g: (g * c.out,), saves=(OUT,), onnx="Exp")
exp2 = unary(
    "exp2", np.exp2, "wb_exp2({0})", lambda c, g: (g * c.out * float(np.log(2)),), saves=(OUT,)
)
expm1 = unary("expm1", np.expm1, "wb_expm1({0})", lambda c, g: (g * (c.out + 1.0),), saves=(OUT,))
log = unary("log", np.log, "wb_log({0})", lambda c, g: (g / c.ins[0],), saves=(0,), onnx="Log")
log2 = unary(
    "log2", np.log2, "wb_log2({0})", lambda c, g: (g / (c.ins[0] * float(np.log(2))),), saves=(0,)
)
log10 = unary(
    "log10",
    np.log10,
    "wb_log10({0})",
    lambda c, g: (g / (c.ins[0] * float(np.log(10))),),
    saves=(0,),
)
log1p = unary("log1p", np.log1p, "wb_log1p({0})", lambda c, g: (g / (c.ins[0] + 1.0),), saves=(0,))
sqrt = unary(
    "sqrt", np.sqrt, "wb_sqrt({0})", lambda c, g: (g * 0.5 / c.out,), saves=(OUT,), onnx="Sqrt"
)
rsqrt = unary(
    "rsqrt",
    nm.rsqrt,
    "wb_rsqrt({0})",
    lambda c, g: (g * (c.out * c.out * c.out) * -0.5,),
    saves=(OUT,),
)
reciprocal = unary(
    "reciprocal",
    nm.reciprocal,
    "(1.0 / {0})",
    lambda c, g: (-(g * c.out * c.out),),
    saves=(OUT,),
    onnx="Reciprocal",
)
sin = unary(
    "sin", np.sin, "wb_sin({0})", lambda c, g: (g * c.ins[0].cos(),), saves=(0,), onnx="Sin"
)
cos = unary(
    "cos", np.cos, "wb_cos({0})", lambda c, g: (-(g * c.ins[0].sin()),), saves=(0,), onnx="Cos"
)
tan = unary(
    "tan",
    np.tan,
    "wb_tan({0})",
    lambda c, g: (g * (c.out * c.out + 1.0),),
    saves=(OUT,),
    onnx="Tan",
)
asin = unary(
    "asin",
    np.arcsin,
    "wb_asin({0})",
    lambda c, g: (g * (1.0 - c.ins[0] * c.ins[0]).rsqrt(),),
    saves=(0,),
    onnx="Asin",
)
acos = unary(
    "acos",
    np.arccos,
    "wb_acos({0})",
    lambda c, g: (-(g * (1.0 - c.ins[0] * c.ins[0]).rsqrt()),),
    saves=(0,),
    onnx="Acos",
)
atan = unary(
    "atan",
    np.arctan,
    "wb_atan({0})",
    lambda c, g: (g / (c.ins[0] * c.ins[0] + 1.0),),
    saves=(0,),
    onnx="Atan",
)
sinh = unary(
    "sinh", np.sinh, "wb_sinh({0})", lambda c, g: (g * c.ins[0].cosh(),), saves=(0,), onnx="Sinh"
)
cosh = unary(
    "cosh", np.cosh, "wb_cosh({0})", lambda c, g: (g * c.ins[0].sinh(),), saves=(0,), onnx="Cosh"
)
tanh = unary(
    "tanh",
    np.tanh,
    "wb_tanh({0})",
    lambda c, g: (g * (1.0 - c.out * c.out),),
    saves=(OUT,),
    onnx="Tanh",
)
asinh = unary(
    "asinh",
    np.arcsinh,
    "wb_asinh({0})",
    lambda c, g: (g * (c.ins[0] * c.ins[0] + 1.0).rsqrt(),),
    saves=(0,),
    onnx="Asinh",
)
acosh = unary(
    "acosh",
    np.arccosh,
    "wb_acosh({0})",
    lambda c, g: (g * (c.ins[0] * c.ins[0] - 1.0).rsqrt(),),
    saves=(0,),
    onnx="Acosh",
)
atanh = unary(
    "atanh",
    np.arctanh,
    "wb_atanh({0})",
    lambda c, g: (g / (1.0 - c.ins[0] * c.ins[0]),),
    saves=(0,),
    onnx="Atanh",
)
sigmoid = unary(
    "sigmoid",
    nm.sigmoid,
    "wb_sigmoid({0})",
    lambda c, g: (g * c.out * (1.0 - c.out),),
    saves=(OUT,),
    onnx="Sigmoid",
)
softplus = unary(
    "softplus",
    nm.softplus,
    "wb_softplus({0})",
    lambda c, g: (g * c.ins[0].sigmoid(),),
    saves=(0,),
    onnx="Softplus",
)
erf = unary(
    "erf",
    nm.erf,
    "wb_erf({0})",
    lambda c, g: (g * (-(c.ins[0] * c.ins[0])).exp() * float(2 / np.sqrt(np.pi)),),
    saves=(0,),
    onnx="Erf",
)
erfc = unary(
    "erfc",
    nm.erfc,
    "wb_erfc({0})",
    lambda c, g: (g * (-(c.ins[0] * c.ins[0])).exp() * float(-2 / np.sqrt(np.pi)),),
    saves=(0,),
)
erfinv = unary(
    "erfinv",
    nm.erfinv,
    "wb_erfinv({0})",
    lambda c, g: (g * (c.out * c.out).exp() * float(np.sqrt(np.pi) / 2),),
    saves=(OUT,),
)
relu = unary(
    "relu",
    nm.relu,
    {"f": "wb_max({0}, 0.0)", "i": "max({0}, 0)", "u": "{0}"},
    lambda c, g: (g * (c.out > 0),),
    saves=(OUT,),
    dtypes="iuf",
    onnx="Relu",
)
floor = unary("floor", np.floor, "wb_floor({0})", NONDIFF, onnx="Floor")
ceil = unary("ceil", np.ceil, "(-wb_floor(-{0}))", NONDIFF, onnx="Ceil")
trunc = unary("trunc", np.trunc, "wb_trunc({0})", NONDIFF)
round_ = unary("round", np.rint, "wb_round({0})", NONDIFF, onnx="Round")
isnan = unary("isnan", np.isnan, "wb_isnan({0})", NONDIFF, result=_bool, onnx="IsNaN")
isinf = unary("isinf", np.isinf, "wb_isinf({0})", NONDIFF, result=_bool, onnx="IsInf")
isfinite = unary("isfinite", np.isfinite, "wb_isfinite({0})", NONDIFF, result=_bool)
logical_not = unary("logical_not", np.logical_not, "(!{0})", NONDIFF, dtypes="b", onnx="Not")
bitwise_not = unary("bitwise_not", np.invert, "(~{0})", NONDIFF, dtypes="iu", onnx="BitwiseNot")

# -- binary ---------------------------------------------------------------------------------------
add = binary("add", np.add, "({0} + {1})", lambda c, g: (g, g), onnx="Add")
sub = binary(
    "sub", np.subtract, "({0} - {1})", lambda c, g: (g, -g if c.needs[1] else None), onnx="Sub"
)
mul = binary(
    "mul",
    np.multiply,
    "({0} * {1})",
    lambda c, g: (g * c.ins[1] if c.needs[0] else None, g * c.ins[0] if c.needs[1] else None),
    saves=((1,), (0,)),
    onnx="Mul",
)


def _div_grad(c: Any, g: Any) -> tuple[Any, Any]:
    ga = g / c.ins[1]
    return ga if c.needs[0] else None, -(ga * c.out) if c.needs[1] else None


div = binary(
    "div", np.divide, "wb_div({0}, {1})", _div_grad, saves=((1,), (1, OUT)), dtypes="f", onnx="Div"
)


def _pow_grad(c: Any, g: Any) -> tuple[Any, Any]:
    a, b = c.ins
    ga = gb = None
    if c.needs[0]:
        # d(a^0) is 0 even at a == 0, where b * a^(b-1) would be 0 * inf.
        ga = (b == 0).where(0.0, g * b * a ** (b - 1.0))
    if c.needs[1]:
        # The limit of a^b log(a) at a == 0, b > 0 is 0.
        gb = ((a == 0) & (b >= 0)).where(0.0, g * c.out * a.log())
    return ga, gb


pow_ = binary(
    "pow",
    nm.power,
    {"f": "wb_pow({0}, {1})", "i": "wb_ipow_i({0}, {1})", "u": "wb_ipow_u({0}, {1})"},
    _pow_grad,
    saves=((0, 1), (0, 1, OUT)),
    onnx="Pow",
)


def _extreme_grad(c: Any, g: Any) -> tuple[Any, Any]:
    # Ties share the gradient, as torch does.
    a, b = c.ins
    tie = (a == b) * (g * 0.5)
    first = (a == c.out) & (a != b)
    second = (b == c.out) & (a != b)
    return (first * g + tie if c.needs[0] else None, second * g + tie if c.needs[1] else None)


maximum = binary(
    "maximum",
    np.maximum,
    {"f": "wb_max({0}, {1})", "i": "max({0}, {1})", "u": "max({0}, {1})"},
    _extreme_grad,
    saves=((0, 1, OUT), (0, 1, OUT)),
    onnx="Max",
)
minimum = binary(
    "minimum",
    np.minimum,
    {"f": "wb_min({0}, {1})", "i": "min({0}, {1})", "u": "min({0}, {1})"},
    _extreme_grad,
    saves=((0, 1, OUT), (0, 1, OUT)),
    onnx="Min",
)


def _atan2_grad(c: Any, g: Any) -> tuple[Any, Any]:
    y, x = c.ins
    r = g / (x * x + y * y)
    return (r * x if c.needs[0] else None, -(r * y) if c.needs[1] else None)


atan2 = binary(
    "atan2", np.arctan2, "wb_atan2({0}, {1})", _atan2_grad, saves=((0, 1), (0, 1)), dtypes="f"
)
hypot: Op = binary(
    "hypot",
    np.hypot,
    "wb_hypot({0}, {1})",
    lambda c, g: (
        g * (c.ins[0] / c.out) if c.needs[0] else None,
        g * (c.ins[1] / c.out) if c.needs[1] else None,
    ),
    saves=((0, OUT), (1, OUT)),
    dtypes="f",
)
fmod: Op = binary(
    "fmod",
    nm.fmod,
    {"f": "wb_fmod({0}, {1})", "i": "wb_irem_i({0}, {1})", "u": "wb_irem_u({0}, {1})"},
    lambda c, g: (g, -(g * (c.ins[0] / c.ins[1]).trunc()) if c.needs[1] else None),
    saves=((), (0, 1)),
)
remainder = binary(
    "remainder",
    nm.remainder,
    {"f": "wb_remainder({0}, {1})", "i": "wb_imod_floor_i({0}, {1})", "u": "wb_irem_u({0}, {1})"},
    lambda c, g: (g, -(g * (c.ins[0] / c.ins[1]).floor()) if c.needs[1] else None),
    saves=((), (0, 1)),
    onnx="Mod",
)
floor_divide = binary(
    "floor_divide",
    nm.floor_divide,
    {
        "f": "wb_floor(wb_div({0}, {1}))",
        "i": "wb_idiv_floor_i({0}, {1})",
        "u": "wb_idiv_floor_u({0}, {1})",
    },
    NONDIFF,
)


def _compare(name: str, fn: Any, symbol: str, onnx: str) -> Op:
    plain = f"({{0}} {symbol} {{1}})"
    text = {"f": f"wb_{name}({{0}}, {{1}})", "i": plain, "u": plain}
    if name in ("eq", "ne"):
        text["b"] = plain
    return binary(
        name, fn, text, NONDIFF, dtypes="biuf" if "b" in text else "iuf", result=_bool, onnx=onnx
    )


eq = _compare("eq", np.equal, "==", "Equal")
ne = _compare("ne", np.not_equal, "!=", "NotEqual")
lt = _compare("lt", np.less, "<", "Less")
le = _compare("le", np.less_equal, "<=", "LessOrEqual")
gt = _compare("gt", np.greater, ">", "Greater")
ge = _compare("ge", np.greater_equal, ">=", "GreaterOrEqual")

bitwise_and = binary(
    "bitwise_and", np.bitwise_and, "({0} & {1})", NONDIFF, dtypes="biu", onnx="BitwiseAnd"
)
bitwise_or = binary(
    "bitwise_or", np.bitwise_or, "({0} | {1})", NONDIFF, dtypes="biu", onnx="BitwiseOr"
)
bitwise_xor = binary(
    "bitwise_xor",
    np.bitwise_xor,
    {"b": "({0} != {1})", "i": "({0} ^ {1})", "u": "({0} ^ {1})"},
    NONDIFF,
    dtypes="biu",
    onnx="BitwiseXor",
)
# Shift counts outside 0..31 have no meaning in WGSL or C; both rules take the count modulo 32.
shift_left = binary(
    "shift_left",
    lambda a, b, out: np.left_shift(a, np.bitwise_and(b, 31).astype(b.dtype), out=out),
    {"i": "({0} << (u32({1}) & 31u))", "u": "({0} << ({1} & 31u))"},
    NONDIFF,
    dtypes="iu",
)
shift_right = binary(
    "shift_right",
    lambda a, b, out: np.right_shift(a, np.bitwise_and(b, 31).astype(b.dtype), out=out),
    {"i": "({0} >> (u32({1}) & 31u))", "u": "({0} >> ({1} & 31u))"},
    NONDIFF,
    dtypes="iu",
)

# -- where and cast -------------------------------------------------------------------------------


def _where_shape(attrs: Any, c: Shape, a: Shape, b: Shape) -> Shape:
    return c if c == a == b else broadcast("where", c, a, b)


def _where_numpy(call: Call, out: Array, c: Array, a: Array, b: Array) -> None:
    if a.shape == out.shape and a is not out:
        np.copyto(out, a)
        np.copyto(out, b, where=np.logical_not(c))
    else:
        np.copyto(out, b)
        np.copyto(out, a, where=c)


where = register(
    Op(
        "where",
        "elementwise",
        3,
        _where_shape,
        lambda attrs, c, a, b: a,
        _where_numpy,
        "select({2}, {1}, {0})",
        lambda c, g: (
            None,
            c.ins[0].where(g, 0.0) if c.needs[1] else None,
            c.ins[0].where(0.0, g) if c.needs[2] else None,
        ),
        ((), (0,), (0,)),
        "Where",
        "b",
    )
)


def _cast_numpy(call: Call, out: Array, x: Array) -> None:
    if x.dtype.kind == "f" and out.dtype.kind in "iu":
        out[...] = nm.saturating_cast(x, out.dtype)
    elif out.dtype.kind == "b":
        np.not_equal(x, 0, out=out)
    else:
        np.copyto(out, x, casting="unsafe")


def _cast_grad(c: Any, g: Any) -> tuple[Any]:
    return (g.to(c.dtypes[0]) if c.attrs.is_float else None,)


cast = register(
    Op(
        "cast",
        "elementwise",
        1,
        lambda attrs, a: a,
        lambda attrs, a: attrs,
        _cast_numpy,
        "cast",
        _cast_grad,
        ((),),
        "Cast",
    )
)
#: An explicit copy into dense memory (a view that is read as memory becomes one).
copy = register(
    Op(
        "copy",
        "elementwise",
        1,
        lambda attrs, a: a,
        lambda attrs, a: a,
        lambda call, out, x: np.copyto(out, x),
        "{0}",
        lambda c, g: (g,),
        ((),),
        "Identity",
    )
)

__all__ = [n for n, v in list(globals().items()) if isinstance(v, Op)] + [
    "DType",
    "promote",
    "Unsupported",
]
