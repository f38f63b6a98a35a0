"""Device memory on paper: what a rehearsal counts is what the same work then takes."""

from __future__ import annotations

import random

import pytest

from wgburn_runtime.driver import TENSOR_USAGE
from wgburn_runtime.fake import FakeDriver
from wgburn_runtime.memory import DeviceMemory, Layout, Rehearsal, Request
from wgburn_runtime.pages import Allocation
from wgburn_runtime.queue import ring_size

pytestmark = pytest.mark.quick

KIB, MIB = 1 << 10, 1 << 20


def rehearse(memory: DeviceMemory, fake: FakeDriver, ring: int = 0) -> Rehearsal:
    return Rehearsal(memory, fake.stats.bytes_alive, ring, ring_size)


def work(memory: DeviceMemory, seed: int) -> list[Allocation]:
    """Requests of a piece of work, the same for the same seed; what is still held at its end."""
    rng = random.Random(seed)
    held: list[Allocation] = []
    for _ in range(60):
        sizes = [int(8 * (MIB / 2) ** rng.random()) for _ in range(rng.randint(1, 5))]
        held += memory.alloc_all([Request(n, rng.random() < 0.3) for n in sizes])
        memory.require([4 * rng.randint(1, 300 * KIB) for _ in range(rng.randint(0, 2))])
        while len(held) > 12:
            held.pop(rng.randrange(len(held)))
    return held


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("earlier", [False, True])
def test_a_rehearsal_counts_what_the_same_work_then_takes(
    fake: FakeDriver, seed: int, earlier: bool
) -> None:
    memory = DeviceMemory(fake)
    kept = work(memory, 7) if earlier else []
    if earlier:
        memory.cleanup()  # peaks of before are not the rehearsal's
        memory.require((3 * MIB, 500))
    before = memory.usage, fake.stats, fake._next_handle
    paper = rehearse(memory, fake)
    assert all(p.reserved <= p.peak_reserved for p in paper.usage.pools)
    held = work(paper, seed)
    assert (memory.usage, fake.stats, fake._next_handle) == before  # nothing was made
    expected = paper.usage
    assert all(p.reserved <= p.peak_reserved for p in expected.pools)
    assert expected.in_use == sum(a.size for a in (*kept, *held))
    real = work(memory, seed)
    usage = memory.usage
    assert (usage.in_use, usage.padding) == (expected.in_use, expected.padding)
    assert [(p.kind, p.in_use, p.allocations) for p in usage.pools] == [
        (p.kind, p.in_use, p.allocations) for p in expected.pools
    ]
    if not earlier:
        assert usage == expected
    else:
        # Earlier peaks let pages stay longer.
        assert usage.reserved == pytest.approx(expected.reserved, rel=0.15)
    assert len(real) == len(held)
    del held, real
    assert paper.usage.in_use == memory.usage.in_use == sum(a.size for a in kept)


def test_a_rehearsal_lays_out_the_real_thing(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    paper = rehearse(memory, fake)
    sizes = [(n, lasting) for n in (300, 40 * KIB, 900 * KIB, MIB) for lasting in (False, True)]
    held = [paper.alloc(n, lasting) for n, lasting in sizes for _ in range(6)]
    paper.require((5 * MIB, 3 * MIB))
    paper.require((2 * MIB, 4 * MIB))
    layout = paper.layout()
    assert layout == Layout(*(p.peak_reserved for p in paper.usage.pools[:3]), (5 * MIB, 4 * MIB))
    memory.install(layout)
    assert fake.stats.buffers_alive == 0
    real = [memory.alloc(n, lasting) for n, lasting in sizes for _ in range(6)]
    memory.require((100, 200))
    usage = {p.kind: p for p in memory.usage.pools}
    assert [usage[kind].pages for kind in ("tiny", "values", "weights")] == [1, 1, 1]
    assert [usage[kind].reserved for kind in ("tiny", "values", "weights")] == list(layout[:3])
    assert usage["scratch"].reserved == 9 * MIB  # once, not step by step
    buffers = list(memory.scratch.buffers)
    assert memory.require((5 * MIB, 4 * MIB)) == buffers
    assert len(held) == len(real)


def test_a_rehearsal_of_too_much_does_not_refuse_less_afterwards() -> None:
    """One asks on paper how much fits; what is too much is laid out, then less is done."""
    fake = FakeDriver(memory=20 * MIB)
    memory = DeviceMemory(fake)
    paper = rehearse(memory, fake)
    paper.alloc_all([Request(8 * MIB), Request(50 * MIB), Request(30 * MIB, True)])
    paper.require((100 * MIB,))
    assert paper.usage.peak_reserved > 180 * MIB
    memory.install(paper.layout())
    assert memory.require((4 * MIB,))
    held = memory.alloc_all([Request(6 * MIB), Request(6 * MIB, True), Request(100)])
    assert memory.usage.in_use == sum(a.size for a in held)


def test_a_rehearsal_counts_the_ring_of_parameters(fake: FakeDriver) -> None:
    memory = DeviceMemory(fake)
    fake.create_buffer(1 << 18, TENSOR_USAGE)  # stands for the ring
    paper = rehearse(memory, fake, ring=1 << 18)
    paper.run((MIB,), 1000)
    assert paper.usage.reserved == (1 << 18) + MIB
    paper.run((), (1 << 18) + 256)
    usage = paper.usage
    assert usage.reserved == (1 << 19) + MIB
    assert usage.peak_reserved == (1 << 19) + (1 << 18) + MIB  # both rings for a moment
    assert usage.pools[-1].kind == "driver" and usage.pools[-1].reserved == 1 << 19
