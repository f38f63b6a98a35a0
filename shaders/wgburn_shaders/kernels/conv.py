"""Convolution in 1 to 3 spatial dimensions: forward, input gradient, weight gradient.

Owns: the spec, the defaults and the launch arithmetic of all three. The input gradient is also the
transposed convolution (its weight layout [in, out / groups, *kernel] is the one needed here).

    forward      inputs x [n, c, *s], w [o, c / groups, *kernel]   -> dense y [n, o, *out]
    input_grad   inputs g [n, o, *out], w                          -> dense dx [n, c, *s]
    weight_grad  inputs g, x        -> dense dw, or [splits, *dw.shape] partial sums when `split`
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from wgburn_shaders.kernels.body import (
    KernelBody,
    Launch,
    Tile,
    ceil_div,
    pick_splits,
    pick_tile,
    product,
    unsigned,
)
from wgburn_shaders.render import render

FORWARD, INPUT_GRAD, WEIGHT_GRAD = "forward", "input_grad", "weight_grad"
#: Inner dimension above which float sums take two levels.
FLUSH_ABOVE = 1024
#: Longest segment of the last output dimension that the weight gradient sums in one go.
SEGMENT = 256
#: The fewest pixels that are worth a partial weight gradient.
MIN_PIXELS = 256


class ConvSpec(NamedTuple):
    kind: str  # FORWARD | INPUT_GRAD | WEIGHT_GRAD
    acc: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padded: bool
    grouped: bool
    tm: int = 4
    tn: int = 4
    wx: int = 8
    wy: int = 8
    split: bool = False  # weight gradient only
    flush: bool = False
    rolled: bool = False  # one store in loops: st0 is long (an epilogue)


class ConvSizes(NamedTuple):
    """Sizes of one convolution. `size` is the spatial size of x, `out` that of y."""

    n: int
    c: int
    o: int
    size: tuple[int, ...]
    out: tuple[int, ...]
    pad: tuple[int, ...]  # in front; behind, the sizes decide
    groups: int = 1


def dense(n: int, c: int, size: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense [n, c, *size]."""
    strides = [1]
    for extent in (*reversed(size), c):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))


def _segments(sizes: ConvSizes) -> tuple[int, int, int]:
    """Segment length, segments a row and units in all of the weight gradient's inner loop."""
    segment = max(1, min(sizes.out[-1], SEGMENT))
    segments = ceil_div(sizes.out[-1], segment)
    return segment, segments, sizes.n * product(sizes.out[:-1]) * segments


def _matrix(kind: str, kernel: Sequence[int], sizes: ConvSizes) -> tuple[int, int, int]:
    """Rows, columns and depth (source channels of one group) of the implicit matrix product."""
    o, c = sizes.o // sizes.groups, sizes.c // sizes.groups
    if kind == FORWARD:
        return o, sizes.n * product(sizes.out), c
    if kind == INPUT_GRAD:
        return c, sizes.n * product(sizes.size), o
    return o, c * product(kernel), c


def choose(
    kind: str,
    acc: str,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    sizes: ConvSizes,
    tile: Tile | None = None,
    software: bool = False,
) -> tuple[ConvSpec, int]:
    """The default spec for these sizes and its number of splits (1 unless the spec splits).

    `software` says that the adapter runs on a CPU, which wants other tiles."""
    rows, cols, depth = _matrix(kind, kernel, sizes)
    reach = zip(sizes.size, sizes.out, sizes.pad, kernel, stride, dilation, strict=True)
    # Also true where pixels beyond the far end are read, whatever the padding in front.
    padded = any(p > 0 or (o - 1) * st + (k - 1) * di >= s for s, o, p, k, st, di in reach)
    splits = 1
    if kind == WEIGHT_GRAD:
        segment, _, units = _segments(sizes)
        inner = units * (segment + 1)
        slices = min(256, max(1, inner // MIN_PIXELS))
        tile = tile or pick_tile(rows, cols, sizes.groups, slices, software)
        splits = pick_splits(tile, rows, cols, sizes.groups, inner, MIN_PIXELS, software)
        splits = max(1, min(splits, units))
        inner = ceil_div(units, splits) * segment
    else:
        inner = depth * product(kernel)
        tile = tile or pick_tile(rows, cols, sizes.groups, software=software)
    structure = (kind, acc, tuple(kernel), tuple(stride), tuple(dilation), padded, sizes.groups > 1)
    flush = acc == "f32" and inner > FLUSH_ABOVE
    return ConvSpec(*structure, *tile, splits > 1, flush), splits


@cache
def build(spec: ConvSpec) -> KernelBody:
    context = spec._asdict() | {"input_grad": spec.kind == INPUT_GRAD}
    dims = range(len(spec.kernel))
    names = ["groups", "tiles_m", "tiles_n", "wx", "wy", "rows", "cols", "depth"]
    if spec.kind == WEIGHT_GRAD:
        names += ["units", "segment", "segments", "g_off", "g_sn", "g_sc", "x_off", "x_sn", "x_sc"]
        names += ["u_chunk", "channel_groups"]
        for d in dims:
            names += [f"out{d}", f"n{d}", f"pad{d}", f"g_s{d}", f"x_s{d}"]
        wgsl = render("conv_weight.wgsl", **context)
    else:
        names += ["plane", "image", "src_off", "src_sn", "src_sc"]
        names += ["w_off", "w_sgroup", "w_srow", "w_sdepth"]
        for d in dims:
            names += [f"out{d}", f"src_n{d}", f"pad{d}", f"src_s{d}", f"w_s{d}"]
        wgsl = render("conv.wgsl", **context)
    return KernelBody(wgsl, unsigned(*names), (spec.wx * spec.wy, 1, 1))


def launch(
    spec: ConvSpec,
    sizes: ConvSizes,
    a_strides: Sequence[int] | None = None,
    b_strides: Sequence[int] | None = None,
    a_off: int = 0,
    b_off: int = 0,
    splits: int = 1,
) -> Launch:
    """Strides are those of input 0 and input 1 in elements, in the order of their dimensions.

    Without them the inputs are dense."""
    if splits != 1 and not spec.split:
        raise ValueError(f"conv {spec.kind}: {splits} splits need a spec with split=True")
    rank = len(spec.kernel)
    if not len(sizes.size) == len(sizes.out) == len(sizes.pad) == rank:
        raise ValueError(f"conv {spec.kind}: kernel {spec.kernel} does not fit the rank of {sizes}")
    rows, cols, depth = _matrix(spec.kind, spec.kernel, sizes)
    tiles_m, tiles_n = ceil_div(rows, spec.tm * spec.wy), ceil_div(cols, spec.tn * spec.wx)
    groups = tiles_m * tiles_n * sizes.groups * splits
    values = {"groups": groups, "tiles_m": tiles_m, "tiles_n": tiles_n}
    values |= {"wx": spec.wx, "wy": spec.wy}
    values |= {"rows": rows, "cols": cols, "depth": depth}
    if spec.kind == FORWARD:
        source = (sizes.c, sizes.size)
    else:
        source = (sizes.o, sizes.out)
    a = a_strides or dense(sizes.n, *source)
    if spec.kind == WEIGHT_GRAD:
        b = b_strides or dense(sizes.n, sizes.c, sizes.size)
        segment, segments, units = _segments(sizes)
        values |= {"units": units, "segment": segment, "segments": segments}
        values |= {"u_chunk": ceil_div(units, splits), "channel_groups": sizes.groups}
        values |= {"g_off": a_off, "g_sn": a[0], "g_sc": a[1]}
        values |= {"x_off": b_off, "x_sn": b[0], "x_sc": b[1]}
        for d in range(rank):
            values |= {f"out{d}": sizes.out[d], f"n{d}": sizes.size[d], f"pad{d}": sizes.pad[d]}
            values |= {f"g_s{d}": a[d + 2], f"x_s{d}": b[d + 2]}
        return values, groups
    b = b_strides or dense(sizes.o, sizes.c // sizes.groups, spec.kernel)
    forward = spec.kind == FORWARD
    out, channels = (sizes.out, sizes.o) if forward else (sizes.size, sizes.c)
    values |= {"plane": product(out), "image": channels * product(out)}
    values |= {"src_off": a_off, "src_sn": a[0], "src_sc": a[1], "w_off": b_off}
    # Weight [o, c / groups, *kernel]: a group is a run of o in both kinds.
    values |= {"w_sgroup": sizes.o // sizes.groups * b[0]}
    values |= {"w_srow": b[0 if forward else 1], "w_sdepth": b[1 if forward else 0]}
    for d in range(rank):
        values |= {f"out{d}": out[d], f"src_n{d}": source[1][d], f"pad{d}": sizes.pad[d]}
        values |= {f"src_s{d}": a[d + 2], f"w_s{d}": b[d + 2]}
    return values, groups
