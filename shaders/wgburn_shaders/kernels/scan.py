"""Running sums, products, extrema and linear recurrences along one axis of a dense
[outer, length, inner].

Owns: the spec, the choice between a thread and a workgroup a row, the launch arithmetic.
Input: 0 = x (LINEAR: 0 = factors, 1 = terms). Output: as x, for MAX_AT and MIN_AT positions (i32).
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
#: y[i] = a[i] * y[i - 1] + b[i]; where the largest or smallest so far was last met.
LINEAR, MAX_AT, MIN_AT = "linear", "max_at", "min_at"
PAIRS = (LINEAR, MAX_AT, MIN_AT)
#: Rows up to this length are walked by one thread each, however few there are.
SHORT = 64


class ScanSpec(NamedTuple):
    what: str  # SUM | PROD | one of PAIRS
    acc: str
    reverse: bool = False  # from the last element to the first
    kind: str = SERIAL
    lanes: int = 64


def choose(
    what: str,
    acc: str,
    outer: int,
    length: int,
    inner: int,
    reverse: bool = False,
    software: bool = False,
) -> ScanSpec:
    """The default spec. An adapter that runs on a CPU (`software`) compiles small workgroups
    faster."""
    if length <= SHORT or (outer * inner >= WANTED_THREADS and length <= MAX_TRIPS):
        return ScanSpec(what, acc, reverse)
    return ScanSpec(what, acc, reverse, WORKGROUP, 64 if software else 256)


@cache
def build(spec: ScanSpec) -> KernelBody:
    if spec.what in PAIRS and spec.reverse:
        raise ValueError(f"{spec.what} runs forwards only")
    wgsl = render("scan.wgsl", **spec._asdict())
    return KernelBody(wgsl, unsigned("rows", "length", "inner"), (spec.lanes, 1, 1))


def launch(spec: ScanSpec, outer: int, length: int, inner: int) -> Launch:
    rows = outer * inner
    groups = ceil_div(rows, 64) if spec.kind == SERIAL else rows
    return {"rows": rows, "length": length, "inner": inner}, groups
