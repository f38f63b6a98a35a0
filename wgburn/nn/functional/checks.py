"""What functions ask of their arguments, and the errors that say what to write instead."""

from __future__ import annotations

from typing import Any

from ...core.errors import DTypeError, ShapeError, ValueRangeError


def need_float(op: str, **tensors: Any) -> None:
    """Raise DTypeError unless every tensor given is of one float dtype."""
    first: Any = None
    for name, t in tensors.items():
        if t is None:
            continue
        if not t.dtype.is_float:
            raise DTypeError(
                f"{op}: {name} is {t.dtype.name}, it takes floats; convert first: {name}.float()"
            )
        if first is None:
            first = (name, t.dtype)
        elif t.dtype is not first[1]:
            raise DTypeError(
                f"{op}: {name} is {t.dtype.name} and {first[0]} {first[1].name}; "
                f"convert one, e.g. {first[0]}.to(wb.{t.dtype.name})"
            )


def per_dim(op: str, name: str, value: Any, n: int) -> tuple[int, ...]:
    """An int, or one int a spatial dimension, as a tuple of n. Raises ValueRangeError."""
    if isinstance(value, int):
        return (value,) * n
    out = tuple(int(v) for v in value)
    if len(out) == 1:
        return out * n
    if len(out) != n:
        raise ValueRangeError(f"{op}: {name}={value!r} must be one int or {n}")
    return out


def spatial(op: str, x: Any, n: int) -> tuple[Any, bool]:
    """x as [N, C, *S] of n spatial dimensions, and whether the batch dimension had to be added."""
    if x.ndim == n + 2:
        return x, False
    if x.ndim == n + 1:
        return x.unsqueeze(0), True
    names = "DHW"[3 - n :]
    form = ", ".join(names)
    raise ShapeError(
        f"{op}: input {x.shape} has {x.ndim} dimensions, it takes [N, C, {form}] or [C, {form}]"
    )


def reduction_of(op: str, loss: Any, reduction: str) -> Any:
    """The mean, the sum, or every element."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ValueRangeError(f"{op}: reduction {reduction!r}; use 'mean', 'sum' or 'none'")
