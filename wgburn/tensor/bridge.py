"""The bridge: from a Tensor method to a node of the lazy graph, and onto the tape.

Owns: recording, dtype promotion, Python scalars as constants, the checks every op shares. Must not
know: what a backend does with the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import copysign
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..autodiff.tape import GradFn, mode
from ..core.dtype import DType, float32, promote, promote_scalar
from ..core.errors import DeviceError, DTypeError
from ..core.node import Node, Number
from ..ops import elementwise as ew
from ..ops.record import NonDiff, Op, check_dtype
from ..ops.source import ConstAttrs, const

if TYPE_CHECKING:
    from .tensor import Tensor

#: Scalars that change what a kernel can be (identities) are structure; every other one is a slot.
_STRUCTURAL = (0, 1, -1)


@cache
def slot_of(dtype: DType) -> ConstAttrs:
    """The attributes of a constant whose value is a slot."""
    return ConstAttrs(dtype, None)


def scalar_node(value: Number, dtype: DType, backend: Any) -> Node:
    """A constant of shape ()."""
    if dtype.kind == "f":
        value = float(value)
        structural = value in _STRUCTURAL and not (value == 0 and copysign(1, value) < 0)
    elif dtype.kind == "b":
        value, structural = bool(value), True
    else:
        value = int(value)
        structural = value in _STRUCTURAL
    if structural:
        return Node(const, (), ConstAttrs(dtype, value), (), (), dtype, backend)
    return Node(const, (), slot_of(dtype), (value,), (), dtype, backend)


def wrap(cls: Any, node: Node, ad: bool) -> Tensor:
    """A tensor for a node that isn't on the tape."""
    t: Tensor = cls(node, ad)
    if node.store is None:
        node.backend.pending.refs.append(ref(t))
    return t


def hold(holder: Any) -> None:
    """Keep what a holder (see core.node.Pending) holds when it is computed."""
    for node in holder.held_nodes():
        node.backend.pending.refs.append(ref(holder))
        break


def apply(
    op: Op, inputs: tuple[Tensor, ...], attrs: Any = None, dyn: tuple[Number, ...] = ()
) -> Tensor:
    """Record an op on tensors: the node, and the tape where an input is differentiable."""
    first = inputs[0]
    x = first._node
    backend = x.backend
    if x.dtype.kind not in op.dtypes:
        check_dtype(op, x.dtype)
    # Runs for every op of every step: one and two inputs are written out.
    if len(inputs) == 1:
        srcs: tuple[Node, ...] = (x,)
        ad, taped = first._ad, first._fn is not None
        shape, dtype = op.shape(attrs, x.shape), op.dtype(attrs, x.dtype)
    elif len(inputs) == 2:
        second = inputs[1]
        y = second._node
        if y.backend is not backend:
            mixed(op.name, inputs)
        srcs = (x, y)
        ad = first._ad or second._ad
        taped = first._fn is not None or second._fn is not None
        shape, dtype = op.shape(attrs, x.shape, y.shape), op.dtype(attrs, x.dtype, y.dtype)
    else:
        srcs = tuple([t._node for t in inputs])
        ad = taped = False
        for t in inputs:
            if t._node.backend is not backend:
                mixed(op.name, inputs)
            ad = ad or t._ad
            taped = taped or t._fn is not None
        shape = op.shape(attrs, *[n.shape for n in srcs])
        dtype = op.dtype(attrs, *[n.dtype for n in srcs])
    backend.recorded += 1
    if backend.recorded > backend.record_limit:
        backend.flush()
    node = Node(op, srcs, attrs, dyn, shape, dtype, backend)
    out = type(first)._plain(node, ad)
    refs = backend.pending.refs
    refs.append(ref(out))
    if taped and mode.enabled and type(op.grad) is not NonDiff and dtype.kind == "f":
        fn = out._fn = GradFn(op, node, inputs)
        if fn.saved or fn.out is not None:
            refs.append(ref(fn))
    return out


def constant(cls: Any, value: Number, dtype: DType, backend: Any) -> Tensor:
    """A Python scalar as a tensor operand (held by nobody, so not pending)."""
    t: Tensor = cls._plain(scalar_node(value, dtype, backend), False)
    return t


def operand(t: Tensor, other: Any, op: str) -> Tensor | None:
    """`other` as a tensor beside `t`: a tensor, a Python or numpy scalar, a numpy array or list;
    None when it is nothing wgburn knows (so that Python tries the reflected method)."""
    cls = type(t)
    if isinstance(other, (bool, int, float)):
        return constant(cls, other, promote_scalar(t._node.dtype, other), t._node.backend)
    return t._coerce(other)


def pair(op: str, a: Tensor, other: Any) -> tuple[Tensor, Tensor] | None:
    """Both operands in one dtype, or None."""
    if type(other) is type(a) or hasattr(other, "_node"):
        b = other
    else:
        found = operand(a, other, op)
        if found is None:
            return None
        b = found
    if b._node.backend is not a._node.backend:
        mixed(op, (a, b))
    x, y = a._node.dtype, b._node.dtype
    if x is not y:
        # A tensor of shape () made from a Python scalar was given its dtype by `operand` already.
        both = promote(x, y)
        if x is not both:
            a = cast(a, both)
        if y is not both:
            b = cast(b, both)
    return a, b


def cast(t: Tensor, dtype: DType) -> Tensor:
    """The tensor in another dtype; itself where it has it."""
    if t._node.dtype is dtype:
        return t
    t._node.backend.check_dtype(dtype, "cast")
    node = t._node
    if node.op is const and node.store is None:
        # A constant takes the dtype at once: no cast to run, no rounding twice.
        value = node.dyn[0] if node.attrs.value is None else node.attrs.value
        if dtype.kind == "f" or (node.dtype.kind != "f" and abs(value) < 128):
            return type(t)._plain(scalar_node(value, dtype, node.backend), t._ad)
    return apply(ew.cast, (t,), dtype)


def mixed(op: str, inputs: Sequence[Tensor]) -> None:
    """Raise the error of an op on tensors of several devices."""
    names = list(dict.fromkeys(t._node.backend.name for t in inputs))
    raise DeviceError(
        f"{op}: tensors on {' and '.join(names)}; move one first, e.g. y.to(x.device)"
    )


def need_float(op: str, t: Tensor) -> Tensor:
    """Integers and booleans become float32, as torch's float functions do."""
    return t if t._node.dtype.kind == "f" else cast(t, float32)


def same_kind(op: str, t: Tensor, kinds: str) -> None:
    """Raise DTypeError unless the dtype's kind is one of `kinds`."""
    if t._node.dtype.kind not in kinds:
        raise DTypeError(f"{op} does not take {t._node.dtype.name}; convert first with x.to(...)")
