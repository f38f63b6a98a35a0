"""Whatever is asked of a device's memory: nothing overlaps, nothing leaks, every byte stays."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from runtime.memory_walk import Walk, wander

from wgburn_runtime.driver import Driver
from wgburn_runtime.fake import FakeDriver, drive


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> None:
    """A full device runs the collector before it refuses: here thousands of times, which after the
    tests of a whole suite would walk what they have imported each time."""
    gc.collect()
    gc.freeze()


KIB = 1 << 10
#: Pages of at most this size: many of them, and allocations that fill a whole one.
LIMITS = {"maxBufferSize": 512 * KIB, "maxStorageBufferBindingSize": 256 * KIB}

SIZES = st.one_of(
    st.integers(0, 2000),
    st.sampled_from((255, 256, 257, 16 * KIB, 16 * KIB + 1, 256 * KIB)),
    st.integers(16 * KIB, 256 * KIB),
)


class Memory(RuleBasedStateMachine):
    """A device with plenty of memory."""

    budget: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.walk = Walk(FakeDriver(LIMITS, memory=self.budget), self.budget)

    @rule(size=SIZES, lasting=st.booleans())
    def take(self, size: int, lasting: bool) -> None:
        self.walk.take(size, lasting=lasting)

    @rule(sizes=st.lists(SIZES, min_size=2, max_size=6), lasting=st.booleans())
    def take_all(self, sizes: list[int], lasting: bool) -> None:
        self.walk.take(*sizes, lasting=lasting)

    @rule(which=st.integers(0, 100))
    def drop(self, which: int) -> None:
        self.walk.drop(which)

    @rule(k=st.integers(2, 4))
    def drop_most(self, k: int) -> None:
        """Holes everywhere: all but every k-th."""
        del self.walk.held[::k]

    @rule()
    def cleanup(self) -> None:
        self.walk.cleanup()
        drive(self.walk.check_bytes())

    @rule()
    def release(self) -> None:
        self.walk.release()

    @rule(sizes=st.lists(st.integers(1, 64 * KIB).map(lambda n: 4 * n), max_size=3))
    def require(self, sizes: list[int]) -> None:
        self.walk.require(*sizes)

    @invariant()
    def in_order(self) -> None:
        self.walk.check()

    def teardown(self) -> None:
        drive(self.walk.check_bytes())
        self.walk.finish()


class SmallMemory(Memory):
    """One that is often full: what moves to make room is checked too."""

    budget = 1200 * KIB

    @invariant()
    def bytes_stay(self) -> None:
        drive(self.walk.check_bytes())


Memory.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
SmallMemory.TestCase.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestMemory = Memory.TestCase
TestSmallMemory = SmallMemory.TestCase


@pytest.mark.parametrize("seed", range(3))
def test_at_random(driver: Driver, seed: int) -> None:
    """The same on a GPU: copies of pages are real there."""
    drive(wander(Walk(driver), seed, 150, 64 * KIB))


def test_a_full_device_refuses_and_goes_on() -> None:
    walk = Walk(FakeDriver(memory=300 * KIB), 300 * KIB)
    drive(wander(walk, 1, 400, 64 * KIB))
    assert 0 < walk.refused < 200
