"""Where a plan's intermediates lie: offsets in few scratch pages, by their lives.

Owns: lives of buffers over a list of steps, the offset assignment. Must not know: what the buffers
hold, launches, devices.

The assignment is "greedy by size for offset calculation" of Pisarchyk & Lee, "Efficient Memory
Management for Deep Neural Net Inference" (2020): from the largest buffer to the smallest, each goes
to the lowest place that is free during all of its life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wgburn_runtime.pages import ALIGN
from wgburn_runtime.scratch import Spot

#: A scratch page is as large as this, or as the largest buffer in it.
PAGE = 256 << 20


class Life(NamedTuple):
    """A buffer's bytes and the first and last step that bind it."""

    buffer: int
    size: int
    first: int
    last: int


class Placement(NamedTuple):
    """Spots by buffer number, and the bytes of each page."""

    spots: dict[int, Spot]
    pages: tuple[int, ...]


def lives(steps: Sequence[Sequence[int]], sizes: Mapping[int, int]) -> list[Life]:
    """Lives of the buffers in `sizes`; `steps` says which buffers each step binds."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for k, bound in enumerate(steps):
        for b in bound:
            if b in sizes:
                first.setdefault(b, k)
                last[b] = k
    return [Life(b, -(-sizes[b] // ALIGN) * ALIGN, first[b], last[b]) for b in first]


def most_alive(found: Sequence[Life]) -> int:
    """The most bytes alive in one step: what no assignment can go below."""
    changes: dict[int, int] = {}
    for life in found:
        changes[life.first] = changes.get(life.first, 0) + life.size
        changes[life.last + 1] = changes.get(life.last + 1, 0) - life.size
    most = now = 0
    for k in sorted(changes):
        now += changes[k]
        most = max(most, now)
    return most


def place(found: Sequence[Life], page: int = PAGE) -> Placement:
    """Spots in pages of at most `page` bytes (more only for a buffer that is larger).

    Buffers that share a step never overlap. Ties go to the buffer that lives longer, then to the
    earlier one, so that equal plans get equal placements.
    """
    largest = max((life.size for life in found), default=0)
    limit = max(page, largest)
    order = sorted(found, key=lambda f: (-f.size, f.first - f.last, f.first))
    placed: list[list[tuple[int, int, int, int]]] = []  # a page: (offset, end, first, last)
    spots: dict[int, Spot] = {}
    for life in order:
        for number in range(len(placed) + 1):
            if number == len(placed):
                placed.append([])
            offset = _lowest(placed[number], life)
            if offset + life.size <= limit:
                break
        entry = (offset, offset + life.size, life.first, life.last)
        placed[number].append(entry)
        spots[life.buffer] = Spot(number, offset, life.size)
    return Placement(spots, tuple(max(end for _, end, _, _ in p) for p in placed))


def _lowest(placed: Sequence[tuple[int, int, int, int]], life: Life) -> int:
    """The lowest offset at which a buffer meets none that lives at the same time."""
    size, first, last = life.size, life.first, life.last
    at = 0
    for offset, end in sorted([(o, e) for o, e, f, g in placed if f <= last and g >= first]):
        if offset - at >= size:
            return at
        at = max(at, end)
    return at
