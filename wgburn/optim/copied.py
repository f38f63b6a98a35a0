"""Updates that are recorded once and copied: parameters of one kind are updated by the same ops.

Owns: what an update did to one parameter, as nodes on its inputs, and the same for another. Must
not know: update rules, states' names.

Recording an op through tensors checks and infers what is known already for the second parameter:
a copy takes about an eighth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.node import Node

#: An op of the update: op, attrs, dyn, dtype and where its sources are (a place among the values,
#: or a node that all parameters share).
Recorded = tuple[Any, Any, tuple[Any, ...], Any, tuple[Any, ...]]


class Copied:
    """The nodes between inputs and outputs of one update."""

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node], flags: Any) -> None:
        #: Whatever else is the same for all parameters of the kind.
        self.flags = flags
        self.inputs = len(inputs)
        self.places: dict[int, int] = {id(n): k for k, n in enumerate(inputs)}
        self.ops: list[Recorded] = []
        self.shape = inputs[0].shape
        #: Whether the same ops are an update of any other shape.
        self.fits = all(n.shape == self.shape for n in (*inputs, *outputs))
        for n in outputs:
            self._add(n)
        self.outputs = [self.places.get(id(n), -1) for n in outputs]
        self.fits = self.fits and -1 not in self.outputs
        # Ids are of nodes that may die.
        self.places = {}

    def _add(self, last: Node) -> None:
        """Take a node and what it reads, sources first."""
        stack = [last]
        while stack:
            n = stack[-1]
            if id(n) in self.places or n.op is None:
                stack.pop()
                continue
            todo = [s for s in n.srcs if id(s) not in self.places and s.srcs]
            if todo:
                stack.extend(todo)
                continue
            stack.pop()
            places = [self.places.get(id(s)) for s in n.srcs]
            if any(p is not None for p in places):
                refs = tuple(s if p is None else p for s, p in zip(n.srcs, places, strict=True))
                self.fits = (
                    self.fits
                    and n.op.kind == "elementwise"
                    and n.shape == self.shape
                    and all(isinstance(r, int) or r.shape == () for r in refs)
                )
                self.places[id(n)] = self.inputs + len(self.ops)
                self.ops.append((n.op, n.attrs, n.dyn, n.dtype, refs))
            else:  # made of constants alone
                self.fits = False
                self.places[id(n)] = -1

    def on(self, inputs: Sequence[Node]) -> list[Node]:
        """The outputs of the same update of another parameter."""
        first = inputs[0]
        shape, backend = first.shape, first.backend
        backend.recorded += len(self.ops)
        if backend.recorded > backend.record_limit:
            backend.flush()
        values = list(inputs)
        for op, attrs, dyn, dtype, refs in self.ops:
            srcs = tuple([values[r] if type(r) is int else r for r in refs])
            values.append(Node(op, srcs, attrs, dyn, shape, dtype, backend))
        return [values[k] for k in self.outputs]
