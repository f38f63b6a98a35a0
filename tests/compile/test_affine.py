"""Index arithmetic against every index there is."""

import itertools

import pytest

from wgburn.compile.affine import (
    Domain,
    Form,
    Num,
    linear,
    loop_coords,
    split,
    straddling,
)
from wgburn.core.shape import dense_strides

pytestmark = pytest.mark.quick


def value(form, point, numbers=()):
    return form.offset.value(numbers) + sum(c * point[v] for v, c in form.terms)


def points(sizes):
    return itertools.product(*(range(n) for n in sizes))


@pytest.mark.parametrize(
    "loops, inner",
    [
        ((6, 4), (24,)),
        ((24,), (24,)),
        ((2, 3, 4), (6, 4)),
        ((6, 4), (2, 3, 2, 2)),
        ((5, 1, 3), (15, 1)),
        ((1,), (1, 1, 1)),
        ((7, 6), (7, 2, 3)),
        ((12,), (3, 4)),
        ((4, 6), (3, 8)),
    ],
)
def test_split_gives_the_coordinates_of_every_position(loops, inner):
    """Where a form does not fall apart, taking loops apart as `straddling` says makes it."""
    domain = Domain(loops)
    for _ in range(8):
        place = linear(domain.coords(), dense_strides(loops))
        coords = split(place, inner, domain.extent)
        if coords is not None:
            break
        finer = straddling(place, inner, domain.extent)
        if finer is None:
            # 4 and 3 have no common border: no loop gives these coordinates.
            assert (loops, inner) == ((4, 6), (3, 8))
            return
        domain.refine(*finer)
    strides = dense_strides(inner)
    for point in points(domain.sizes()):
        found = [value(c, point) for c in coords]
        assert all(0 <= f < n for f, n in zip(found, inner, strict=True))
        assert sum(f * s for f, s in zip(found, strides, strict=True)) == value(place, point)


def test_split_refuses_what_it_cannot_prove():
    extent = {0: 4}
    assert split(Form(((0, 3),)), (4, 2), extent) is None  # 3 is no multiple of 2
    assert split(Form(((0, 2),), Num(7)), (4, 2), extent) is None  # runs out of the shape
    assert split(Form(((0, 2),), Num(0, ((0, 1),))), (4, 2), extent) is None  # a runtime offset
    assert split(Form(((0, -2),), Num(6)), (4, 2), extent) is None  # walks backwards


def test_split_places_constants():
    coords = split(Form(((0, 2),), Num(3)), (5, 2), {0: 3})
    assert [value(c, {0: 2}) for c in coords] == [3, 1]


def test_refined_domains_walk_the_same_elements():
    domain = Domain((6, 8), [1, 0])
    domain.refine(0, 4)  # the loop of dimension 1 as (2, 4)
    domain.refine(2, 3)  # that of dimension 0 as (2, 3)
    assert domain.sizes() == (2, 4, 2, 3)
    assert domain.sizes([0]) == (2, 3)
    seen = [tuple(value(c, p) for c in domain.coords()) for p in points(domain.sizes())]
    assert sorted(seen) == sorted(points((6, 8)))
    assert seen[:2] == [(0, 0), (1, 0)]  # dimension 1 is outermost here


def test_forms_and_numbers_add_up():
    a = Form(((0, 2), (1, 3)), Num(1, ((4, 2),)))
    b = Form(((1, -3), (2, 5)), Num(2, ((4, -2), (5, 1))))
    total = a.plus(b)
    assert total.terms == ((0, 2), (2, 5))
    assert total.offset == Num(3, ((5, 1),))
    assert a.times(0) == Form()
    assert value(a.times(3), (1, 1), [0, 0, 0, 0, 10]) == 3 * (2 + 3 + 1 + 20)


def test_dimensions_of_size_one_have_no_loop():
    assert loop_coords((3, 1)) == (Form(((0, 1),)), Form())
