"""All memory of one device: which pool a request goes to, and what to do when there is none left.

Owns: the pools (tiny, values, weights) and the scratch pages of a device, their figures, release of
unused pages, moving allocations together, running out of memory. Must not know: launches, tensors,
graphs.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .driver import TENSOR_USAGE, Driver
from .errors import DriverError, OutOfMemoryError
from .pages import Allocation, Page, aligned
from .pool import KIB, MIB, Growth, Pool, PoolUsage
from .rules import ADVICE, over_limit
from .scratch import Scratch

#: Requests up to this many bytes come from the pool of tiny allocations, which come and go.
TINY = 16 * KIB
#: Unused pages are given back before a pool grows beyond this share of the most ever in use.
KEEP = 1.125
#: Holders that an OutOfMemoryError names.
NAMED = 5


class Request(NamedTuple):
    """Bytes wanted. `lasting`: for a weight, which is read more often than written."""

    nbytes: int
    lasting: bool = False
    label: str = ""


@dataclass(frozen=True)
class MemoryUsage:
    """Bytes of a device. `reserved` counts every buffer alive on it; `peak_in_use` includes what
    lists of launches needed for their own values while they ran."""

    in_use: int
    padding: int
    reserved: int
    peak_in_use: int
    peak_reserved: int
    pools: tuple[PoolUsage, ...]


class Layout(NamedTuple):
    """Page sizes that fit a piece of work exactly: what a rehearsal found."""

    tiny: int
    values: int
    weights: int
    scratch: tuple[int, ...]


class _DriverSource:
    """Pages are buffers of a driver."""

    def __init__(self, driver: Driver, before: Callable[[int], None], budget: int | None) -> None:
        self._driver = driver
        self._before = before
        self._budget = budget

    def create(self, size: int, usage: int = TENSOR_USAGE) -> int:
        if self._budget is not None:
            alive = self._driver.stats.bytes_alive
            if alive + size > self._budget:
                raise OutOfMemoryError(
                    f"a buffer of {size} bytes beside {alive} is over the budget of {self._budget}"
                )
        return self._driver.create_buffer(size, usage)

    def destroy(self, buffer: int) -> None:
        self._before(buffer)
        self._driver.destroy_buffer(buffer)

    def copy(self, source: int, at: int, target: int, to: int, nbytes: int) -> None:
        self._driver.copy_buffer(source, at, target, to, nbytes)


class _PaperSource:
    """Pages that are only counted."""

    def __init__(self, alive: int) -> None:
        self.alive = self.peak = alive
        self._sizes: dict[int, int] = {}

    def know(self, buffer: int, size: int) -> None:
        self._sizes[buffer] = size

    def create(self, size: int) -> int:
        buffer = -1 - len(self._sizes)
        self._sizes[buffer] = size
        self.alive += size
        self.peak = max(self.peak, self.alive)
        return buffer

    def destroy(self, buffer: int) -> None:
        self.alive -= self._sizes[buffer]

    def copy(self, source: int, at: int, target: int, to: int, nbytes: int) -> None:
        pass


class DeviceMemory:
    """Allocates on one driver. All work goes through one queue in order, so bytes may be handed out
    again while the GPU still works on what was there before."""

    def __init__(self, driver: Driver, budget: int | None = None) -> None:
        """`budget`: bytes of all buffers together that are never exceeded, as if the device had no
        more."""
        limits = driver.info.limits
        self._maximum_name, maximum = min(
            (
                ("maxStorageBufferBindingSize", limits["maxStorageBufferBindingSize"]),
                ("maxBufferSize", limits["maxBufferSize"]),
            ),
            key=lambda item: item[1],
        )
        self._maximum = maximum // 4 * 4
        source = _DriverSource(driver, self._announce, budget)
        self._driver = driver
        self._source = source
        self._watchers: list[Callable[[int], None]] = []
        # A page of weights is bound as a whole, so a binding must reach all of it.
        values = max(limits["maxBufferSize"] // 4 * 4, self._maximum)
        self.tiny = Pool("tiny", source, Growth(64 * KIB, MIB), self._maximum)
        self.values = Pool("values", source, Growth(MIB, 16 * MIB), values)
        self.weights = Pool("weights", source, Growth(MIB, 32 * MIB), self._maximum, True)
        self.scratch = Scratch(source)
        self._peak_in_use = 0
        self._closed = False

    @property
    def pools(self) -> tuple[Pool, Pool, Pool]:
        return self.tiny, self.values, self.weights

    def on_destroy(self, watcher: Callable[[int], None]) -> None:
        """Call `watcher(buffer)` before a page is destroyed."""
        self._watchers.append(watcher)

    def _announce(self, buffer: int) -> None:
        for watcher in self._watchers:
            watcher(buffer)

    # -- allocations ------------------------------------------------------------------------------
    def alloc(self, nbytes: int, lasting: bool = False, label: str = "") -> Allocation:
        """At least `nbytes` bytes, contents undefined. Raises LimitError, OutOfMemoryError."""
        return self.alloc_all((Request(nbytes, lasting, label),))[0]

    def alloc_all(self, requests: Sequence[Request]) -> list[Allocation]:
        """Memory for several values at once, in pages that fit them. Raises LimitError,
        OutOfMemoryError, and then keeps none of it."""
        if self._closed:
            raise DriverError("allocation from a closed device memory")
        self._settle()
        taken = [self._take(request, requests, k) for k, request in enumerate(requests)]
        self.needed(0)
        return taken

    def _pool_for(self, request: Request) -> Pool:
        if request.lasting:
            return self.weights
        return self.tiny if request.nbytes <= TINY else self.values

    def _take(self, request: Request, requests: Sequence[Request], k: int) -> Allocation:
        """Memory for the k-th of several requests."""
        nbytes = request.nbytes
        if nbytes < 0:
            raise DriverError(f"allocation of {nbytes} bytes")
        if nbytes > self._maximum:
            raise over_limit(
                f"allocation of {nbytes} bytes", self._maximum_name, nbytes, self._maximum, ADVICE
            )
        pool = self._pool_for(request)
        capacity = aligned(nbytes, self._maximum)
        found = pool.find(capacity)
        if found is None:
            together = [r.nbytes for r in requests[k:] if self._pool_for(r) is pool]
            expected = sum(aligned(n, self._maximum) for n in together)
            found = self._grow(pool, capacity, expected, request)
        return pool.take(*found, nbytes, capacity, request.label)

    def buffer(self, size: int, usage: int) -> int:
        """A buffer for other uses than values, for the caller to destroy. Raises
        OutOfMemoryError."""
        try:
            return self._source.create(size, usage)
        except OutOfMemoryError:
            self._squeeze()
        try:
            return self._source.create(size, usage)
        except OutOfMemoryError as error:
            wanted = Request(size, False, "parameter blocks or copies")
            raise self._exhausted(error, wanted) from error

    @property
    def in_use(self) -> int:
        return self.tiny.in_use + self.values.in_use + self.weights.in_use

    def require(self, sizes: Sequence[int]) -> list[int]:
        """Scratch pages of at least these sizes. Raises OutOfMemoryError."""
        lacking = self.scratch.lacks(sizes)
        if lacking:
            self._make_room(lacking, self.in_use + sum(sizes))
        try:
            buffers = self.scratch.require(sizes)
        except OutOfMemoryError:
            self._squeeze(keep_scratch=True)
            self.scratch.hints = []  # a dry run may have been of something larger
            try:
                buffers = self.scratch.require(sizes)
            except OutOfMemoryError as error:
                raise self._exhausted(error, Request(sum(sizes), False, "scratch")) from error
        self.needed(sum(sizes))
        return buffers

    def needed(self, scratch: int) -> None:
        """Note that a list ran which needs so many bytes of scratch memory."""
        if self.in_use + scratch > self._peak_in_use:
            self._peak_in_use = self.in_use + scratch

    # -- growing ----------------------------------------------------------------------------------
    def _grow(self, pool: Pool, capacity: int, expected: int, request: Request) -> tuple[Page, int]:
        size = pool.page_size(capacity, expected)
        self._make_room(size, self.in_use + capacity)
        try:
            return pool.grow(size, size == capacity), 0
        except OutOfMemoryError:
            self._squeeze()
        found = pool.find(capacity)
        if found is not None:  # moving others together made room
            return found
        try:
            return pool.grow(capacity, True), 0
        except OutOfMemoryError as error:
            raise self._exhausted(error, request) from error

    def _make_room(self, size: int, needed: int) -> None:
        """Give unused pages back where more would be reserved than the work has ever needed."""
        allowed = KEEP * max(self._peak_in_use, needed)
        excess = self.reserved + size - allowed
        if excess <= 0:
            return
        unused = [(page, pool) for pool in self.pools for page in pool.empty()]
        for page, pool in sorted(unused, key=lambda item: -item[0].size):
            pool.drop(page)
            excess -= page.size
            if excess <= 0:
                return

    @property
    def reserved(self) -> int:
        """Bytes of all pages."""
        return sum(pool.reserved for pool in self.pools) + self.scratch.reserved

    # -- giving back ------------------------------------------------------------------------------
    def _settle(self) -> None:
        for pool in self.pools:
            pool.settle()

    def release_unused(self) -> int:
        """Destroy every page that nobody holds anything in; the number of bytes given back."""
        before = self.reserved
        self._release_pages()
        self.scratch.release()
        return before - self.reserved

    def _release_pages(self) -> None:
        self._settle()
        for pool in self.pools:
            for page in pool.empty():
                pool.drop(page)

    def cleanup(self) -> int:
        """Give unused pages back and move allocations together so that more become unused; the
        number of bytes given back."""
        before = self.reserved
        self.release_unused()
        self._compact(self.pools, grow=True)
        return before - self.reserved

    def _compact(self, pools: Sequence[Pool], grow: bool) -> None:
        for pool in pools:
            # Without room for a new page, what was moved so far is in order.
            with contextlib.suppress(OutOfMemoryError):
                pool.compact(grow)

    def _squeeze(self, keep_scratch: bool = False) -> None:
        """All that can be done for a request that the device refused."""
        # An exception that was caught may still hold the tensors of the work that failed.
        gc.collect()
        self._release_pages()
        if not keep_scratch:
            self.scratch.release()
        # Not weights: who asks may be about to run what knows where in one page they lie.
        self._compact((self.tiny, self.values), grow=False)

    def _exhausted(self, error: OutOfMemoryError, request: Request) -> OutOfMemoryError:
        what = f"{request.nbytes} bytes" + (f" for {request.label}" if request.label else "")
        blocks = [b for pool in self.pools for page in pool.pages for b in page.blocks.values()]
        held = [owner for block in blocks if (owner := block.owner()) is not None]
        held.sort(key=lambda a: -a.size)
        names = [f"{a.size} {a.label}".strip() for a in held[:NAMED]]
        holders = f"; the largest: {', '.join(names)}" if names else ""
        return OutOfMemoryError(
            f"no memory for {what} ({error}); {self.in_use} bytes are in use by {len(held)} values"
            f"{holders}; nothing more can be given back: drop tensors, use a smaller batch, or "
            "recompute activations (wb.checkpoint)"
        )

    # -- looking ----------------------------------------------------------------------------------
    @property
    def usage(self) -> MemoryUsage:
        stats = self._driver.stats
        return self._figures(stats.bytes_alive, stats.peak_bytes)

    def _figures(self, alive: int, peak: int) -> MemoryUsage:
        """The figures, where so many bytes of buffers of all kinds are and were alive."""
        self._settle()
        pools = [pool.usage() for pool in self.pools] + [self.scratch.usage()]
        other = alive - self.reserved
        pools.append(PoolUsage("driver", 0, 0, other, 0, other, 0, 0, 0, 0, 0))
        padding = sum(p.padding for p in pools)
        return MemoryUsage(self.in_use, padding, alive, self._peak_in_use, peak, tuple(pools))

    def install(self, layout: Layout) -> None:
        """Let the next pages have the sizes that a rehearsal found."""
        self.tiny.hint, self.values.hint, self.weights.hint = layout[:3]
        self.scratch.hints = list(layout.scratch)

    def close(self) -> None:
        """Destroy unused pages; held ones live until the driver closes."""
        if not self._closed:
            self.release_unused()
            self._closed = True


class Rehearsal(DeviceMemory):
    """The same pools on paper: every request is counted, no buffer is made.

    `alive`: bytes of all buffers now; `ring`: of parameter blocks among them, and how many bytes
    lists that need more make of it.
    """

    def __init__(
        self, real: DeviceMemory, alive: int, ring: int, ring_size: Callable[[int], int]
    ) -> None:
        real._settle()
        self._ring, self._ring_size = ring, ring_size
        paper = _PaperSource(alive)
        self._paper = paper
        self._maximum, self._maximum_name = real._maximum, real._maximum_name
        self._watchers = []
        self.tiny = real.tiny.copy(paper)
        self.values = real.values.copy(paper)
        self.weights = real.weights.copy(paper)
        self.scratch = real.scratch.copy(paper)
        self._copies = {page.buffer: (pool, page) for pool in self.pools for page in pool.pages}
        for buffer, (_, page) in self._copies.items():
            paper.know(buffer, page.size)
        for buffer, size in zip(self.scratch.buffers, self.scratch.sizes, strict=True):
            paper.know(buffer, size)
        self._start = tuple(pool.reserved for pool in self.pools)
        self._peak_in_use = self.in_use
        self._closed = False

    def free(self, allocation: Allocation) -> None:
        """Count a real allocation, which somebody holds only to put it back, as given back."""
        pool, page = self._copies[allocation.buffer]
        pool.forget(page, allocation)

    def run(self, pages: Sequence[int], params_bytes: int) -> None:
        """Count what running a list needs."""
        if params_bytes > self._ring:
            # The new ring is made before the old one goes.
            size = self._ring_size(params_bytes)
            self._paper.alive += size
            self._paper.peak = max(self._paper.peak, self._paper.alive)
            self._paper.alive -= self._ring
            self._ring = size
        self.require(pages)

    @property
    def usage(self) -> MemoryUsage:
        return self._figures(self._paper.alive, self._paper.peak)

    def layout(self) -> Layout:
        """Page sizes for the real thing: what each pool grew by here."""
        tiny, values, weights = (
            max(pool.usage().peak_reserved - start, 0)
            for pool, start in zip(self.pools, self._start, strict=True)
        )
        return Layout(tiny, values, weights, tuple(self.scratch.sizes))
