"""Indexed access: gather, scatter_add, index_select, index_add, and running sums along an axis.

Indices are int32 and already non-negative or negative within range; kernels clamp, so that nothing
is ever read or written out of bounds. Sums over equal indices run in the order of the source.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtype import DType
from ..core.errors import IndexRangeError, ShapeError
from ..core.shape import Shape
from .record import Array, Call, Op, Template, register


def _same(attrs: Any, a: DType, *rest: DType) -> DType:
    return a


def check_bounds(op: str, low: int, high: int, size: int) -> None:
    """Raise IndexRangeError unless low..high index a dimension of `size`."""
    if low < -size or high >= size:
        bad = low if low < -size else high
        raise IndexRangeError(
            f"{op}: index {bad} is out of range for a dimension of size {size} "
            f"({-size} to {size - 1})"
        )


def _checked(op: str, index: Array, size: int) -> Array:
    if index.size:
        check_bounds(op, int(index.min()), int(index.max()), size)
    return np.where(index < 0, index + size, index) if (index < 0).any() else index


def _gather_shape(attrs: int, x: Shape, index: Shape) -> Shape:
    if len(x) != len(index) or any(
        i != attrs and n > m for i, (n, m) in enumerate(zip(index, x, strict=True))
    ):
        raise ShapeError(
            f"gather: index {index} must have the rank of {x} and be no larger "
            f"except along dim {attrs}"
        )
    return index


def _crop(x: Array, like: Shape, axis: int) -> Array:
    return x[tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(like))]


def _gather_numpy(call: Call, x: Array, index: Array) -> Array:
    index = _checked("gather", index, x.shape[call.attrs])
    return np.take_along_axis(
        _crop(x, index.shape, call.attrs), index.astype(np.int64), axis=call.attrs
    )


def _scatter_shape(attrs: int, x: Shape, index: Shape, src: Shape) -> Shape:
    if index != src:
        raise ShapeError(f"scatter_add: index {index} and source {src} must have one shape")
    _gather_shape(attrs, x, index)
    return x


def _scatter_numpy(call: Call, x: Array, index: Array, src: Array) -> Array:
    index = _checked("scatter_add", index, x.shape[call.attrs])
    out = x.copy()
    grid = list(np.ogrid[tuple(slice(0, n) for n in index.shape)])
    grid[call.attrs] = index
    np.add.at(out, tuple(grid), src)
    return out


def _select_shape(attrs: int, x: Shape, index: Shape) -> Shape:
    return (*x[:attrs], index[0], *x[attrs + 1 :])


def _select_numpy(call: Call, x: Array, index: Array) -> Array:
    return np.take(x, _checked("index_select", index, x.shape[call.attrs]), axis=call.attrs)


def _add_shape(attrs: int, x: Shape, index: Shape, src: Shape) -> Shape:
    if src != _select_shape(attrs, x, index):
        raise ShapeError(
            f"index_add: source {src} must be {_select_shape(attrs, x, index)} "
            f"for {x}, index {index}, dim {attrs}"
        )
    return x


def _add_numpy(call: Call, x: Array, index: Array, src: Array) -> Array:
    index = _checked("index_add", index, x.shape[call.attrs])
    out = np.ascontiguousarray(x).copy()
    if index.size == 0 or src.size == 0:
        return out
    order = np.argsort(index, kind="stable")
    sorted_index = index[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_index[1:] != sorted_index[:-1])))
    sums = np.add.reduceat(np.take(src, order, axis=call.attrs), starts, axis=call.attrs)
    where = (slice(None),) * call.attrs + (sorted_index[starts],)
    out[where] += sums.astype(out.dtype, copy=False)
    return out


gather: Op = register(
    Op(
        "gather",
        "kernel",
        2,
        _gather_shape,
        _same,
        _gather_numpy,
        Template("gather"),
        lambda c, g: (g.zeros_of(c.shapes[0]).apply(scatter_add, (c.ins[1], g), c.attrs), None),
        ((1,), ()),
        "GatherElements",
    )
)
scatter_add: Op = register(
    Op(
        "scatter_add",
        "kernel",
        3,
        _scatter_shape,
        _same,
        _scatter_numpy,
        Template("scatter_add"),
        lambda c, g: (g, None, g.apply(gather, (c.ins[1],), c.attrs) if c.needs[2] else None),
        ((), (), (1,)),
        "ScatterElements",
        "iuf",
    )
)
index_select: Op = register(
    Op(
        "index_select",
        "kernel",
        2,
        _select_shape,
        _same,
        _select_numpy,
        Template("index_select"),
        lambda c, g: (g.zeros_of(c.shapes[0]).apply(index_add, (c.ins[1], g), c.attrs), None),
        ((1,), ()),
        "Gather",
    )
)
index_add: Op = register(
    Op(
        "index_add",
        "kernel",
        3,
        _add_shape,
        _same,
        _add_numpy,
        Template("index_add"),
        lambda c, g: (g, None, g.apply(index_select, (c.ins[1],), c.attrs) if c.needs[2] else None),
        ((), (), (1,)),
        dtypes="iuf",
    )
)

cumsum: Op = register(
    Op(
        "cumsum",
        "kernel",
        1,
        lambda attrs, a: a,
        _same,
        lambda call, x: np.cumsum(
            x, axis=call.attrs, dtype=np.float32 if x.dtype == np.float16 else x.dtype
        ),
        Template("cumsum"),
        lambda c, g: (g.flip(c.attrs).apply(cumsum, (), c.attrs).flip(c.attrs),),
        ((),),
        "CumSum",
        "iuf",
    )
)
