"""Indexed access: gather, index_select and the scatters along an axis.

Indices are int32 and already non-negative or negative within range; kernels clamp, so that nothing
is ever read or written out of bounds. Sums over equal indices run in the order of the source.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtype import DType, int32
from ..core.errors import IndexRangeError, ShapeError
from ..core.shape import Shape
from .record import OUT, Array, Call, Op, Template, register


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
        i != attrs and n != m for i, (n, m) in enumerate(zip(index, x, strict=True))
    ):
        raise ShapeError(
            f"gather: index {index} must have the rank of {x} and its sizes except along "
            f"dim {attrs}"
        )
    return index


def _gather_numpy(call: Call, x: Array, index: Array) -> Array:
    index = _checked("gather", index, x.shape[call.attrs])
    return np.take_along_axis(x, index.astype(np.int64), axis=call.attrs)


def _scatter_shape(attrs: int, x: Shape, index: Shape, src: Shape) -> Shape:
    if index != src:
        raise ShapeError(f"scatter: index {index} and source {src} must have one shape")
    _gather_shape(attrs, x, index)
    return x


def _scatter_numpy(into: Any) -> Any:
    """The numpy rule of a scatter; `into(out, places, source)` writes."""

    def rule(call: Call, x: Array, index: Array, src: Array) -> Array:
        index = _checked("scatter", index, x.shape[call.attrs])
        out = x.copy()
        grid: list[Any] = list(np.ogrid[tuple(slice(0, n) for n in index.shape)])
        grid[call.attrs] = index
        into(out, tuple(grid), src)
        return out

    return rule


def _select_shape(attrs: int, x: Shape, index: Shape) -> Shape:
    return (*x[:attrs], index[0], *x[attrs + 1 :])


def _select_numpy(call: Call, x: Array, index: Array) -> Array:
    return np.take(x, _checked("index_select", index, x.shape[call.attrs]), axis=call.attrs)


def _copy_numpy(call: Call, x: Array, index: Array, src: Array) -> Array:
    out = np.ascontiguousarray(x).copy()
    out[(slice(None),) * call.attrs + (_checked("index_copy", index, x.shape[call.attrs]),)] = src
    return out


def _copy_grad(c: Any, g: Any) -> tuple[Any, ...]:
    index, gx, gsrc = c.ins[1], None, None
    n = c.shape[c.attrs]
    along = tuple(-1 if i == c.attrs else 1 for i in range(len(c.shape)))
    if c.needs[0]:
        ones = index.ones_of(index.shape, int32)
        hits = g.zeros_of((n,), int32).apply(index_add, (index, ones), 0)
        gx = (hits > 0).reshape(along).where(0.0, g)
    if c.needs[2]:
        # Of several slices for one place only the last has a part in the result.
        order = index.ones_of(index.shape, int32).cumsum(0)
        last = g.zeros_of((n,), int32).apply(index_copy, (index, order), 0)
        winner = last.apply(index_select, (index,), 0) == order
        gsrc = winner.reshape(along).where(g.apply(index_select, (index,), c.attrs), 0.0)
    return gx, None, gsrc


def _add_shape(attrs: int, x: Shape, index: Shape, src: Shape) -> Shape:
    if src != _select_shape(attrs, x, index):
        raise ShapeError(
            f"index: source {src} must be {_select_shape(attrs, x, index)} "
            f"for {x}, index {index}, dim {attrs}"
        )
    return x


def _add_numpy(call: Call, x: Array, index: Array, src: Array) -> Array:
    index = _checked("index_add", index, x.shape[call.attrs])
    out = call.room()
    np.copyto(out, x)
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


def _scatter(name: str, into: Any, grad: Any, saves: Any, dtypes: str = "biuf") -> Op:
    """x, index, source: x with source[i, j, k] put at [index[i, j, k], j, k] for axis 0."""
    return register(
        Op(
            name,
            "kernel",
            3,
            _scatter_shape,
            _same,
            _scatter_numpy(into),
            Template(name),
            grad,
            saves,
            "ScatterElements",
            dtypes,
        )
    )


scatter_add: Op = _scatter(
    "scatter_add",
    np.add.at,
    lambda c, g: (g, None, g.apply(gather, (c.ins[1],), c.attrs) if c.needs[2] else None),
    ((), (), (1,)),
    "iuf",
)


def _scatter_grad(c: Any, g: Any) -> tuple[Any, ...]:
    index, gx, gsrc = c.ins[1], None, None
    if c.needs[0]:
        hits = g.zeros_of(c.shape, int32)
        hits = hits.apply(scatter_add, (index, index.ones_of(index.shape, int32)), c.attrs)
        gx = (hits > 0).where(0.0, g)
    if c.needs[2]:
        # Of several sources for one place only the last has a part in the result.
        one = tuple(n if i == c.attrs else 1 for i, n in enumerate(index.shape))
        order = index.ones_of((index.shape[c.attrs],), int32).cumsum(0).reshape(one)
        order = order.expand(index.shape)
        last = g.zeros_of(c.shape, int32).apply(scatter, (index, order), c.attrs)
        winner = last.apply(gather, (index,), c.attrs) == order
        gsrc = winner.where(g.apply(gather, (index,), c.attrs), 0.0)
    return gx, None, gsrc


def _put(out: Array, places: tuple[Any, ...], src: Array) -> None:
    out[places] = src  # of equal places numpy keeps the last


scatter: Op = _scatter("scatter", _put, _scatter_grad, ((1,), (), (1,)))


def _prod_grad(c: Any, g: Any) -> tuple[Any, ...]:
    # The product of the others: the result divided by the factor, or, where the factor is the only
    # zero, the product of the factors that are not.
    x, index, src = c.ins
    zeros = (x == 0).to(int32).apply(scatter_add, (index, (src == 0).to(int32)), c.attrs)
    rest = (x == 0).where(1.0, x)
    rest = rest.apply(scatter_prod, (index, (src == 0).where(1.0, src)), c.attrs)

    def others(factor: Any, at: Any) -> Any:
        alone = (at(zeros) == 1).where(at(rest), 0.0)
        whole = (at(zeros) == 0).where(at(rest), 0.0) / (factor == 0).where(1.0, factor)
        return at(g) * (factor == 0).where(alone, whole)

    gx = others(x, lambda t: t) if c.needs[0] else None
    gsrc = others(src, lambda t: t.apply(gather, (index,), c.attrs)) if c.needs[2] else None
    return gx, None, gsrc


def _extreme_grad(c: Any, g: Any) -> tuple[Any, ...]:
    # Ties share the gradient evenly, what was there before among them (torch).
    x, index, src = c.ins
    own = (x == c.out).to(c.dtypes[0])
    theirs = (src == c.out.apply(gather, (index,), c.attrs)).to(c.dtypes[0])
    share = g / own.apply(scatter_add, (index, theirs), c.attrs)
    gsrc = theirs * share.apply(gather, (index,), c.attrs) if c.needs[2] else None
    return own * share if c.needs[0] else None, None, gsrc


_ALL = (0, 1, 2)
scatter_prod: Op = _scatter("scatter_prod", np.multiply.at, _prod_grad, (_ALL, (), _ALL), "iuf")
scatter_amax: Op = _scatter(
    "scatter_amax", np.maximum.at, _extreme_grad, ((*_ALL, OUT), (), (*_ALL, OUT)), "iuf"
)
scatter_amin: Op = _scatter(
    "scatter_amin", np.minimum.at, _extreme_grad, ((*_ALL, OUT), (), (*_ALL, OUT)), "iuf"
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
#: x with the slices of the source put at the indexed places; of equal places the last one stays.
index_copy: Op = register(
    Op(
        "index_copy",
        "kernel",
        3,
        _add_shape,
        _same,
        _copy_numpy,
        Template("index_copy"),
        _copy_grad,
        ((1,), (), (1,)),
    )
)
