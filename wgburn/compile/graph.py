"""Normal form of pending work: nodes in order, leaves as numbered slots, numbers as slots, a key.

Owns: `normalise`, `Graph`. Must not know: devices, kernels, tensors. Two pieces of work with equal
keys run the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any

from ..core import journal
from ..core.dtype import DType
from ..core.node import Node, Store
from ..core.shape import Shape

#: References that whoever asks for an update holds to the old node (the optimizer's undo).
UPDATE_REFS = 1


@dataclass(slots=True)
class GNode:
    """One node of a graph: a leaf (op None, `leaf` its slot) or an op on earlier nodes."""

    op: Any
    srcs: tuple[int, ...]
    attrs: Any
    shape: Shape
    dtype: DType
    dyn: int = 0  # first of its number slots
    ndyn: int = 0
    leaf: int = -1
    strides: Shape | None = None  # leaves: None = dense
    alias: int = -1  # leaves: the first leaf slot with the same buffer
    page: int = -1  # leaves that are weights: the first leaf slot in the same page of them
    offset_slot: int = -1  # leaves with strides: the number slot of their offset


@dataclass(slots=True)
class Graph:
    """A plan's input: no buffer, no number, only structure."""

    nodes: list[GNode]
    outputs: tuple[int, ...]
    leaves: int
    numbers: int
    uses: list[int] = field(default_factory=list)
    #: Outputs that may take the memory of a leaf nobody needs afterwards: node -> leaf slot.
    donations: dict[int, int] = field(default_factory=dict)
    #: Nodes that are to be computed after another one, though they read nothing of it.
    after: dict[int, int] = field(default_factory=dict)

    def is_zero(self, i: int) -> bool:
        """Whether a node is zeros by structure."""
        n = self.nodes[i]
        while n.op is not None and n.op.name in ("expand", "reshape"):
            n = self.nodes[n.srcs[0]]
        if n.op is None or n.op.name != "const" or n.attrs.value is None:
            return False
        return bool(n.attrs.value == 0)

    def count_uses(self) -> list[int]:
        """How many times each node is read (outputs count once more)."""
        uses = [0] * len(self.nodes)
        for n in self.nodes:
            for s in n.srcs:
                uses[s] += 1
        for o in self.outputs:
            uses[o] += 1
        self.uses = uses
        return uses


def _shown(node: Node) -> Node:
    """What a chain of views shows."""
    while node.store is None and node.op.kind == "view":
        node = node.srcs[0]
    return node


class Work:
    """Pending nodes in normal form: the key, and what a plan with that key is bound to."""

    __slots__ = ("donations", "key", "leaves", "numbers", "order", "outputs", "parts")

    def __init__(self, outputs: Sequence[Node], updates: Sequence[tuple[Node, Node]] = ()) -> None:
        index: dict[Node, int] = {}
        order: list[Node] = []
        parts: list[Any] = []
        leaves: list[Store] = []
        numbers: list[Any] = []
        buffers: dict[int, int] = {}
        pages: dict[int, int] = {}
        stack = list(reversed(outputs))
        # Runs for every node of every step: few calls, few objects.
        while stack:
            node = stack[-1]
            if node in index:
                stack.pop()
                continue
            store = node.store
            if store is not None:
                stack.pop()
                index[node] = len(order)
                order.append(node)
                alias = buffers.setdefault(id(store.buf), len(leaves))
                if store.lasting:
                    page = pages.setdefault(id(store.buf.page), len(leaves))
                    parts.append((store.sig, alias, page))
                else:
                    parts.append((store.sig, alias))
                leaves.append(store)
                if store.layout is not None:
                    numbers.append(store.layout[1])
                continue
            srcs = node.srcs
            ready = True
            for s in reversed(srcs):
                if s not in index:
                    stack.append(s)
                    ready = False
            if not ready:
                continue
            stack.pop()
            index[node] = len(order)
            order.append(node)
            if len(srcs) == 2:
                parts.append((node.op, node.attrs, index[srcs[0]], index[srcs[1]]))
            elif len(srcs) == 1:
                parts.append((node.op, node.attrs, index[srcs[0]]))
            else:
                parts.append((node.op, node.attrs, *[index[s] for s in srcs]))
            if node.dyn:
                numbers.extend(node.dyn)
        if order:
            s = order[-1]  # _donated counts references: the loop must not keep one
        self.outputs = tuple([index[n] for n in outputs])
        self.order = order
        self.parts = parts
        self.leaves = leaves
        self.numbers = numbers
        self.donations = self._donated(updates, index) if updates else ()
        self.key = (*parts, self.outputs, self.donations)

    def _donated(
        self, updates: Sequence[tuple[Node, Node]], index: dict[Node, int]
    ) -> tuple[tuple[int, int], ...]:
        """(output, leaf slot) for updates whose old value nobody else holds: neither a tensor, nor
        a tape, nor a view of its buffer, be it a view that this work is to give out."""
        slots: dict[Node, int] = {}
        held: dict[Node, int] = {}
        for n in self.order:
            if n.store is not None:
                slots[n] = len(slots)
                held[n] = 0
            else:
                for s in n.srcs:
                    if s in held:
                        held[s] += 1
        shown = {_shown(self.order[o]) for o in self.outputs}
        found = []
        for old, new in updates:
            store = old.store
            if store is None or store.layout is not None or old not in slots or old in shown:
                continue
            if new not in index or index[new] not in self.outputs:
                continue
            # References to the old node: its readers, the order, the three tables here, the pair,
            # this loop, getrefcount's own, whoever asks for the update, a rehearsal's journal.
            expected = held[old] + 7 + UPDATE_REFS + journal.active()
            alone = getrefcount(store) <= 4 and getrefcount(store.buf) <= 2
            if alone and getrefcount(old) <= expected:
                found.append((index[new], slots[old]))
        return tuple(found)

    def graph(self) -> Graph:
        """The structure, for compiling a plan."""
        nodes: list[GNode] = []
        leaf = number = 0
        for node, part in zip(self.order, self.parts, strict=True):
            if node.store is not None:
                g = GNode(None, (), None, node.shape, node.dtype, leaf=leaf, alias=part[1])
                g.page = part[2] if len(part) > 2 else -1
                if node.store.layout is not None:
                    g.strides, g.offset_slot = node.store.layout[0], number
                    number += 1
                leaf += 1
            else:
                g = GNode(
                    node.op, part[2:], node.attrs, node.shape, node.dtype, number, len(node.dyn)
                )
                number += len(node.dyn)
            nodes.append(g)
        return Graph(nodes, self.outputs, leaf, number, donations=dict(self.donations))
