"""Order, medians, quantiles, searching and unique values, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wgburn as wb

from .conftest import ints, rand

X = rand(3, 4, 5)

CASES: dict[str, Any] = {
    "sort": lambda m, x: (*m.sort(x), *m.sort(x, 0, descending=True)),
    "argsort": lambda m, x: (m.argsort(x, 1), m.argsort(x, -1, descending=True)),
    "msort": lambda m, x: m.msort(x),
    "topk": lambda m, x: (*m.topk(x, 2), *m.topk(x, 3, 1, largest=False), *m.topk(x, 0, 1)),
    "kthvalue": lambda m, x: (*m.kthvalue(x, 2, 1), *m.kthvalue(x, 3, keepdim=True)),
    "median": lambda m, x: (m.median(x), *m.median(x, 1), *m.median(x, -1, keepdim=True)),
    "nanmedian": lambda m, x: (m.nanmedian(x), *m.nanmedian(x, 1)),
    "quantile": lambda m, x: (m.quantile(x, 0.3), m.quantile(x, 0.75, 1)),
    "quantile keepdim": lambda m, x: m.quantile(x, 0.4, 0, keepdim=True),
    "nanquantile": lambda m, x: m.nanquantile(x, 0.6, -1),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(same: Any, name: str) -> None:
    same(CASES[name], X)


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles_of_several_shares(same: Any, how: str) -> None:
    q = np.array([0.0, 0.1, 0.5, 0.93, 1.0], np.float32)

    def case(m: Any, x: Any, q: Any) -> Any:
        q = q.detach()
        return (
            m.quantile(x, q, 1, interpolation=how),
            m.quantile(x, q, 2, keepdim=True, interpolation=how),
            m.quantile(x, q, interpolation=how),
            m.quantile(x, q, keepdim=True, interpolation=how),
        )

    same(case, X, q)


def test_ties_keep_their_order(same: Any) -> None:
    def case(m: Any, x: Any) -> Any:
        return (
            *m.sort(x, dim=-1, stable=True),
            *m.sort(x, dim=0, descending=True, stable=True),
            m.argsort(x, dim=1, stable=True),
        )

    same(case, ints(6, 40, low=-3, high=3), grad=False)
    same(case, ints(6, 40, low=0, high=2, dtype=bool), grad=False)
    same(case, ints(6, 40, low=0, high=200, dtype=np.uint8), grad=False)


def test_nan_counts_as_the_largest(same: Any) -> None:
    x = rand(3, 8)
    x[0, 2] = x[0, 5] = x[1, 0] = np.nan

    def case(m: Any, x: Any) -> Any:
        return (
            *m.sort(x, dim=1, stable=True),
            *m.sort(x, dim=1, descending=True, stable=True),
            m.topk(x, 1, 1).values,
            m.median(x, 1).values,
            m.median(x),
            *m.nanmedian(x, 1),
            m.quantile(x, 0.5, 1),
            m.nanquantile(x, 0.3, 1),
        )

    same(case, x, grad=False)


@pytest.mark.parametrize("n", [1023, 1025, 4097])
def test_long_rows(same: Any, n: int) -> None:
    same(lambda m, x: (*m.sort(x, dim=1, stable=True), *m.topk(x, 7)), rand(2, n))
    same(lambda m, x: m.sort(x, dim=0, descending=True, stable=True), ints(n, low=0, high=99))


def test_mode(same: Any) -> None:
    x = np.array([[1, 2, 2, 3, 3], [5, 5, 5, 1, 1], [4, 3, 2, 1, 0]], np.int32)
    same(lambda m, x: (m.mode(x, 1).values, m.mode(x, 0).values, m.mode(x).indices), x, grad=False)


def test_searching(same: Any) -> None:
    rows = np.sort(rand(3, 6), 1)

    def case(m: Any, rows: Any, x: Any) -> Any:
        return (
            m.searchsorted(rows, x),
            m.searchsorted(rows[0], x, right=True),
            m.searchsorted(rows[0], 0.5, side="right"),
            m.bucketize(x, rows[1]),
            m.bucketize(x, rows[1], right=True),
        )

    same(case, rows, np.concatenate([rand(3, 4, seed=2), rows[:, ::2]], 1), grad=False)
    same(
        lambda m, a, b: (m.searchsorted(a, b), m.bucketize(b, a, right=True)),
        np.array([1, 3, 3, 7], np.int32),
        ints(2, 9, low=0, high=9),
        grad=False,
    )


def test_unique_values(same: Any) -> None:
    def case(m: Any, x: Any) -> Any:
        return (
            m.unique(x),
            *m.unique(x, return_inverse=True, return_counts=True),
            *m.unique(x, return_inverse=True, return_counts=True, dim=1),
            m.unique_consecutive(x),
            *m.unique_consecutive(x, return_inverse=True, return_counts=True),
            *m.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0),
        )

    same(case, ints(4, 6, low=0, high=3), grad=False)
    same(case, np.array([[1, 1], [1, 1], [2, 2]], np.float32), grad=False)


def test_small_shapes(same: Any) -> None:
    same(lambda m, x: (*m.sort(x), m.argsort(x), *m.topk(x, 1), *m.median(x, 0)), rand())
    same(lambda m, x: (m.sort(x, 0).values, m.argsort(x, 1), m.unique(x)), rand(0, 3), grad=False)
    same(lambda m, x: (*m.sort(x, 1), *m.mode(x, 1), m.quantile(x, 0.5)), rand(2, 1))


def test_errors_say_what_is_wrong(device: wb.Device) -> None:
    x = wb.zeros(2, 3, device=device)
    with pytest.raises(wb.ValueRangeError, match="k=4"):
        x.topk(4)
    with pytest.raises(wb.ValueRangeError, match="k=0"):
        x.kthvalue(0)
    with pytest.raises(wb.ValueRangeError, match="midpoint"):
        x.quantile(0.5, interpolation="cubic")
    with pytest.raises(wb.ShapeError, match="no elements"):
        wb.zeros(2, 0, device=device).median(1)
    with pytest.raises(wb.ShapeError, match="agree"):
        wb.searchsorted(x, wb.zeros(3, 3, device=device))


def test_equal_on_every_device(cpu: wb.Device, wgpu: wb.Device) -> None:
    x = ints(50, 300, low=-4, high=4).astype(np.float32)
    a, b = (wb.tensor(x, device=d).topk(20, 1).indices.numpy() for d in (cpu, wgpu))
    np.testing.assert_array_equal(a, b)
