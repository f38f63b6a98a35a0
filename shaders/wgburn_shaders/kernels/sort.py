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
#: Longest run that one workgroup orders: 8 bytes an element of the 16 KiB that every device has,
#: and few enough steps that a short row loses nothing.
BLOCK = 1024
#: Elements a workgroup of BLOCKS takes at least; shorter runs share one.
SHARED = 512
LANES = 64


class SortSpec(NamedTuple):
    what: str
    acc: str
    descending: bool
    size: int = 0  # BLOCKS: length of a run, a power of two


def choose(what: str, acc: str, length: int, descending: bool, block: int = BLOCK) -> SortSpec:
    """The default spec; a row shorter than a block is one run."""
    size = min(block, max(2, power_of_two(length))) if what == BLOCKS else 0
    return SortSpec(what, acc, descending, size)


@cache
def build(spec: SortSpec) -> KernelBody:
    if spec.what == MERGE:
        params, lanes = unsigned("total", "length", "run"), LANES
    else:
        if spec.size != power_of_two(spec.size) or not 2 <= spec.size <= BLOCK:
            raise ValueError(f"a run is a power of two from 2 to {BLOCK}, got {spec.size}")
        params, lanes = unsigned("runs", "per_row", "length"), 256
    return KernelBody(render("sort.wgsl", **spec._asdict()), params, (lanes, 1, 1))


def launch(spec: SortSpec, rows: int, length: int, run: int = 0) -> Launch:
    """`run`: length of the ordered runs that MERGE reads."""
    if spec.what == MERGE:
        total = rows * length
        return {"total": total, "length": length, "run": run}, ceil_div(total, LANES)
    per_row = ceil_div(length, spec.size)
    runs = rows * per_row
    groups = ceil_div(runs, max(1, SHARED // spec.size))
    return {"runs": runs, "per_row": per_row, "length": length}, groups
