"""Tests with known ends, for test_rig.py. Not collected by themselves."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.browser(seconds=60)


@pytest.fixture
def four() -> int:
    return 4


@pytest.mark.parametrize("n", [1, 2])
def test_passes(n: int, four: int) -> None:
    assert n < four


async def test_passes_async(four: int) -> None:
    await asyncio.sleep(0.01)
    assert four == 4


def test_fails(four: int) -> None:
    assert four == 5, "told so"


async def test_fails_async() -> None:
    await asyncio.sleep(0.01)
    raise ValueError("from a coroutine")


def test_complains_on_the_console() -> None:
    import js

    js.console.error("a complaint")


@pytest.mark.skip(reason="on purpose")
def test_skipped() -> None:
    raise AssertionError


@pytest.mark.browser(seconds=5)
def test_hangs() -> None:
    while True:
        pass


def test_passes_after_the_hang(four: int) -> None:
    assert four
