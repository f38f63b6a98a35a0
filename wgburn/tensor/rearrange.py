"""Placing made of views, joins and gathers: rolls, windows, diagonals, splits, stacks, grids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.errors import DTypeError, ShapeError
from ..core.shape import as_shape, axis, broadcast
from .movement import cat, stack

if TYPE_CHECKING:
    from .tensor import Tensor


class Rearrange:
    """Tensors are values: what torch calls a view shares nothing a user could see."""

    __slots__ = ()

    def ravel(self: Any) -> Tensor:
        return self.reshape((-1,))

    def select(self: Any, dim: int, index: int) -> Tensor:
        """The slice at an index of a dimension, which is dropped."""
        d = axis("select", dim, self.ndim)
        return self[(slice(None),) * d + (index,)]

    def roll(self: Any, shifts: Any, dims: Any = None) -> Tensor:
        """Rotate along one or several dimensions; without dims, the flat tensor."""
        if dims is None:
            if not isinstance(shifts, int):
                raise ShapeError(f"roll: shifts {shifts} need dims of the same number")
            return self.reshape((-1,)).roll(shifts, 0).reshape(self.shape)
        by = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        along = (dims,) if isinstance(dims, int) else tuple(dims)
        if len(by) != len(along):
            raise ShapeError(f"roll: {len(by)} shifts for {len(along)} dims")
        out = self
        for shift, dim in zip(by, along, strict=True):
            d = axis("roll", dim, out.ndim)
            n = out.shape[d] if out.ndim else 0
            k = shift % n if n else 0
            if k:
                out = cat([out.slice_axis(d, n - k, k), out.slice_axis(d, 0, n - k)], d)
        return out

    def tile(self: Any, *sizes: Any) -> Tensor:
        """Repeat along dimensions; missing numbers in front are 1."""
        reps = as_shape("tile", sizes)
        return self.repeat((1,) * (self.ndim - len(reps)) + reps)

    def repeat_interleave(self: Any, repeats: Any, dim: int | None = None) -> Tensor:
        """Each element `repeats` times in a row; a vector says how often each (it is read)."""
        if dim is None:
            return self.reshape((-1,)).repeat_interleave(repeats, 0)
        d = axis("repeat_interleave", dim, self.ndim)
        n = self.shape[d]
        if hasattr(repeats, "_node") or isinstance(repeats, (list, tuple, np.ndarray)):
            from .creation import tensor

            counts = np.asarray(repeats.numpy() if hasattr(repeats, "_node") else repeats)
            if counts.size != 1:
                if counts.shape != (n,):
                    raise ShapeError(
                        f"repeat_interleave: {counts.size} numbers for dim {dim} of {self.shape}"
                    )
                at = np.repeat(np.arange(n), counts)
                return self.index_select(d, tensor(at, dt.int32, self.device.inner()))
            repeats = int(counts.reshape(()))
        wide = self.unsqueeze(d + 1)
        wide = wide.expand((*self.shape[: d + 1], repeats, *self.shape[d + 1 :]))
        return wide.reshape((*self.shape[:d], n * repeats, *self.shape[d + 1 :]))

    def unfold(self: Any, dim: int, size: int, step: int) -> Tensor:
        """Windows of `size` along a dimension, every `step`, as a new last dimension."""
        d = axis("unfold", dim, self.ndim)
        n = self.shape[d] if self.ndim else 1
        if step < 1 or not 0 <= size <= n:
            raise ShapeError(f"unfold: size {size} and step {step} do not fit {n} elements")
        x = self if self.ndim else self.reshape((1,))
        count = (n - size) // step + 1
        ones = self.ones_of((max(count, size),), dt.int32)
        place = ones.cumsum(0) - 1
        at = place[:count].unsqueeze(1) * step + place[:size].unsqueeze(0)
        out = x.index_select(d, at.reshape((count * size,)))
        out = out.reshape((*x.shape[:d], count, size, *x.shape[d + 1 :]))
        return out.movedim(d + 1, -1)

    # -- diagonals --------------------------------------------------------------------------------
    def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """The diagonal of two dimensions, as the last dimension."""
        a, b = _two("diagonal", self.ndim, dim1, dim2)
        rest = [i for i in range(self.ndim) if i not in (a, b)]
        rows, cols = self.shape[a], self.shape[b]
        n = max(0, min(rows, cols - offset) if offset >= 0 else min(rows + offset, cols))
        flat = self.permute((*rest, a, b)).reshape((*(self.shape[i] for i in rest), rows * cols))
        start = (offset if offset >= 0 else -offset * cols) if n else 0
        return flat.slice_axis(-1, start, n, cols + 1)

    def diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
        """Matrices with the last dimension on a diagonal, zeros elsewhere."""
        a, b = _two("diag_embed", self.ndim + 1, dim1, dim2)
        n = self.shape[-1] + abs(offset)
        lead = self.shape[:-1]
        start = offset if offset >= 0 else -offset * n
        steps = (1,) * len(lead) + (n + 1,)
        if self.dtype.kind == "b":
            return self.int().diag_embed(offset, dim1, dim2).bool()
        flat = self.pad_strided((*lead, n * n), steps, (*(0 for _ in lead), start))
        square = flat.reshape((*lead, n, n))
        order = list(range(len(lead)))
        for place, d in sorted(((a, len(lead)), (b, len(lead) + 1))):
            order.insert(place, d)
        return square.permute(tuple(order))

    def diag(self: Any, diagonal: int = 0) -> Tensor:
        """A vector as a diagonal matrix, the diagonal of a matrix as a vector."""
        if self.ndim == 1:
            return self.diag_embed(diagonal)
        if self.ndim != 2:
            raise ShapeError(f"diag takes a vector or a matrix, got {self.shape}")
        return self.diagonal(diagonal)

    def diagflat(self: Any, offset: int = 0) -> Tensor:
        return self.reshape((-1,)).diag_embed(offset)

    def trace(self: Any) -> Tensor:
        """Sum of the diagonal of a matrix."""
        if self.ndim != 2:
            raise ShapeError(f"trace takes a matrix, got {self.shape}")
        return self.diagonal().sum()

    # -- turning ----------------------------------------------------------------------------------
    def fliplr(self: Any) -> Tensor:
        return self.flip(1)

    def flipud(self: Any) -> Tensor:
        return self.flip(0)

    def rot90(self: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
        """A quarter turn, k times, from the first dimension named to the second."""
        a, b = _two("rot90", self.ndim, *dims)
        turn = k % 4
        if turn == 0:
            return self
        if turn == 2:
            return self.flip((a, b))
        return self.flip(b).transpose(a, b) if turn == 1 else self.transpose(a, b).flip(b)

    # -- splitting --------------------------------------------------------------------------------
    def tensor_split(self: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces of nearly equal size, or between the listed places."""
        d = axis("tensor_split", dim, self.ndim)
        n = self.shape[d]
        if isinstance(indices_or_sections, int):
            k = indices_or_sections
            if k < 1:
                raise ShapeError(f"tensor_split: {k} pieces")
            ends = [i * (n // k) + min(i, n % k) for i in range(k + 1)]
        else:
            ends = [0, *(min(max(i + n if i < 0 else i, 0), n) for i in indices_or_sections), n]
        return tuple(self.slice_axis(d, a, max(b - a, 0)) for a, b in pairwise(ends))

    def hsplit(self: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
        return self.tensor_split(indices_or_sections, 0 if self.ndim == 1 else 1)

    def vsplit(self: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
        return self.tensor_split(indices_or_sections, 0)

    def dsplit(self: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
        return self.tensor_split(indices_or_sections, 2)


def _two(op: str, ndim: int, dim1: int, dim2: int) -> tuple[int, int]:
    a, b = axis(op, dim1, ndim), axis(op, dim2, ndim)
    if a == b or ndim < 2:
        raise ShapeError(f"{op} needs two different dimensions, got {dim1} and {dim2} of {ndim}")
    return a, b


def _tensors(op: str, tensors: tuple[Any, ...]) -> list[Any]:
    """f(a, b) and f([a, b]) alike."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if not all(hasattr(t, "_node") for t in tensors):
        raise DTypeError(f"{op} takes tensors, got {', '.join(type(t).__name__ for t in tensors)}")
    return list(tensors)


def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    """Tensors expanded to one shape."""
    items = _tensors("broadcast_tensors", tensors)
    shape = broadcast("broadcast_tensors", *[t.shape for t in items])
    return tuple(t.expand(shape) for t in items)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    return broadcast(
        "broadcast_shapes", *[(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    )


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Coordinate grids of vectors; indexing "xy" swaps the first two dimensions."""
    items = [t.reshape((1,)) if not t.ndim else t for t in _tensors("meshgrid", tensors)]
    if any(t.ndim != 1 for t in items):
        raise ShapeError(f"meshgrid takes vectors, got {', '.join(str(t.shape) for t in items)}")
    if indexing not in ("ij", "xy"):
        raise ShapeError(f"meshgrid: indexing {indexing!r}; use 'ij' or 'xy'")
    swap = indexing == "xy" and len(items) > 1
    if swap:
        items[0], items[1] = items[1], items[0]
    shape = tuple(t.shape[0] for t in items)
    grids = []
    for i, t in enumerate(items):
        one = tuple(n if d == i else 1 for d, n in enumerate(shape))
        grids.append(t.reshape(one).expand(shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def _at_least(op: str, tensors: tuple[Any, ...], shape: Any) -> Any:
    items = [shape(t) for t in _tensors(op, tensors)]
    one = len(tensors) == 1 and not isinstance(tensors[0], (list, tuple))
    return items[0] if one else tuple(items)


def _to_1d(t: Any) -> Any:
    return t if t.ndim else t.reshape((1,))


def _to_2d(t: Any) -> Any:
    return t if t.ndim >= 2 else t.reshape((1, t.size))


def _to_3d(t: Any) -> Any:
    return t if t.ndim >= 3 else _to_2d(t).unsqueeze(-1)


def atleast_1d(*tensors: Any) -> Any:
    return _at_least("atleast_1d", tensors, _to_1d)


def atleast_2d(*tensors: Any) -> Any:
    return _at_least("atleast_2d", tensors, _to_2d)


def atleast_3d(*tensors: Any) -> Any:
    return _at_least("atleast_3d", tensors, _to_3d)


def hstack(tensors: Sequence[Any]) -> Any:
    """Join along the second dimension (vectors: the first)."""
    items = [_to_1d(t) for t in tensors]
    return cat(items, 0 if items and items[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Any]) -> Any:
    """Join along the first dimension; vectors are rows."""
    return cat([_to_2d(t) for t in tensors], 0)


row_stack = vstack


def dstack(tensors: Sequence[Any]) -> Any:
    """Join along the third dimension."""
    return cat([_to_3d(t) for t in tensors], 2)


def column_stack(tensors: Sequence[Any]) -> Any:
    """Join vectors as columns, matrices side by side."""
    return cat([t if t.ndim >= 2 else t.reshape((t.size, 1)) for t in tensors], 1)


def block_diag(*tensors: Any) -> Any:
    """Matrices along the diagonal of one matrix of zeros."""
    items = [_to_2d(t) for t in _tensors("block_diag", tensors)]
    width = sum(t.shape[1] for t in items)
    rows, left = [], 0
    for t in items:
        right = width - left - t.shape[1]
        rows.append(t.pad_constant(((0, 0), (left, right))))
        left += t.shape[1]
    return cat(rows, 0)


__all__ = [
    "Rearrange",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block_diag",
    "broadcast_shapes",
    "broadcast_tensors",
    "column_stack",
    "dstack",
    "hstack",
    "meshgrid",
    "row_stack",
    "stack",
    "vstack",
]
