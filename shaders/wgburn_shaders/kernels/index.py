"""Gather, index_select, scatter_add and index_add along one axis, seen as [outer, length, inner].

Owns: specs and launch arithmetic. Operands are dense; `templates/index.wgsl` says what each kind
reads. Input 1 is the index, which lowering loads as i32.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from wgburn_shaders.kernels.body import KernelBody, Launch, ceil_div, power_of_two, unsigned
from wgburn_shaders.render import render

GATHER, INDEX_SELECT = "gather", "index_select"
SCATTER_ADD, INDEX_ADD = "scatter_add", "index_add"
LANES = 64


class IndexSpec(NamedTuple):
    what: str
    acc: str
    has_base: bool = False  # additions: input 2 is what is added to; without it, zeros
    span: int = 1  # index_add: elements of its row that one lane sums


def choose(what: str, acc: str, outer: int, inner: int, has_base: bool = False) -> IndexSpec:
    """The default spec: index_add gives a lane more of a long row, up to 4 elements."""
    span = min(4, power_of_two(ceil_div(outer * inner, LANES))) if what == INDEX_ADD else 1
    return IndexSpec(what, acc, has_base, span)


@cache
def build(spec: IndexSpec) -> KernelBody:
    params = unsigned("groups", "total", "outer", "length", "inner", "count")
    return KernelBody(render("index.wgsl", **spec._asdict()), params, (LANES, 1, 1))


def launch(spec: IndexSpec, outer: int, length: int, inner: int, count: int) -> Launch:
    """`length` is the axis that is indexed (of x, of the sums), `count` that of the index."""
    if length < 1:
        raise ValueError(f"{spec.what}: an axis of length {length} has nothing to index")
    adds = spec.what in (SCATTER_ADD, INDEX_ADD)
    total = outer * inner * (length if adds else count)
    if spec.what == INDEX_ADD:
        groups = length * ceil_div(outer * inner, LANES * spec.span)
    else:
        groups = ceil_div(total, LANES)
    values = {"groups": groups, "total": total, "outer": outer, "length": length}
    return values | {"inner": inner, "count": count}, groups
