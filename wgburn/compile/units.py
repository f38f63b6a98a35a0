"""Units: the nodes of a graph that get memory of their own. All others are recomputed inside every
kernel that reads them.

Owns: the costs of storing, loading and recomputing, the choice of units, who reads which. Must not
know: which units share a kernel (group.py), how a kernel's text looks.

Costs are in simple operations. A GPU does some 30 to 160 of them in the time that it takes to move
4 bytes (peak float32 instructions by memory bandwidth: 28 for an H200, 71 for an RTX 3060, 76 for
an Apple M1, 164 for an RTX 4090, by the vendors' data sheets).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from math import prod

from .graph import GNode, Graph

#: Loading or storing 4 bytes.
LOAD = 64
#: Ops that a shader computes in many steps: roughly what the library's functions take.
WORK = dict.fromkeys(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh sigmoid softplus erf erfinv atan2".split(),
    24,
) | {
    "pow": 48,
    # Ten rounds of Philox: two high halves of products (11 operations each, WGSL has no wider
    # integer) and six more a round.
    "random_bits": 280,
    "random_uniform": 280,
    "random_normal": 640,
}
#: An index and its clamp (what it loads is counted as a load).
INDEXED = 4
#: Work that every reader of a value may do again, however many there are, and the stored values
#: that this may load.
AGAIN, AGAIN_LOADS = 4, 2
#: The same for a value with few readers, by how many stored values it loads. What loads nothing
#: would be a kernel of its own that does nothing else, and 4 bytes an element until the last reader
#: has run; one load in place of another costs the work only.
FEW_AGAIN = (480, LOAD)
FEW = 3
#: Where a chain of recomputed ops gets memory although one kernel could hold it: statements (a
#: library function counts as several) and how many are one behind the other.
LONG_TEXT = 400
LONG_DEPTH = 80


def base_of(graph: Graph, i: int) -> int:
    """The node that a chain of views shows."""
    n = graph.nodes[i]
    while n.op is not None and n.op.kind == "view":
        i = n.srcs[0]
        n = graph.nodes[i]
    return i


def is_work(n: GNode) -> bool:
    """Whether a node is computed inside kernels, one element at a time."""
    return (
        n.op is not None and n.op.kind not in ("view", "reduce", "kernel") and n.op.name != "const"
    )


def own_work(n: GNode) -> int:
    """Simple operations an element of a node, without what it reads."""
    if n.op is None or n.op.kind == "view" or n.op.name == "const":
        return 0
    return INDEXED if n.op.kind == "indexed" else WORK.get(n.op.name, 1)


def _own_text(n: GNode) -> int:
    """Statements of a node in a kernel's text."""
    work = own_work(n)
    return min(work, 4 if n.op is not None and n.op.kind == "indexed" else 8)


class Units:
    """The units of a graph, and which of them read which."""

    def __init__(
        self, graph: Graph, fuse: bool, most_reads: int = 1 << 30, few_again: tuple[int, ...] = ()
    ) -> None:
        self.graph = graph
        #: Buffers that one kernel can read: what it recomputes must not need more.
        self.most_reads = most_reads
        #: Work that few readers may do again, by loads (FEW_AGAIN, or nothing).
        self.few_again = few_again
        self.outputs = {base_of(graph, o) for o in graph.outputs}
        #: Ops one behind the other that computing a unit takes.
        self.depth: dict[int, int] = {}
        self.users, self.units = self._needed()
        if fuse:
            self._choose()
        else:
            self.units |= {i for i, n in enumerate(graph.nodes) if is_work(n)}
        self.reads = self._reads()
        self.readers = self._readers()
        self.leaf_readers = self._leaf_readers()

    def _needed(self) -> tuple[list[list[int]], set[int]]:
        """Nodes that use a node (also through views), and the nodes that must have memory."""
        nodes = self.graph.nodes
        units = {o for o in self.outputs if is_work(nodes[o])}
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
                if (n.op.kind == "kernel" or repeats) and is_work(nodes[b]):
                    units.add(b)
        return users, units

    def _choose(self) -> None:
        """Add what costs more to recompute than to store, from the leaves up."""
        nodes, units = self.graph.nodes, self.units
        work = [0] * len(nodes)
        text = [0] * len(nodes)
        depth = [0] * len(nodes)
        loads: list[frozenset[int]] = [frozenset()] * len(nodes)
        binds: list[frozenset[int]] = []
        for i, n in enumerate(nodes):
            binds.append(self._bound(n, binds))
            if n.op is None:
                loads[i] = frozenset((i,)) if prod(n.shape) > 1 else frozenset()
                continue
            depth[i] = 1 + max((depth[s] for s in n.srcs), default=0)
            stored = n.op.kind in ("reduce", "kernel") or i in units
            if not stored:
                work[i] = own_work(n) + sum(work[s] for s in n.srcs)
                text[i] = _own_text(n) + sum(text[s] for s in n.srcs)
                loads[i] = frozenset().union(*(loads[s] for s in n.srcs))
                # Long chains read once stay together; the limits only stop texts without end.
                stored = is_work(n) and (
                    text[i] > LONG_TEXT
                    or depth[i] > LONG_DEPTH
                    or self._worth_keeping(i, n, work[i], len(loads[i]))
                )
            self.depth[i] = depth[i]
            if stored:
                units.add(i)
                work[i], text[i], depth[i], loads[i] = 0, 0, 0, frozenset((i,))

    def _worth_keeping(self, i: int, n: GNode, work: int, loads: int) -> bool:
        """Whether a value is stored because several nodes use it."""
        readers = len(set(self.users[i]))
        if readers < 2:
            return False
        if self._behind_kernel(i, n):
            return True
        if work <= AGAIN and loads <= AGAIN_LOADS:
            return False
        return readers > FEW or loads >= len(self.few_again) or work > self.few_again[loads]

    def _bound(self, n: GNode, binds: list[frozenset[int]]) -> frozenset[int]:
        """Buffers that computing a node reads; what needs most gets memory until all fit."""
        bases = {base_of(self.graph, s) for s in n.srcs}
        while True:
            need = {}
            for b in bases:
                op = self.graph.nodes[b].op
                stored = op is None or op.kind in ("reduce", "kernel") or b in self.units
                need[b] = frozenset((b,)) if stored else binds[b]
            every = frozenset().union(*need.values())
            most = max(bases, key=lambda b: len(need[b]), default=-1)
            if len(every) <= self.most_reads or len(need[most]) <= 1:
                return every
            self.units.add(most)

    def _behind_kernel(self, i: int, n: GNode) -> bool:
        """Whether a node can be stored for nothing: it is all that is done with a heavy kernel's
        result."""
        for s in n.srcs:
            b = base_of(self.graph, s)
            op = self.graph.nodes[b].op
            if op is not None and op.kind == "kernel" and set(self.users[b]) == {i}:
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

    def read_by(self, u: int) -> list[int]:
        """Units that a unit reads."""
        return bits(self.reads[u])

    def in_order(self) -> list[int]:
        """Units in an order in which they can be computed and values die early."""
        before: dict[int, int] = {}
        for u in sorted(self.units):
            mask = self.reads[u]
            for r in bits(self.reads[u]):
                mask |= before[r]
            before[u] = mask
        shrinks = {
            u for u in self.units if self.elements(bits(self.reads[u])) > self.elements((u,))
        }
        rank = ranks({u: m.bit_count() for u, m in before.items()}, self.readers, shrinks)
        return sorted(self.units, key=lambda u: (rank[u], u))

    def elements(self, units: Iterable[int]) -> int:
        """Elements of units together."""
        return sum(prod(self.graph.nodes[u].shape) for u in units)


def ranks(
    before: Mapping[int, int], readers: Mapping[int, Iterable[int]], shrinks: Container[int]
) -> dict[int, int]:
    """Where things should run, by how much must run before each and who reads them: as soon as all
    before it can have run what nobody reads and what makes less of its inputs (`shrinks`: they may
    die then), the others just before their first reader."""
    rank: dict[int, int] = {}
    for k in sorted(before, key=lambda k: -before[k]):
        later = () if k in shrinks else [rank[r] for r in readers.get(k, ())]
        rank[k] = min(later) - 1 if later else before[k]
    return rank


def bits(mask: int) -> list[int]:
    """Positions of the set bits."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
