"""Shapes and places: views, padding, joining, splitting."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ..core import dtype as dt
from ..core.errors import ShapeError
from ..core.shape import Shape, as_shape, axes, axis, infer_reshape
from ..ops import movement as mv
from . import bridge

if TYPE_CHECKING:
    from .tensor import Tensor


def _permuted(x: Any, order: Shape) -> Any:
    """Dimensions in an order that is known to be one."""
    if order == tuple(range(len(order))):
        return x
    return bridge.apply(mv.permute, (x,), order)


class Movement:
    """Views share nothing a user could see: tensors are values."""

    __slots__ = ()

    def reshape(self: Any, *shape: Any) -> Tensor:
        """The same elements in row-major order under another shape; one size may be -1."""
        new = infer_reshape("reshape", self.shape, as_shape("reshape", shape))
        if new == self.shape:
            return self
        return bridge.apply(mv.reshape, (self,), new)

    view = reshape

    def view_as(self: Any, other: Any) -> Tensor:
        return self.reshape(other.shape)

    def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Join dimensions start_dim..end_dim into one."""
        if not self.ndim:
            return self.reshape((1,))
        a, b = axis("flatten", start_dim, self.ndim), axis("flatten", end_dim, self.ndim)
        if a > b:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        return self.reshape((*self.shape[:a], prod(self.shape[a : b + 1]), *self.shape[b + 1 :]))

    def unflatten(self: Any, dim: int, sizes: Sequence[int]) -> Tensor:
        """Split one dimension into several; one size may be -1."""
        d = axis("unflatten", dim, self.ndim)
        inner = infer_reshape("unflatten", (self.shape[d],), tuple(sizes))
        return self.reshape((*self.shape[:d], *inner, *self.shape[d + 1 :]))

    def permute(self: Any, *dims: Any) -> Tensor:
        """Reorder dimensions."""
        order = tuple(axis("permute", d, self.ndim) for d in as_shape("permute", dims))
        if sorted(order) != list(range(self.ndim)):
            raise ShapeError(
                f"permute: {order} must name each of the {self.ndim} dimensions "
                f"of {self.shape} once"
            )
        return _permuted(self, order)

    def transpose(self: Any, dim0: int, dim1: int) -> Tensor:
        """Swap two dimensions."""
        a, b = axis("transpose", dim0, self.ndim), axis("transpose", dim1, self.ndim)
        order = list(range(self.ndim))
        if self.ndim:
            order[a], order[b] = order[b], order[a]
        return _permuted(self, tuple(order))

    swapaxes = swapdims = transpose

    def movedim(self: Any, source: Any, destination: Any) -> Tensor:
        """Move dimensions to new places; the others keep their order."""
        src = (source,) if isinstance(source, int) else tuple(source)
        dst = (destination,) if isinstance(destination, int) else tuple(destination)
        src = tuple(axis("movedim", s, self.ndim) for s in src)
        dst = tuple(axis("movedim", d, self.ndim) for d in dst)
        rest = [i for i in range(self.ndim) if i not in src]
        for d, s in sorted(zip(dst, src, strict=True)):
            rest.insert(d, s)
        return self.permute(tuple(rest))

    moveaxis = movedim

    @property
    def T(self: Any) -> Tensor:
        """All dimensions reversed."""
        return _permuted(self, tuple(range(self.ndim - 1, -1, -1)))

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions swapped."""
        if self.ndim < 2:
            raise ShapeError(f"mT needs at least two dimensions, got {self.shape}")
        return self.transpose(-2, -1)

    def t(self: Any) -> Tensor:
        if self.ndim > 2:
            raise ShapeError(
                f"t() takes at most two dimensions, got {self.shape}; use mT or permute"
            )
        return self.T

    def expand(self: Any, *shape: Any) -> Tensor:
        """Repeat size-1 dimensions (and new leading ones) without copying; -1 keeps a size."""
        new = list(as_shape("expand", shape))
        lead = len(new) - self.ndim
        if lead < 0:
            raise ShapeError(f"expand: {tuple(new)} has fewer dimensions than {self.shape}")
        for i, s in enumerate(new):
            if s == -1:
                if i < lead:
                    raise ShapeError("expand: -1 is only for dimensions that exist")
                new[i] = self.shape[i - lead]
            elif i >= lead and self.shape[i - lead] not in (1, s):
                raise ShapeError(
                    f"expand: {self.shape} does not expand to {tuple(new)}: dimension {i} is "
                    f"{self.shape[i - lead]}, only 1 can become {s}"
                )
        if tuple(new) == self.shape:
            return self
        return bridge.apply(mv.expand, (self,), tuple(new))

    broadcast_to = expand

    def expand_as(self: Any, other: Any) -> Tensor:
        return self.expand(other.shape)

    def sum_to(self: Any, shape: Shape) -> Tensor:
        """Sum over what broadcasting from `shape` repeated; the inverse of expand for gradients."""
        if self.shape == shape:
            return self
        lead = self.ndim - len(shape)
        dims = tuple(
            i for i in range(self.ndim) if i < lead or (shape[i - lead] == 1 and self.shape[i] != 1)
        )
        out: Any = self.sum(dims, keepdim=True) if dims else self
        return out.reshape(shape)

    def squeeze(self: Any, dim: Any = None) -> Tensor:
        """Drop dimensions of size 1: all, or those named (others are left)."""
        dims = axes("squeeze", dim, self.ndim)
        return self.reshape(tuple(s for i, s in enumerate(self.shape) if s != 1 or i not in dims))

    def unsqueeze(self: Any, dim: int) -> Tensor:
        """Insert a dimension of size 1."""
        d = axis("unsqueeze", dim, self.ndim + 1)
        return self.reshape((*self.shape[:d], 1, *self.shape[d:]))

    def flip(self: Any, *dims: Any) -> Tensor:
        """Reverse the order along dimensions."""
        which = axes("flip", as_shape("flip", dims), self.ndim)
        return bridge.apply(mv.flip, (self,), which) if which else self

    def slice_axis(self: Any, dim: int, start: int, size: int, step: int = 1) -> Tensor:
        """`size` elements along a dimension from `start`, every `step`th; the caller checks."""
        d = axis("slice", dim, self.ndim)
        if start == 0 and step == 1 and size == self.shape[d]:
            return self
        starts = tuple(start if i == d else 0 for i in range(self.ndim))
        steps = tuple(step if i == d else 1 for i in range(self.ndim))
        sizes = tuple(size if i == d else s for i, s in enumerate(self.shape))
        return bridge.apply(mv.slice_, (self,), mv.SliceAttrs(sizes, steps), starts)

    def narrow(self: Any, dim: int, start: int, length: int) -> Tensor:
        d = axis("narrow", dim, self.ndim)
        n = self.shape[d]
        start = start + n if start < 0 else start
        if not 0 <= start <= start + length <= n:
            raise ShapeError(
                f"narrow: {start}..{start + length} is outside dimension {dim} of {self.shape}"
            )
        return self.slice_axis(d, start, length)

    def pad_strided(self: Any, shape: Shape, steps: Shape, starts: tuple[Any, ...]) -> Tensor:
        """Zeros of `shape` with this tensor at start + i * step (the gradient of a slice)."""
        attrs = mv.PadAttrs(tuple(shape), tuple(steps))
        return bridge.apply(mv.pad, (self,), attrs, (*starts, self._zero()))

    def unpad(self: Any, shape: Shape, steps: Shape, lows: tuple[Any, ...]) -> Tensor:
        """The elements that `pad` placed at low + i * step; what it dropped comes back as zero."""
        if all(
            lo >= 0 and lo + (n - 1) * st < m
            for lo, n, st, m in zip(lows, shape, steps, self.shape, strict=True)
        ):
            return bridge.apply(
                mv.slice_, (self,), mv.SliceAttrs(tuple(shape), tuple(steps)), tuple(lows)
            )
        if any(st != 1 for st in steps):
            # Strided and cropped: cover the missing places with zeros first.
            lo = tuple(max(0, -x) for x in lows)
            size = tuple(
                a + max(m, x + (n - 1) * st + 1)
                for a, m, x, n, st in zip(lo, self.shape, lows, shape, steps, strict=True)
            )
            wide: Any = bridge.apply(
                mv.pad, (self,), mv.PadAttrs(size, (1,) * self.ndim), (*lo, self._zero())
            )
            return wide.unpad(shape, steps, tuple(x + a for x, a in zip(lows, lo, strict=True)))
        attrs = mv.PadAttrs(tuple(shape), (1,) * self.ndim)
        return bridge.apply(mv.pad, (self,), attrs, (*[-x for x in lows], self._zero()))

    def _zero(self: Any) -> Any:
        return 0.0 if self.dtype.is_float else 0

    def pad_constant(self: Any, widths: Sequence[tuple[int, int]], value: Any = 0) -> Tensor:
        """Add (before, after) elements of `value` a dimension, first to last; negatives crop."""
        if len(widths) != self.ndim:
            raise ShapeError(
                f"pad: {len(widths)} pairs of widths for {self.ndim} dimensions of {self.shape}"
            )
        if all(w == (0, 0) for w in widths):
            return self
        sizes = tuple(s + a + b for s, (a, b) in zip(self.shape, widths, strict=True))
        if min(sizes, default=0) < 0:
            raise ShapeError(f"pad: widths {tuple(widths)} leave a negative size of {self.shape}")
        value = float(value) if self.dtype.is_float else int(value)
        attrs = mv.PadAttrs(sizes, (1,) * self.ndim)
        return bridge.apply(mv.pad, (self,), attrs, (*[a for a, _ in widths], value))

    def split(self: Any, size: Any, dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces of `size` (the last may be smaller), or of the listed sizes, along a dimension."""
        d = axis("split", dim, self.ndim)
        n = self.shape[d]
        if isinstance(size, int):
            if size <= 0:
                raise ShapeError(f"split: piece size {size} must be positive")
            sizes = [min(size, n - i) for i in range(0, n, size)] or [0]
        else:
            sizes = list(size)
            if sum(sizes) != n:
                raise ShapeError(
                    f"split: sizes {sizes} add up to {sum(sizes)}, "
                    f"dimension {dim} of {self.shape} is {n}"
                )
        out, start = [], 0
        for s in sizes:
            out.append(self.slice_axis(d, start, s))
            start += s
        return tuple(out)

    def chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """At most `chunks` pieces of equal size (the last may be smaller)."""
        n = self.shape[axis("chunk", dim, self.ndim)]
        return self.split(max(1, -(-n // chunks)), dim)

    def unbind(self: Any, dim: int = 0) -> tuple[Tensor, ...]:
        """The slices along a dimension, which is dropped."""
        d = axis("unbind", dim, self.ndim)
        return tuple(self.slice_axis(d, i, 1).squeeze(d) for i in range(self.shape[d]))

    def repeat(self: Any, *sizes: Any) -> Tensor:
        """Tile the tensor (torch's repeat, numpy's tile)."""
        reps = as_shape("repeat", sizes)
        lead = len(reps) - self.ndim
        if lead < 0:
            raise ShapeError(
                f"repeat: {reps} needs a number for each of the dimensions of {self.shape}"
            )
        shape = (1,) * lead + self.shape
        wide: Any = self.reshape(tuple(x for s in shape for x in (1, s)))
        wide = wide.expand(tuple(x for r, s in zip(reps, shape, strict=True) for x in (r, s)))
        return wide.reshape(tuple(r * s for r, s in zip(reps, shape, strict=True)))

    def contiguous(self: Any) -> Tensor:
        return self

    def clone(self: Any) -> Tensor:
        """A copy of its own (gradients flow)."""
        from ..ops.elementwise import copy

        return bridge.apply(copy, (self,))

    def _triangle(self: Any, diagonal: int, keep_lower: bool) -> Any:
        from .creation import arange

        if self.ndim < 2:
            raise ShapeError(f"tril and triu need at least two dimensions, got {self.shape}")
        rows, cols = self.shape[-2:]
        dev = self.device
        r = arange(rows, device=dev).reshape(rows, 1)
        c = arange(cols, device=dev).reshape(1, cols)
        keep = c <= r + diagonal if keep_lower else c >= r + diagonal
        return keep.where(self, False if self.dtype.kind == "b" else 0)

    def tril(self: Any, diagonal: int = 0) -> Tensor:
        """The lower triangle of the last two dimensions; zero above."""
        return self._triangle(diagonal, True)

    def triu(self: Any, diagonal: int = 0) -> Tensor:
        """The upper triangle of the last two dimensions; zero below."""
        return self._triangle(diagonal, False)

    def zeros_of(self: Any, shape: Shape, dtype: Any = None) -> Tensor:
        """Zeros on this tensor's device."""
        return self._filled(0, shape, dtype)

    def ones_of(self: Any, shape: Shape, dtype: Any = None) -> Tensor:
        """Ones on this tensor's device."""
        return self._filled(1, shape, dtype)

    def _filled(self: Any, value: Any, shape: Shape, dtype: Any) -> Any:
        t: Any = bridge.constant(type(self), value, dtype or self.dtype, self._node.backend)
        return t.expand(shape)


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join tensors along an existing dimension. Raises ShapeError when other sizes differ."""
    items = list(tensors)
    if not items:
        raise ShapeError("cat of no tensors")
    d = axis("cat", dim, items[0].ndim)
    both = items[0].dtype
    for t in items[1:]:
        both = dt.promote(both, t.dtype)
    first = items[0].shape
    for t in items[1:]:
        if t.ndim != len(first) or any(
            i != d and a != b for i, (a, b) in enumerate(zip(first, t.shape, strict=True))
        ):
            shapes = ", ".join(str(x.shape) for x in items)
            raise ShapeError(f"cat: shapes {shapes} differ in more than dim {dim}")
    items = [bridge.cast(t, both) for t in items if t.shape[d]] or [items[0]]
    while len(items) > _CAT_MAX:
        items = [
            bridge.apply(mv.cat, tuple(items[i : i + _CAT_MAX]), d)
            for i in range(0, len(items), _CAT_MAX)
        ]
    return items[0] if len(items) == 1 else bridge.apply(mv.cat, tuple(items), d)


#: Inputs of one cat kernel: with the output they fit the 8 storage buffers every device has.
_CAT_MAX = 7


def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join tensors of one shape along a new dimension."""
    items = list(tensors)
    if not items:
        raise ShapeError("stack of no tensors")
    if any(t.shape != items[0].shape for t in items):
        raise ShapeError(f"stack: shapes {', '.join(str(t.shape) for t in items)} must be equal")
    return cat([t.unsqueeze(dim) for t in items], dim)
