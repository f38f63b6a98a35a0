"""Running sums and products along one axis, seen as [outer, length, inner], dense.

Owns: the spec, the choice between a thread and a workgroup a row, the launch arithmetic.
Input: 0 = x. Output: as x.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from wgburn_shaders.kernels.body import (
    MAX_TRIPS,
    WANTED_THREADS,
    KernelBody,
    Launch,
    ceil_div,
    unsigned,
)
from wgburn_shaders.render import render

SERIAL, WORKGROUP = "serial", "workgroup"
SUM, PROD = "sum", "prod"
#: Rows up to this length are walked by one thread each, however few there are.
SHORT = 64


class ScanSpec(NamedTuple):
    what: str  # SUM | PROD
    acc: str
    reverse: bool = False  # from the last element to the first
    kind: str = SERIAL


def choose(
    what: str, acc: str, outer: int, length: int, inner: int, reverse: bool = False
) -> ScanSpec:
    enough = outer * inner >= WANTED_THREADS and length <= MAX_TRIPS
    return ScanSpec(what, acc, reverse, SERIAL if length <= SHORT or enough else WORKGROUP)


@cache
def build(spec: ScanSpec) -> KernelBody:
    lanes = 64 if spec.kind == SERIAL else 256
    wgsl = render("scan.wgsl", **spec._asdict())
    return KernelBody(wgsl, unsigned("rows", "length", "inner"), (lanes, 1, 1))


def launch(spec: ScanSpec, outer: int, length: int, inner: int) -> Launch:
    rows = outer * inner
    groups = ceil_div(rows, 64) if spec.kind == SERIAL else rows
    return {"rows": rows, "length": length, "inner": inner}, groups
