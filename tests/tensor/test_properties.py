"""Shapes and values against numpy for drawn shapes: broadcasting, reshape, slicing, reductions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wgburn as wb

pytestmark = pytest.mark.quick
few = settings(max_examples=25, derandomize=True, deadline=None, database=None)

sizes = st.integers(0, 4)
shapes = st.lists(sizes, max_size=4).map(tuple)


def numbers(shape, start=0):
    count = int(np.prod(shape))
    return np.arange(start, start + count).astype(np.float32).reshape(shape) / np.float32(2)


@st.composite
def broadcastable(draw):
    full = draw(st.lists(st.integers(1, 4), max_size=4))

    def part():
        kept = full[draw(st.integers(0, len(full))) :]
        return tuple(1 if draw(st.booleans()) else n for n in kept)

    return part(), part(), part()


@st.composite
def with_slices(draw):
    shape = draw(shapes)
    bound = st.one_of(st.none(), st.integers(-6, 6))
    step = st.sampled_from([None, 1, 2, 3, -1, -2])
    items = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        if n and draw(st.booleans()):
            items.append(draw(st.integers(-n, n - 1)))
        else:
            items.append(slice(draw(bound), draw(bound), draw(step)))
        if draw(st.integers(0, 4)) == 0:
            items.append(None)
    return shape, tuple(items)


@st.composite
def with_dims(draw):
    shape = draw(st.lists(st.integers(1, 4), max_size=4).map(tuple))
    n = len(shape)
    dims = draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n)) if n else []
    dims = tuple(d - n if draw(st.booleans()) else d for d in dims)
    return shape, dims or None


@st.composite
def with_new_shape(draw):
    shape = draw(st.lists(st.integers(1, 6), max_size=3).map(tuple))
    total, new = int(np.prod(shape)), []
    while total > 1:
        divisors = [k for k in range(1, total + 1) if total % k == 0]
        k = draw(st.sampled_from(divisors))
        new.append(k)
        total //= k
        if len(new) == 4:
            new.append(total)
            break
    order = draw(st.permutations(range(len(shape))))
    return shape, tuple(order), tuple(new)


@pytest.fixture(params=["cpu", "wgpu"], scope="module")
def dev(request):
    return request.getfixturevalue(request.param)


def test_broadcasting(dev):
    @few
    @given(broadcastable())
    def run(drawn):
        a, b, c = (numbers(s, k) for k, s in enumerate(drawn))
        x, y, z = (wb.tensor(v, device=dev) for v in (a, b, c))
        try:
            want = np.where(a > b, a - b * c, c)
        except ValueError:
            with pytest.raises(wb.ShapeError):
                _ = wb.where(x > y, x - y * z, z)
            return
        got = wb.where(x > y, x - y * z, z)
        assert got.shape == want.shape
        np.testing.assert_array_equal(got.numpy(), want)

    run()


def test_slicing(dev):
    @few
    @given(with_slices())
    def run(drawn):
        shape, index = drawn
        a = numbers(shape)
        got = wb.tensor(a, device=dev)[index]
        assert got.shape == a[index].shape
        np.testing.assert_array_equal(got.numpy(), a[index])

    run()


def test_assignment(dev):
    @few
    @given(with_slices())
    def run(drawn):
        shape, index = drawn
        a = np.array(numbers(shape))
        t = wb.tensor(a, device=dev)
        value = numbers(a[index].shape, 100)
        t[index] = value
        a[index] = value
        np.testing.assert_array_equal(t.numpy(), a)

    run()


def test_reductions(dev):
    @few
    @given(with_dims(), st.booleans())
    def run(drawn, keepdim):
        shape, dims = drawn
        a = numbers(shape)
        t = wb.tensor(a, device=dev)
        axis = None if dims is None else dims
        for ours, theirs in ((t.sum, a.sum), (t.amax, a.max), (t.mean, a.mean)):
            want = theirs(axis=axis, keepdims=keepdim)
            got = ours(dims, keepdim=keepdim)
            assert got.shape == want.shape
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)

    run()


def test_reshapes_of_permuted(dev):
    @few
    @given(with_new_shape())
    def run(drawn):
        shape, order, new = drawn
        a = numbers(shape)
        got = wb.tensor(a, device=dev).permute(order).reshape(new)
        np.testing.assert_array_equal(got.numpy(), a.transpose(order).reshape(new))
        np.testing.assert_array_equal(
            (got * 2 + 1).numpy(), a.transpose(order).reshape(new) * 2 + 1
        )

    run()
