"""Updating parts of tensors: `x[i] = v`, scatters with reductions, masks; and finding places.

Every update is a function first (`index_put`, `scatter`, ...): it gives a new tensor and gradients
flow to both inputs. `x[i] = v` and the names ending in `_` move the handle to that new value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.errors import DTypeError, IndexRangeError, ShapeError, ValueRangeError
from ..core.shape import axis, broadcast
from ..ops import index as ix
from ..ops import movement as mv
from . import bridge
from .indexing import _cropped, _expanded, _index_tensor, _mask_indices, _wrapped

if TYPE_CHECKING:
    from .tensor import Tensor

_SCATTERS = {
    "sum": ix.scatter_add,
    "prod": ix.scatter_prod,
    "amax": ix.scatter_amax,
    "amin": ix.scatter_amin,
}


def _inplace(name: str) -> Any:
    """The in-place form of an update."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._inplace(getattr(self, name)(*args, **kwargs), f"{name}_")

    method.__name__ = f"{name}_"
    method.__doc__ = f"{name} that changes this tensor (see Tensor.copy_ for leaves)."
    return method


class Scatter:
    """Of several values for one place the last one stays, on every device."""

    __slots__ = ()

    # -- x[i] = v ---------------------------------------------------------------------------------
    def __setitem__(self: Any, index: Any, value: Any) -> None:
        self._inplace(self._updated(index, value, False), "x[...] = value")

    def _updated(self: Any, index: Any, value: Any, accumulate: bool) -> Tensor:
        """This tensor with the elements that `index` names (as in x[index]) replaced."""
        items = index if isinstance(index, tuple) else (index,)
        wide = _expanded(tuple(self._index_item(i) for i in items), self.shape)
        found = bridge.operand(self, value, "x[...] = value")
        if found is None:
            raise DTypeError(f"x[...] = value: cannot use {type(value).__name__} as a tensor")
        v = bridge.cast(found, self.dtype)
        masked = None if accumulate else _by_mask(self, wide, v)
        return _put(self, wide, v, accumulate) if masked is None else masked

    def index_put(
        self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
    ) -> Tensor:
        """This tensor with x[indices] = values, or += values where equal places add up."""
        return self._updated(tuple(indices), values, accumulate)

    def select_scatter(self: Any, src: Any, dim: int, index: int) -> Tensor:
        """This tensor with the slice at an index of a dimension replaced."""
        d = axis("select_scatter", dim, self.ndim)
        return self._updated((slice(None),) * d + (index,), src, False)

    def slice_scatter(
        self: Any,
        src: Any,
        dim: int = 0,
        start: int | None = None,
        end: int | None = None,
        step: int = 1,
    ) -> Tensor:
        """This tensor with start:end:step of a dimension replaced."""
        d = axis("slice_scatter", dim, self.ndim)
        return self._updated((slice(None),) * d + (slice(start, end, step),), src, False)

    # -- by index along one dimension -------------------------------------------------------------
    def scatter(self: Any, dim: int, index: Any, src: Any, reduce: str | None = None) -> Tensor:
        """self with src[i, j, k] (or a number) put at [index[i, j, k], j, k] for dim 0; with reduce
        "add" or "multiply" combined."""
        if reduce not in (None, "add", "multiply"):
            raise ValueRangeError(f"scatter: reduce={reduce!r}; use 'add', 'multiply' or None")
        op = {None: ix.scatter, "add": ix.scatter_add, "multiply": ix.scatter_prod}[reduce]
        return _scattered(self, op, dim, index, src)

    def scatter_reduce(
        self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
    ) -> Tensor:
        """self with src combined into the indexed places: sum, prod, mean, amax, amin. Without
        include_self, what was in a place that is written does not count."""
        if reduce not in (*_SCATTERS, "mean"):
            names = ", ".join((*_SCATTERS, "mean"))
            raise ValueRangeError(f"scatter_reduce: reduce={reduce!r}; use one of {names}")
        base: Any = self
        count: Any = None
        if reduce == "mean" or not include_self:
            count = _scattered(self.zeros_of(self.shape, dt.int32), ix.scatter_add, dim, index, 1)
        if not include_self:
            base = (count > 0).where(_neutral(reduce, self.dtype), self)
        out = _scattered(base, _SCATTERS.get(reduce, ix.scatter_add), dim, index, src)
        if reduce != "mean":
            return out
        count = (count + 1 if include_self else count.clamp(1)).to(self.dtype)
        return out / count if self.dtype.is_float else out // count

    def index_copy(self: Any, dim: int, index: Any, source: Any) -> Tensor:
        """self with the slices of source put at the indexed places of `dim`."""
        d = axis("index_copy", dim, self.ndim)
        index = _index_tensor("index_copy", index, self.shape[d])
        source = bridge.cast(source, self.dtype)
        if not index.size:
            return self
        return bridge.apply(ix.index_copy, (self, index, source), d)

    def index_fill(self: Any, dim: int, index: Any, value: Any) -> Tensor:
        """self with the indexed slices of `dim` filled with a number."""
        d = axis("index_fill", dim, self.ndim)
        n = self.shape[d]
        index = _index_tensor("index_fill", index, n)
        ones = index.ones_of(index.shape, dt.int32)
        hits = self.zeros_of((n,), dt.int32).index_add(0, index, ones) > 0
        return hits.reshape((n, *([1] * (self.ndim - d - 1)))).where(_typed(self, value), self)

    def put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Tensor:
        """self with the elements at flat indices replaced (or added to)."""
        flat = self.reshape((-1,))._updated(
            (index.reshape((-1,)),), source.reshape((-1,)), accumulate
        )
        return flat.reshape(self.shape)

    def take(self: Any, index: Any) -> Tensor:
        """The elements at flat indices."""
        flat = self.reshape((-1,)).index_select(0, index.reshape((-1,)))
        return flat.reshape(index.shape)

    # -- by mask ----------------------------------------------------------------------------------
    def masked_scatter(self: Any, mask: Any, source: Any) -> Tensor:
        """self with the elements under the mask replaced by source's, in order."""
        shape = broadcast("masked_scatter", self.shape, mask.shape)
        x, mask = self.expand(shape), mask.expand(shape)
        source = bridge.cast(source, self.dtype).reshape((-1,))
        if not source.size or not x.size:
            return x
        order = mask.reshape((-1,)).int().cumsum(0) - 1
        order = order.clamp(0, source.shape[0] - 1)
        return mask.where(source.index_select(0, order).reshape(shape), x)

    def masked_select(self: Any, mask: Any) -> Tensor:
        """The elements under the mask as a vector. Reads the mask."""
        shape = broadcast("masked_select", self.shape, mask.shape)
        return self.expand(shape)[mask.expand(shape)]

    # -- finding places (reads) -------------------------------------------------------------------
    def nonzero(self: Any, as_tuple: bool = False) -> Any:
        """Indices of the elements that are not 0, a row each (int32), or a vector a dimension.
        Reads the tensor."""
        from .creation import from_array

        rows = np.argwhere(self.numpy())
        if as_tuple:
            rows = rows if self.ndim else np.zeros((int(bool(self.item())), 1), np.int64)
            return tuple(from_array(c, dt.int32, self.device) for c in rows.T)
        return from_array(rows, dt.int32, self.device)

    argwhere = nonzero

    def bincount(self: Any, weights: Any = None, minlength: int = 0) -> Tensor:
        """How often each non-negative integer occurs (or the sum of its weights). Reads the
        largest."""
        if self.ndim != 1 or not self.dtype.is_int:
            raise ShapeError(
                f"bincount takes a vector of integers, got {self.shape} {self.dtype.name}"
            )
        low, high = (int(self.amin()), int(self.amax())) if self.size else (0, -1)
        if low < 0:
            raise IndexRangeError(f"bincount: {low} is negative")
        values = self.ones_of(self.shape, dt.int32) if weights is None else weights
        return values.zeros_of((max(minlength, high + 1),)).index_add(0, self, values)

    # -- in place ---------------------------------------------------------------------------------
    scatter_ = _inplace("scatter")
    scatter_add_ = _inplace("scatter_add")
    scatter_reduce_ = _inplace("scatter_reduce")
    index_add_ = _inplace("index_add")
    index_copy_ = _inplace("index_copy")
    index_fill_ = _inplace("index_fill")
    index_put_ = _inplace("index_put")
    masked_fill_ = _inplace("masked_fill")
    masked_scatter_ = _inplace("masked_scatter")


def _typed(x: Any, value: Any) -> Any:
    """A number or tensor of one element in x's dtype."""
    if hasattr(value, "_node"):
        return bridge.cast(value, x.dtype)
    return bridge.constant(type(x), value, x.dtype, x._node.backend)


def _neutral(reduce: str, d: dt.DType) -> Any:
    """What leaves a reduction as it is."""
    if reduce in ("sum", "mean", "prod"):
        return 1 if reduce == "prod" else 0
    if d.is_float:
        return float("-inf" if reduce == "amax" else "inf")
    info = np.iinfo(d.np)
    return int(info.min if reduce == "amax" else info.max)


def _scattered(x: Any, op: Any, dim: int, index: Any, src: Any) -> Any:
    d = axis(op.name, dim, x.ndim)
    if not x.ndim:
        one = _scattered(x.reshape((1,)), op, 0, index.reshape((1,)), _flat(src))
        return one.reshape(())
    if not index.size:
        return x
    if hasattr(src, "_node"):
        src = _cropped(bridge.cast(src, x.dtype), index.shape, d)
        if src.ndim == index.ndim and src.shape[d] > index.shape[d]:
            src = src.slice_axis(d, 0, index.shape[d])
    else:
        src = _typed(x, src).expand(index.shape)
    index = _index_tensor(op.name, index, x.shape[d])
    part = _cropped(x, index.shape, d)
    out = bridge.apply(op, (part, index, src), d)
    return out if part.shape == x.shape else _placed(x, out, (0,) * x.ndim, (1,) * x.ndim)


def _flat(src: Any) -> Any:
    return src.reshape((1,)) if hasattr(src, "_node") else src


def _placed(x: Any, v: Any, starts: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """x with v's elements at start + i * step."""
    if v.shape == x.shape:
        return v
    if x.dtype.kind == "b":
        return _placed(x.int(), v.int(), starts, steps).bool()
    inside = x.ones_of(v.shape, dt.int32).pad_strided(x.shape, steps, starts) != 0
    return inside.where(v.pad_strided(x.shape, steps, starts), x)


def _by_mask(x: Any, items: list[Any], v: Any) -> Any:
    """x with a value under a mask of its leading dimensions, where the value does not depend on how
    many elements that are: nothing is read. None for other cases."""
    mask: Any = items[0] if items else None
    if not hasattr(mask, "_node") or mask.dtype.kind != "b" or mask.shape != x.shape[: mask.ndim]:
        return None
    rest = x.shape[mask.ndim :]
    if len(items) != 1 + len(rest) or any(not _whole(i) for i in items[1:]):
        return None
    if v.ndim == len(rest) + 1 and v.shape[0] == 1:
        v = v.reshape(v.shape[1:])
    if v.ndim > len(rest):
        return None
    return mask.reshape((*mask.shape, *([1] * len(rest)))).where(v.expand(rest), x)


def _whole(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _put(x: Any, items: list[Any], v: Any, accumulate: bool) -> Any:
    """x with x[items] = v: the region that ints and slices name is cut out, updated by the index
    tensors, and put back."""
    starts, sizes, steps, flips = [], [], [], []
    layout: list[tuple[int, Any]] = []  # of the region in x[items]: size, and index tensor if any
    d = 0
    for item in items:
        if item is None:
            layout.append((1, None))
            continue
        if hasattr(item, "_node"):
            mask = item.dtype.kind == "b"
            span = item.ndim if mask else 1
            for part in _mask_indices(item, x.shape[d : d + span]) if mask else [item]:
                layout.append((x.shape[d], _index_tensor("index", part, x.shape[d])))
                starts.append(0)
                sizes.append(x.shape[d])
                steps.append(1)
                d += 1
            continue
        start, count, step, back = _span(item, d, x.shape)
        if isinstance(item, slice):
            layout.append((count, None))
        if back:
            flips.append(d)
        starts.append(start)
        sizes.append(count)
        steps.append(step)
        d += 1
    shape = tuple(n for n, _ in layout)
    if not prod(shape):
        return x
    dims = [i for i, (_, index) in enumerate(layout) if index is not None]
    if dims or accumulate:
        attrs = mv.SliceAttrs(tuple(sizes), tuple(steps))
        old = bridge.apply(mv.slice_, (x,), attrs, tuple(starts))
        old = (old.flip(tuple(flips)) if flips else old).reshape(shape)
        new = _advanced_put(old, [layout[i][1] for i in dims], dims, v, accumulate)
    else:
        new = _fitting(v, shape)
    new = new.reshape(tuple(sizes))
    return _placed(x, new.flip(tuple(flips)) if flips else new, tuple(starts), tuple(steps))


def _span(item: Any, d: int, shape: tuple[int, ...]) -> tuple[int, int, int, bool]:
    """First place, number, distance of what an int or slice names, and whether it runs backwards
    (from its last place, then)."""
    n = shape[d]
    if isinstance(item, slice):
        a, b, s = item.indices(n)
        count = len(range(a, b, s))
        if s < 0:
            return (a + (count - 1) * s if count else 0), count, -s, True
        return (a if count else 0), count, s, False
    if isinstance(item, int) and not isinstance(item, bool):
        if not -n <= item < n:
            raise IndexRangeError(f"index {item} is out of range for dimension {d} of {shape}")
        return item % n, 1, 1, False
    raise IndexRangeError(
        f"cannot index with {type(item).__name__}; use ints, slices, None, ... or integer tensors"
    )


def _fitting(v: Any, shape: tuple[int, ...]) -> Any:
    """A value broadcast to the shape it replaces; leading dimensions of 1 may be too many."""
    extra = v.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in v.shape[:extra]):
        v = v.reshape(v.shape[extra:])
    try:
        return v.expand(shape)
    except ShapeError:
        raise ShapeError(
            f"x[...] = value: a value of shape {v.shape} does not fit the place of shape {shape}"
        ) from None


def _advanced_put(x: Any, indices: list[Any], dims: list[int], v: Any, accumulate: bool) -> Any:
    """x with x[index tensors at dims] = v, the inverse of reading it."""
    if not dims:
        return x + _fitting(v, x.shape)
    shape = broadcast("index", *[i.shape for i in indices])
    rest = [i for i in range(x.ndim) if i not in dims]
    sizes = tuple(x.shape[d] for d in rest)
    # Where reading puts the dimensions of the index: at their place if they are neighbours.
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    front = sum(d < dims[0] for d in rest) if together else 0
    v = _fitting(v, (*sizes[:front], *shape, *sizes[front:]))
    if not prod(shape):
        return x
    k = len(shape)
    order = [*range(front, front + k), *range(front), *range(front + k, v.ndim)]
    rows = v.permute(tuple(order)).reshape((prod(shape), *sizes))
    linear: Any = None
    for i, d in zip(indices, dims, strict=True):
        i = _wrapped(i, x.shape[d]) if len(dims) > 1 else i
        linear = i if linear is None else linear * x.shape[d] + i
    linear = linear.expand(shape).reshape((prod(shape),))
    moved = x.permute((*dims, *rest))
    flat = moved.reshape((prod(x.shape[d] for d in dims), *sizes))
    flat = bridge.apply(ix.index_add if accumulate else ix.index_copy, (flat, linear, rows), 0)
    back = tuple(sorted(range(x.ndim), key=lambda i: (*dims, *rest)[i]))
    return flat.reshape(moved.shape).permute(back)
