"""Grouping: which nodes are computed together in one kernel.

Owns: `Group`, merging of units (nodes that get memory, units.py), the order of groups. Must not
know: how a kernel's text looks; whether a merge can be written is asked of a `trial`.

Units are visited in order and join the group of a producer where the kernel can hold them:
elementwise work behind a heavy kernel or a reduction (its epilogue), reductions over one domain
(softmax, layer norm and their gradients are one group), elementwise work of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import prod

from .graph import Graph
from .units import Units, bits, ranks

#: Longest row that a workgroup walks again to write full-size results.
ROW_LIMIT = 16384
#: Elementwise kernels of so few elements cost little more than their launch (a few MB of memory):
#: any two of a shape are joined.
SMALL = 1 << 20
#: Ends of a graph up to this size share kernels whatever their shapes.
END = 1 << 22
#: Ops one behind the other in one kernel, however they came together.
MOST_DEPTH = 160


@dataclass
class Group:
    """Units of one kernel. kind "elementwise": loops over `shape`; "rows": reduces `axes` of
    `shape`, kept dimensions are rows; "kernel": a heavy kernel with result `shape` and its
    epilogue; "segments": elementwise `parts` of different shapes side by side."""

    kind: str
    members: list[int]
    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()
    mask: int = 0
    why: str = ""
    ancestors: int = 0
    deps: set[int] = field(default_factory=set)  # units read from other groups
    parts: list[Group] = field(default_factory=list)
    depth: int = 1  # ops one behind the other, at most
    bindings: int = 0  # buffers that its kernel binds, once a trial knows

    @property
    def rows(self) -> int:
        return prod(s for d, s in enumerate(self.shape) if d not in self.axes)

    @property
    def length(self) -> int:
        return prod(self.shape[d] for d in self.axes)


class Grouping:
    """The groups of a graph, in an order in which they can run."""

    def __init__(
        self,
        graph: Graph,
        units: Units,
        fuse: bool,
        trial: Callable[[Group, dict[int, bool]], str],
        adopt: Callable[[Grouping], None] = lambda grouping: None,
        segments: int = 1,
    ) -> None:
        self.graph = graph
        self.fuse = fuse
        self.trial = trial
        self.units = units
        self.group_of: dict[int, Group] = {}
        self.groups: list[Group] = []
        adopt(self)
        for u in sorted(self.units.units):
            self._place(u)
        if fuse:
            self._join_siblings()
        if fuse and segments > 1:
            self._join_small(segments)

    # -- merging ----------------------------------------------------------------------------------
    def stored(self, group: Group) -> dict[int, bool]:
        """Members that must be in memory: read by another group, or an output."""
        inside = set(group.members)
        return {
            u: u in self.units.outputs or not self.units.readers[u] <= inside for u in group.members
        }

    def _new(self, u: int) -> Group:
        n = self.graph.nodes[u]
        if n.op.kind == "reduce":
            g = Group("rows", [u], self.graph.nodes[n.srcs[0]].shape, n.attrs.axes)
        else:
            g = Group("kernel" if n.op.kind == "kernel" else "elementwise", [u], n.shape)
        g.mask = 1 << u
        g.depth = self.units.depth.get(u, 1)
        g.deps = set(bits(self.units.reads[u]))
        after = self.graph.after.get(u)
        if after is not None:
            g.deps |= {after} if after in self.units.units else set(bits(self.units.reads[after]))
        self._ancestors(g)
        return g

    def _ancestors(self, g: Group) -> None:
        for d in g.deps:
            other = self.group_of.get(d)
            if other is not None and other is not g:
                g.ancestors |= other.ancestors | other.mask

    def _place(self, u: int) -> None:
        own = self._new(u)
        if self.fuse:
            near = sorted(own.deps, reverse=True)
            tried: list[Group] = []
            for d in near[:6]:
                g = self.group_of[d]
                if g not in tried:
                    tried.append(g)
                    if not self._fits(g, own):
                        g.why = g.why or f"{self._name(u)} reads it and needs another kernel"
                    elif self._merge(g, own):
                        return
            if own.kind == "rows":
                for g in reversed(self.groups[-12:]):
                    if g in tried or g.kind != "rows" or not self._same_domain(g, own):
                        continue
                    if self._fits(g, own) and self._merge(g, own):
                        return
        self.groups.append(own)
        self.group_of[u] = own

    def _same_domain(self, a: Group, b: Group) -> bool:
        return a.shape == b.shape and a.axes == b.axes

    def _fits(self, g: Group, own: Group) -> bool:
        """Whether the shapes and kinds let a unit join a group."""
        n = self.graph.nodes[own.members[0]]
        if n.dtype.bits == 8 or any(self.graph.nodes[m].dtype.bits == 8 for m in g.members):
            return False
        if own.kind == "kernel" or (
            g.kind == "kernel" and self.graph.nodes[g.members[0]].dtype.kind == "b"
        ):
            return False
        if own.kind == "rows":
            position = getattr(n.op.wgsl, "position", False)
            if g.kind == "rows":
                others = [self.graph.nodes[m] for m in g.members]
                if position or any(getattr(o.op.wgsl, "position", False) for o in others):
                    return False
                return self._same_domain(g, own) and self._walkable(g)
            # A stored value that is reduced at once: its kernel becomes one of rows.
            short = own.length <= ROW_LIMIT and self._busy(own)
            return g.kind == "elementwise" and not position and g.shape == own.shape and short
        if g.kind == "rows":
            if n.shape == g.shape and g.length <= ROW_LIMIT and self._busy(g):
                return True
            return prod(n.shape) == g.rows
        return n.shape == g.shape or (g.kind == "kernel" and prod(n.shape) == prod(g.shape))

    def _walkable(self, g: Group) -> bool:
        """Whether one workgroup (or thread) a row is enough for several passes over the rows."""
        return g.length <= ROW_LIMIT or g.rows >= 8

    def _name(self, u: int) -> str:
        op = self.graph.nodes[u].op
        return "a copy" if op is None else str(op.name)

    def _busy(self, g: Group) -> bool:
        """Whether rows alone give enough threads to write full-size results."""
        return g.rows * min(g.length, 256) >= 2048 or prod(g.shape) <= 1 << 16

    def _merge(self, g: Group, own: Group, beside: bool = False) -> bool:
        reader = self._name(own.members[0])
        if self._cycle(g, own):
            g.why = g.why or f"{reader} waits for another kernel"
            return False
        if g.depth + own.depth > MOST_DEPTH and not beside:
            g.why = g.why or f"{reader} would make it too long"
            return False
        kind, axes = g.kind, g.axes
        if own.kind == "rows" and g.kind == "elementwise":
            kind, axes = "rows", own.axes
        joined = Group(
            kind, [*g.members, *own.members], own.shape if axes != g.axes else g.shape, axes
        )
        if beside:
            joined.kind, joined.why = "segments", g.why
            joined.parts = [*(g.parts or [g]), *(own.parts or [own])]
        joined.depth = max(g.depth, own.depth) if beside else g.depth + own.depth
        joined.mask = g.mask | own.mask
        joined.deps = (g.deps | own.deps) - set(joined.members)
        joined.ancestors = (g.ancestors | own.ancestors) & ~joined.mask
        before = {m: self.group_of.get(m) for m in joined.members}
        self.group_of.update(dict.fromkeys(joined.members, joined))
        refused = self.trial(joined, self.stored(joined))
        if refused:
            g.why = g.why or f"{reader} does not fit: {refused}"
            for m, old in before.items():
                if old is None:
                    del self.group_of[m]
                else:
                    self.group_of[m] = old
            return False
        self.groups = [joined if x is g else x for x in self.groups if x is not own]
        extra = joined.ancestors | joined.mask
        for x in self.groups:
            if x is not joined and x.ancestors & joined.mask:
                x.ancestors |= extra
        return True

    def _cycle(self, a: Group, b: Group) -> bool:
        """Whether a path leads from one group to the other through a third."""
        for one, two in ((a, b), (b, a)):
            for d in two.deps:
                other = self.group_of[d]
                if other is not one and other is not two and other.ancestors & one.mask:
                    return True
        return False

    def _join_siblings(self) -> None:
        """Elementwise groups of one shape that read the same memory become one kernel."""
        by_shape: dict[tuple[int, ...], list[Group]] = {}
        for g in list(self.groups):
            if g.kind == "elementwise":
                by_shape.setdefault(g.shape, []).append(g)
        for family in by_shape.values():
            kept: list[Group] = []
            for g in family:
                for k, h in enumerate(kept):
                    near = self._shares(h, g) or prod(g.shape) <= SMALL
                    if near and self._clean(h, g) and self._merge(h, g):
                        kept[k] = self.group_of[h.members[0]]
                        break
                else:
                    kept.append(g)

    def _join_small(self, most: int) -> None:
        """Elementwise groups of different shapes side by side in one kernel: small ones, and ends
        of the graph (the updates of an optimizer), for which nothing waits."""
        open_: list[Group] = []
        for g in list(self.groups):
            if g.kind != "elementwise" or not self._clean(g, g) or not prod(g.shape):
                continue
            end = all(self.units.readers[m] <= set(g.members) for m in g.members)
            if prod(g.shape) > (END if end else SMALL):
                continue
            if not g.bindings and self.trial(g, self.stored(g)):
                continue
            for k, h in enumerate(open_):
                both = h.bindings + g.bindings - self._shared(h, g)
                parts = len(h.parts or [h])
                if not g.deps.isdisjoint(h.members) or not h.deps.isdisjoint(g.members):
                    continue
                if both <= self.units.most_reads + 1 and parts < most and self._merge(h, g, True):
                    open_[k] = self.group_of[h.members[0]]
                    break
            else:
                open_.append(g)

    def _shared(self, h: Group, g: Group) -> int:
        """Bindings that two groups side by side need only once: the same memory, and weights in one
        page."""
        mine, others = self._memory(g), self._memory(h)
        nodes = self.graph.nodes
        pages = {nodes[i].page for i in others} - {-1}
        return sum(i in others or nodes[i].page in pages for i in mine)

    def _clean(self, a: Group, b: Group) -> bool:
        return all(self.graph.nodes[m].dtype.bits != 8 for m in (*a.members, *b.members))

    def _shares(self, a: Group, b: Group) -> bool:
        return bool(self._memory(a) & self._memory(b)) or bool(
            a.deps & set(b.members) or b.deps & set(a.members)
        )

    def _memory(self, g: Group) -> set[int]:
        """Units and leaves that a group reads."""
        out: set[int] = set()
        stack = [s for m in g.members for s in self.graph.nodes[m].srcs]
        seen: set[int] = set()
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            seen.add(i)
            n = self.graph.nodes[i]
            if i in self.units.units or n.op is None:
                if prod(n.shape) > 1:
                    out.add(i)
            else:
                stack.extend(n.srcs)
        return out

    # -- order ------------------------------------------------------------------------------------
    def ordered(self, donations: Mapping[int, int] | None = None) -> list[Group]:
        """Groups after everything they read, so that values die early: each shortly before what
        reads it, results that nothing waits for as soon as they can be computed. What takes the
        memory of a leaf (`donations`: node -> leaf slot) waits for the leaf's other readers."""
        number = {id(g): k for k, g in enumerate(self.groups)}
        hard = [
            {number[id(self.group_of[d])] for d in g.deps} - {number[id(g)]} for g in self.groups
        ]
        soft = self._yields(donations or {}, number)
        readers, yielding = _turned(hard), _turned(soft)
        before = {k: g.ancestors.bit_count() for k, g in enumerate(self.groups)}
        rank = ranks(before, readers, {k for k, g in enumerate(self.groups) if self._shrinks(g)})
        # Two heaps: what is free to run, and what should wait for readers of the memory it takes.
        ready: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])

        def admit(k: int) -> None:
            heappush(ready[bool(soft[k])], (rank[k], k))

        for k in range(len(self.groups)):
            if not hard[k]:
                admit(k)
        out: dict[int, Group] = {}
        while ready[0] or ready[1]:
            _, k = heappop(ready[0] or ready[1])
            if k in out:
                continue
            out[k] = self.groups[k]
            for r in readers.get(k, ()):
                hard[r].discard(k)
                if not hard[r]:
                    admit(r)
            for r in yielding.get(k, ()):
                soft[r].discard(k)
                if not soft[r] and not hard[r]:
                    admit(r)
        return list(out.values())

    def _shrinks(self, g: Group) -> bool:
        """Whether a group stores less than it reads of other groups."""
        stored = [m for m, kept in self.stored(g).items() if kept]
        read = {r for m in g.members for r in bits(self.units.reads[m])}
        return self.units.elements(read - set(g.members)) > self.units.elements(stored)

    def _yields(self, donations: Mapping[int, int], number: Mapping[int, int]) -> list[set[int]]:
        """Per group the groups that read leaves whose memory it takes, and do not depend on it."""
        out: list[set[int]] = [set() for _ in self.groups]
        for u, leaf in donations.items():
            g = self.group_of.get(u)
            if g is None:
                continue
            for r in self.units.leaf_readers.get(leaf, ()):
                other = self.group_of[r]
                if other is not g and not other.ancestors & g.mask:
                    out[number[id(g)]].add(number[id(other)])
        return out


def _turned(before: Sequence[set[int]]) -> dict[int, list[int]]:
    """Who waits for each, from what each waits for."""
    out: dict[int, list[int]] = {}
    for k, found in enumerate(before):
        for b in sorted(found):
            out.setdefault(b, []).append(k)
    return out
