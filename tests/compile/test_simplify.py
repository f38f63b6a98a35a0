"""Each rewrite alone: what it changes, what it leaves."""

import pytest

from wgburn.compile.graph import GNode, Graph
from wgburn.compile.simplify import merge_views, share_equal, transpose_products
from wgburn.core import dtype as dt
from wgburn.ops.elementwise import add, exp
from wgburn.ops.matmul import matmul
from wgburn.ops.movement import permute, reshape
from wgburn.ops.source import iota

pytestmark = pytest.mark.quick


def leaf(slot, shape):
    return GNode(None, (), None, shape, dt.float32, leaf=slot, alias=slot)


def node(op, srcs, shape, attrs=None, **numbers):
    return GNode(op, srcs, attrs, shape, dt.float32, **numbers)


def names(graph):
    return [None if n.op is None else n.op.name for n in graph.nodes]


def test_equal_nodes_are_one():
    g = Graph(
        [
            leaf(0, (4,)),
            node(exp, (0,), (4,)),
            node(exp, (0,), (4,)),
            node(add, (1, 2), (4,)),
        ],
        (3, 2),
        1,
        0,
        donations={3: 0},
    )
    s = share_equal(g)
    assert names(s) == [None, "exp", "add"]
    assert s.nodes[2].srcs == (1, 1)
    assert s.outputs == (2, 1)
    assert s.donations == {2: 0}


def test_nodes_with_numbers_stay_apart():
    a = node(iota, (), (4,), dyn=0, ndyn=2)
    b = node(iota, (), (4,), dyn=2, ndyn=2)
    s = share_equal(Graph([a, b, node(add, (0, 1), (4,))], (2,), 0, 4))
    assert names(s) == ["iota", "iota", "add"]


def product(uses_twice=False, order=(1, 0)):
    nodes = [
        leaf(0, (2, 3)),
        leaf(1, (3, 5)),
        node(matmul, (0, 1), (2, 5)),
        node(permute, (2,), (5, 2) if order == (1, 0) else (2, 5), order),
    ]
    return Graph(nodes, (3, 2) if uses_twice else (3,), 2, 0)


def test_a_transposed_product_is_the_product_of_transposes():
    s = transpose_products(product())
    out = s.nodes[s.outputs[0]]
    assert (out.op.name, out.shape) == ("matmul", (5, 2))
    first, second = (s.nodes[k] for k in out.srcs)
    assert (first.op.name, first.srcs, first.shape) == ("permute", (1,), (5, 3))
    assert (second.op.name, second.srcs, second.shape) == ("permute", (0,), (3, 2))
    assert names(s).count("matmul") == 1


def test_a_product_that_others_read_stays():
    g = product(uses_twice=True)
    assert transpose_products(g) is g


def test_other_permutations_stay():
    g = product(order=(0, 1))
    assert transpose_products(g) is g


def test_views_of_views_are_one():
    g = Graph(
        [
            leaf(0, (2, 3, 4)),
            node(permute, (0,), (4, 2, 3), (2, 0, 1)),
            node(permute, (1,), (3, 4, 2), (2, 0, 1)),
            node(reshape, (2,), (12, 2), (12, 2)),
            node(reshape, (3,), (24,), (24,)),
            node(exp, (4,), (24,)),
        ],
        (5,),
        1,
        0,
    )
    found = merge_views(g)
    assert names(found) == [None, "permute", "reshape", "exp"]
    assert found.nodes[1].attrs == (1, 2, 0) and found.nodes[1].srcs == (0,)
    assert found.nodes[2].attrs == (24,) and found.outputs == (3,)


def test_a_view_and_its_way_back_are_nothing():
    g = Graph(
        [
            leaf(0, (2, 3)),
            node(permute, (0,), (3, 2), (1, 0)),
            node(permute, (1,), (2, 3), (1, 0)),
            node(reshape, (2,), (6,), (6,)),
            node(reshape, (3,), (2, 3), (2, 3)),
            node(exp, (4,), (2, 3)),
        ],
        (5,),
        1,
        0,
    )
    found = merge_views(g)
    assert names(found) == [None, "exp"] and found.nodes[1].srcs == (0,)


def test_a_result_that_is_its_input_stays_a_view():
    g = Graph(
        [
            leaf(0, (2, 3)),
            node(reshape, (0,), (6,), (6,)),
            node(reshape, (1,), (2, 3), (2, 3)),
        ],
        (1, 2),
        1,
        0,
    )
    found = merge_views(g)
    assert names(found) == [None, "reshape", "reshape"]
    assert [n.srcs for n in found.nodes[1:]] == [(0,), (0,)] and found.outputs == (1, 2)


def test_unread_nodes_go_and_numbers_keep_their_places():
    g = Graph(
        [
            leaf(0, (4,)),
            node(exp, (0,), (4,)),
            leaf(1, (4,)),
            node(add, (0, 2), (4,), dyn=1, ndyn=1),
        ],
        (3,),
        2,
        2,
    )
    found = merge_views(g)
    assert names(found) == [None, None, "add"]
    assert found.nodes[2].dyn == 1 and found.numbers == 2 and found.leaves == 2
