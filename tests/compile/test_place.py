"""Where intermediates lie in scratch pages: never on one another, in little more than they need."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wgburn.compile.place import ALIGN, PAGE, Life, Spot, lives, most_alive, place

pytestmark = pytest.mark.quick

STEPS = st.lists(st.lists(st.integers(0, 12), max_size=5), max_size=15)
SIZES = st.lists(st.integers(1, 40 * ALIGN), min_size=13, max_size=13)


def meet(a, b):
    return a.first <= b.last and b.first <= a.last


def apart(a, b):
    return a.page != b.page or a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


def check(found, placement, page):
    """What every placement must keep."""
    assert placement.spots.keys() == {life.buffer for life in found}
    ends = [0] * len(placement.pages)
    for life in found:
        spot = placement.spots[life.buffer]
        assert spot.size == life.size
        assert spot.offset % ALIGN == 0
        ends[spot.page] = max(ends[spot.page], spot.offset + spot.size)
    assert tuple(ends) == placement.pages
    assert 0 not in ends
    assert max(ends, default=0) <= max(page, *(life.size for life in found), 0)
    for a, b in combinations(found, 2):
        assert not meet(a, b) or apart(placement.spots[a.buffer], placement.spots[b.buffer])
    assert sum(placement.pages) >= most_alive(found)


@given(steps=STEPS, sizes=SIZES, page=st.sampled_from((20 * ALIGN, 64 * ALIGN, PAGE)))
@settings(max_examples=150, deadline=None)
def test_what_shares_a_step_never_overlaps(steps, sizes, page):
    wanted = dict(enumerate(sizes[:10]))  # buffers 10 to 12 have memory of their own
    found = lives(steps, wanted)
    placement = place(found, page)
    check(found, placement, page)
    assert place(lives(steps, wanted), page) == placement  # the same again
    spots = placement.spots
    for bound in steps:
        inner = sorted({b for b in bound if b in wanted})
        assert all(spots[b].size >= wanted[b] for b in inner)
        assert all(apart(spots[a], spots[b]) for a, b in combinations(inner, 2))


@given(steps=STEPS, sizes=SIZES)
@settings(max_examples=100, deadline=None)
def test_lives_reach_from_the_first_to_the_last_step(steps, sizes):
    wanted = dict(enumerate(sizes[:10]))
    found = lives(steps, wanted)
    for life in found:
        uses = [k for k, bound in enumerate(steps) if life.buffer in bound]
        assert (life.first, life.last) == (uses[0], uses[-1])
        assert 0 <= life.size - wanted[life.buffer] < ALIGN
        assert life.size % ALIGN == 0
    assert {life.buffer for life in found} == {b for bound in steps for b in bound if b in wanted}
    alive = [sum(f.size for f in found if f.first <= k <= f.last) for k in range(len(steps))]
    assert most_alive(found) == max(alive, default=0)


def random_lives(seed, count, kind):
    """Buffers of a plan of `count` steps. "training": what forward makes waits for backward."""
    rng = random.Random(seed)
    found = []
    for buffer in range(count):
        size = rng.randint(1, 1000) if kind == "uniform" else int(1000 ** rng.random())
        if kind == "training":
            first = rng.randrange(count // 2 or 1)
            last = rng.choice([first + rng.randint(1, 3), count - first])
        else:
            first = rng.randrange(count)
            last = min(count - 1, first + int(rng.expovariate(1 / rng.choice([2, 8, 30]))))
        found.append(Life(buffer, size * ALIGN, first, last))
    return found


@pytest.mark.parametrize("kind", ["uniform", "log", "training"])
def test_little_more_than_what_is_alive_together(kind):
    """No assignment can go below `most_alive`, and often none reaches it."""
    ratios = []
    for count, plans in ((3, 100), (10, 100), (30, 60), (100, 10)):
        for seed in range(plans):
            found = random_lives(seed, count, kind)
            placement = place(found)
            check(found, placement, PAGE)
            ratios.append(sum(placement.pages) / most_alive(found))
    assert max(ratios) <= 1.4
    assert sum(ratios) / len(ratios) <= 1.05


def test_a_chain_needs_two_buffers():
    found = lives([[k, k + 1] for k in range(20)], dict.fromkeys(range(21), 1000))
    placement = place(found)
    assert placement.pages == (2048,)
    assert {s.offset for s in placement.spots.values()} == {0, 1024}


def test_small_buffers_go_beside_a_large_one_while_it_is_not_there():
    found = [Life(0, 4096, 5, 6), Life(1, 1024, 0, 4), Life(2, 1024, 0, 4), Life(3, 512, 3, 5)]
    placement = place(found)
    assert placement.pages == (4096 + 512,)
    assert placement.spots[0] == Spot(0, 0, 4096)
    assert placement.spots[1].offset + placement.spots[2].offset == 1024


def test_pages_are_bounded_but_for_a_buffer_that_is_larger():
    found = [Life(k, size, 0, 1) for k, size in enumerate((600, 500, 400, 300))]
    rounded = [life._replace(size=life.size // 100 * ALIGN) for life in found]
    placement = place(rounded, 9 * ALIGN)
    assert [placement.spots[k].page for k in range(4)] == [0, 1, 1, 0]
    assert placement.pages == (9 * ALIGN, 9 * ALIGN)
    placement = place([*rounded, Life(4, 12 * ALIGN, 0, 1)], 9 * ALIGN)
    assert max(placement.pages) == 12 * ALIGN


def test_nothing():
    assert place(lives([], {})) == ({}, ())
    assert place(lives([[3], []], {})) == ({}, ())
    assert most_alive([]) == 0
