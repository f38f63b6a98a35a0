"""Running sums, products, extrema and linear recurrences along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtype import DType
from ..core.errors import ShapeError
from ..core.shape import Shape
from .record import NONDIFF, OUT, Array, Call, Op, Template, _index, register, unsupported


def _same(attrs: Any, a: DType) -> DType:
    return a


def _scan(name: str, np_rule: Any, grad: Any, saves: tuple[int, ...], onnx: Any) -> Op:
    def rule(call: Call, x: Array) -> Array:
        wide = np.float32 if x.dtype == np.float16 else x.dtype
        return np.asarray(np_rule(x, axis=call.attrs, dtype=wide))

    template = Template(name)
    return register(
        Op(
            name,
            "kernel",
            1,
            lambda attrs, a: a,
            _same,
            rule,
            template,
            grad,
            (saves,),
            onnx,
            "iuf",
        )
    )


cumsum: Op = _scan(
    "cumsum",
    np.cumsum,
    lambda c, g: (g.flip(c.attrs).apply(cumsum, (), c.attrs).flip(c.attrs),),
    (),
    "CumSum",
)


def _shifted(t: Any, axis: int, by: int, fill: float) -> Any:
    """t one step later (by=1) or earlier (by=-1) along the axis, `fill` where it has left."""
    n = t.shape[axis]
    widths = tuple(
        ((by, 0) if by > 0 else (0, -by)) if i == axis else (0, 0) for i in range(t.ndim)
    )
    return t.pad_constant(widths, fill).slice_axis(axis, 0 if by > 0 else -by, n)


def _linear_numpy(call: Call, a: Array, b: Array) -> Array:
    a, b = np.moveaxis(a, call.attrs, 0), np.moveaxis(b, call.attrs, 0)
    if b.dtype == np.float16:
        a, b = a.astype(np.float32), b.astype(np.float32)
    out = np.empty(b.shape, b.dtype)
    y: Any = 0
    for i in range(b.shape[0]):
        y = out[i] = a[i] * y + b[i]
    return np.moveaxis(out, 0, call.attrs)


def _linear_grad(c: Any, g: Any) -> tuple[Any, Any]:
    # The same recurrence from the other end: s[i] = g[i] + a[i + 1] * s[i + 1].
    axis = c.attrs
    ahead = _shifted(c.ins[0], axis, -1, 0.0)
    s = ahead.flip(axis).apply(linear_scan, (g.flip(axis),), axis).flip(axis)
    return (s * _shifted(c.out, axis, 1, 0.0) if c.needs[0] else None, s if c.needs[1] else None)


def _pair_shape(attrs: int, a: Shape, b: Shape) -> Shape:
    if a != b:
        raise ShapeError(f"linear_scan: factors {a} and terms {b} must have one shape")
    return a


#: y[i] = a[i] * y[i - 1] + b[i] along an axis, from y[-1] = 0.
linear_scan: Op = register(
    Op(
        "linear_scan",
        "kernel",
        2,
        _pair_shape,
        lambda attrs, a, b: a,
        _linear_numpy,
        Template("linear_scan"),
        _linear_grad,
        ((0, OUT), (0,)),
        unsupported("ONNX has no linear recurrence"),
        "f",
    )
)


def _cumprod_grad(c: Any, g: Any) -> tuple[Any]:
    # out[j] is x[k] times the factors around it, for every j >= k. Those behind k make a sum
    # s[k] = g[k] + x[k + 1] * s[k + 1]. Nothing is divided, so zeros are no special case.
    x, axis = c.ins[0], c.attrs
    ahead = _shifted(x, axis, -1, 0.0)
    s = ahead.flip(axis).apply(linear_scan, (g.flip(axis),), axis).flip(axis)
    return (_shifted(c.out, axis, 1, 1.0) * s,)


cumprod: Op = _scan(
    "cumprod", np.cumprod, _cumprod_grad, (0, OUT), unsupported("ONNX has no running product")
)


def _position(name: str, extreme: Any) -> Op:
    """Where the extremum so far was last met (int32); of NaN, the last."""

    def rule(call: Call, x: Array) -> Array:
        here = (x == extreme.accumulate(x, axis=call.attrs)) | (x != x)
        shape = tuple(n if i == call.attrs else 1 for i, n in enumerate(x.shape))
        place = np.arange(x.shape[call.attrs], dtype=np.int32).reshape(shape)
        return np.asarray(np.maximum.accumulate(np.where(here, place, -1), axis=call.attrs))

    onnx = unsupported("ONNX has no running extremum")
    template = Template(name)
    return register(
        Op(name, "kernel", 1, lambda attrs, a: a, _index, rule, template, NONDIFF, (), onnx, "iuf")
    )


cummax_index: Op = _position("cummax_index", np.maximum)
cummin_index: Op = _position("cummin_index", np.minimum)
