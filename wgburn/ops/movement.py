"""Movement: views (reshape, permute, expand, slice, flip), pad and cat.

Views move nothing: numpy rules return views, and on a device they become index maps of their
readers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..core.dtype import DType
from ..core.shape import Shape, broadcast
from .record import Array, Call, Op, register, unsupported


def _same(attrs: Any, a: DType, *rest: DType) -> DType:
    return a


def _view(name: str, shape: Any, numpy: Any, grad: Any, onnx: Any, dyn: str = "") -> Op:
    return register(Op(name, "view", 1, shape, _same, numpy, "view", grad, ((),), onnx, dyn=dyn))


reshape = _view(
    "reshape",
    lambda attrs, a: attrs,
    lambda call, x: x.reshape(call.shape),
    lambda c, g: (g.reshape(c.shapes[0]),),
    "Reshape",
)
permute = _view(
    "permute",
    lambda attrs, a: tuple(a[i] for i in attrs),
    lambda call, x: x.transpose(call.attrs),
    lambda c, g: (g.permute(tuple(sorted(range(len(c.attrs)), key=c.attrs.__getitem__))),),
    "Transpose",
)


def _expand_shape(attrs: Shape, a: Shape) -> Shape:
    broadcast("expand", attrs, a)
    return attrs


def _expand_grad(c: Any, g: Any) -> tuple[Any]:
    return (g.sum_to(c.shapes[0]),)


expand = _view(
    "expand", _expand_shape, lambda call, x: np.broadcast_to(x, call.shape), _expand_grad, "Expand"
)


class SliceAttrs(NamedTuple):
    """Sizes of the result and positive steps; the starts are slots."""

    sizes: Shape
    steps: Shape


def _slice_numpy(call: Call, x: Array) -> Array:
    index = tuple(
        slice(s, s + (n - 1) * st + 1 if n else s, st)
        for s, n, st in zip(call.dyn, call.attrs.sizes, call.attrs.steps, strict=True)
    )
    return x[index]


slice_ = _view(
    "slice",
    lambda attrs, a: attrs.sizes,
    _slice_numpy,
    lambda c, g: (g.pad_strided(c.shapes[0], c.attrs.steps, c.dyn),),
    "Slice",
    dyn="i*",
)
flip = _view(
    "flip",
    lambda attrs, a: a,
    lambda call, x: np.flip(x, call.attrs),
    lambda c, g: (g.flip(c.attrs),),
    unsupported("written as Slice with negative steps by the exporter"),
)


class PadAttrs(NamedTuple):
    """The result's shape and the distance between input elements in it; slots: where input element
    0 goes in each dimension (may be negative: elements outside fall away), then the fill value."""

    sizes: Shape
    steps: Shape


def _pad_numpy(call: Call, x: Array) -> Array:
    *lows, value = call.dyn
    out = call.room()
    out[...] = value
    to, frm = [], []
    for low, step, n_in, n_out in zip(lows, call.attrs.steps, x.shape, call.shape, strict=True):
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(n_in - 1, (n_out - 1 - low) // step)
        if last < first:
            return out
        frm.append(slice(first, last + 1))
        to.append(slice(low + first * step, low + last * step + 1, step))
    out[tuple(to)] = x[tuple(frm)]
    return out


def _pad_grad(c: Any, g: Any) -> tuple[Any]:
    return (g.unpad(c.shapes[0], c.attrs.steps, c.dyn[:-1]),)


pad = register(
    Op(
        "pad",
        "pad",
        1,
        lambda attrs, a: attrs.sizes,
        _same,
        _pad_numpy,
        "pad",
        _pad_grad,
        ((),),
        "Pad",
        dyn="i*d",
    )
)


def _cat_shape(attrs: int, *shapes: Shape) -> Shape:
    first = shapes[0]
    return (*first[:attrs], sum(s[attrs] for s in shapes), *first[attrs + 1 :])


def _cat_grad(c: Any, g: Any) -> tuple[Any, ...]:
    out, start = [], 0
    for needed, shape in zip(c.needs, c.shapes, strict=True):
        n = shape[c.attrs]
        out.append(g.slice_axis(c.attrs, start, n) if needed else None)
        start += n
    return tuple(out)


cat = register(
    Op(
        "cat",
        "cat",
        -1,
        _cat_shape,
        _same,
        lambda call, *xs: np.concatenate(xs, axis=call.attrs),
        "cat",
        _cat_grad,
        (),
        "Concat",
    )
)

__all__ = ["PadAttrs", "SliceAttrs"]
