"""The op record: everything wgburn knows of one primitive, in one place.

Owns: `Op`, the families' constructors and how records are registered. Must not know: any device,
tensors (gradient rules get them as arguments and only use operators on them), or how kernels are
made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import dtype as dt
from ..core import hostmem
from ..core.dtype import DType
from ..core.errors import DTypeError
from ..core.shape import Shape, broadcast, reduced

Array = NDArray[Any]


class Call(NamedTuple):
    """What a numpy rule is told besides its arrays."""

    attrs: Any
    dyn: tuple[Any, ...]
    shape: Shape
    dtype: np.dtype[Any]
    out: Array | None = None  # where the result may be written

    def room(self) -> Array:
        """Memory for the result: where the caller wants it, or new."""
        return hostmem.empty(self.shape, self.dtype) if self.out is None else self.out


class NonDiff:
    """Gradient rule of an op with no gradient: results are constants."""

    def __init__(self, why: str) -> None:
        self.why = why


@dataclass(frozen=True)
class Unsupported:
    """A rule that does not exist, and why. Using it raises."""

    why: str


def unsupported(why: str) -> Unsupported:
    """Spell out a missing rule."""
    return Unsupported(why)


NONDIFF = NonDiff("integer or boolean result, or piecewise constant")
#: A saved value that is the op's own output.
OUT = -1


@dataclass(frozen=True)
class Template:
    """WGSL rule: a kernel family of `shaders/`, chosen by name in compile.templates."""

    name: str


@dataclass(frozen=True, eq=False)
class Op:
    """One primitive. Equality and hash are identity, so that a plan's key may hold records.

    kind: "elementwise" (numpy rule writes into out=; WGSL is an expression), "source" (elementwise
    with no input; the expression sees the element's linear index {i}), "reduce", "view", "kernel".
    saves[i]: what the gradient of input i reads: input numbers, or OUT.
    """

    name: str
    kind: str
    arity: int
    shape: Callable[..., Shape]
    dtype: Callable[..., DType]
    numpy: Callable[..., Any]
    wgsl: Any
    grad: Any
    saves: tuple[tuple[int, ...], ...] = ()
    onnx: Any = field(default_factory=lambda: Unsupported("no ONNX mapping yet"))
    dtypes: str = "biuf"  # kinds of the first input that the op takes
    dyn: str = ""  # kinds of the slots on the device: "i" integer, "d" the op's own dtype

    def __repr__(self) -> str:
        return f"<op {self.name}>"


TABLE: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add a record to the table; a name is taken once."""
    if op.name in TABLE:
        raise ValueError(f"op {op.name!r} is in the table already")
    TABLE[op.name] = op
    return op


def _same(attrs: Any, a: DType, *rest: DType) -> DType:
    return a


def _bool(attrs: Any, *rest: DType) -> DType:
    return dt.bool_


def _index(attrs: Any, *rest: DType) -> DType:
    return dt.int32


def unary(
    name: str,
    np_rule: Callable[..., Any],
    wgsl: Any,
    grad: Any,
    *,
    saves: tuple[int, ...] = (),
    dtypes: str = "f",
    result: Callable[..., DType] = _same,
    onnx: Any = None,
) -> Op:
    """A record of one input, element by element. `np_rule(x, out=)` as a ufunc."""

    def numpy_rule(call: Call, out: Array, x: Array) -> None:
        np_rule(x, out=out)

    return register(
        Op(
            name,
            "elementwise",
            1,
            lambda attrs, a: a,
            result,
            numpy_rule,
            wgsl,
            grad,
            (saves,),
            onnx or Unsupported("no ONNX mapping yet"),
            dtypes,
        )
    )


def binary(
    name: str,
    np_rule: Callable[..., Any],
    wgsl: Any,
    grad: Any,
    *,
    saves: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    dtypes: str = "iuf",
    result: Callable[..., DType] = _same,
    onnx: Any = None,
) -> Op:
    """A record of two inputs that broadcast. `np_rule(a, b, out=)` as a ufunc."""

    def shape_rule(attrs: Any, a: Shape, b: Shape) -> Shape:
        return a if a == b else broadcast(name, a, b)

    def numpy_rule(call: Call, out: Array, a: Array, b: Array) -> None:
        np_rule(a, b, out=out)

    return register(
        Op(
            name,
            "elementwise",
            2,
            shape_rule,
            result,
            numpy_rule,
            wgsl,
            grad,
            saves,
            onnx or Unsupported("no ONNX mapping yet"),
            dtypes,
        )
    )


class ReduceAttrs(NamedTuple):
    axes: tuple[int, ...]
    keepdim: bool


def reduce(
    name: str,
    np_rule: Callable[..., Array],
    wgsl: Any,
    grad: Any,
    *,
    saves: tuple[int, ...] = (),
    dtypes: str = "biuf",
    result: Callable[..., DType] = _same,
    onnx: Any = None,
) -> Op:
    """A record that reduces `attrs.axes`. `np_rule(x, axis=, keepdims=, dtype=)`."""

    def shape_rule(attrs: ReduceAttrs, a: Shape) -> Shape:
        return reduced(a, attrs.axes, attrs.keepdim)

    def numpy_rule(call: Call, x: Array) -> Array:
        return np_rule(x, call.attrs.axes, call.attrs.keepdim, call.dtype)

    return register(
        Op(
            name,
            "reduce",
            1,
            shape_rule,
            result,
            numpy_rule,
            wgsl,
            grad,
            (saves,),
            onnx or Unsupported("no ONNX mapping yet"),
            dtypes,
        )
    )


def check_dtype(op: Op, d: DType) -> None:
    """Raise DTypeError unless the op takes `d`."""
    if d.kind not in op.dtypes:
        kinds = {"b": "bool", "i": "signed integers", "u": "unsigned integers", "f": "floats"}
        takes = ", ".join(kinds[k] for k in op.dtypes)
        raise DTypeError(
            f"{op.name} takes {takes}, got {d.name}; convert first, e.g. x.to(wb.float32)"
        )
