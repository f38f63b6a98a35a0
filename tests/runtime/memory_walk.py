"""A memory that is used at random, with everything checked that must hold at every moment.

Owns: the checks. Must not know: which driver it runs on, who chooses the steps (hypothesis, or a
seed where there is no hypothesis: browsers).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from wgburn_runtime.driver import Driver
from wgburn_runtime.errors import OutOfMemoryError
from wgburn_runtime.memory import DeviceMemory, Request
from wgburn_runtime.pages import Allocation

_CYCLE = bytes(range(251))  # 251 is prime: no shift of a power of two looks the same


def pattern(number: int, nbytes: int) -> bytes:
    """Bytes that no other number has, and that look different when they are shifted."""
    head = number.to_bytes(4, "little")
    start = number % 251
    return (head + _CYCLE[start:] + _CYCLE * (nbytes // 251 + 1))[: nbytes + 3 & ~3]


@dataclass
class Held:
    """An allocation and what was written to it."""

    allocation: Allocation
    number: int


class Walk:
    """Steps over one DeviceMemory; `check` and `check_bytes` say whether all is in order."""

    def __init__(self, driver: Driver, budget: int | None = None) -> None:
        self.driver = driver
        self.budget = budget
        self.memory = DeviceMemory(driver)
        self.held: list[Held] = []
        self.scratch: list[tuple[int, int]] = []  # buffers that may be gone, and sizes
        self.number = 0
        self.refused = 0
        self.most = 0  # in use together so far

    # -- steps ------------------------------------------------------------------------------------
    def take(self, *sizes: int, lasting: bool = False) -> None:
        """Allocate values of these sizes at once and write to them."""
        try:
            made = self.memory.alloc_all([Request(n, lasting, f"value of {n}") for n in sizes])
        except OutOfMemoryError:
            assert self.budget is not None, "there was room"
            self.refused += 1
            return
        for allocation, size in zip(made, sizes, strict=True):
            self.number += 1
            assert allocation.size == size
            if size:
                data = pattern(self.number, size)
                self.driver.write_buffer(allocation.buffer, allocation.offset, data)
            self.held.append(Held(allocation, self.number))

    def drop(self, which: int) -> None:
        if self.held:
            self.held.pop(which % len(self.held))

    def cleanup(self) -> None:
        before = self.memory.reserved
        freed = self.memory.cleanup()
        assert freed == before - self.memory.reserved >= 0
        self.scratch = []

    def release(self) -> None:
        before = self.memory.reserved
        freed = self.memory.release_unused()
        assert freed == before - self.memory.reserved >= 0
        self.scratch = []
        for pool in self.memory.pools:
            assert all(page.blocks for page in pool.pages)

    def require(self, *sizes: int) -> None:
        """Scratch pages, filled with ones as a list of launches might."""
        try:
            buffers = self.memory.require(sizes)
        except OutOfMemoryError:
            assert self.budget is not None, "there was room"
            self.refused += 1
            return
        assert len(buffers) == len(sizes)
        self.most = max(self.most, self.memory.in_use + sum(sizes))
        for buffer, size in zip(buffers, sizes, strict=True):
            self.driver.write_buffer(buffer, 0, b"\xff" * size)

    # -- checks -----------------------------------------------------------------------------------
    def check(self) -> None:
        """What must hold between any two steps."""
        usage = self.memory.usage
        ranges: dict[int, list[tuple[int, int]]] = {}
        pages = {id(page) for pool in self.memory.pools for page in pool.pages}
        for held in self.held:
            a = held.allocation
            assert a.offset % 256 == 0
            assert a.size <= a.capacity
            assert a.offset + a.capacity <= a.page.size
            assert id(a.page) in pages
            ranges.setdefault(a.buffer, []).append((a.offset, a.offset + a.capacity))
        for taken in ranges.values():
            taken.sort()
            assert all(left[1] <= right[0] for left, right in pairwise(taken)), taken
        scratch = {b for b in self.memory.scratch.buffers if b}
        assert not scratch & ranges.keys()
        assert len(scratch) + len(pages) == self.driver.stats.buffers_alive
        self.most = max(self.most, usage.in_use)
        assert usage.in_use == sum(h.allocation.size for h in self.held)
        assert usage.padding == sum(h.allocation.capacity - h.allocation.size for h in self.held)
        assert usage.peak_in_use == self.most
        assert usage.reserved == self.driver.stats.bytes_alive
        assert usage.peak_reserved == self.driver.stats.peak_bytes
        assert usage.in_use + usage.padding <= usage.reserved <= usage.peak_reserved
        assert self.budget is None or usage.peak_reserved <= self.budget
        pools = {pool.kind: pool for pool in usage.pools}
        assert pools.keys() == {"tiny", "values", "weights", "scratch", "driver"}
        assert sum(pool.reserved for pool in pools.values()) == usage.reserved
        # What is no page: buffers that a driver keeps to read through.
        assert pools["driver"].reserved == usage.reserved - self.memory.reserved >= 0
        assert sum(pool.allocations for pool in pools.values()) == len(self.held)
        lasting = [h.allocation for h in self.held if h.allocation.lasting]
        assert pools["weights"].in_use == sum(a.size for a in lasting)
        for pool in usage.pools:
            assert pool.in_use + pool.padding <= pool.reserved or not pool.reserved
            assert pool.in_use <= pool.peak_in_use
            assert pool.reserved <= pool.peak_reserved

    async def check_bytes(self) -> None:
        """Everything that is held is as it was written."""
        for held in self.held:
            a = held.allocation
            if a.size:
                expected = pattern(held.number, a.size)
                found = await self.driver.read_buffer(a.buffer, a.offset, len(expected))
                assert found == expected, a

    def finish(self) -> None:
        """Let everything go: nothing may be left."""
        self.held.clear()
        usage = self.memory.usage
        assert (usage.in_use, usage.padding) == (0, 0)
        self.memory.release_unused()
        assert self.memory.reserved == 0
        assert self.driver.stats.buffers_alive == 0


async def wander(walk: Walk, seed: int, steps: int, largest: int) -> None:
    """Steps chosen by a seed, checked one by one; bytes after everything that moves them."""
    rng = random.Random(seed)
    for _ in range(steps):
        kind = rng.choices(
            ("take", "all", "drop", "cleanup", "release", "require"), (8, 2, 8, 1, 1, 2)
        )
        match kind[0]:
            case "take":
                size = int(largest ** rng.uniform(0.2, 1))
                walk.take(size, lasting=rng.random() < 0.3)
            case "all":
                walk.take(*[rng.randrange(largest) for _ in range(3)], lasting=rng.random() < 0.3)
            case "drop":
                walk.drop(rng.randrange(1000))
            case "cleanup":
                walk.cleanup()
                await walk.check_bytes()
            case "release":
                walk.release()
            case "require":
                walk.require(*[4 * rng.randrange(1, largest // 2) for _ in range(rng.randrange(3))])
        walk.check()
    await walk.check_bytes()
    walk.finish()
