"""Recompute or keep: large values that wait for readers far away are computed a second time there.

Owns: `recompute`, a pass on a graph before its nodes are grouped. Must not know: kernels, groups.

A training step keeps for its backward pass what the forward pass computed. Much of that follows in
a few operations from values that are kept anyway: a dropped value from the value and the counter of
its random numbers, a normalised row from the row, its mean and its spread. Such a value is cloned
for its late readers, so that the first dies early. The idea is rematerialisation (Briggs, Cooper,
Torczon, "Rematerialization", 1992; for the memory of training Chen, Xu, Zhang, Guestrin, "Training
deep nets with sublinear memory cost", 2016). Clones compute the same ops on the same inputs and the
same random numbers: results are the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from .graph import GNode, Graph
from .memory import device_bytes
from .units import FEW_AGAIN, Units, is_work, own_work

#: Bytes of a value from which on it is worth a launch of its own: what a GPU moves in the time that
#: a launch costs (some 10 us at 400 GB/s).
LARGE = 4 << 20
#: Bytes that may be alive together before anything is done for less: memory that is there is free.
PLENTY = 256 << 20
#: Units that run between the readers before a value and the late ones.
FAR = 16
#: Units for which another value may be kept longer to compute a clone from it.
NEAR = 8
#: Work an element of one clone: a random number, a function or two and a few operations.
MOST_WORK = 400
#: Large values that a clone loads.
MOST_LOADS = 3
#: A value of so small a part of another's size may be kept longer for it.
PART = 16


@dataclass(frozen=True)
class Clone:
    """One decision: `unit` is computed again for `late` readers, from `nodes`, after `anchor`."""

    unit: int
    late: frozenset[int]
    nodes: frozenset[int]
    anchor: int


def recompute(graph: Graph, most_reads: int) -> Graph:
    """A graph of the same results in which less has to be alive at once, for kernels that read so
    many buffers at most."""
    computed = (n for n in graph.nodes if n.op is not None and n.op.kind != "view")
    if sum(map(_bytes, computed)) < PLENTY:
        return graph
    units = Units(graph, True, most_reads, FEW_AGAIN)
    clones = _Lives(graph, units).clones()
    return _Rewriter(graph, units, clones).run() if clones else graph


def _bytes(n: GNode) -> int:
    return device_bytes(n.shape, n.dtype)


def _may(graph: Graph, units: Units, u: int) -> bool:
    """Whether a unit is large, computed from elements, and read more than once."""
    n = graph.nodes[u]
    several = len(units.readers[u]) > 1 and u not in units.outputs
    return several and is_work(n) and n.dtype.bits != 8 and _bytes(n) >= LARGE


class _Lives:
    """When units are computed and read for the last time, as if each were a kernel."""

    def __init__(self, graph: Graph, units: Units) -> None:
        self.graph = graph
        self.units = units
        self.order = units.in_order()
        self.at = {u: k for k, u in enumerate(self.order)}
        self.last = {u: max((self.at[r] for r in units.readers[u]), default=-1) for u in self.order}
        self.alive = self._alive()

    def _alive(self) -> list[int]:
        """Bytes alive while each unit is computed."""
        steps = [0] * (len(self.order) + 1)
        for u in self.order:
            if u in self.units.outputs or self._passes(u):
                continue
            size = _bytes(self.graph.nodes[u])
            steps[self.at[u]] += size
            steps[max(self.last[u], self.at[u]) + 1] -= size
        for k in range(1, len(steps)):
            steps[k] += steps[k - 1]
        return steps

    def _passes(self, u: int) -> bool:
        """Whether a unit has one reader that can take it over inside a kernel."""
        readers = self.units.readers[u]
        if len(readers) != 1:
            return False
        (r,) = readers
        return (
            is_work(self.graph.nodes[r]) and self.graph.nodes[r].shape == self.graph.nodes[u].shape
        )

    def clones(self) -> list[Clone]:
        """What to compute again. What comes earlier is decided first: later values can build on
        what stays."""
        if max(self.alive, default=0) < PLENTY:
            return []
        found = []
        for u in self.order:
            if _may(self.graph, self.units, u):
                clone = self._clone(u)
                if clone is not None:
                    found.append(clone)
        return found

    def _clone(self, u: int) -> Clone | None:
        readers = sorted(self.at[r] for r in self.units.readers[u])
        gaps = [b - a for a, b in pairwise(readers)]
        k = max(range(len(gaps)), key=gaps.__getitem__)
        early, first = readers[k], readers[k + 1]
        if gaps[k] < FAR or max(self.alive[early + 1 : first], default=0) < PLENTY:
            return None
        late = frozenset(self.order[r] for r in readers[k + 1 :])
        anchor = self._anchor(late, early, first)
        nodes = self._recipe(u, first) if anchor >= 0 else None
        if nodes is None:
            return None
        self.last[u] = early
        return Clone(u, late, nodes, anchor)

    def _recipe(self, u: int, when: int) -> frozenset[int] | None:
        """Nodes that compute a unit from what is in memory at a place of the order, or None."""
        graph, size = self.graph, _bytes(self.graph.nodes[u])
        nodes: set[int] = set()
        loads: set[int] = set()
        work = 0
        stack = [u]
        while stack:
            i = stack.pop()
            n = graph.nodes[i]
            if i in nodes or i in loads:
                continue
            small = _bytes(n) * PART <= size
            stays = n.op is None or (i in self.units.units and self._stays(i, when, small))
            if i != u and stays:
                loads.add(i)
            elif n.op is None or n.op.kind in ("reduce", "kernel"):
                return None
            else:
                nodes.add(i)
                work += own_work(n)
                stack.extend(n.srcs)
        heavy = [i for i in loads if _bytes(graph.nodes[i]) * PART > size]
        if work > MOST_WORK or len(heavy) > MOST_LOADS or len(loads) > self.units.most_reads:
            return None
        for i in loads & self.units.units:
            self.last[i] = max(self.last[i], when)
        return frozenset(nodes)

    def _stays(self, i: int, when: int, small: bool) -> bool:
        return small or i in self.units.outputs or self.last[i] >= when - NEAR

    def _anchor(self, late: frozenset[int], early: int, first: int) -> int:
        """A unit that keeps clones from being computed early: the last before the late readers, by
        preference one that they read."""
        bound = min(late)
        reads = {r for u in late for r in self.units.read_by(u)}
        for among in (reads, self.order[early + 1 : first]):
            fit = [self.at[a] for a in among if a < bound and early < self.at[a] < first]
            if fit:
                return self.order[max(fit)]
        return -1


class _Rewriter:
    """Copies a graph; late readers, and what is computed inside them, read clones."""

    def __init__(self, graph: Graph, units: Units, clones: list[Clone]) -> None:
        self.graph = graph
        self.units = units
        self.swaps: dict[int, dict[int, Clone]] = {}
        for c in clones:
            for r in c.late:
                self.swaps.setdefault(r, {})[c.unit] = c
        self.nodes: list[GNode] = []
        self.new: dict[int, int] = {}
        self.made: dict[object, int] = {}
        self.after: dict[int, int] = {}

    def run(self) -> Graph:
        for i, n in enumerate(self.graph.nodes):
            swap = self.swaps.get(i)
            srcs = [self._late(s, swap) for s in n.srcs] if swap else [self.new[s] for s in n.srcs]
            self.new[i] = self._add(n, srcs)
        return self._reachable()

    def _add(self, n: GNode, srcs: list[int]) -> int:
        new = tuple(srcs)
        self.nodes.append(n if n.srcs == new else replace(n, srcs=new))
        return len(self.nodes) - 1

    def _once(self, key: object, n: GNode, srcs: list[int]) -> int:
        if key not in self.made:
            self.made[key] = self._add(n, srcs)
        return self.made[key]

    def _late(self, i: int, swap: dict[int, Clone]) -> int:
        """A node as a late reader sees it."""
        if i in swap:
            return self._cloned(i, swap[i])
        n = self.graph.nodes[i]
        if i in self.units.units or n.op is None:
            return self.new[i]
        srcs = [self._late(s, swap) for s in n.srcs]
        if srcs == [self.new[s] for s in n.srcs]:
            return self.new[i]
        return self._once((i, *srcs), n, srcs)

    def _cloned(self, i: int, clone: Clone) -> int:
        if i not in clone.nodes:
            return self.new[i]
        key = (i, clone)
        if key not in self.made:
            n = self.graph.nodes[i]
            k = self._once(key, n, [self._cloned(s, clone) for s in n.srcs])
            if is_work(n):
                self.after[k] = self.new[clone.anchor]
        return self.made[key]

    def _reachable(self) -> Graph:
        """Without what nothing reads any more. Leaves stay: their slots are the plan's."""
        used = {self.new[o] for o in self.graph.outputs}
        for i in reversed(range(len(self.nodes))):
            if i in used:
                used.update(self.nodes[i].srcs)
        moved: dict[int, int] = {}
        nodes: list[GNode] = []
        for i, n in enumerate(self.nodes):
            if i in used or n.op is None:
                moved[i] = len(nodes)
                srcs = tuple(moved[s] for s in n.srcs)
                nodes.append(n if n.srcs == srcs else replace(n, srcs=srcs))
        g = self.graph
        return replace(
            g,
            nodes=nodes,
            outputs=tuple(moved[self.new[o]] for o in g.outputs),
            uses=[],
            donations={moved[self.new[o]]: leaf for o, leaf in g.donations.items()},
            after={moved[k]: moved[a] for k, a in self.after.items() if k in moved},
        )
