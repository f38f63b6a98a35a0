"""The buffer pool: classes, reuse, figures, limits, a full device."""

from __future__ import annotations

import gc
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wgburn_runtime.driver import Driver
from wgburn_runtime.errors import DriverError, LimitError, OutOfMemoryError
from wgburn_runtime.fake import FakeDriver
from wgburn_runtime.pool import MIN_BYTES, BufferPool, size_class

pytestmark = pytest.mark.quick


@given(st.integers(0, 1 << 31))
def test_size_classes_fit_waste_at_most_a_quarter_and_are_few(nbytes: int) -> None:
    capacity = size_class(nbytes, 1 << 40)
    assert capacity >= max(nbytes, MIN_BYTES)
    assert capacity % MIN_BYTES == 0
    assert capacity <= nbytes * 1.25 + MIN_BYTES
    assert size_class(capacity, 1 << 40) == capacity


def test_four_classes_an_octave() -> None:
    assert len({size_class(n, 1 << 40) for n in range(0, 1 << 20, 64)}) == 4 + 4 * 10


def test_figures_follow_what_is_held(fake: FakeDriver) -> None:
    pool = BufferPool(fake)
    a, b = pool.alloc(1000), pool.alloc(5000)
    usage = pool.usage
    assert (usage.in_use, usage.padding, usage.cached) == (6000, 24 + 120, 0)
    assert usage.reserved == fake.stats.bytes_alive == 1024 + 5120
    assert usage.allocations == 2
    del a
    usage = pool.usage
    assert (usage.in_use, usage.cached, usage.peak_in_use) == (5000, 1024, 6000)
    assert pool.release_cached() == 1024
    assert pool.usage.reserved == fake.stats.bytes_alive == 5120
    assert b.size == 5000 and b.capacity == 5120 and b.offset == 0
    pool.close()
    del b
    assert pool.usage.in_use == 0
    with pytest.raises(DriverError, match="closed pool"):
        pool.alloc(4)


def test_a_loop_gets_the_same_buffers_in_whatever_order_it_frees(fake: FakeDriver) -> None:
    pool = BufferPool(fake)
    rng = random.Random(0)
    seen = set()
    for _ in range(20):
        held = [pool.alloc(size) for size in (1000, 1000, 5000, 1000, 5000)]
        seen.add(tuple(allocation.buffer for allocation in held))
        while held:
            held.pop(rng.randrange(len(held)))
    assert len(seen) == 1


def test_ten_thousand_cycles(driver: Driver) -> None:
    pool = BufferPool(driver)
    rng = random.Random(1)
    held = []
    for _ in range(10_000):
        held.append(pool.alloc(rng.randrange(1, 20_000)))
        if len(held) > 20:
            held.pop(rng.randrange(len(held)))
    usage = pool.usage
    assert usage.allocations == len(held) == 20
    assert usage.in_use == sum(a.size for a in held)
    assert usage.hits + usage.misses == 10_000
    assert usage.misses < 300
    assert usage.reserved == driver.stats.bytes_alive
    assert len({a.buffer for a in held}) == 20
    held.clear()
    pool.release_cached()
    assert driver.stats.buffers_alive == 0
    assert pool.usage == usage._replace(in_use=0, padding=0, cached=0, reserved=0, allocations=0)


def test_over_limit_says_which_and_what_to_do(fake: FakeDriver) -> None:
    pool = BufferPool(fake)
    largest = pool.alloc(128 << 20)
    assert largest.capacity == 128 << 20
    with pytest.raises(LimitError) as caught:
        pool.alloc((128 << 20) + 1)
    for part in ("maxStorageBufferBindingSize", "134217729", "134217728", "adapter", "split"):
        assert part in str(caught.value)
    small = BufferPool(FakeDriver({"maxBufferSize": 1000}))
    assert small.alloc(900).capacity == 1000
    with pytest.raises(LimitError, match="maxBufferSize of 1000"):
        small.alloc(1004)
    with pytest.raises(DriverError, match="-1 bytes"):
        pool.alloc(-1)


def test_a_full_device_gets_its_cache_back_first() -> None:
    fake = FakeDriver(memory=10 << 10)
    pool = BufferPool(fake)
    forgotten: list[list[int]] = []
    pool.on_destroy(forgotten.append)
    small = [pool.alloc(1024) for _ in range(8)]
    buffers = sorted(a.buffer for a in small)
    small.clear()
    big = pool.alloc(8 << 10)
    assert sorted(forgotten[0]) == buffers
    assert fake.stats.buffers_alive == 1
    with pytest.raises(OutOfMemoryError, match="8192 bytes are held in 1 allocations"):
        pool.alloc(4 << 10)
    del big
    pool.alloc(4 << 10)


def test_freed_from_another_thread_and_from_a_cycle(fake: FakeDriver) -> None:
    pool = BufferPool(fake)
    held = [pool.alloc(256) for _ in range(100)]
    threads = [threading.Thread(target=lambda: [held.pop() for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cycle: list[object] = [pool.alloc(256)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.usage.allocations == 0
    assert pool.usage.cached == 100 * 256
