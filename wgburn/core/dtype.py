"""Element types: the nine dtypes, their host and device forms, and promotion.

Owns: `DType` and promotion. Must not know: devices (which says itself what it supports) or ops.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .errors import DTypeError


class DType:
    """An element type. Singletons, so identity is equality (and hashing costs nothing)."""

    __slots__ = ("kind", "name", "np", "bits", "order")

    def __init__(self, name: str, np_name: str, kind: str, bits: int, order: int) -> None:
        self.name = name
        self.np = np.dtype(np_name)
        self.kind = kind  # "b" bool, "i" signed, "u" unsigned, "f" float
        self.bits = bits
        self.order = order  # position within promotion of one kind

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def itemsize(self) -> int:
        """Bytes an element on the host."""
        return self.np.itemsize

    def __repr__(self) -> str:
        return f"wgburn.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype_of, (self.name,))


bool_ = DType("bool_", "bool", "b", 1, 0)
uint8 = DType("uint8", "uint8", "u", 8, 0)
int8 = DType("int8", "int8", "i", 8, 1)
uint32 = DType("uint32", "uint32", "u", 32, 2)
int32 = DType("int32", "int32", "i", 32, 3)
int64 = DType("int64", "int64", "i", 64, 4)
float16 = DType("float16", "float16", "f", 16, 0)
float32 = DType("float32", "float32", "f", 32, 1)
float64 = DType("float64", "float64", "f", 64, 2)

ALL = (bool_, uint8, int8, uint32, int32, int64, float16, float32, float64)
_BY_NAME = {d.name: d for d in ALL} | {
    "bool": bool_,
    "half": float16,
    "float": float32,
    "double": float64,
}
_BY_NP = {d.np: d for d in ALL}


def dtype_of(spec: Any) -> DType:
    """The DType named by a DType, a name, a numpy dtype or a Python type. Raises DTypeError."""
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    if spec is float:
        return float32
    if spec is int:
        return int32
    if spec is bool:
        return bool_
    try:
        found = _BY_NP.get(np.dtype(spec))
    except TypeError:
        found = None
    if found is None:
        known = ", ".join(d.name for d in ALL)
        raise DTypeError(f"no dtype {spec!r} in wgburn; use one of {known}")
    return found


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype of an op on tensors of `a` and `b`: torch's table, where results that torch widens
    to 16 or 64 bit integers are int32 (uint8 + int8, int32 + uint32)."""
    if a is b:
        return a
    if a.kind == "b":
        return b
    if b.kind == "b":
        return a
    if a.is_float or b.is_float:
        if a.is_float and b.is_float:
            return a if a.order > b.order else b
        return a if a.is_float else b
    if int64 in (a, b):
        return int64
    if a.kind != b.kind:
        return int32
    return a if a.order > b.order else b


def promote_scalar(t: DType, value: bool | int | float) -> DType:
    """The dtype of an op on a tensor of `t` and a Python scalar, which widens only the kind."""
    if isinstance(value, bool):
        return t
    if isinstance(value, int):
        return int32 if t.kind == "b" else t
    return t if t.is_float else float32
