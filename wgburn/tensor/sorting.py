"""Order: sort, topk, medians and quantiles, searching sorted rows, unique values.

Positions come from two primitives (ordered runs, merging); values are gathered from them, so
gradients reach where the values came from. unique and its kin read their result: its size depends
on the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.errors import ShapeError, ValueRangeError
from ..core.shape import axis
from ..ops import sort as so
from . import bridge
from .reduction import ValuesIndices

if TYPE_CHECKING:
    from .tensor import Tensor


def _order(x: Any, d: int, descending: bool) -> Any:
    """Positions along dimension d that order it, stable."""
    moved = x.transpose(d, -1)
    at = bridge.apply(so.sort_blocks, (moved,), so.SortAttrs(descending))
    run = so.BLOCK
    while run < moved.shape[-1]:
        at = bridge.apply(so.sort_merge, (moved, at), so.SortAttrs(descending, run))
        run *= 2
    return at.transpose(d, -1)


def _taken(x: Any, at: Any, d: int, keepdim: bool) -> ValuesIndices:
    values = x.gather(d, at)
    return ValuesIndices(values, at) if keepdim else ValuesIndices(values.squeeze(d), at.squeeze(d))


def _along(op: str, x: Any, dim: int) -> int:
    d = axis(op, dim, x.ndim)
    if x.ndim and not x.shape[d]:
        raise ShapeError(f"{op}: dim {dim} of {x.shape} has no elements, so there is no {op}")
    return d


class Sorting:
    """NaN counts as the largest value, as in torch; equal elements keep their order."""

    __slots__ = ()

    def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """Positions that order a dimension (int32)."""
        d = axis("argsort", dim, self.ndim)
        return _order(self, d, descending) if self.ndim else self.zeros_of((), dt.int32)

    def sort(
        self: Any, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> ValuesIndices:
        """Ordered values and where they came from; always stable."""
        d = axis("sort", dim, self.ndim)
        if not self.ndim:
            return ValuesIndices(self, self.zeros_of((), dt.int32))
        at = _order(self, d, descending)
        return ValuesIndices(self.gather(d, at), at)

    def msort(self: Any) -> Tensor:
        """The values ordered along the first dimension."""
        return self.sort(0).values

    def topk(
        self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> ValuesIndices:
        """The k largest (or smallest) values of a dimension, ordered, and their positions."""
        d = axis("topk", dim, self.ndim)
        n = self.shape[d] if self.ndim else 1
        if not 0 <= k <= n:
            raise ValueRangeError(f"topk: k={k} is out of range for dim {dim} of {self.shape}")
        if not self.ndim:
            return ValuesIndices(self, self.zeros_of((), dt.int32))
        at = _order(self, d, largest).slice_axis(d, 0, k)
        return ValuesIndices(self.gather(d, at), at)

    def kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """The k-th smallest value (from 1) and its position."""
        d = _along("kthvalue", self, dim)
        n = self.shape[d] if self.ndim else 1
        if not 1 <= k <= n:
            raise ValueRangeError(f"kthvalue: k={k} is out of range 1 to {n}")
        if not self.ndim:
            return ValuesIndices(self, self.zeros_of((), dt.int32))
        return _taken(self, _order(self, d, False).slice_axis(d, k - 1, 1), d, keepdim)

    def median(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The lower median; with a dim (values, indices). NaN where there is one."""
        if dim is None:
            return self.reshape((-1,)).median(0).values
        d = _along("median", self, dim)
        if not self.ndim:
            return ValuesIndices(self, self.zeros_of((), dt.int32))
        at = _order(self, d, False).slice_axis(d, (self.shape[d] - 1) // 2, 1)
        if self.dtype.is_float:
            at = self.isnan().any(d, keepdim=True).where(self.argmax(d, keepdim=True), at)
        return _taken(self, at, d, keepdim)

    def nanmedian(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The lower median of what isn't NaN."""
        if dim is None:
            return self.reshape((-1,)).nanmedian(0).values
        d = _along("nanmedian", self, dim)
        if not self.ndim:
            return ValuesIndices(self, self.zeros_of((), dt.int32))
        count = (~self.isnan()).sum(d, keepdim=True)
        at = _order(self, d, False).gather(d, (count - 1).clamp(0) // 2)
        return _taken(self, at, d, keepdim)

    def mode(self: Any, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """The most frequent value (the smallest of several) and where it is last."""
        d = _along("mode", self, dim)
        if not self.ndim:
            return ValuesIndices(self, self.zeros_of((), dt.int32))
        n = self.shape[d]
        values, at = self.detach().sort(d)
        one = tuple(n if i == d else 1 for i in range(self.ndim))
        place = (self.ones_of((n,), dt.int32).cumsum(0) - 1).reshape(one)
        # The length of each run of equal values so far: the longest ends at the answer.
        new = values.slice_axis(d, min(1, n), n - 1) != values.slice_axis(d, 0, n - 1)
        widths = tuple((1, 0) if i == d else (0, 0) for i in range(self.ndim))
        start = new.int().pad_constant(widths, 0)
        start = ((start != 0).where(place, 0)).cummax(d).values
        best = (place - start).argmax(d, keepdim=True)
        return _taken(self, at.gather(d, best), d, keepdim)

    def quantile(
        self: Any, q: Any, dim: Any = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Tensor:
        """Values below which a share `q` (a number, or a vector: a leading dimension) lies. NaN
        where there is one."""
        return _quantile(self, q, dim, keepdim, interpolation, skip_nan=False)

    def nanquantile(
        self: Any, q: Any, dim: Any = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Tensor:
        """The quantile of what isn't NaN."""
        return _quantile(self, q, dim, keepdim, interpolation, skip_nan=True)

    # -- values as a set (reads) ------------------------------------------------------------------
    def unique(
        self: Any,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """The different values in order (or the different slices of a dimension), optionally the
        place of each element among them and how often each occurs. Reads the tensor."""
        d = None if dim is None else axis("unique", dim, self.ndim)
        values, inverse, counts = np.unique(
            self.numpy(), return_inverse=True, return_counts=True, axis=d, equal_nan=False
        )
        inverse = inverse.reshape(self.shape if d is None else (self.shape[d],))
        return _found(self, values, inverse, counts, return_inverse, return_counts)

    def unique_consecutive(
        self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """The values (or slices of a dimension) that differ from the one before. Reads the
        tensor."""
        a = self.numpy()
        d = None if dim is None else axis("unique_consecutive", dim, self.ndim)
        rows = a.reshape(-1, 1) if d is None else np.moveaxis(a, d, 0).reshape(a.shape[d], -1)
        new = np.ones(rows.shape[0], bool)
        new[1:] = (rows[1:] != rows[:-1]).any(1)
        starts = np.flatnonzero(new)
        values = a.reshape(-1)[starts] if d is None else np.take(a, starts, axis=d)
        inverse = (np.cumsum(new) - 1).reshape(a.shape if d is None else (a.shape[d],))
        counts = np.diff(np.append(starts, rows.shape[0]))
        return _found(self, values, inverse, counts, return_inverse, return_counts)


def _found(x: Any, values: Any, inverse: Any, counts: Any, want_inverse: Any, want: Any) -> Any:
    from .creation import from_array

    dev = x.device
    out = [from_array(values, x.dtype, dev)]
    if want_inverse:
        out.append(from_array(inverse, dt.int32, dev))
    if want:
        out.append(from_array(counts, dt.int32, dev))
    return out[0] if len(out) == 1 else tuple(out)


def _quantile(x: Any, q: Any, dim: Any, keepdim: bool, how: str, skip_nan: bool) -> Any:
    from .creation import tensor

    op = "nanquantile" if skip_nan else "quantile"
    if how not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise ValueRangeError(
            f"{op}: interpolation {how!r}; use linear, lower, higher, nearest or midpoint"
        )
    x = bridge.need_float(op, x)
    if dim is None:
        flat = x.reshape((-1,))
        out = _quantile(flat, q, 0, False, how, skip_nan)
        return out.reshape((*out.shape, *([1] * x.ndim))) if keepdim else out
    d = _along(op, x, dim)
    share = bridge.cast(q if hasattr(q, "_node") else tensor(q, device=x.device.inner()), x.dtype)
    if share.ndim > 1:
        raise ShapeError(f"{op}: q must be a number or a vector, got shape {share.shape}")
    rows = (x.reshape((1,)) if not x.ndim else x.transpose(d, -1)).sort(-1).values
    n = rows.shape[-1]
    bad = rows.isnan()
    if skip_nan:
        last: Any = ((~bad).sum(-1, keepdim=True) - 1).clamp(0).to(x.dtype)
    else:
        last = float(n - 1)
    vector = share.reshape((-1,))
    place = (vector * last).expand((*rows.shape[:-1], vector.shape[0]))
    low = place.ceil() if how == "higher" else place.round() if how == "nearest" else place.floor()
    out = rows.gather(-1, low.int())
    if how in ("linear", "midpoint"):
        weight = 0.5 * (place.ceil() - low) if how == "midpoint" else place - low
        out = out.lerp(rows.gather(-1, place.ceil().int()), weight)
    if not skip_nan:
        out = bad.any(-1, keepdim=True).where(float("nan"), out)
    # The quantiles go first, the reduced dimension is gone or 1.
    out = out.movedim(-1, 0).unsqueeze(-1).transpose(d + 1, -1) if x.ndim else out.unsqueeze(-1)
    if not x.ndim:
        out = out.reshape((vector.shape[0],))
    elif not keepdim:
        out = out.squeeze(d + 1)
    return out if share.ndim else out.reshape(out.shape[1:])


def searchsorted(
    sorted_sequence: Any, input: Any, right: bool = False, side: str | None = None
) -> Any:
    """Where to insert `input` into ordered rows (int32): rows of one shape but the last, or one row
    for all. right (or side="right"): behind equal values."""
    right = right if side is None else side == "right"
    number = not hasattr(input, "_node")
    found = bridge.pair("searchsorted", sorted_sequence, input)
    if found is None:
        raise ValueRangeError("searchsorted: input must be a tensor or a number")
    rows, x = found
    if rows.ndim != 1 and rows.shape[:-1] != x.shape[:-1]:
        raise ShapeError(
            f"searchsorted: rows {rows.shape} and values {x.shape} must agree but for the last "
            "dimension"
        )
    values = x.unsqueeze(-1)
    rows = rows if rows.ndim == 1 else rows.unsqueeze(-2)
    before = rows <= values if right else rows < values
    if values.dtype.is_float:
        before = before | values.isnan()
    out = before.sum(-1)
    return out.reshape(()) if number else out


def bucketize(input: Any, boundaries: Any, right: bool = False) -> Any:
    """The number of boundaries below each value (right: not above it), int32."""
    if not hasattr(boundaries, "_node"):
        from .creation import tensor

        boundaries = tensor(boundaries, device=input.device.inner())
    return searchsorted(boundaries, input, right)
