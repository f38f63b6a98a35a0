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
#: Threads of such tiles that are enough: a vector of lanes for each of two cores.
SOFTWARE_LARGE = 16
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
    """The tile for `planes` outputs of [rows, cols]: large where that leaves enough threads.

    `slices` says into how many parts the inner dimension could be split to get more of them.

    The tile is in a kernel's text, so there are only two (and a vector's): every size between would
    be one more pipeline as a batch grows. Smaller ones than 4 x 4 would have more threads, but
    where outputs are few the time is that of one thread's steps, whose loads wait side by side.
    """
    lanes, wanted = (8, SOFTWARE_THREADS) if software else (64, WANTED_THREADS)
    if rows == 1 or cols == 1:
        wide = planes * ceil_div(max(rows, cols), 4) * slices >= wanted
        along = 4 if wide else 1
        return Tile(1, along, lanes, 1) if rows == 1 else Tile(along, 1, 1, lanes)
    large, wy = (16, 1) if software else (8, 8)
    tile = Tile(large, large, lanes // wy, wy)
    enough = SOFTWARE_LARGE if software else WANTED_THREADS
    if min(rows, cols) <= large // 2 or threads(tile, rows, cols, planes) * slices < enough:
        tile = Tile(4, 4, lanes // wy, wy)
    return lay_out(tile, rows, cols)


def lay_out(tile: Tile, rows: int, cols: int) -> Tile:
    """A tile with its lanes where a matrix of [rows, cols] has outputs for them: as given if both
    axes fill that. The layout is a parameter of kernels, no part of their text."""
    lanes = tile.wx * tile.wy
    down = power_of_two(ceil_div(rows, tile.tm))
    along = power_of_two(ceil_div(cols, tile.tn))
    wy = min(tile.wy, down) if along >= tile.wx else min(lanes // along, down)
    wx = lanes // wy
    return tile._replace(wx=wx, wy=wy)


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
