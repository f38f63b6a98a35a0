"""Device memory that runs out: what goes first, what is refused, what is moved together."""

from __future__ import annotations

import random
import zlib

import pytest
from runtime.memory_tools import read, write
from runtime.memory_walk import pattern

from wgburn_runtime.driver import TENSOR_USAGE
from wgburn_runtime.errors import OutOfMemoryError
from wgburn_runtime.fake import FakeDriver
from wgburn_runtime.memory import DeviceMemory, Request
from wgburn_runtime.pages import Allocation

pytestmark = pytest.mark.quick

KIB, MIB = 1 << 10, 1 << 20


# -- a full device --------------------------------------------------------------------------------
def test_a_full_device_gets_its_unused_pages_back_first() -> None:
    fake = FakeDriver(memory=32 * MIB)
    memory = DeviceMemory(fake)
    forgotten: list[int] = []
    memory.on_destroy(forgotten.append)
    unused, used = memory.alloc(2 * MIB), memory.alloc(28 * MIB)
    buffer = unused.buffer
    del unused
    created = fake._next_handle
    # A page for it would have an eighth of what is in use: refused, then one of just its size.
    more = memory.alloc(3 * MIB)
    assert forgotten == [buffer]
    assert fake._next_handle == created + 1
    assert more.buffer != used.buffer
    assert memory.usage.reserved == 31 * MIB


def test_scratch_pages_go_before_a_value_is_refused() -> None:
    fake = FakeDriver(memory=16 * MIB)
    memory = DeviceMemory(fake)
    (buffer,) = memory.require((10 * MIB,))
    forgotten: list[int] = []
    memory.on_destroy(forgotten.append)
    assert memory.alloc(12 * MIB).size == 12 * MIB
    assert forgotten == [buffer]


def test_values_are_moved_together_before_one_is_refused() -> None:
    fake = FakeDriver(memory=8 * MIB)
    memory = DeviceMemory(fake)
    held = [memory.alloc(512 * KIB) for _ in range(16)]
    assert memory.usage.reserved == 8 * MIB
    for k, allocation in enumerate(held):
        write(fake, allocation, k)
    del held[::2]  # half of every page
    large = memory.alloc(4 * MIB)
    write(fake, large, 99)
    for k, allocation in enumerate(held):
        assert read(fake, allocation) == pattern(2 * k + 1, 512 * KIB)
    assert read(fake, large) == pattern(99, 4 * MIB)
    assert fake.stats.bytes_alive == 8 * MIB
    del large, held, allocation
    assert memory.release_unused() == 8 * MIB


def test_out_of_memory_says_who_has_it_and_the_device_stays_usable() -> None:
    fake = FakeDriver(memory=40 * MIB)
    memory = DeviceMemory(fake)
    sizes = [1, 9, 2, 8, 3, 7]
    held = [memory.alloc(n * MIB, label=f"float32[{n}, 512, 512]") for n in sizes]
    for k, allocation in enumerate(held):
        write(fake, allocation, k)
    with pytest.raises(OutOfMemoryError) as caught:
        memory.alloc(16 * MIB, label="float32[16, 512, 512]")
    text = str(caught.value)
    assert f"no memory for {16 * MIB} bytes for float32[16, 512, 512]" in text
    assert f"{30 * MIB} bytes are in use by 6 values" in text
    largest = [f"{n * MIB} float32[{n}, 512, 512]" for n in (9, 8, 7, 3, 2)]
    assert ", ".join(largest) in text  # the largest first, five of them
    assert "float32[1, 512, 512]" not in text
    assert "checkpoint" in text and "\n" not in text
    assert memory.usage.in_use == 30 * MIB
    for k, allocation in enumerate(held):
        assert read(fake, allocation) == pattern(k, sizes[k] * MIB)
    assert memory.alloc(5 * MIB).size == 5 * MIB
    del held[1]
    assert memory.alloc(16 * MIB).size == 16 * MIB


def test_a_budget_is_kept_as_if_the_device_had_no_more(fake: FakeDriver) -> None:
    other = fake.create_buffer(MIB, TENSOR_USAGE)  # counts too
    memory = DeviceMemory(fake, budget=8 * MIB)
    held = memory.alloc(5 * MIB)
    with pytest.raises(OutOfMemoryError, match=f"over the budget of {8 * MIB}"):
        memory.alloc(3 * MIB)
    with pytest.raises(OutOfMemoryError, match="budget"):
        memory.require((3 * MIB,))
    with pytest.raises(OutOfMemoryError, match="budget"):
        memory.buffer(3 * MIB, TENSOR_USAGE)
    assert memory.alloc(2 * MIB).size == 2 * MIB
    fake.destroy_buffer(other)
    assert memory.alloc(3 * MIB).size == 3 * MIB
    fake.destroy_buffer(memory.buffer(3 * MIB, TENSOR_USAGE))  # an unused page goes for it
    assert memory.usage.peak_reserved <= 8 * MIB
    assert held.size == 5 * MIB


def test_scratch_that_does_not_fit_is_refused_and_less_is_not() -> None:
    fake = FakeDriver(memory=10 * MIB)
    memory = DeviceMemory(fake)
    held = memory.alloc(4 * MIB)
    memory.require((3 * MIB,))
    with pytest.raises(OutOfMemoryError, match=f"no memory for {8 * MIB} bytes for scratch"):
        memory.require((4 * MIB, 4 * MIB))
    memory.require((5 * MIB,))
    assert memory.usage.peak_reserved <= 10 * MIB
    assert held.size == 4 * MIB


def test_a_page_is_given_back_before_reserved_passes_what_work_ever_needed(
    fake: FakeDriver,
) -> None:
    memory = DeviceMemory(fake)
    for size in (40 * MIB, 48 * MIB, 52 * MIB, 60 * MIB, 10 * MIB, 64 * MIB):
        held = memory.alloc(size)
        usage = memory.usage
        assert usage.reserved <= 1.125 * usage.peak_in_use
        del held
    assert memory.usage.peak_reserved <= 1.125 * 64 * MIB


@pytest.mark.parametrize("kind", ["uniform", "log-uniform"])
@pytest.mark.parametrize("live", [1, 8])
def test_thousand_cycles_of_random_sizes(fake: FakeDriver, kind: str, live: int) -> None:
    memory = DeviceMemory(fake)
    largest = 64 * MIB
    for seed in range(3):
        rng = random.Random(seed)
        held: list[Allocation] = []
        for _ in range(1000):
            while len(held) >= live:
                held.pop(rng.randrange(len(held)))
            if kind == "uniform":
                size = rng.randint(8, largest)
            else:
                size = int(8 * (largest / 8) ** rng.random())
            held.append(memory.alloc(size))
        usage = memory.usage
        assert usage.in_use == sum(a.size for a in held)
        assert usage.reserved <= 1.3 * usage.peak_in_use
        assert usage.peak_reserved <= 1.3 * usage.peak_in_use
        del held
        # And nothing is left to grow from one thousand to the next.
        assert memory.usage.reserved <= 1.125 * usage.peak_in_use or memory.usage.in_use == 0
    memory.release_unused()
    assert fake.stats.buffers_alive == 0


# -- moving together ------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_cleanup_of_memory_in_fragments(fake: FakeDriver, seed: int) -> None:
    """Long-lived values of mixed sizes between short-lived ones: a few of each page stay."""
    memory = DeviceMemory(fake)
    rng = random.Random(seed)
    stay: list[tuple[Allocation, int]] = []
    go: list[Allocation] = []
    for number in range(600):
        size = int(8 * (MIB / 8) ** rng.random())
        allocation = memory.alloc(size, lasting=number % 5 == 0)
        if rng.random() < 0.2:
            write(fake, allocation, number)
            stay.append((allocation, zlib.crc32(pattern(number, size))))
        else:
            go.append(allocation)
    del allocation
    memory.require((5 * MIB,))
    before = memory.usage
    del go
    assert memory.usage.reserved == before.reserved > 2 * memory.usage.in_use
    freed = memory.cleanup()
    usage = memory.usage
    assert freed == before.reserved - usage.reserved
    assert usage.reserved == fake.stats.bytes_alive <= 1.15 * usage.in_use
    assert usage.in_use == sum(a.size for a, _ in stay)
    for allocation, checksum in stay:
        assert zlib.crc32(read(fake, allocation)) == checksum
    assert memory.cleanup() == 0  # nothing left to do
    del stay, allocation
    assert memory.cleanup() == usage.reserved
    assert fake.stats.buffers_alive == 0


def test_cleanup_without_room_for_a_new_page_keeps_everything() -> None:
    fake = FakeDriver(memory=8 * MIB)
    memory = DeviceMemory(fake)
    held = memory.alloc_all([Request(512 * KIB) for _ in range(16)])
    for k, allocation in enumerate(held):
        write(fake, allocation, k)
    del held[1::4]  # one page with holes; there is no room for another beside it
    memory.cleanup()
    kept = [k for k in range(16) if k % 4 != 1]
    for k, allocation in zip(kept, held, strict=True):
        assert read(fake, allocation) == pattern(k, 512 * KIB)
    assert memory.usage.in_use == 12 * 512 * KIB
    assert len([memory.alloc(512 * KIB) for _ in range(4)]) == 4  # the holes can be used


def test_cleanup_moves_no_more_than_it_must(fake: FakeDriver) -> None:
    """Full pages stay where they are, and so do places and bind groups in them."""
    memory = DeviceMemory(fake)
    full = [memory.alloc(2 * MIB) for _ in range(4)]
    holes = memory.alloc_all([Request(MIB) for _ in range(8)])
    places = [a.place for a in full]
    del holes[1::2]
    memory.cleanup()
    assert [a.place for a in full] == places
    assert memory.usage.reserved == 12 * MIB
