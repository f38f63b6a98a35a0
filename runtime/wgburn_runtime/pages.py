"""One GPU buffer that several allocations share, and the allocations in it.

Owns: which bytes of a page are taken, best-fit placing, the life of an `Allocation`. Must not know:
drivers, how large a page should be, when one is made or destroyed.

Pages are taken with best fit and freed ranges join their neighbours, the classic scheme surveyed in
Wilson et al., "Dynamic Storage Allocation: A Survey and Critical Review", 1995.
"""

from __future__ import annotations

import itertools
import weakref
from bisect import bisect_left, insort
from collections import deque
from typing import NamedTuple

#: Offsets and capacities are multiples of this many bytes: the spec's largest offset alignment.
ALIGN = 256

_places = itertools.count(1)


def aligned(nbytes: int, maximum: int) -> int:
    """Bytes that a request takes in a page: whole alignment units, at least one."""
    return min(max(-(-nbytes // ALIGN), 1) * ALIGN, maximum)


class Block(NamedTuple):
    """A taken range. `owner` is a weak reference to its Allocation."""

    capacity: int
    size: int
    owner: weakref.ref[Allocation] | None


class Page:
    """A buffer of `size` bytes with allocations in it; `dedicated`: made for one large one."""

    __slots__ = ("_places", "blocks", "buffer", "dedicated", "free", "gaps", "size")

    def __init__(self, buffer: int, size: int, dedicated: bool = False) -> None:
        self.buffer = buffer
        self.size = size
        self.dedicated = dedicated
        self.free = size
        self.gaps: list[tuple[int, int]] = [(0, size)]  # (offset, size), ascending
        self.blocks: dict[int, Block] = {}
        self._places: dict[tuple[int, int], int] = {}

    def best_gap(self, capacity: int) -> int:
        """Size of the smallest gap that holds `capacity` bytes, or 0."""
        if self.free < capacity:
            return 0
        return min((size for _, size in self.gaps if size >= capacity), default=0)

    def take(self, capacity: int) -> int:
        """Offset of `capacity` bytes from the lowest of the smallest gaps that hold them. The
        caller has asked `best_gap`."""
        k = min(
            (k for k, (_, size) in enumerate(self.gaps) if size >= capacity),
            key=lambda k: self.gaps[k][1],
        )
        offset, size = self.gaps[k]
        if size == capacity:
            del self.gaps[k]
        else:
            self.gaps[k] = (offset + capacity, size - capacity)
        self.free -= capacity
        return offset

    def give(self, offset: int, capacity: int) -> None:
        """Free a range; it joins the gaps beside it."""
        self.free += capacity
        gaps = self.gaps
        k = bisect_left(gaps, (offset, 0))
        if k < len(gaps) and gaps[k][0] == offset + capacity:
            capacity += gaps[k][1]
            del gaps[k]
        if k and sum(gaps[k - 1]) == offset:
            offset, before = gaps[k - 1]
            gaps[k - 1] = (offset, before + capacity)
        else:
            insort(gaps, (offset, capacity))

    def place(self, offset: int, capacity: int) -> int:
        """A number for a range of this page, the same whenever the range is taken again."""
        key = (offset, capacity)
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = next(_places)
        return number

    def copy(self) -> Page:
        """The same layout without owners, for planning ahead."""
        other = Page(self.buffer, self.size, self.dedicated)
        other.free = self.free
        other.gaps = list(self.gaps)
        other.blocks = {k: b._replace(owner=None) for k, b in self.blocks.items()}
        return other


class Allocation:
    """Bytes that somebody holds; they return to their pool when the last reference goes.

    Contents are whatever an earlier holder left there: nothing is cleared. A clean-up may move an
    allocation to another page, so `buffer` and `offset` are asked for when they are used.
    """

    __slots__ = (
        "__weakref__",
        "_returned",
        "capacity",
        "label",
        "lasting",
        "offset",
        "page",
        "place",
        "size",
    )

    def __init__(
        self,
        page: Page,
        offset: int,
        size: int,
        capacity: int,
        returned: deque[Returned],
        label: str,
        lasting: bool,
    ) -> None:
        self.size = size
        self.capacity = capacity  # what is bound: whole alignment units, not less than size
        self.label = label
        self.lasting = lasting  # from the pool of weights
        self._returned = returned
        self.move(page, offset)

    def move(self, page: Page, offset: int) -> None:
        """Note a new home; whoever moves has copied the bytes and taken the range."""
        self.page = page
        self.offset = offset
        self.place = page.place(offset, self.capacity)  # equal places are the same bytes
        page.blocks[offset] = Block(self.capacity, self.size, weakref.ref(self))

    @property
    def buffer(self) -> int:
        return self.page.buffer

    def __del__(self) -> None:
        # May run in any thread and in the middle of the pool's own code (garbage collection), so it
        # only leaves a note; appending to a deque is atomic and needs nothing at interpreter exit.
        self._returned.append((self.page, self.offset))

    def __repr__(self) -> str:
        what = f" {self.label}" if self.label else ""
        return f"Allocation({self.size} bytes{what} at {self.offset} of buffer {self.buffer})"


#: A note of an allocation that died.
Returned = tuple[Page, int]
