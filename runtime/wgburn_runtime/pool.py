"""A pool: pages of one kind of memory, and how many bytes each new page gets.

Owns: choosing a page for a request, page sizes that follow the work, moving allocations together.
Must not know: launches, tensors, what happens when the device is full (memory.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from .pages import ALIGN, Allocation, Block, Page

KIB, MIB = 1 << 10, 1 << 20
#: How much larger than a value an empty page may be that another large value had.
WASTE = 1.25
#: Bytes up to which a dry run's page size is taken whatever is asked for first.
SMALL_HINT = 16 * MIB


def trusted(hint: int, need: int) -> int:
    """A page size that a dry run found, or 0 where it seems to be for other work: much larger than
    what is needed now."""
    return hint if hint <= max(2 * need, SMALL_HINT) else 0


class PageSource(Protocol):
    """Where pages come from."""

    def create(self, size: int) -> int:
        """A new buffer. Raises OutOfMemoryError."""

    def destroy(self, buffer: int) -> None: ...
    def copy(self, source: int, at: int, target: int, to: int, nbytes: int) -> None: ...


@dataclass(frozen=True)
class PoolUsage:
    """Bytes of one pool. `in_use` was asked for and is held; `padding` is what alignment added to
    it; the rest of `reserved`, what the device sees, is free."""

    kind: str
    in_use: int
    padding: int
    reserved: int
    peak_in_use: int
    peak_reserved: int
    allocations: int
    pages: int
    peak_pages: int
    largest_page: int
    largest_allocation: int


@dataclass(frozen=True)
class Growth:
    """How large a pool's next page is: an eighth of what is in use, within these bounds, so that
    few pages serve large work and little is wasted on small work."""

    smallest: int
    largest: int

    def size(self, in_use: int) -> int:
        return min(max(in_use // 8, self.smallest), self.largest)


class Pool:
    """Allocates from pages of its own."""

    def __init__(
        self, kind: str, source: PageSource, growth: Growth, maximum: int, lasting: bool = False
    ) -> None:
        self.kind = kind
        self.pages: list[Page] = []
        self.lasting = lasting
        self.maximum = maximum  # of a page
        self.hint = 0  # size of the next page, as a dry run found it
        self.in_use = self.held = self.reserved = self.count = 0
        self.moves = 0  # allocations moved so far
        self._source = source
        self._growth = growth
        self._returned: deque[Block] = deque()
        self._peak_in_use = self._peak_reserved = self._peak_pages = self._largest = 0

    # -- allocations ------------------------------------------------------------------------------
    def find(self, capacity: int) -> tuple[Page, int] | None:
        """The page whose gap fits best, and the gap. An empty page that one large value had is not
        broken up for a small one, which would keep all of it from being given back."""
        best, least, number = None, 0, -1
        for page in self.pages:
            gap, k = page.fit(capacity)
            if k < 0 or (best is not None and gap >= least):
                continue
            if page.dedicated and page.free == page.size > WASTE * capacity:
                continue
            best, least, number = page, gap, k
        return None if best is None else (best, number)

    def take(self, page: Page, gap: int, nbytes: int, capacity: int, label: str) -> Allocation:
        """An allocation in a gap that `find` gave."""
        self.in_use += nbytes
        self.held += capacity
        self.count += 1
        if nbytes > self._largest:
            self._largest = nbytes
        if self.in_use > self._peak_in_use:
            self._peak_in_use = self.in_use
        offset = page.take(gap, capacity)
        return Allocation(page, offset, nbytes, capacity, self._returned, label, self.lasting)

    def settle(self) -> None:
        """Take back what allocations that died had."""
        returned = self._returned
        while returned:
            try:
                block = returned.popleft()
            except IndexError:  # another thread was faster
                return
            del block.page.blocks[block.offset]
            self._give(block.page, block.offset, block.capacity, block.size)

    def _give(self, page: Page, offset: int, capacity: int, size: int) -> None:
        page.give(offset, capacity)
        self.in_use -= size
        self.held -= capacity
        self.count -= 1

    def forget(self, page: Page, allocation: Allocation) -> None:
        """Take back what an allocation has whose page this pool's `page` is a copy of."""
        self._give(page, allocation.offset, allocation.capacity, allocation.size)

    # -- pages ------------------------------------------------------------------------------------
    def page_size(self, capacity: int, expected: int = 0) -> int:
        """Bytes of the page that a request which fits nowhere gets; `expected` bytes are asked for
        with it."""
        wanted = max(expected, self._growth.size(self.in_use))
        wanted = max(wanted, trusted(self.hint, max(wanted, capacity)))
        return max(capacity, min(wanted, self.maximum) // ALIGN * ALIGN)

    def grow(self, size: int, dedicated: bool = False) -> Page:
        """A new page, `dedicated` to one large value. Raises OutOfMemoryError."""
        page = Page(self._source.create(size), size, dedicated)
        self.hint = 0
        self.pages.append(page)
        self.reserved += size
        self._peak_reserved = max(self._peak_reserved, self.reserved)
        self._peak_pages = max(self._peak_pages, len(self.pages))
        return page

    def empty(self) -> list[Page]:
        """Pages that nobody holds anything in."""
        return [page for page in self.pages if page.free == page.size]

    def drop(self, page: Page) -> None:
        """Destroy an empty page."""
        self.pages.remove(page)
        self.reserved -= page.size
        self._source.destroy(page.buffer)

    # -- moving -----------------------------------------------------------------------------------
    def compact(self, grow: bool) -> None:
        """Move allocations together so that pages become empty, and drop those.

        First from the emptiest pages into the gaps of the others, which needs no memory; then, if
        `grow`, what is left in pages with much room into new ones of just its size. Raises
        OutOfMemoryError where there is no room for a new page; what was moved by then is in order.
        """
        for page in sorted(self.pages, key=lambda p: p.size - p.free):
            others = [p for p in self.pages if p is not page]
            if page.free == page.size or self._evacuate(page, others):
                self.settle()
                if page.free == page.size:
                    self.drop(page)
        loose = [p for p in self.pages if p.free > p.size // 16]
        if not grow or not loose:
            return
        loose.sort(key=lambda p: p.size - p.free)
        while loose:
            batch, need = [loose.pop()], 0
            need = batch[0].size - batch[0].free
            while loose and need + loose[0].size - loose[0].free <= self.maximum:
                page = loose.pop(0)
                batch.append(page)
                need += page.size - page.free
            if need >= sum(p.size for p in batch) * 15 // 16:
                continue
            fresh = self.grow(max(need, ALIGN))
            for page in batch:
                self._evacuate(page, [fresh])
            self.settle()
            for page in (*batch, fresh):
                if page.free == page.size:
                    self.drop(page)

    def _evacuate(self, page: Page, others: list[Page]) -> bool:
        """Move everything in a page to gaps of other pages, or nothing if not all of it fits."""
        homes: list[tuple[Allocation, int, Page, int]] = []
        owners = [owner for block in page.blocks.values() if (owner := block.owner()) is not None]
        fits = True
        # The largest first: they fit in fewest places.
        for owner in sorted(owners, key=lambda a: (-a.capacity, a.offset)):
            found = [
                (gap, k, number)
                for k, p in enumerate(others)
                for gap, number in (p.fit(owner.capacity),)
                if number >= 0
            ]
            if not found:
                fits = False
                break
            _, k, number = min(found)
            home = others[k]
            homes.append((owner, owner.offset, home, home.take(number, owner.capacity)))
        if not fits:
            for owner, _, home, to in homes:
                home.give(to, owner.capacity)
            return False
        for owner, offset, home, to in homes:
            self._source.copy(page.buffer, offset, home.buffer, to, owner.capacity)
            del page.blocks[offset]
            page.give(offset, owner.capacity)
            owner.move(home, to)
            self.moves += 1
        return True

    # -- looking ----------------------------------------------------------------------------------
    def usage(self) -> PoolUsage:
        return PoolUsage(
            self.kind,
            self.in_use,
            self.held - self.in_use,
            self.reserved,
            self._peak_in_use,
            self._peak_reserved,
            self.count,
            len(self.pages),
            self._peak_pages,
            max((p.size for p in self.pages), default=0),
            self._largest,
        )

    def copy(self, source: PageSource) -> Pool:
        """The same layout on another source, for planning ahead."""
        other = Pool(self.kind, source, self._growth, self.maximum, self.lasting)
        other.pages = [page.copy() for page in self.pages]
        other.in_use, other.held, other.count = self.in_use, self.held, self.count
        other.reserved = other._peak_reserved = self.reserved
        other._peak_in_use, other._peak_pages = self.in_use, len(self.pages)
        other._largest = self._largest
        return other
