"""Gather, index_select and the scatters along one axis, seen as [outer, length, inner].

Owns: specs and launch arithmetic. Operands are dense; `templates/index.wgsl` says what each kind
reads. Input 1 is the index, which lowering loads as i32.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from wgburn_shaders.kernels.body import KernelBody, Launch, ceil_div, power_of_two, unsigned
from wgburn_shaders.library import link
from wgburn_shaders.render import render

GATHER, INDEX_SELECT = "gather", "index_select"
SCATTER_ADD, INDEX_ADD = "scatter_add", "index_add"
#: Several sources for one place: the last wins, or they are combined with what is there.
SCATTER_SET, INDEX_SET = "scatter_set", "index_set"
SCATTER_PROD, SCATTER_AMAX, SCATTER_AMIN = "scatter_prod", "scatter_amax", "scatter_amin"
#: Kinds whose index is a vector, and all that write by index.
BY_VECTOR = frozenset({INDEX_ADD, INDEX_SET})
WRITES = BY_VECTOR | {SCATTER_ADD, SCATTER_SET, SCATTER_PROD, SCATTER_AMAX, SCATTER_AMIN}
LANES = 64


class IndexSpec(NamedTuple):
    what: str
    acc: str
    has_base: bool = False  # input 2 is what is written over; additions can do without: zeros
    span: int = 1  # index_*: elements of its row that one lane combines


def choose(what: str, acc: str, outer: int, inner: int, has_base: bool = False) -> IndexSpec:
    """The default spec: index_* gives a lane more of a long row, up to 4 elements."""
    span = min(4, power_of_two(ceil_div(outer * inner, LANES))) if what in BY_VECTOR else 1
    if what in WRITES - {SCATTER_ADD, INDEX_ADD} and not has_base:
        raise ValueError(f"{what} starts from a base")
    return IndexSpec(what, acc, has_base, span)


@cache
def build(spec: IndexSpec) -> KernelBody:
    params = unsigned("groups", "total", "outer", "length", "inner", "count")
    text = render("index.wgsl", **spec._asdict())
    return KernelBody(link(text) + text, params, (LANES, 1, 1))


def launch(spec: IndexSpec, outer: int, length: int, inner: int, count: int) -> Launch:
    """`length` is the axis that is indexed (of x, of the sums), `count` that of the index."""
    if length < 1:
        raise ValueError(f"{spec.what}: an axis of length {length} has nothing to index")
    total = outer * inner * (length if spec.what in WRITES else count)
    if spec.what in BY_VECTOR:
        groups = length * ceil_div(outer * inner, LANES * spec.span)
    else:
        groups = ceil_div(total, LANES)
    values = {"groups": groups, "total": total, "outer": outer, "length": length}
    return values | {"inner": inner, "count": count}, groups
