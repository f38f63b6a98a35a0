"""Simplification: a graph to an equal graph with less to do. Each pass is a function of this
module.

Owns: rewrites that hold on every backend. Must not know: kernels, grouping, devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ops.index import gather, index_select, scatter_add
from ..ops.movement import permute, reshape
from .graph import GNode, Graph

#: Indexed reads as loads of any kernel: their emitter finds the place first.
GATHERS = {op: replace(op, kind="indexed") for op in (gather, index_select)}
#: A sum onto zeros with one index along the axis: an element is the source's or 0.
ONE_HOT = replace(scatter_add, kind="indexed")


def simplify(graph: Graph) -> Graph:
    """All passes in order."""
    for rewrite in PASSES:
        graph = rewrite(graph)
    return graph


def _rebuilt(graph: Graph, nodes: list[GNode], new: dict[int, int]) -> Graph:
    return Graph(
        nodes,
        tuple(new[o] for o in graph.outputs),
        graph.leaves,
        graph.numbers,
        donations={new[o]: leaf for o, leaf in graph.donations.items()},
    )


def share_equal(graph: Graph) -> Graph:
    """Common subexpressions: equal ops on equal inputs are one node. Ops with number slots stay
    apart (two slots that hold one value today may not tomorrow)."""
    nodes: list[GNode] = []
    new: dict[int, int] = {}
    found: dict[object, int] = {}
    for i, n in enumerate(graph.nodes):
        if n.op is None:
            new[i] = len(nodes)
            nodes.append(n)
            continue
        srcs = tuple(new[s] for s in n.srcs)
        key = (n.op, n.attrs, srcs) if not n.ndyn else None
        if key is not None and key in found:
            new[i] = found[key]
            continue
        new[i] = len(nodes)
        if key is not None:
            found[key] = len(nodes)
        nodes.append(replace(n, srcs=srcs))
    return _rebuilt(graph, nodes, new)


def merge_views(graph: Graph) -> Graph:
    """A reshape of a reshape is one, so is a permute of a permute; what gives back its input is
    the input. Results of the graph stay views of their own. Nodes that are not read go."""
    nodes: list[GNode] = []
    new: dict[int, int] = {}
    outputs = set(graph.outputs)
    for i, n in enumerate(graph.nodes):
        n = replace(n, srcs=tuple(new[s] for s in n.srcs)) if n.srcs else n
        if n.op is reshape or n.op is permute:
            (s,) = n.srcs
            below, attrs = nodes[s], n.attrs
            if below.op is n.op:
                (s,) = below.srcs
                attrs = attrs if n.op is reshape else tuple(below.attrs[a] for a in attrs)
            identity = tuple(range(len(n.shape))) if n.op is permute else nodes[s].shape
            if attrs == identity and i not in outputs:
                new[i] = s
                continue
            n = replace(n, srcs=(s,), attrs=attrs)
        new[i] = len(nodes)
        nodes.append(n)
    return _without_unread(_rebuilt(graph, nodes, new))


def _without_unread(graph: Graph) -> Graph:
    """Without nodes that nothing reads; leaves stay, they are numbered."""
    read = set(graph.outputs)
    for i in reversed(range(len(graph.nodes))):
        if i in read:
            read.update(graph.nodes[i].srcs)
    nodes: list[GNode] = []
    new: dict[int, int] = {}
    for i, n in enumerate(graph.nodes):
        if n.op is None or i in read:
            new[i] = len(nodes)
            nodes.append(replace(n, srcs=tuple(new[s] for s in n.srcs)))
    return _rebuilt(graph, nodes, new)


def transpose_products(graph: Graph) -> Graph:
    """(a @ b).mT is b.mT @ a.mT: the transpose moves to the inputs, where it is an index map, and
    what follows (an optimizer's update of a weight) can join the product's kernel."""
    uses = graph.count_uses()
    moved: set[int] = set()
    for n in graph.nodes:
        if n.op is permute and _swaps_last(n.attrs):
            m = n.srcs[0]
            product = graph.nodes[m]
            if product.op is not None and product.op.name == "matmul" and uses[m] == 1:
                moved.add(m)
    if not moved:
        return graph
    nodes: list[GNode] = []
    new: dict[int, int] = {}

    def add(n: GNode) -> int:
        nodes.append(n)
        return len(nodes) - 1

    for i, n in enumerate(graph.nodes):
        if i in moved:
            continue
        if n.op is permute and n.srcs[0] in moved:
            product = graph.nodes[n.srcs[0]]
            flipped = [add(_transposed(graph.nodes[s], new[s])) for s in reversed(product.srcs)]
            new[i] = add(replace(product, srcs=tuple(flipped), shape=n.shape))
            continue
        new[i] = add(replace(n, srcs=tuple(new[s] for s in n.srcs)))
    return _rebuilt(graph, nodes, new)


def index_in_place(graph: Graph) -> Graph:
    """Gathers are done by whoever reads them; so are scatters of a single index onto zeros. (For
    backends whose kernels are made from expressions.)"""
    nodes = []
    for n in graph.nodes:
        op = GATHERS.get(n.op)
        if n.op is scatter_add and graph.is_zero(n.srcs[0]):
            single = graph.nodes[n.srcs[1]].shape[n.attrs] == 1
            op = ONE_HOT if single else None
        nodes.append(n if op is None else replace(n, op=op))
    return replace(graph, nodes=nodes)


def _swaps_last(order: tuple[int, ...]) -> bool:
    k = len(order)
    return k >= 2 and order == (*range(k - 2), k - 1, k - 2)


def _transposed(n: GNode, number: int) -> GNode:
    k = len(n.shape)
    order = (*range(k - 2), k - 1, k - 2)
    return GNode(permute, (number,), order, tuple(n.shape[d] for d in order), n.dtype)


PASSES: tuple[Callable[[Graph], Graph], ...] = (merge_views, share_equal, transpose_products)
