"""What a kernel builder hands to lowering, and the tile and split arithmetic shared by builders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class KernelBody(NamedTuple):
    """WGSL text that uses `P.<field>`, `ld<i>`, `st0` and is complete but for those.

    `params` are the fields of the uniform struct in order, as (name, "u32" | "i32" | "f32").
    """

    wgsl: str
    params: tuple[tuple[str, str], ...]
    workgroup: tuple[int, int, int]


#: Parameter values by field name, and the number of workgroups (before folding into 2-D).
Launch = tuple[dict[str, int], int]

#: Threads that keep a GPU busy: tiles shrink, then inner dimensions are split, to get near it.
WANTED_THREADS = 2048
#: The same for an adapter that runs on a CPU. There a load costs as much as dozens of products, so
#: tiles as large as can be are worth more than threads (measured: 16x16 is 1.8 times 8x8).
SOFTWARE_THREADS = 64
#: Most partial planes of a split inner dimension, and most partial sums in all.
MAX_SPLITS = 1024
MAX_PARTIALS = 1 << 22
#: Loop trips that one invocation may make, all its loops together. Lavapipe silently leaves loops
#: after 65,535 (measured; nested and later loops share the count), so split longer work.
MAX_TRIPS = 32768


class Tile(NamedTuple):
    tm: int  # rows of outputs a thread
    tn: int  # columns of outputs a thread
    wx: int  # lanes of a workgroup along columns
    wy: int  # lanes of a workgroup along rows


def unsigned(*names: str) -> tuple[tuple[str, str], ...]:
    """Parameter fields that are all u32."""
    return tuple((name, "u32") for name in names)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()


def threads(tile: Tile, rows: int, cols: int, planes: int) -> int:
    return planes * ceil_div(rows, tile.tm) * ceil_div(cols, tile.tn)


def pick_tile(rows: int, cols: int, planes: int, slices: int = 1, software: bool = False) -> Tile:
    """The largest tile that fits `planes` outputs of [rows, cols] and leaves enough threads.

    `slices` says into how many parts the inner dimension could be split to get more of them.
    """
    wanted = SOFTWARE_THREADS if software else WANTED_THREADS
    lanes = 8 if software else 64
    if rows <= 4:
        tm = power_of_two(rows)
        wide = planes * ceil_div(cols, 4) * slices >= wanted
        return Tile(tm, 4 if wide else 1, lanes, 1)
    if cols <= 4:
        tn = power_of_two(cols)
        tall = planes * ceil_div(rows, 4) * slices >= wanted
        return Tile(4 if tall else 1, tn, 1, lanes)
    shapes = [(8, 8), (8, 4), (4, 4), (4, 2), (2, 2)]
    wx, wy = (8, 1) if software else (8, 8)
    if software:
        shapes = [(16, 16), (8, 16), *shapes]
    # No taller or wider than the lanes need, or they would compute nothing but edges.
    most_rows, most_cols = power_of_two(ceil_div(rows, wy)), power_of_two(ceil_div(cols, wx))
    for tm, tn in shapes:
        tile = Tile(min(tm, most_rows), min(tn, most_cols), wx, wy)
        if threads(tile, rows, cols, planes) * slices >= wanted:
            break
    return tile


def pick_splits(
    tile: Tile,
    rows: int,
    cols: int,
    planes: int,
    units: int,
    smallest: int,
    software: bool = False,
) -> int:
    """How many slices of an inner dimension of `units` steps to sum apart; 1 = don't split."""
    wanted = SOFTWARE_THREADS if software else WANTED_THREADS
    needed = max(1, ceil_div(units, MAX_TRIPS))
    busy = threads(tile, rows, cols, planes)
    if busy >= wanted:
        return needed
    room = MAX_PARTIALS // max(1, rows * cols * planes)
    return max(needed, min(ceil_div(2 * wanted, busy), units // smallest, room, MAX_SPLITS))
