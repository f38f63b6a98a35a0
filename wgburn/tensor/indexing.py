"""Reading and updating parts of tensors: numpy's indexing, gather and scatter by torch's names."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.errors import DTypeError, IndexRangeError, ShapeError
from ..core.shape import axis, broadcast
from ..ops import index as ix
from ..ops import movement as mv
from . import bridge

if TYPE_CHECKING:
    from .tensor import Tensor


#: Views that show each element of their source.
_WHOLE = (mv.reshape, mv.permute, mv.expand, mv.flip)


def bounds_of(t: Any) -> tuple[int, int] | None:
    """Smallest and largest element where the host knows them: made from host data, or a view."""
    node = t._node
    while node.store is None and node.op in _WHOLE and 0 not in node.shape:
        node = node.srcs[0]
    found: tuple[int, int] | None = node.store.bounds if node.store is not None else None
    return found


def known_bounds(op: str, index: Any, size: int) -> None:
    """Check indices the host knows; computed ones are clamped on a device and checked when they are
    computed on the cpu."""
    bounds = bounds_of(index)
    if bounds is not None:
        ix.check_bounds(op, *bounds, size)


def _index_tensor(op: str, t: Any, size: int) -> Any:
    """An index for a dimension of `size` as int32, checked as far as the host knows it."""
    if not hasattr(t, "_node") or t.dtype.kind not in "iu":
        what = t.dtype.name if hasattr(t, "_node") else type(t).__name__
        raise DTypeError(f"{op}: an index must be an integer tensor, got {what}")
    known_bounds(op, t, size)
    return bridge.cast(t, dt.int32)


def _cropped(x: Any, like: tuple[int, ...], dim: int) -> Any:
    """The part of x that an index of shape `like` reaches: as large as it, whole along `dim`."""
    if len(like) != x.ndim or any(
        n > m for i, (n, m) in enumerate(zip(like, x.shape, strict=True)) if i != dim
    ):
        return x  # the op says what is wrong
    for i, n in enumerate(like):
        if i != dim:
            x = x.slice_axis(i, 0, n)
    return x


class Indexing:
    """`x[...]` with ints, slices, None, Ellipsis, integer and boolean tensors; gather and kin."""

    __slots__ = ()

    def __getitem__(self: Any, index: Any) -> Tensor:
        return _basic_then_advanced(self, self._index_items(index))

    def _index_items(self: Any, index: Any) -> list[Any]:
        items = index if isinstance(index, tuple) else (index,)
        return _expanded(tuple(self._index_item(i) for i in items), self.shape)

    def _index_item(self: Any, item: Any) -> Any:
        if isinstance(item, (np.ndarray, list)):
            from .creation import tensor

            a = np.asarray(item)
            return tensor(a if a.size else a.astype(np.int32), device=self.device.inner())
        if isinstance(item, np.integer):
            return int(item)
        return item

    def gather(self: Any, dim: int, index: Any) -> Tensor:
        """out[i, j, k] = self[index[i, j, k], j, k] for dim 0. Raises IndexRangeError."""
        d = axis("gather", dim, self.ndim)
        x = _cropped(self, index.shape, d)
        index = _index_tensor("gather", index, self.shape[d] if self.ndim else 1)
        return bridge.apply(ix.gather, (x, index), d)

    def scatter_add(self: Any, dim: int, index: Any, src: Any) -> Tensor:
        """self with src[i, j, k] added at [index[i, j, k], j, k] for dim 0."""
        d = axis("scatter_add", dim, self.ndim)
        src = _cropped(bridge.cast(src, self.dtype), index.shape, d)
        if src.shape[d] > index.shape[d]:
            src = src.slice_axis(d, 0, index.shape[d])
        index = _index_tensor("scatter_add", index, self.shape[d])
        part = _cropped(self, index.shape, d)
        if part is self:
            return bridge.apply(ix.scatter_add, (self, index, src), d)
        added = bridge.apply(ix.scatter_add, (part.zeros_of(part.shape), index, src), d)
        rest = [(0, n - m) for n, m in zip(self.shape, part.shape, strict=True)]
        return self + added.pad_constant(rest)

    def index_select(self: Any, dim: int, index: Any) -> Tensor:
        """The slices of `dim` named by a vector of indices."""
        d = axis("index_select", dim, self.ndim)
        if index.ndim != 1:
            raise ShapeError(
                f"index_select takes a vector of indices, got {index.shape}; use x[index]"
            )
        index = _index_tensor("index_select", index, self.shape[d])
        return bridge.apply(ix.index_select, (self, index), d)

    def index_add(self: Any, dim: int, index: Any, src: Any) -> Tensor:
        """self with the slices of src added at the indexed places of `dim`."""
        d = axis("index_add", dim, self.ndim)
        index = _index_tensor("index_add", index, self.shape[d])
        return bridge.apply(ix.index_add, (self, index, bridge.cast(src, self.dtype)), d)

    def take_along_dim(self: Any, index: Any, dim: int) -> Tensor:
        """gather with broadcasting of the other dimensions."""
        d = axis("take_along_dim", dim, self.ndim)
        rest_x = tuple(1 if i == d else s for i, s in enumerate(self.shape))
        rest_i = tuple(1 if i == d else s for i, s in enumerate(index.shape))
        both = broadcast("take_along_dim", rest_x, rest_i)
        x: Any = self.expand(tuple(self.shape[d] if i == d else s for i, s in enumerate(both)))
        return x.gather(
            d, index.expand(tuple(index.shape[d] if i == d else s for i, s in enumerate(both)))
        )

    def masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
        """`value` where `mask` is true."""
        return mask.where(value, self)


def _expanded(items: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """The index with its Ellipsis (or the missing end) written out as full slices."""
    used = sum(_consumes(i) for i in items)
    if used > len(shape):
        raise IndexRangeError(
            f"too many indices: {used} for a tensor of {len(shape)} dimensions {shape}"
        )
    if sum(i is Ellipsis for i in items) > 1:
        raise IndexRangeError("an index has at most one Ellipsis")
    fill = [slice(None)] * (len(shape) - used)
    out: list[Any] = []
    found = False
    for i in items:
        if i is Ellipsis:
            out += fill
            found = True
        else:
            out.append(i)
    return out if found else out + fill


def _consumes(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    if hasattr(item, "_node") and item.dtype.kind == "b":
        return int(item.ndim)
    return 1


class _Region:
    """Where an index points, before its advanced part: a box of the (flipped) source.

    `layout`: per dimension of the result "keep", "new", or (index tensor, known to be >= 0).
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.steps: list[int] = []
        self.flips: list[int] = []
        self.drop: list[bool] = []
        self.layout: list[Any] = []

    def add(self, start: int, size: int, step: int = 1, drop: bool = False) -> None:
        self.starts.append(start)
        self.sizes.append(size)
        self.steps.append(step)
        self.drop.append(drop)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the box without its dropped dimensions and with the new ones."""
        kept = iter([s for s, gone in zip(self.sizes, self.drop, strict=True) if not gone])
        return tuple(1 if kind == "new" else next(kept) for kind in self.layout)

    def whole(self, shape: tuple[int, ...]) -> bool:
        return tuple(self.sizes) == shape and not any(self.starts) and set(self.steps) <= {1}


def _region(x: Any, items: list[Any]) -> _Region:
    out = _Region()
    for item in items:
        d = len(out.sizes)
        if item is None:
            out.layout.append("new")
        elif hasattr(item, "_node"):
            span = item.ndim if item.dtype.kind == "b" else 1
            parts = _mask_indices(item, x.shape[d : d + span]) if item.dtype.kind == "b" else [item]
            for i, part in enumerate(parts, d):
                low, _ = bounds_of(part) or (-1, 0)
                out.layout.append((_index_tensor("index", part, x.shape[i]), low >= 0))
                out.add(0, x.shape[i])
        elif isinstance(item, slice):
            n = x.shape[d]
            start, stop, step = item.indices(n)
            if step < 0:
                out.flips.append(d)
            first = n - 1 - start if step < 0 else start
            out.add(first, len(range(start, stop, step)), abs(step))
            out.layout.append("keep")
        elif isinstance(item, int) and not isinstance(item, bool):
            n = x.shape[d]
            if not -n <= item < n:
                raise IndexRangeError(
                    f"index {item} is out of range for dimension {d} of {x.shape}"
                )
            out.add(item % n, 1, drop=True)
        else:
            raise IndexRangeError(
                f"cannot index with {type(item).__name__}; "
                "use ints, slices, None, ... or integer tensors"
            )
    return out


def _basic_then_advanced(x: Any, items: list[Any]) -> Any:
    r = _region(x, items)
    if r.flips:
        x = x.flip(tuple(r.flips))
    if not r.whole(x.shape):
        attrs = mv.SliceAttrs(tuple(r.sizes), tuple(r.steps))
        x = bridge.apply(mv.slice_, (x,), attrs, tuple(r.starts))
    x = x.reshape(r.shape)
    advanced = [i for i, kind in enumerate(r.layout) if isinstance(kind, tuple)]
    return _advanced(x, [r.layout[i] for i in advanced], advanced) if advanced else x


def _mask_indices(mask: Any, shape: tuple[int, ...]) -> list[Any]:
    """A mask as one index tensor a dimension. Reads the mask: its count decides a shape."""
    from .creation import tensor

    if mask.shape != shape:
        raise ShapeError(
            f"a mask of shape {mask.shape} indexes dimensions of {shape}; shapes must be equal"
        )
    return [
        tensor(i.astype(np.int32), device=mask.device.inner()) for i in np.nonzero(mask.numpy())
    ]


def _wrapped(i: Any, n: int) -> Any:
    """Indices into a dimension of n as 0..n-1: looked up, so that each is checked or clamped alone
    (one that is out of range in its own dimension may be in range of the joined ones)."""
    from .creation import arange

    table = arange(n, device=i.device)
    return bridge.apply(ix.index_select, (table, i.reshape(-1)), 0).reshape(i.shape)


def _advanced(x: Any, indices: list[tuple[Any, bool]], dims: list[int]) -> Any:
    """numpy's advanced indexing: the indexed dimensions become one, selected by linear indices."""
    shape = broadcast("index", *[i.shape for i, _ in indices])
    rest = [i for i in range(x.ndim) if i not in dims]
    linear: Any = None
    for (i, positive), d in zip(indices, dims, strict=True):
        n = x.shape[d]
        if len(dims) > 1 and not positive:
            i = _wrapped(i, n)
        linear = i if linear is None else linear * n + i
    linear = linear.expand(shape) if linear.shape != shape else linear
    moved = x.permute((*dims, *rest)).reshape(
        (prod(x.shape[d] for d in dims), *[x.shape[d] for d in rest])
    )
    out = moved.index_select(0, linear.reshape(prod(shape)))
    out = out.reshape((*shape, *[x.shape[d] for d in rest]))
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    if together and dims[0] > 0:
        k = len(shape)
        front = [i for i in range(len(rest)) if rest[i] < dims[0]]
        order = (
            [k + i for i in front] + list(range(k)) + [k + i for i in range(len(front), len(rest))]
        )
        out = out.permute(tuple(order))
    return out
