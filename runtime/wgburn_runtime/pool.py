"""A caching allocator of whole GPU buffers.

Owns: size classes, free buffers, the life of an `Allocation`, memory figures, the answer to a full
device. Must not know: what a buffer holds, launches, tensors.

Whole buffers rather than pages: WebGPU refuses a buffer bound for reading and for writing in one
dispatch, so sharing a page between tensors would force every binding to be read_write.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .driver import TENSOR_USAGE, Driver
from .errors import DriverError, OutOfMemoryError
from .rules import ADVICE, over_limit

#: Smallest size class, and the granularity of all of them.
MIN_BYTES = 256


class PoolUsage(NamedTuple):
    """Bytes. `in_use` was asked for and is held; `padding` is what size classes added to it;
    `cached` is free but kept; `reserved` is all of it, as the device sees it."""

    in_use: int
    padding: int
    cached: int
    reserved: int
    peak_in_use: int
    peak_reserved: int
    allocations: int  # held now
    hits: int  # served from cached buffers
    misses: int  # served by creating a buffer


class Allocation:
    """A held buffer. It returns to its pool when the last reference goes.

    Contents are whatever an earlier holder left there: the pool does not clear.
    """

    __slots__ = ("__weakref__", "_returned", "buffer", "capacity", "offset", "size")

    def __init__(
        self, buffer: int, size: int, capacity: int, returned: deque[tuple[int, int, int]]
    ) -> None:
        self.buffer = buffer
        self.offset = 0  # always: the pool hands out whole buffers
        self.size = size
        self.capacity = capacity  # what is bound: a multiple of 256, not less than size
        self._returned = returned

    def __del__(self) -> None:
        # May run in any thread and in the middle of the pool's own code (garbage collection), so it
        # only leaves a note; appending to a deque is atomic and needs nothing at interpreter exit.
        self._returned.append((self.buffer, self.capacity, self.size))

    def __repr__(self) -> str:
        return f"Allocation(buffer={self.buffer}, size={self.size}, capacity={self.capacity})"


def size_class(nbytes: int, maximum: int) -> int:
    """Capacity for a request: powers of two in four sub-steps, so at most a quarter is wasted."""
    if nbytes <= MIN_BYTES:
        return MIN_BYTES
    step = max(1 << max((nbytes - 1).bit_length() - 3, 0), MIN_BYTES)
    return min(-(-nbytes // step) * step, maximum)


class BufferPool:
    """Allocates from one driver. All work goes through one queue in order, so a buffer may be
    handed out again while the GPU still works on its old contents."""

    def __init__(self, driver: Driver, *, usage: int = TENSOR_USAGE) -> None:
        self._driver = driver
        self._usage = usage
        limits = driver.info.limits
        self._maximum_name, maximum = min(
            (
                ("maxStorageBufferBindingSize", limits["maxStorageBufferBindingSize"]),
                ("maxBufferSize", limits["maxBufferSize"]),
            ),
            key=lambda item: item[1],
        )
        self._maximum = maximum // 4 * 4
        # A heap per class rather than a stack: the lowest handle first means that a loop which
        # frees in another order than it allocates still gets the same buffers every time round.
        self._free: dict[int, list[int]] = {}
        self._returned: deque[tuple[int, int, int]] = deque()
        self._watchers: list[Callable[[list[int]], None]] = []
        self._closed = False
        self._in_use = self._held = self._cached = self._count = 0
        self._peak_in_use = self._peak_reserved = self._hits = self._misses = 0

    def on_destroy(self, watcher: Callable[[list[int]], None]) -> None:
        """Call `watcher(buffers)` before cached buffers are destroyed."""
        self._watchers.append(watcher)

    def alloc(self, nbytes: int) -> Allocation:
        """A buffer of at least `nbytes`. Raises LimitError, OutOfMemoryError."""
        if self._closed:
            raise DriverError("allocation from a closed pool")
        if nbytes < 0:
            raise DriverError(f"allocation of {nbytes} bytes")
        if nbytes > self._maximum:
            raise over_limit(
                f"allocation of {nbytes} bytes", self._maximum_name, nbytes, self._maximum, ADVICE
            )
        self._take_back()
        capacity = size_class(nbytes, self._maximum)
        free = self._free.get(capacity)
        if free:
            buffer = heapq.heappop(free)
            self._cached -= capacity
            self._hits += 1
        else:
            buffer = self._create(capacity)
            self._misses += 1
        self._in_use += nbytes
        self._held += capacity
        self._count += 1
        self._peak_in_use = max(self._peak_in_use, self._in_use)
        self._peak_reserved = max(self._peak_reserved, self._held + self._cached)
        return Allocation(buffer, nbytes, capacity, self._returned)

    def release_cached(self) -> int:
        """Destroy every buffer nobody holds; the number of bytes given back."""
        self._take_back()
        released = self._cached
        buffers = [buffer for free in self._free.values() for buffer in free]
        self._free.clear()
        self._cached = 0
        if buffers:
            for watcher in self._watchers:
                watcher(buffers)
            for buffer in buffers:
                self._driver.destroy_buffer(buffer)
        return released

    @property
    def usage(self) -> PoolUsage:
        self._take_back()
        return PoolUsage(
            in_use=self._in_use,
            padding=self._held - self._in_use,
            cached=self._cached,
            reserved=self._held + self._cached,
            peak_in_use=self._peak_in_use,
            peak_reserved=self._peak_reserved,
            allocations=self._count,
            hits=self._hits,
            misses=self._misses,
        )

    def close(self) -> None:
        """Destroy cached buffers; held ones live until the driver closes."""
        if not self._closed:
            self.release_cached()
            self._closed = True

    def _create(self, capacity: int) -> int:
        try:
            return self._driver.create_buffer(capacity, self._usage)
        except OutOfMemoryError:
            self.release_cached()
        try:
            return self._driver.create_buffer(capacity, self._usage)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"{error}; {self._held} bytes are held in {self._count} allocations and nothing is "
                "cached: drop tensors, use a smaller batch, or recompute activations"
            ) from error

    def _take_back(self) -> None:
        returned = self._returned
        while returned:
            try:
                buffer, capacity, size = returned.popleft()
            except IndexError:  # another thread was faster
                return
            self._in_use -= size
            self._held -= capacity
            self._count -= 1
            self._cached += capacity
            heapq.heappush(self._free.setdefault(capacity, []), buffer)
