"""Grouping: which nodes are computed together in one kernel.

Owns: `Group`, the choice of nodes that get memory ("units"), merging of units. Must not know: how a
kernel's text looks; whether a merge can be written is asked of a `trial`.

A node that is no unit is recomputed inside every kernel that reads it. Units are visited in order
and join the group of a producer where the kernel can hold them: elementwise work behind a heavy
kernel or a reduction (its epilogue), reductions over one domain (softmax, layer norm and their
gradients are one group), elementwise work of one shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from .graph import GNode, Graph

#: Longest row that a workgroup walks again to write full-size results.
ROW_LIMIT = 16384
#: Work of recomputing a value in a second reader that is cheaper than storing and loading it.
RECOMPUTE_COST = 4
RECOMPUTE_LOADS = 2
#: Elementwise kernels of so few elements cost a launch and little else: any two of a shape are
#: joined.
SMALL = 1 << 16
#: Ends of a graph up to this size share kernels whatever their shapes.
END = 1 << 22
#: Where a chain of recomputed ops gets memory although one kernel could hold it.
LONG_COST = 400
LONG_DEPTH = 80
#: Ops one behind the other in one kernel, however they came together.
MOST_DEPTH = 160
#: Ops that cost much more than a load.
HEAVY_OPS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh sigmoid softplus erf erfinv pow atan2 random_bits random_uniform random_normal".split()
)


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


def base_of(graph: Graph, i: int) -> int:
    """The node that a chain of views shows."""
    n = graph.nodes[i]
    while n.op is not None and n.op.kind == "view":
        i = n.srcs[0]
        n = graph.nodes[i]
    return i


def _is_work(n: GNode) -> bool:
    return (
        n.op is not None and n.op.kind not in ("view", "reduce", "kernel") and n.op.name != "const"
    )


class Grouping:
    """The groups of a graph, in an order in which they can run."""

    def __init__(
        self,
        graph: Graph,
        fuse: bool,
        trial: Callable[[Group, dict[int, bool]], str],
        adopt: Callable[[Grouping], None] = lambda grouping: None,
        most_reads: int = 1 << 30,
        segments: int = 1,
    ) -> None:
        self.graph = graph
        self.fuse = fuse
        self.trial = trial
        #: Buffers that one kernel can read: what it recomputes must not need more.
        self.most_reads = most_reads
        self.outputs = {base_of(graph, o) for o in graph.outputs}
        #: Ops one behind the other that computing a unit takes.
        self.depth: dict[int, int] = {}
        self.units = self._units()
        self.reads = self._reads()
        self.readers = self._readers()
        self.leaf_readers = self._leaf_readers()
        self.group_of: dict[int, Group] = {}
        self.groups: list[Group] = []
        adopt(self)
        for u in sorted(self.units):
            self._place(u)
        if fuse:
            self._join_siblings()
        if fuse and segments > 1:
            self._join_small(segments)

    # -- what gets memory -------------------------------------------------------------------------
    def _units(self) -> set[int]:
        nodes = self.graph.nodes
        units = {o for o in self.outputs if _is_work(nodes[o])}
        users: list[list[int]] = [[] for _ in nodes]
        for i, n in enumerate(nodes):
            if n.op is None:
                continue
            if n.op.kind in ("reduce", "kernel"):
                units.add(i)
            for s in n.srcs:
                b = base_of(self.graph, s)
                if n.op.kind != "view":
                    users[b].append(i)
                repeats = n.op.kind == "indexed" and prod(n.shape) > prod(nodes[b].shape)
                if (n.op.kind == "kernel" or repeats) and _is_work(nodes[b]):
                    units.add(b)
        if not self.fuse:
            return units | {i for i, n in enumerate(nodes) if _is_work(n)}
        # Cost of recomputing, and how many stored values that reads, from the leaves up.
        cost = [0] * len(nodes)
        depth = [0] * len(nodes)
        loads: list[frozenset[int]] = [frozenset()] * len(nodes)
        binds: list[frozenset[int]] = []
        for i, n in enumerate(nodes):
            binds.append(self._bound(n, binds, units))
            if n.op is None:
                loads[i] = frozenset((i,)) if prod(n.shape) > 1 else frozenset()
                continue
            deep = 1 + max((depth[s] for s in n.srcs), default=0)
            if n.op.kind in ("reduce", "kernel") or i in units:
                loads[i] = frozenset((i,))
                self.depth[i] = deep
                continue
            own = (
                0
                if n.op.kind == "view" or n.op.name == "const"
                else 8
                if n.op.name in HEAVY_OPS
                else RECOMPUTE_COST
                if n.op.kind == "indexed"
                else 1
            )
            cost[i] = own + sum(cost[s] for s in n.srcs)
            depth[i] = self.depth[i] = deep
            loads[i] = frozenset().union(*(loads[s] for s in n.srcs)) if n.srcs else frozenset()
            many = len(set(users[i])) > 1
            if _is_work(n) and many and self._behind_kernel(i, n, users):
                units.add(i)
                cost[i], loads[i], depth[i] = 0, frozenset((i,)), 0
                continue
            if (
                _is_work(n)
                and many
                and (cost[i] > RECOMPUTE_COST or len(loads[i]) > RECOMPUTE_LOADS)
            ):
                units.add(i)
                cost[i], loads[i], depth[i] = 0, frozenset((i,)), 0
            elif _is_work(n) and (cost[i] > LONG_COST or depth[i] > LONG_DEPTH):
                # Long chains read once stay together; this only stops texts without end.
                units.add(i)
                cost[i], loads[i], depth[i] = 0, frozenset((i,)), 0
        return units

    def _bound(self, n: GNode, binds: list[frozenset[int]], units: set[int]) -> frozenset[int]:
        """Buffers that computing a node reads; what needs most gets memory until all fit."""
        bases = {base_of(self.graph, s) for s in n.srcs}
        while True:
            need = {}
            for b in bases:
                op = self.graph.nodes[b].op
                stored = op is None or op.kind in ("reduce", "kernel") or b in units
                need[b] = frozenset((b,)) if stored else binds[b]
            every = frozenset().union(*need.values())
            most = max(bases, key=lambda b: len(need[b]), default=-1)
            if len(every) <= self.most_reads or len(need[most]) <= 1:
                return every
            units.add(most)

    def _behind_kernel(self, i: int, n: GNode, users: list[list[int]]) -> bool:
        """Whether a node can be stored for nothing: it is all that is done with a heavy kernel's
        result."""
        for s in n.srcs:
            b = base_of(self.graph, s)
            op = self.graph.nodes[b].op
            if op is not None and op.kind == "kernel" and set(users[b]) == {i}:
                return prod(self.graph.nodes[b].shape) == prod(n.shape)
        return False

    def _reads(self) -> list[int]:
        """Per node a bit mask of the units it reads (through nodes that have no memory)."""
        reads = [0] * len(self.graph.nodes)
        for i, n in enumerate(self.graph.nodes):
            for s in n.srcs:
                reads[i] |= (1 << s) if s in self.units else reads[s]
        return reads

    def _readers(self) -> dict[int, set[int]]:
        out: dict[int, set[int]] = {u: set() for u in self.units}
        for u in self.units:
            for r in bits(self.reads[u]):
                out[r].add(u)
        return out

    def _leaf_readers(self) -> dict[int, set[int]]:
        """Per leaf slot the units that read it."""
        found: list[frozenset[int]] = []
        out: dict[int, set[int]] = {}
        for i, n in enumerate(self.graph.nodes):
            if n.op is None:
                found.append(frozenset((n.leaf,)))
                continue
            mine = (
                frozenset().union(*(found[s] for s in n.srcs if s not in self.units))
                if n.srcs
                else frozenset()
            )
            found.append(mine)
            if i in self.units:
                for leaf in mine:
                    out.setdefault(leaf, set()).add(i)
        return out

    # -- merging ----------------------------------------------------------------------------------
    def stored(self, group: Group) -> dict[int, bool]:
        """Members that must be in memory: read by another group, or an output."""
        inside = set(group.members)
        return {u: u in self.outputs or not self.readers[u] <= inside for u in group.members}

    def _new(self, u: int) -> Group:
        n = self.graph.nodes[u]
        if n.op.kind == "reduce":
            g = Group("rows", [u], self.graph.nodes[n.srcs[0]].shape, n.attrs.axes)
        else:
            g = Group("kernel" if n.op.kind == "kernel" else "elementwise", [u], n.shape)
        g.mask = 1 << u
        g.depth = self.depth.get(u, 1)
        g.deps = set(bits(self.reads[u]))
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
        return g.length <= ROW_LIMIT or g.rows >= 16

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
            end = all(self.readers[m] <= set(g.members) for m in g.members)
            if prod(g.shape) > (END if end else SMALL):
                continue
            if not g.bindings and self.trial(g, self.stored(g)):
                continue
            for k, h in enumerate(open_):
                both = h.bindings + g.bindings - self._shared(h, g)
                parts = len(h.parts or [h])
                if not g.deps.isdisjoint(h.members) or not h.deps.isdisjoint(g.members):
                    continue
                if both <= self.most_reads + 1 and parts < most and self._merge(h, g, True):
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
            if i in self.units or n.op is None:
                if prod(n.shape) > 1:
                    out.add(i)
            else:
                stack.extend(n.srcs)
        return out

    # -- order ------------------------------------------------------------------------------------
    def ordered(self, late: set[int] | frozenset[int] = frozenset()) -> list[Group]:
        """Groups after everything they read; those that compute one of `late` as late as
        possible."""
        waits: dict[int, int] = {}
        readers: dict[int, list[Group]] = {}
        for g in self.groups:
            before = {id(self.group_of[d]): self.group_of[d] for d in g.deps}
            before.pop(id(g), None)
            waits[id(g)] = len(before)
            for k in before:
                readers.setdefault(k, []).append(g)
        ready: tuple[list[Group], list[Group]] = ([], [])

        def admit(g: Group) -> None:
            ready[not late.isdisjoint(g.members)].append(g)

        for g in self.groups:
            if not waits[id(g)]:
                admit(g)
        out: list[Group] = []
        while ready[0] or ready[1]:
            g = (ready[0] or ready[1]).pop(0)
            out.append(g)
            for r in readers.get(id(g), ()):
                waits[id(r)] -= 1
                if not waits[id(r)]:
                    admit(r)
        return out


def bits(mask: int) -> list[int]:
    """Positions of the set bits."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
