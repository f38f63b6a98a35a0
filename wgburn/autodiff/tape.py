"""The tape: what was done to differentiable tensors, and what the gradient rules need of it.

Owns: `GradFn`, `Leaf`, the grad mode. Must not know: the Tensor class (it is handed in), devices,
ops. A GradFn keeps exactly what its rules read, until backward has run or its tensors die.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from functools import cache
from typing import Any

from ..core.errors import GradError
from ..core.node import Node
from ..ops.record import OUT, NonDiff, Unsupported
from ..ops.source import const

#: Numbers of recorded ops: what was recorded earlier has the smaller one.
next_seq = itertools.count().__next__


class _Mode(threading.local):
    enabled = True


mode = _Mode()


class Leaf:
    """The end of a tape: a tensor whose gradient is wanted. Holds the tensor weakly."""

    __slots__ = ("__weakref__", "seq", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = weakref.ref(tensor)
        self.seq = -1

    def check_version(self, op: str, version: int) -> None:
        """Raise GradError when the tensor was changed in place since `op` read it."""
        leaf = self.tensor()
        if leaf is not None and leaf._version != version:
            raise GradError(
                f"backward through {op}: {leaf.label()} was changed in place after the op read it "
                f"(version {leaf._version}, read at {version}); run the forward pass again after "
                "the update, or clone() the value before it"
            )


class Rule:
    """The gradient of a composite: what GradFn needs of an op, without a record in the table."""

    __slots__ = ("grad", "name", "saves")
    kind = "composite"

    def __init__(self, name: str, grad: Any, saves: tuple[tuple[int, ...], ...] = ()) -> None:
        self.name = name
        self.grad = grad
        self.saves = saves


#: An input as its gradient rule will see it: node, place on the tape, version.
Saved = tuple[Node, Any, int]


@cache
def _reads(
    saves: tuple[tuple[int, ...], ...], needs: tuple[bool, ...]
) -> tuple[tuple[int, ...], bool]:
    """The inputs that the rules of needed gradients read, and whether they read the output."""
    found = {i for needed, what in zip(needs, saves, strict=False) if needed for i in what}
    return tuple(sorted(found - {OUT})), OUT in found


class GradFn:
    """One recorded op: its parents on the tape and the values its rules read."""

    __slots__ = (
        "__weakref__",
        "attrs",
        "base",
        "dtypes",
        "dyn",
        "name",
        "needs",
        "out",
        "parents",
        "rule",
        "saved",
        "seq",
        "shape",
        "shapes",
        "dtype",
    )

    def __init__(self, op: Any, out: Node, inputs: tuple[Any, ...]) -> None:
        self.name = op.name
        self.rule = op.grad
        self.attrs = out.attrs
        self.dyn = out.dyn
        self.shape = out.shape
        self.dtype = out.dtype
        # Runs for every op of every step: one and two inputs are written out.
        first = inputs[0]
        x, fn = first._node, first._fn
        self.parents: tuple[Any, ...] | None
        self.needs: tuple[bool, ...]
        if len(inputs) == 1:
            self.shapes: tuple[Any, ...] = (x.shape,)
            self.dtypes: tuple[Any, ...] = (x.dtype,)
            self.parents, self.needs = (fn,), (fn is not None,)
        elif len(inputs) == 2:
            y, other = inputs[1]._node, inputs[1]._fn
            self.shapes, self.dtypes = (x.shape, y.shape), (x.dtype, y.dtype)
            self.parents, self.needs = (fn, other), (fn is not None, other is not None)
        else:
            self.shapes = tuple([t._node.shape for t in inputs])
            self.dtypes = tuple([t._node.dtype for t in inputs])
            self.parents = tuple([t._fn for t in inputs])
            self.needs = tuple([p is not None for p in self.parents])
        self.seq = next_seq()
        # A view of a leaf (weight.T) goes stale with it: the leaf and its version.
        self.base: tuple[Leaf, int] | None = None
        if op.kind == "view":
            if type(fn) is Leaf:
                self.base = (fn, first._version)
            elif type(fn) is GradFn:
                self.base = fn.base
        self.out: Node | None = None
        self.saved: dict[int, Saved] | None = {}
        if op.saves:
            reads, result = _reads(op.saves, self.needs)
            if result:
                self.out = out
            for i in reads:
                t = inputs[i]
                self.saved[i] = (t._node, t._fn, t._version)

    def held_nodes(self) -> list[Node]:
        """Values that must be kept when they are computed (see core.node.Pending).

        Not Python scalars: a gradient's plan takes them as numbers, stored they are a buffer each.
        """
        nodes = [n for n, *_ in self.saved.values() if n.op is not const] if self.saved else []
        if self.out is not None:
            nodes.append(self.out)
        return nodes

    def release(self) -> None:
        """Let go of everything saved; the fn can't be walked again."""
        self.saved = None
        self.parents = None
        self.out = None


class Context:
    """What a gradient rule sees: saved inputs and output as tensors, structure, what is needed."""

    __slots__ = ("attrs", "dtypes", "dyn", "ins", "needs", "out", "shape", "shapes")

    def __init__(self, fn: GradFn, make: Any) -> None:
        saved = fn.saved
        if saved is None:
            raise GradError(
                f"backward through {fn.name} a second time: its saved values were freed by "
                "the first; call backward(retain_graph=True) the first time"
            )
        self.attrs = fn.attrs
        self.dyn = fn.dyn
        self.needs = fn.needs
        self.shape = fn.shape
        self.shapes = fn.shapes
        self.dtypes = fn.dtypes
        self.ins: list[Any] = [None] * len(fn.shapes)
        for i, (node, place, version) in saved.items():
            if type(place) is Leaf:
                place.check_version(fn.name, version)
            elif type(place) is GradFn and place.base is not None:
                place.base[0].check_version(fn.name, place.base[1])
            self.ins[i] = make(node, place)
        self.out = make(fn.out, fn) if fn.out is not None else None


def check_rule(fn: GradFn) -> Any:
    """The rule as a callable. Raises GradError for an op that has none."""
    if isinstance(fn.rule, Unsupported):
        raise GradError(f"{fn.name} has no gradient: {fn.rule.why}")
    return fn.rule


def differentiable(op: Any) -> bool:
    """False for ops whose results are constants."""
    return not isinstance(op.grad, NonDiff)
