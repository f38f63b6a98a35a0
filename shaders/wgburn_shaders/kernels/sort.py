"""Stable order along the last axis of a dense [rows, length], as positions in the row.

Owns: the spec and launch arithmetic of ordering runs (in workgroup memory) and of merging two
neighbouring runs. A long row is BLOCKS once, then MERGE while the runs are shorter than the row.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from wgburn_shaders.kernels.body import KernelBody, Launch, ceil_div, power_of_two, unsigned
from wgburn_shaders.render import render

BLOCKS, MERGE = "blocks", "merge"
#: Longest run that a workgroup of BLOCKS orders: 8 bytes an element of the 16 KiB that every device
#: has.
BLOCK = 1024
#: Up to this length runs share a small workgroup, which waits less at barriers. (SwiftShader's
#: compiler takes 0.45 ms for each element of workgroup memory: 1 s for the large one.)
SMALL = 64
LANES = 64


class SortSpec(NamedTuple):
    what: str
    acc: str
    descending: bool
    block: int = BLOCK  # BLOCKS: elements a workgroup orders, as one run or several


def choose(what: str, acc: str, length: int, descending: bool, run: int = BLOCK) -> SortSpec:
    """The default spec for rows of `length`; BLOCKS makes runs of `run`."""
    small = what == BLOCKS and min(run, power_of_two(length)) <= SMALL
    return SortSpec(what, acc, descending, SMALL if small else BLOCK)


@cache
def build(spec: SortSpec) -> KernelBody:
    if spec.what == MERGE:
        params, lanes = unsigned("total", "length", "run"), LANES
    else:
        params, lanes = unsigned("runs", "per_row", "length", "levels"), min(256, spec.block // 2)
    wgsl = render("sort.wgsl", **spec._asdict(), lanes=lanes)
    return KernelBody(wgsl, params, (lanes, 1, 1))


def launch(spec: SortSpec, rows: int, length: int, run: int = BLOCK) -> Launch:
    """`run`, a power of two: length of the ordered runs that MERGE reads or BLOCKS makes. A shorter
    row is one run, padded to a power of two."""
    if run != power_of_two(run) or run < 2:
        raise ValueError(f"a run is a power of two from 2 on, got {run}")
    if spec.what == MERGE:
        total = rows * length
        return {"total": total, "length": length, "run": run}, ceil_div(total, LANES)
    size = min(run, max(2, power_of_two(length)))
    if size > spec.block:
        raise ValueError(f"a workgroup of {spec.block} elements cannot order runs of {size}")
    per_row = ceil_div(length, size)
    runs = rows * per_row
    values = {"runs": runs, "per_row": per_row, "length": length}
    return values | {"levels": size.bit_length() - 1}, ceil_div(runs, spec.block // size)
