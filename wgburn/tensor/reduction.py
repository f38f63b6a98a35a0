"""Reductions, running sums and matrix products of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import dtype as dt
from ..core.errors import DTypeError, ShapeError
from ..core.shape import axes, axis
from ..ops import index as ix
from ..ops import matmul as mm
from ..ops import reduce as rd
from ..ops import scan as sn
from ..ops.record import Op, ReduceAttrs
from . import bridge

if TYPE_CHECKING:
    from .tensor import Tensor


class ValuesIndices(NamedTuple):
    """What torch returns from max(dim), sort, topk."""

    values: Any
    indices: Any


def _reduce(self: Any, op: Op, dim: Any, keepdim: bool) -> Any:
    dims = axes(op.name, dim, self.ndim)
    return bridge.apply(op, (self,), ReduceAttrs(dims, bool(keepdim)))


def _nonempty(self: Any, op: str, dims: tuple[int, ...]) -> None:
    if any(self.shape[i] == 0 for i in dims):
        raise ShapeError(f"{op}: dims {dims} of {self.shape} have no elements, so there is no {op}")


def _extreme(self: Any, op: Op, dim: Any, keepdim: bool) -> Any:
    if self.dtype.kind == "b":
        return bridge.cast(_extreme(bridge.cast(self, dt.int32), op, dim, keepdim), dt.bool_)
    _nonempty(self, op.name, axes(op.name, dim, self.ndim))
    return _reduce(self, op, dim, keepdim)


def _with_position(self: Any, value: str, position: Op, dim: int, keepdim: bool) -> ValuesIndices:
    """Value and position along one dimension; the gradient goes to the position alone (torch)."""
    if self.dtype.kind == "b":
        found = _with_position(bridge.cast(self, dt.int32), value, position, dim, keepdim)
        return ValuesIndices(bridge.cast(found.values, dt.bool_), found.indices)
    d = axis(value, dim, self.ndim)
    if not self.ndim:
        return ValuesIndices(self, self.zeros_of((), dt.int32))
    _nonempty(self, value, (d,))
    where = _reduce(self, position, d, True)
    out = bridge.apply(ix.gather, (self, where), d)
    return ValuesIndices(out, where) if keepdim else ValuesIndices(out.squeeze(d), where.squeeze(d))


class Reduction:
    """Reductions take `dim` (an int, several, or None for all; `axis` in numpy) and `keepdim`."""

    __slots__ = ()

    def sum(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        """Sum; integers and booleans sum in int32 on every device."""
        x = self if dtype is None else bridge.cast(self, dt.dtype_of(dtype))
        return _reduce(x, rd.sum_, dim, keepdim)

    def prod(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = bridge.cast(self, dt.int32) if self.dtype.kind == "b" else self
        return _reduce(x, rd.prod, dim, keepdim)

    def mean(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        """Arithmetic mean; NaN over nothing. Raises DTypeError for integers, as torch."""
        if not self.dtype.is_float:
            raise DTypeError(
                f"mean takes floats, got {self.dtype.name}; convert first: x.float().mean()"
            )
        n = 1
        for i in axes("mean", dim, self.ndim):
            n *= self.shape[i]
        return self.sum(dim, keepdim) / float(n)

    def var(
        self: Any,
        dim: Any = None,
        correction: float = 1,
        keepdim: bool = False,
        unbiased: Any = None,
    ) -> Tensor:
        """Variance about the mean with n - correction degrees of freedom, in two passes."""
        if unbiased is not None:
            correction = 1 if unbiased else 0
        if not self.dtype.is_float:
            raise DTypeError(
                f"var takes floats, got {self.dtype.name}; convert first: x.float().var()"
            )
        dims = axes("var", dim, self.ndim)
        n = 1
        for i in dims:
            n *= self.shape[i]
        centred = self - self.mean(dims, keepdim=True)
        free = n - correction
        total = (centred * centred).sum(dims, keepdim)
        return total / float(free) if free > 0 else total * float("nan")

    def std(
        self: Any,
        dim: Any = None,
        correction: float = 1,
        keepdim: bool = False,
        unbiased: Any = None,
    ) -> Tensor:
        """Square root of the variance."""
        return self.var(dim, correction, keepdim, unbiased).sqrt()

    def amax(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        """Maximum; NaN propagates; ties share the gradient. Raises ShapeError over nothing."""
        return _extreme(self, rd.amax, dim, keepdim)

    def amin(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        return _extreme(self, rd.amin, dim, keepdim)

    def max(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The maximum; with a dim (values, indices); with a tensor the element-wise maximum."""
        if hasattr(dim, "_node"):
            return self.maximum(dim)
        if dim is None:
            return self.amax()
        return _with_position(self, "max", rd.argmax, dim, keepdim)

    def min(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The minimum; with a dim (values, indices); with a tensor the element-wise minimum."""
        if hasattr(dim, "_node"):
            return self.minimum(dim)
        if dim is None:
            return self.amin()
        return _with_position(self, "min", rd.argmin, dim, keepdim)

    def argmax(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        """Position of the maximum (int32), flat without dim; the first of equals; a NaN wins."""
        x = bridge.cast(self, dt.int32) if self.dtype.kind == "b" else self
        _nonempty(x, "argmax", axes("argmax", dim, self.ndim))
        return _reduce(x, rd.argmax, dim, keepdim)

    def argmin(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = bridge.cast(self, dt.int32) if self.dtype.kind == "b" else self
        _nonempty(x, "argmin", axes("argmin", dim, self.ndim))
        return _reduce(x, rd.argmin, dim, keepdim)

    def any(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        return _reduce(bridge.cast(self, dt.bool_), rd.any_, dim, keepdim)

    def all(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        return _reduce(bridge.cast(self, dt.bool_), rd.all_, dim, keepdim)

    def cumsum(self: Any, dim: int) -> Tensor:
        """Running sum along a dimension."""
        x = bridge.cast(self, rd.sum_.dtype(None, self.dtype))
        return bridge.apply(sn.cumsum, (x,), axis("cumsum", dim, self.ndim)) if self.ndim else x

    def logsumexp(self: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
        """log(sum(exp(x))) without overflow."""
        top = self.amax(dim, keepdim=True).detach()
        top = top.isfinite().where(top, 0.0)
        out = (self - top).exp().sum(dim, keepdim=True).log() + top
        if keepdim:
            return out
        return out.reshape(
            tuple(s for i, s in enumerate(self.shape) if i not in axes("logsumexp", dim, self.ndim))
        )

    def softmax(self: Any, dim: int) -> Tensor:
        """exp(x) normalised to sum 1 along `dim`."""
        x = bridge.need_float("softmax", self)
        e = (x - x.amax(dim, keepdim=True).detach()).exp()
        return e / e.sum(dim, keepdim=True)

    def log_softmax(self: Any, dim: int) -> Tensor:
        """log(softmax(x)) without overflow or lost digits."""
        x = bridge.need_float("log_softmax", self)
        x = x - x.amax(dim, keepdim=True).detach()
        return x - x.exp().sum(dim, keepdim=True).log()

    # -- matrix products --------------------------------------------------------------------------
    def matmul(self: Any, other: Any) -> Tensor:
        """Matrix product with numpy's rules for vectors and batches. Raises ShapeError."""
        return _matmul(self, other)

    def __matmul__(self: Any, other: Any) -> Tensor:
        return _matmul(self, other)

    def __rmatmul__(self: Any, other: Any) -> Tensor:
        return _matmul(self._coerce(other), self)

    mm = bmm = matmul

    def dot(self: Any, other: Any) -> Tensor:
        """Inner product of two vectors."""
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(
                f"dot takes two vectors, got {self.shape} and {other.shape}; use matmul"
            )
        return _matmul(self, other)


def _matmul(a: Any, b: Any) -> Any:
    operands = bridge.pair("matmul", a, b)
    if operands is None:
        return NotImplemented
    a, b = operands
    if not a.ndim or not b.ndim:
        raise ShapeError(
            f"matmul: {a.shape} @ {b.shape}: both need at least one dimension; use * for scalars"
        )
    if a.dtype.kind == "b":
        raise DTypeError("matmul does not take bool_; convert first: x.int()")
    if a.dtype.bits == 8:
        a, b = bridge.cast(a, dt.int32), bridge.cast(b, dt.int32)
    row, column = a.ndim == 1, b.ndim == 1
    if row:
        a = a.reshape((1, a.shape[0]))
    if column:
        b = b.reshape((b.shape[0], 1))
    out = bridge.apply(mm.matmul, (a, b))
    if row and column:
        return out.reshape(out.shape[:-2])
    if row:
        return out.reshape((*out.shape[:-2], out.shape[-1]))
    return out.reshape(out.shape[:-1]) if column else out
