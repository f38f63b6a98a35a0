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

#: Offsets and capacities are multiples of this many bytes: the spec's largest offset alignment.
ALIGN = 256

#: Places that a page remembers; one that comes again later gets a new number.
MOST_PLACES = 4096

_places = itertools.count(1)


def aligned(nbytes: int, maximum: int) -> int:
    """Bytes that a request takes in a page: whole alignment units, at least one."""
    return min(max(-(-nbytes // ALIGN), 1) * ALIGN, maximum)


class Block:
    """A taken range, and the note of its end. It moves with the allocation, so a note left by one
    that dies while another thread moves it still names the right place."""

    __slots__ = ("capacity", "offset", "owner", "page", "size")

    def __init__(self, capacity: int, size: int, owner: weakref.ref[Allocation]) -> None:
        self.capacity = capacity
        self.size = size
        self.owner = owner
        self.page: Page
        self.offset = 0


class Page:
    """A buffer of `size` bytes with allocations in it; `dedicated`: made for one large one."""

    __slots__ = ("_places", "blocks", "buffer", "dedicated", "free", "gaps", "size")

    def __init__(self, buffer: int, size: int, dedicated: bool = False) -> None:
        self.buffer = buffer
        self.size = size
        self.dedicated = dedicated
        self.free = size
        self.gaps: list[tuple[int, int]] = [(0, size)]  # (offset, size), ascending
        self.blocks: dict[int, Block] = {}  # by offset
        self._places: dict[tuple[int, int], int] = {}

    def fit(self, capacity: int) -> tuple[int, int]:
        """(size, number) of the smallest gap that holds `capacity` bytes, the lowest of several;
        (0, -1) where there is none."""
        best, number = 0, -1
        if self.free >= capacity:
            for k, (_, size) in enumerate(self.gaps):
                if size >= capacity and (number < 0 or size < best):
                    best, number = size, k
                    if size == capacity:
                        break
        return best, number

    def take(self, number: int, capacity: int) -> int:
        """Offset of `capacity` bytes from a gap that `fit` gave."""
        offset, size = self.gaps[number]
        if size == capacity:
            del self.gaps[number]
        else:
            self.gaps[number] = (offset + capacity, size - capacity)
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
            if len(self._places) >= MOST_PLACES:
                taken = {(block.offset, block.capacity) for block in self.blocks.values()}
                self._places = {k: n for k, n in self._places.items() if k in taken}
            number = self._places[key] = next(_places)
        return number

    def copy(self) -> Page:
        """The same layout without its allocations, for planning ahead."""
        other = Page(self.buffer, self.size, self.dedicated)
        other.free = self.free
        other.gaps = list(self.gaps)
        return other


class Allocation:
    """Bytes that somebody holds; they return to their pool when the last reference goes.

    Contents are whatever an earlier holder left there: nothing is cleared. A clean-up may move an
    allocation to another page, so `buffer` and `offset` are asked for when they are used.
    """

    __slots__ = (
        "__weakref__",
        "_block",
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
        returned: deque[Block],
        label: str,
        lasting: bool,
    ) -> None:
        self.size = size
        self.capacity = capacity  # what is bound: whole alignment units, not less than size
        self.label = label
        self.lasting = lasting  # from the pool of weights
        self._returned = returned
        self._block = Block(capacity, size, weakref.ref(self))
        self.move(page, offset)

    def move(self, page: Page, offset: int) -> None:
        """Note a new home; whoever moves has copied the bytes and taken the range."""
        self.page = page
        self.offset = offset
        self.place = page.place(offset, self.capacity)  # equal places are the same bytes
        block = self._block
        block.page, block.offset = page, offset
        page.blocks[offset] = block

    @property
    def buffer(self) -> int:
        return self.page.buffer

    def __del__(self) -> None:
        # May run in any thread and in the middle of the pool's own code (garbage collection), so it
        # only leaves a note; appending to a deque is atomic and needs nothing at interpreter exit.
        # Another thread may still reach this by `owner` and move it; the note moves along.
        self._returned.append(self._block)

    def __repr__(self) -> str:
        what = f" {self.label}" if self.label else ""
        return f"Allocation({self.size} bytes{what} at {self.offset} of buffer {self.buffer})"
