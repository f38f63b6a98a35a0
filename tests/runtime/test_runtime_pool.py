"""Device memory: pages, figures, reuse, limits, what dies in other places."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.memory_tools import pool, read, write
from runtime.memory_walk import pattern

from wgburn_runtime.driver import TENSOR_USAGE, Driver
from wgburn_runtime.errors import DeviceLostError, DriverError, LimitError, OutOfMemoryError
from wgburn_runtime.fake import FakeDriver
from wgburn_runtime.memory import TINY, DeviceMemory, Request
from wgburn_runtime.pages import Allocation, Page
from wgburn_runtime.pool import PoolUsage

pytestmark = pytest.mark.quick

KIB, MIB = 1 << 10, 1 << 20


class Watched(FakeDriver):
    """A fake that calls `on_copy` before each copy."""

    def on_copy(self) -> None:
        pass

    def copy_buffer(self, src: int, src_offset: int, dst: int, dst_offset: int, size: int) -> None:
        self.on_copy()
        super().copy_buffer(src, src_offset, dst, dst_offset, size)


# -- a page ---------------------------------------------------------------------------------------
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_gaps_of_a_page_are_what_is_not_taken(data: st.DataObject) -> None:
    """Freed ranges join their neighbours, and best fit takes the smallest gap."""
    units, page = 40, Page(1, 40 * 256)
    taken: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 40))):
        if taken and data.draw(st.booleans()):
            offset = data.draw(st.sampled_from(sorted(taken)))
            page.give(offset, taken.pop(offset))
        else:
            capacity = 256 * data.draw(st.integers(1, 12))
            best, number = page.fit(capacity)
            fitting = [size for _, size in page.gaps if size >= capacity]
            assert best == min(fitting, default=0)
            assert (number >= 0) == bool(fitting)
            if not fitting:
                continue
            offset = page.take(number, capacity)
            assert offset not in taken
            taken[offset] = capacity
        free = [True] * units
        for at, size in taken.items():
            for k in range(at // 256, (at + size) // 256):
                assert free[k]
                free[k] = False
        assert page.free == 256 * sum(free)
        gaps, k = [], 0
        while k < units:
            run = k
            while run < units and free[run]:
                run += 1
            if run > k:
                gaps.append((k * 256, (run - k) * 256))
            k = run + 1
        assert page.gaps == gaps


# -- figures and pools ----------------------------------------------------------------------------
def test_figures_follow_what_is_held(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    a, b = memory.alloc(1000), memory.alloc(5000, label="b")
    usage = memory.usage
    assert (usage.in_use, usage.padding) == (6000, 24 + 120)
    assert usage.reserved == fake.stats.bytes_alive == 64 * KIB  # one page has both
    assert pool(memory, "tiny") == PoolUsage(
        kind="tiny",
        in_use=6000,
        padding=144,
        reserved=64 * KIB,
        peak_in_use=6000,
        peak_reserved=64 * KIB,
        allocations=2,
        pages=1,
        peak_pages=1,
        largest_page=64 * KIB,
        largest_allocation=5000,
    )
    assert a.buffer == b.buffer and a.offset != b.offset
    assert (b.size, b.capacity, b.label) == (5000, 5120, "b")
    assert "5000 bytes b at" in repr(b)
    del a
    usage = memory.usage
    assert (usage.in_use, usage.padding, usage.peak_in_use) == (5000, 120, 6000)
    assert memory.release_unused() == 0  # b is still in the only page
    del b
    assert memory.release_unused() == 64 * KIB
    usage = memory.usage
    assert (usage.in_use, usage.reserved, usage.peak_in_use) == (0, 0, 6000)
    assert usage.peak_reserved == fake.stats.peak_bytes == 64 * KIB
    assert fake.stats.buffers_alive == 0


def test_sizes_and_purposes_have_pools_of_their_own(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    held = [memory.alloc(n) for n in (0, 4, TINY, TINY + 1, 3 * MIB)]
    held += [memory.alloc(n, lasting=True) for n in (4, TINY, 3 * MIB)]
    counts = {p.kind: p.allocations for p in memory.usage.pools}
    assert counts == {"tiny": 3, "values": 2, "weights": 3, "scratch": 0, "driver": 0}
    assert [a.lasting for a in held] == [False] * 5 + [True] * 3
    pages = [{a.buffer for a in part} for part in (held[:3], held[3:5], held[5:])]
    assert not (pages[0] & pages[1] or pages[0] & pages[2] or pages[1] & pages[2])
    assert held[0].capacity == 256  # even nothing can be bound


def test_buffers_that_are_no_pages_are_counted_as_the_drivers(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    other = fake.create_buffer(1 << 18, TENSOR_USAGE)
    held = memory.alloc(100)
    usage = memory.usage
    assert usage.reserved == fake.stats.bytes_alive == (1 << 18) + 64 * KIB
    assert pool(memory, "driver").reserved == 1 << 18
    fake.destroy_buffer(other)
    assert pool(memory, "driver").reserved == 0
    assert memory.usage.peak_reserved == (1 << 18) + 64 * KIB
    assert held.size == 100


def test_scratch_counts_towards_the_peak_only_while_it_is_needed(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    held = memory.alloc(1000)
    memory.require((300 * KIB, 5 * KIB))
    usage = memory.usage
    assert (usage.in_use, usage.peak_in_use) == (1000, 1000 + 305 * KIB)
    assert usage.reserved == 64 * KIB + 305 * KIB == fake.stats.bytes_alive
    scratch = pool(memory, "scratch")
    assert (scratch.in_use, scratch.peak_in_use, scratch.reserved) == (0, 305 * KIB, 305 * KIB)
    assert (scratch.pages, scratch.largest_page) == (2, 300 * KIB)
    more = memory.alloc(4000)
    memory.needed(305 * KIB)  # the same list again
    assert memory.usage.peak_in_use == 5000 + 305 * KIB
    assert held.size + more.size == memory.usage.in_use


def test_a_loop_gets_the_same_places_in_whatever_order_it_frees(fake: FakeDriver) -> None:
    """Equal places are what makes a list find its bind groups again."""
    memory = DeviceMemory(fake)
    kept = memory.alloc(2000)
    rng = random.Random(0)
    sizes = [1000, 1000, 5000, 1000, 5000, 200 * KIB, 3 * MIB, 200 * KIB, 16 * KIB]
    seen = set()
    for _ in range(20):
        held = memory.alloc_all([Request(n) for n in sizes])
        seen.add(tuple(a.place for a in held))
        while held:
            held.pop(rng.randrange(len(held)))
    assert len(seen) == 1
    assert len(set(seen.pop())) == len(sizes)
    assert kept.place == kept.page.place(kept.offset, kept.capacity)


def test_different_ranges_have_different_places(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    first = memory.alloc(1000)
    place, where = first.place, (first.buffer, first.offset)
    del first
    again, larger = memory.alloc(900), None  # the same bytes are bound
    assert (again.place, again.buffer, again.offset) == (place, *where)
    del again
    larger = memory.alloc(1100)
    assert (larger.buffer, larger.offset) == where
    assert larger.place != place


def test_alloc_all_makes_pages_that_fit(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    sizes = [700 * KIB, 20 * KIB, 3 * MIB, 33 * KIB, 5 * MIB]
    held = memory.alloc_all([Request(n) for n in sizes])
    values = pool(memory, "values")
    assert values.pages == 1
    assert values.reserved == sum(a.capacity for a in held)
    # Beside them, what fits in no gap gets a page that suits the work, not one of all of that.
    other = memory.alloc(200 * KIB)
    assert pool(memory, "values").reserved - values.reserved < 2 * MIB
    both = memory.alloc_all([Request(8000), Request(8 * MIB, True), Request(9 * MIB, True)])
    assert [pool(memory, kind).pages for kind in ("tiny", "values", "weights")] == [1, 2, 1]
    assert pool(memory, "weights").reserved == 17 * MIB
    assert len({a.place for a in (*held, other, *both)}) == 9


def test_alloc_all_over_the_largest_page_takes_several(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    held = memory.alloc_all([Request(100 * MIB, True) for _ in range(3)])
    weights = pool(memory, "weights")
    assert len(held) == 3 and weights.pages == 3
    assert weights.largest_page <= 128 * MIB  # a page of weights is bound as a whole
    assert weights.reserved <= 1.3 * weights.in_use


def test_a_failed_alloc_all_keeps_nothing() -> None:
    memory = DeviceMemory(FakeDriver(memory=10 * MIB))
    with pytest.raises(OutOfMemoryError):
        memory.alloc_all([Request(3 * MIB), Request(4 * MIB, True), Request(5 * MIB)])
    usage = memory.usage
    assert usage.in_use == 0 and all(p.allocations == 0 for p in usage.pools)
    assert memory.alloc(9 * MIB).size == 9 * MIB
    with pytest.raises(LimitError):
        memory.alloc_all([Request(1 * MIB), Request(1 << 30)])
    assert memory.usage.in_use == 0


def test_a_large_page_of_its_own_is_not_broken_up_for_a_small_value(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    kept = memory.alloc(2 * MIB)
    large = memory.alloc(64 * MIB)
    buffer = large.buffer
    del large
    small = memory.alloc(MIB)
    assert small.buffer != buffer
    assert memory.alloc(60 * MIB).buffer == buffer  # it was there for something of its size
    memory.release_unused()
    assert memory.usage.reserved < 6 * MIB
    assert kept.size == 2 * MIB


@pytest.mark.parametrize("lasting", [False, True])
def test_small_work_reserves_little(fake: FakeDriver, lasting: bool) -> None:
    """A few values do not take a page for thousands."""
    memory = DeviceMemory(fake)
    held = [memory.alloc(20 * KIB, lasting) for _ in range(4)]
    assert memory.usage.reserved <= MIB
    many = [memory.alloc(200 * KIB, lasting) for _ in range(400)]
    usage = memory.usage
    assert usage.reserved <= 1.15 * usage.in_use
    assert len({a.buffer for a in many}) < 60
    assert len(held) == 4


# -- limits and life ------------------------------------------------------------------------------
def test_over_limit_says_which_and_what_to_do(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    largest = memory.alloc(128 * MIB)
    assert largest.capacity == 128 * MIB
    with pytest.raises(LimitError) as caught:
        memory.alloc((128 * MIB) + 1)
    for part in ("maxStorageBufferBindingSize", "134217729", "134217728", "adapter", "split"):
        assert part in str(caught.value)
    small = DeviceMemory(FakeDriver({"maxBufferSize": 1000}))
    assert small.alloc(900).capacity == 1000
    with pytest.raises(LimitError, match="maxBufferSize of 1000"):
        small.alloc(1004)
    with pytest.raises(DriverError, match="-1 bytes"):
        memory.alloc(-1)
    assert memory.usage.in_use == 128 * MIB


def test_closed(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    held, gone = memory.alloc(1000), memory.alloc(5 * MIB)
    del gone
    memory.close()
    memory.close()
    assert memory.usage.reserved == 64 * KIB  # held is still there
    with pytest.raises(DriverError, match="closed"):
        memory.alloc(4)
    assert held.size == 1000
    del held
    assert memory.usage.in_use == 0


def test_a_lost_device_says_so(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    held = memory.alloc(1000)
    fake.lose("unplugged")
    with pytest.raises(DeviceLostError, match="unplugged"):
        memory.alloc(5 * MIB)
    with pytest.raises(DeviceLostError, match="unplugged"):
        memory.require((4096,))
    del held
    assert memory.usage.in_use == 0
    memory.close()


# -- dying in other places ------------------------------------------------------------------------
def test_freed_from_another_thread_and_from_a_cycle(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    held = [memory.alloc(256) for _ in range(100)]
    threads = [threading.Thread(target=lambda: [held.pop() for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cycle: list[object] = [memory.alloc(256)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert memory.usage.in_use == 0
    assert pool(memory, "tiny").allocations == 0
    assert memory.release_unused() == 64 * KIB


def test_freed_by_the_collector_in_the_middle_of_an_allocation(fake: FakeDriver) -> None:
    """The collector may run anywhere, also inside the pool's own code."""
    memory = DeviceMemory(fake)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            cycle: list[object] = [memory.alloc(300), memory.alloc(20 * KIB)]
            cycle.append(cycle)
            del cycle
            memory.cleanup()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert memory.usage.in_use == 0
    assert memory.usage.reserved < 4 * MIB


def test_what_dies_while_it_is_moved_is_given_back_at_its_new_place() -> None:
    """Another thread drops an allocation; its finaliser has left its note, and the clean-up still
    reaches it through a weak reference."""
    fake = Watched()
    memory = DeviceMemory(fake)
    held = [memory.alloc(256 * KIB) for _ in range(8)]
    for k, allocation in enumerate(held):
        write(fake, allocation, k)
    first, victim, *others = held[0], held[1], held[4], held[5]
    old = victim.page
    assert first.page is old is not others[0].page is others[1].page

    def dies() -> None:
        fake.on_copy = lambda: None  # type: ignore[method-assign]
        victim.__del__()

    fake.on_copy = dies  # type: ignore[method-assign]
    del held, allocation
    memory.cleanup()
    assert victim.page is not old  # it was moved nevertheless
    assert memory.usage.in_use == 3 * 256 * KIB
    filler = [memory.alloc(256 * KIB) for _ in range(5)]
    for k, allocation in enumerate(filler):
        write(fake, allocation, 10 + k)
    for k, allocation in zip((0, 4, 5), (first, *others), strict=True):
        assert read(fake, allocation) == pattern(k, 256 * KIB)
    assert memory.usage.in_use == 8 * 256 * KIB


def test_threads_that_free_while_memory_is_moved(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    bag: list[Allocation] = []
    done = threading.Event()

    def drops(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            with contextlib.suppress(IndexError):
                bag.pop(rng.randrange(len(bag) or 1))

    threads = [threading.Thread(target=drops, args=(seed,)) for seed in range(2)]
    rng = random.Random(5)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(60):
            for _ in range(60):
                bag.append(memory.alloc(rng.choice((300, 5000, 17 * KIB, 300 * KIB))))
            memory.cleanup()
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    bag.clear()
    assert memory.usage.in_use == 0
    memory.release_unused()
    assert fake.stats.buffers_alive == 0


# -- how much work it is --------------------------------------------------------------------------
def test_ten_thousand_cycles_make_few_buffers(driver: Driver) -> None:
    memory = DeviceMemory(driver)
    rng = random.Random(1)
    held: list[Allocation] = []
    before = driver.stats.buffers_alive
    made: set[int] = set()
    for _ in range(10_000):
        held.append(memory.alloc(rng.randrange(1, 20_000)))
        made.add(held[-1].buffer)
        if len(held) > 20:
            held.pop(rng.randrange(len(held)))
    usage = memory.usage
    assert usage.in_use == sum(a.size for a in held)
    assert len({(a.buffer, a.offset) for a in held}) == len(held) == 20
    assert len(made) <= 30
    held.clear()
    memory.release_unused()
    assert driver.stats.buffers_alive == before
    assert memory.usage.in_use == 0
