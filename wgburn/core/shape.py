"""Shape arithmetic: broadcasting, axes, strides. Owns pure functions on tuples of ints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from .errors import ShapeError

Shape = tuple[int, ...]


@lru_cache(maxsize=4096)
def broadcast(op: str, *shapes: Shape) -> Shape:
    """numpy's broadcast of shapes. Raises ShapeError naming `op`, the shapes and the dimension."""
    out: list[int] = []
    rank = max(len(s) for s in shapes)
    for i in range(1, rank + 1):
        size = 1
        for s in shapes:
            if i <= len(s) and s[-i] != 1:
                if size not in (1, s[-i]):
                    raise ShapeError(
                        f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast: "
                        f"dimension {-i} is {size} in one and {s[-i]} in another; sizes must be "
                        "equal or 1"
                    )
                size = s[-i]
        out.append(size)
    return tuple(reversed(out))


@lru_cache(maxsize=4096)
def dense_strides(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    out = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        out[i] = out[i + 1] * max(shape[i + 1], 1)
    return tuple(out)


def axis(op: str, dim: int, ndim: int) -> int:
    """A possibly negative dimension as 0..ndim-1. Raises ShapeError (also an IndexError)."""
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise DimError(
            f"{op}: dim {dim} is out of range for a tensor of {ndim} dimensions; "
            f"use {-max(ndim, 1)} to {max(ndim, 1) - 1}"
        )
    return dim + ndim if dim < 0 else dim


class DimError(ShapeError, IndexError):
    """A dimension number is out of range."""


def axes(op: str, dims: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimensions as a sorted tuple of 0..ndim-1; None means all. Raises ShapeError on a repeat."""
    if dims is None:
        return tuple(range(ndim))
    if isinstance(dims, int):
        return (axis(op, dims, ndim),) if ndim else ()
    out = tuple(sorted(axis(op, d, ndim) for d in dims)) if ndim else ()
    if len(set(out)) != len(out):
        raise ShapeError(f"{op}: dims {tuple(dims)} name a dimension twice")
    return out


def reduced(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    """Shape after reducing `dims` (already normalised)."""
    if keepdim:
        return tuple(1 if i in dims else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in dims)


def infer_reshape(op: str, old: Shape, new: Sequence[int]) -> Shape:
    """Resolve one -1 in `new`. Raises ShapeError when the element counts differ."""
    total = prod(old)
    if (not new or min(new) >= 0) and prod(new) == total:
        return tuple(new)
    out = list(new)
    unknown = [i for i, s in enumerate(out) if s == -1]
    if len(unknown) > 1:
        raise ShapeError(f"{op}: shape {tuple(new)} has more than one -1")
    if any(s < -1 for s in out):
        raise ShapeError(f"{op}: shape {tuple(new)} has a negative size")
    if unknown:
        rest = prod(s for s in out if s != -1)
        if rest == 0 or total % rest:
            raise ShapeError(f"{op}: {old} with {total} elements does not fit {tuple(new)}")
        out[unknown[0]] = total // rest
    if prod(out) != total:
        raise ShapeError(
            f"{op}: {old} has {total} elements, {tuple(new)} has {prod(out)}; counts must be equal"
        )
    return tuple(out)


def as_shape(op: str, args: tuple[Any, ...]) -> tuple[int, ...]:
    """`f(2, 3)` and `f((2, 3))` alike."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
    for a in args:
        if type(a) is not int:
            break
    else:
        return args
    try:
        return tuple(int(a.__index__()) for a in args)
    except AttributeError:
        raise ShapeError(f"{op}: a shape is made of ints, got {args!r}") from None
