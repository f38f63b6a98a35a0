"""Reductions made of others: norms, moments, counts, running extrema and products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..core import dtype as dt
from ..core.errors import ShapeError, ValueRangeError
from ..core.shape import axis
from ..ops import scan as sn
from ..ops.record import Op
from . import bridge
from .reduction import ValuesIndices

if TYPE_CHECKING:
    from .tensor import Tensor


class Statistics:
    """`dim` (an int, several, or None for all) and `keepdim` as in `Reduction`."""

    __slots__ = ()

    def norm(
        self: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Tensor:
        """The p-norm over dims: 0 counts, 1, 2 ("fro"), inf, -inf or any power. Its gradient at 0
        is 0. Raises ValueRangeError for the nuclear norm."""
        if isinstance(p, str) and p != "fro":
            raise ValueRangeError(f"norm: p={p!r} is not supported; use 'fro' or a number")
        x = self if dtype is None else bridge.cast(self, dt.dtype_of(dtype))
        x = bridge.need_float("norm", x)
        p = 2.0 if p == "fro" or p is None else float(p)
        if p == math.inf or p == -math.inf:
            size = x.abs()
            return size.amax(dim, keepdim) if p > 0 else size.amin(dim, keepdim)
        if p == 0:
            return (x != 0).to(x.dtype).sum(dim, keepdim)
        if p == 1:
            return x.abs().sum(dim, keepdim)
        total = (x * x if p == 2 else x.abs() ** p).sum(dim, keepdim)
        zero = total == 0
        safe = zero.where(1.0, total)
        return zero.where(0.0 if p > 0 else math.inf, safe.sqrt() if p == 2 else safe ** (1 / p))

    def dist(self: Any, other: Any, p: float = 2) -> Tensor:
        """The p-norm of the difference."""
        return (self - other).norm(p)

    def count_nonzero(self: Any, dim: Any = None) -> Tensor:
        """How many elements are not 0 (int32)."""
        return (self != 0).sum(dim)

    def aminmax(self: Any, dim: Any = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return self.amin(dim, keepdim), self.amax(dim, keepdim)

    def var_mean(
        self: Any, dim: Any = None, correction: float = 1, keepdim: bool = False
    ) -> tuple[Tensor, Tensor]:
        return self.var(dim, correction, keepdim), self.mean(dim, keepdim)

    def std_mean(
        self: Any, dim: Any = None, correction: float = 1, keepdim: bool = False
    ) -> tuple[Tensor, Tensor]:
        return self.std(dim, correction, keepdim), self.mean(dim, keepdim)

    def nansum(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        """Sum of the elements that are not NaN."""
        return (self.isnan().where(0.0, self) if self.dtype.is_float else self).sum(dim, keepdim)

    def nanmean(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        """Mean of the elements that are not NaN."""
        count = (~self.isnan()).to(self.dtype).sum(dim, keepdim)
        return self.nansum(dim, keepdim) / count

    # -- running ----------------------------------------------------------------------------------
    def cumprod(self: Any, dim: int) -> Tensor:
        """Running product along a dimension; the gradient is exact at zeros."""
        x = bridge.cast(self, dt.int32) if self.dtype.kind == "b" or self.dtype.bits == 8 else self
        d = axis("cumprod", dim, self.ndim)
        return bridge.apply(sn.cumprod, (x,), d) if self.ndim else x

    def cummax(self: Any, dim: int) -> ValuesIndices:
        """Running maximum and where it was last met; a NaN stays."""
        return _running(self, "cummax", dim, sn.cummax_index)

    def cummin(self: Any, dim: int) -> ValuesIndices:
        """Running minimum and where it was last met; a NaN stays."""
        return _running(self, "cummin", dim, sn.cummin_index)

    def diff(self: Any, n: int = 1, dim: int = -1) -> Tensor:
        """Differences of neighbours, `n` times over."""
        d = axis("diff", dim, self.ndim)
        if not self.ndim:
            raise ShapeError("diff needs at least one dimension")
        out = self
        for _ in range(n):
            size = max(out.shape[d] - 1, 0)
            ahead = out.slice_axis(d, min(1, out.shape[d]), size)
            behind = out.slice_axis(d, 0, size)
            out = ahead.logical_xor(behind) if out.dtype.kind == "b" else ahead - behind
        return out

    def cov(self: Any, correction: float = 1) -> Tensor:
        """Covariances of the rows (variables), columns are observations."""
        x = self.reshape((1, -1)) if self.ndim < 2 else self
        x = x - x.mean(1, keepdim=True)
        out = x @ x.mT / float(max(x.shape[1] - correction, 0))
        return out.reshape(()) if self.ndim < 2 else out

    def corrcoef(self: Any) -> Tensor:
        """Correlation coefficients of the rows."""
        c = self.cov()
        if not c.ndim:
            return c / c
        s = c.diagonal().sqrt()
        return (c / s.unsqueeze(1) / s.unsqueeze(0)).clamp(-1, 1)


def _running(x: Any, op: str, dim: int, index: Op) -> ValuesIndices:
    d = axis(op, dim, x.ndim)
    if not x.ndim:
        return ValuesIndices(x, x.zeros_of((), dt.int32))
    seen = bridge.cast(x, dt.int32) if x.dtype.kind == "b" else x
    place = bridge.apply(index, (seen,), d)
    return ValuesIndices(x.gather(d, place), place)
