"""`x[i] = v`, scatters with reductions, masks and finding places, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wgburn as wb

from .conftest import ints, rand, torch

X = rand(3, 4, 5)
ROWS = np.array([2, 0], np.int32)
COLS = np.array([1, 3], np.int32)
MASK = rand(3, 4, seed=2) > 0


def index_of(m: Any, x: Any, *parts: Any) -> tuple[Any, ...]:
    """An index for x in either namespace (torch wants int64)."""

    def one(p: Any) -> Any:
        if not isinstance(p, np.ndarray):
            return p
        if m is torch:
            return torch.tensor(p.astype(np.int64) if p.dtype == np.int32 else p)
        return wb.tensor(p, device=x.device)

    return tuple(one(p) for p in parts)


#: Name, index, shape of the value.
INDICES: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("int", (1,), (4, 5)),
    ("negative int", (-1,), (5,)),
    ("slice", (slice(1, 3), slice(None), slice(0, 5, 2)), (2, 4, 3)),
    ("slice broadcast", (slice(None), slice(1, 2)), (5,)),
    ("new axis", (None, 0, None), (1, 1, 4, 5)),
    ("ellipsis", (..., 2), (3, 4)),
    ("all", (...,), ()),
    ("ints", (1, 2, 3), ()),
    ("rows", (ROWS,), (2, 4, 5)),
    ("rows broadcast", (ROWS,), (1, 5)),
    ("rows and int", (ROWS, 2), (2, 5)),
    ("rows and columns", (ROWS, COLS), (2, 5)),
    ("grid", (ROWS[:, None], COLS[None]), (2, 2, 5)),
    ("rows and slice", (ROWS, slice(1, 4, 2)), (2, 2, 5)),
    ("last by index", (slice(None), slice(None), COLS), (3, 4, 2)),
    ("middle and last", (slice(1, 3), ROWS, COLS), (2, 2)),
    ("apart", (ROWS, slice(None), COLS), (2, 4)),
    ("apart behind an axis", (None, ROWS, slice(0, 2), COLS), (2, 1, 2)),
    ("negative indices", (np.array([-1, -3], np.int32),), (2, 4, 5)),
    ("mask", (MASK,), ()),
    ("mask rest", (MASK,), (5,)),
    ("mask rows", (MASK,), (int(MASK.sum()), 5)),
    ("mask all", (rand(3, 4, 5, seed=9) > 0,), ()),
    ("mask middle", (slice(None), MASK[0]), (3, int(MASK[0].sum()), 5)),
    ("empty slice", (slice(2, 2),), (0, 4, 5)),
    ("empty index", (np.zeros(0, np.int32),), (0, 4, 5)),
]


@pytest.mark.parametrize("name,index,shape", INDICES, ids=[n for n, _, _ in INDICES])
def test_setting_items(same: Any, name: str, index: Any, shape: tuple[int, ...]) -> None:
    def case(m: Any, x: Any, v: Any) -> Any:
        y = x * 1.0
        y[index_of(m, x, *index)] = v
        z = x * 1.0
        z[index_of(m, x, *index)] = 7
        return y, z

    same(case, X, rand(*shape, seed=4))


def test_backward_slices(device: wb.Device) -> None:
    x, v = rand(4, 6), rand(2, 3, seed=1)
    got = wb.tensor(x, device=device)
    got[::-2, 4::-2] = wb.tensor(v, device=device)
    x[::-2, 4::-2] = v
    np.testing.assert_array_equal(got.numpy(), x)


def test_setting_parts_in_turn_and_adding(same: Any) -> None:
    def case(m: Any, x: Any) -> Any:
        y = x * 2
        y[0] = y[1].clone() * 3
        y[:, 1] += 1.5
        y[1:, 2:] = y[1:, 2:].clone() * y[:2, :2].clone()
        return y

    same(case, X)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool])
def test_setting_other_dtypes(same: Any, dtype: Any) -> None:
    x = ints(3, 4, low=0, high=2, dtype=dtype)

    def case(m: Any, x: Any) -> Any:
        a, b, c = x.clone(), x.clone(), x.clone()
        a[1:, ::2] = a[:2, 1::2].clone()
        b[index_of(m, x, ROWS, COLS)] = 1
        c[index_of(m, x, ROWS)] = x[:2]
        return a, b, c

    same(case, x, grad=False)


def test_a_leaf_is_set_without_gradients_only(device: wb.Device) -> None:
    x = wb.tensor(X, device=device.autodiff()).requires_grad_()
    with pytest.raises(wb.GradError, match="no_grad"):
        x[0] = 1.0
    with wb.no_grad():
        x[0] = 1.0
    assert x.is_leaf and x.requires_grad
    assert (x[0].numpy() == 1).all()


def test_values_that_do_not_fit(device: wb.Device) -> None:
    x = wb.zeros(3, 4, device=device)
    with pytest.raises(wb.ShapeError, match=r"\(3,\) does not fit"):
        x[0] = wb.zeros(3, device=device)
    with pytest.raises(wb.ShapeError, match="does not fit"):
        x[wb.tensor([0, 1], device=device)] = wb.zeros(3, 4, device=device)
    with pytest.raises(wb.ShapeError, match="does not fit"):
        x[x == 0] = wb.zeros(5, device=device)
    with pytest.raises(wb.IndexRangeError, match="5 is out of range"):
        x[5] = 0
    with pytest.raises(wb.IndexRangeError, match="out of range"):
        x[wb.tensor([7], device=device)] = 0
    with pytest.raises(wb.IndexRangeError, match="str"):
        x["a"] = 0
    with pytest.raises(wb.DTypeError, match="str"):
        x[0] = "a"
    assert not x.numpy().any()


def test_of_equal_places_the_last_stays(device: wb.Device) -> None:
    x = wb.zeros(3, 2, device=device)
    x[[0, 2, 0]] = wb.tensor([[1, 2], [3, 4], [5, 6]], device=device)
    np.testing.assert_array_equal(x.numpy(), [[5, 6], [0, 0], [3, 4]])
    at = wb.tensor([[0, 0], [0, 1]], device=device)
    y = wb.zeros(2, 2, device=device).scatter(0, at, wb.tensor([[1.0, 2], [3, 4]], device=device))
    np.testing.assert_array_equal(y.numpy(), [[3, 2], [0, 4]])


def test_gradients_of_equal_places_reach_the_last(device: wb.Device) -> None:
    v = wb.tensor([1.0, 2.0, 3.0], device=device)
    at = wb.tensor([1, 0, 1], device=device)
    zeros = wb.zeros(2, device=device)
    for put in (
        lambda u: zeros.scatter(0, at, u),
        lambda u: zeros.index_copy(0, at, u),
        lambda u: zeros.index_put((at,), u),
    ):
        np.testing.assert_array_equal(wb.grad(lambda u, f=put: f(u).sum())(v).numpy(), [0, 1, 1])


CASES: dict[str, Any] = {
    "index_put": lambda m, x, i, j: x.index_put((i[0, :2, 0], j[0, :2, 0]), x[0, 0]),
    "index_put accumulate": lambda m, x, i, j: m.index_put(
        x, (i[0, :, 0], j[0, :, 0]), x[0, :, :] * 2, accumulate=True
    ),
    "scatter": lambda m, x, i, j: m.scatter(x, 1, j.argsort(1), x * 3),
    "scatter smaller": lambda m, x, i, j: m.scatter(
        x, 1, j.argsort(1)[:2, :3, :2], x[:2, :3, :2] * 3
    ),
    "scatter number": lambda m, x, i, j: m.scatter(x, 0, i, 2.5),
    "scatter_add": lambda m, x, i, j: m.scatter_add(x, 0, i, x * 2),
    "scatter_add smaller": lambda m, x, i, j: m.scatter_add(x, 2, i[:2, :2, :3], x[:2, :2, :3] * 2),
    "index_copy": lambda m, x, i, j: m.index_copy(x, 1, j[0].argsort(0)[:2, 0], x[:, :2] * 3),
    "index_fill": lambda m, x, i, j: m.index_fill(x, 2, i[0, :, 0], 1.5),
    "index_add": lambda m, x, i, j: m.index_add(x, 1, j[0, :, 0], x * 2),
    "take": lambda m, x, i, j: m.take(x, i * 7 + j),
    "put": lambda m, x, i, j: x.put(i[0, :, 0] * 20 + 3, x[0, :, 0], accumulate=True),
    "select_scatter": lambda m, x, i, j: m.select_scatter(x, x[:, 1] * 2, 1, -1),
    "slice_scatter": lambda m, x, i, j: m.slice_scatter(x, x[:, :2] * 2, 1, 1, 4, 2),
    "masked_fill": lambda m, x, i, j: m.masked_fill(x, i > 1, -1.0),
    "masked_scatter": lambda m, x, i, j: m.masked_scatter(x, i > 0, x * 2),
    "masked_scatter broadcast": lambda m, x, i, j: m.masked_scatter(x, j[0] > 1, x * 2),
    "masked_select": lambda m, x, i, j: (m.masked_select(x, i > 1), m.masked_select(x, j[0] > 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_updates(same: Any, name: str) -> None:
    same(CASES[name], X, ints(3, 4, 5, low=0, high=3), ints(3, 4, 5, low=0, high=4, seed=8))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(same: Any, reduce: str, include_self: bool) -> None:
    def case(m: Any, x: Any, i: Any, v: Any) -> Any:
        return m.scatter_reduce(x, 1, i, v, reduce, include_self=include_self)

    at = ints(3, 6, 5, low=0, high=4)
    same(case, X, at, rand(3, 6, 5, seed=50))
    same(case, X, at[:2, :5, :4], rand(2, 5, 4, seed=50))
    # torch has no gradient where the source is larger than the index.
    same(case, X, at[:2, :5, :4], rand(3, 6, 5, seed=50), grad=False)
    same(case, ints(3, 4, 5), at, ints(3, 6, 5, seed=3), grad=False)


def test_products_with_zeros(same: Any) -> None:
    x, v = rand(2, 4), rand(2, 6, seed=1)
    x[0, 1] = v[0, 3] = v[1, 1] = v[1, 2] = 0
    at = np.array([[0, 1, 1, 2, 2, 0], [3, 3, 3, 1, 0, 0]], np.int32)
    same(lambda m, x, i, v: m.scatter_reduce(x, 1, i, v, "prod"), x, at, v)


def test_ties_share_the_gradient_of_an_extremum(same: Any) -> None:
    x, v = np.ones((1, 3), np.float32), np.ones((1, 4), np.float32)
    at = np.array([[0, 0, 2, 2]], np.int32)
    for reduce in ("amax", "amin"):
        same(lambda m, x, i, v, r=reduce: m.scatter_reduce(x, 1, i, v, r), x, at, v)


def test_second_derivatives_exist(device: wb.Device) -> None:
    at = wb.tensor([0, 1, 1, 2], device=device)
    x = wb.tensor([1.5, -2.0, 0.5], device=device)
    v = wb.tensor([2.0, 3.0, 0.5, 1.0], device=device)

    def f(u: Any) -> Any:
        return x.scatter_reduce(0, at, u, "prod").square().sum()

    got = wb.grad(lambda u: wb.grad(f)(u).sum())(v).numpy()
    step = 1e-2
    up, down = (wb.grad(f)(v + s).numpy() for s in (step, -step))
    # Along the direction of ones: the row sums of the second derivative.
    np.testing.assert_allclose(got, (up - down) / (2 * step), rtol=1e-2, atol=1e-2)


def test_in_place_names(same: Any) -> None:
    def case(m: Any, x: Any, i: Any, v: Any) -> Any:
        outs = []
        for change in (
            lambda t: t.scatter_(1, i, v),
            lambda t: t.scatter_add_(1, i, v),
            lambda t: t.scatter_reduce_(1, i, v, "amax"),
            lambda t: t.index_fill_(1, i[0, :, 0], 2.0),
            lambda t: t.masked_fill_(t > 0, 1.0),
            lambda t: t.index_put_((i[0, :1, 0] * 0,), v[0, :1, :1]),
        ):
            y = x * 1
            assert change(y) is y
            outs.append(y)
        return outs

    at = np.argsort(rand(3, 4, 5, seed=5), 1).astype(np.int32)
    same(case, rand(4, 4, 5)[:3], np.minimum(at, 3), rand(3, 4, 5, seed=6))


def test_finding_places(same: Any) -> None:
    def case(m: Any, x: Any) -> Any:
        pieces = x.nonzero(as_tuple=True)
        return (m.nonzero(x), m.argwhere(x > 0), *pieces, m.bincount(x[0].abs(), minlength=9))

    same(case, ints(3, 6, low=-2, high=3), grad=False)
    same(lambda m, x: (m.nonzero(x), m.argwhere(x)), np.array(3, np.int32), grad=False)
    same(
        lambda m, x, w: m.bincount(x, weights=w),
        ints(9, low=0, high=4),
        rand(9),
        grad=False,
    )


def test_empty_updates(same: Any) -> None:
    def case(m: Any, x: Any, i: Any) -> Any:
        return (
            m.scatter(x, 0, i, x[:0]),
            m.scatter_add(x, 0, i, x[:0]),
            m.index_copy(x, 0, i[:, 0], x[:0]),
            m.index_fill(x, 0, i[:, 0], 2.0),
            m.masked_select(x, x > 99),
            m.nonzero(x[:0]),
        )

    same(case, rand(3, 2), np.zeros((0, 2), np.int32), grad=False)
    same(lambda m, x, i: m.scatter(x, 0, i, 2.0), rand(), np.array(0, np.int32))


def test_errors_say_what_is_wrong(device: wb.Device) -> None:
    x = wb.zeros(2, 3, device=device)
    at = wb.zeros(2, 3, dtype=wb.int32, device=device)
    with pytest.raises(wb.ValueRangeError, match="amax"):
        x.scatter_reduce(0, at, x, "median")
    with pytest.raises(wb.ValueRangeError, match="multiply"):
        x.scatter(0, at, x, reduce="amax")
    with pytest.raises(wb.ShapeError, match="scatter"):
        x.scatter(0, at, x[:1])
    with pytest.raises(wb.DTypeError, match="integer"):
        x.scatter(0, x, x)
    with pytest.raises(wb.ShapeError, match="vector of integers"):
        x.bincount()
    with pytest.raises(wb.IndexRangeError, match="negative"):
        wb.tensor([-1], device=device).bincount()
