"""Norms, moments, counts, running extrema and products, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wgburn as wb

from .conftest import ints, rand

X = rand(3, 4, 5)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, "fro", np.inf, -np.inf])
@pytest.mark.parametrize("dim,keepdim", [(None, False), (1, False), ((0, 2), True)])
def test_norms(same: Any, p: Any, dim: Any, keepdim: bool) -> None:
    def case(m: Any, x: Any) -> Any:
        if m is not wb and isinstance(p, str):
            return m.norm(x, dim=dim, keepdim=keepdim)
        return m.norm(x, p, dim, keepdim) if dim is not None else m.norm(x, p)

    same(case, X, tol=1e-4)


def test_gradient_of_a_norm_at_zero_is_zero(same: Any) -> None:
    same(lambda m, x: (m.norm(x), m.norm(x, 3), m.norm(x, 1)), np.zeros((3, 2), np.float32))


def test_the_nuclear_norm_is_refused(device: wb.Device) -> None:
    with pytest.raises(wb.ValueRangeError, match="nuc"):
        wb.ones(2, 2, device=device).norm("nuc")


CASES: dict[str, Any] = {
    "var correction": lambda m, x: (m.var(x, 1, correction=0), m.std(x, (0, 2), correction=2)),
    "var_mean": lambda m, x: m.var_mean(x, 1),
    "std_mean": lambda m, x: m.std_mean(x, dim=(0, 1), correction=0, keepdim=True),
    "count_nonzero": lambda m, x: (m.count_nonzero(x.round()), m.count_nonzero(x.round(), 1)),
    "aminmax": lambda m, x: m.aminmax(x, dim=1, keepdim=True),
    "nansum": lambda m, x: (m.nansum(x, 1), m.nanmean(x, 2)),
    "dist": lambda m, x: m.dist(x, x.flip(0).detach(), 3),
    "cumprod": lambda m, x: m.cumprod(x, 1),
    "cumprod first": lambda m, x: m.cumprod(x, 0),
    "cummax": lambda m, x: m.cummax(x, 1),
    "cummin": lambda m, x: m.cummin(x, -1),
    "diff": lambda m, x: (m.diff(x), m.diff(x, n=2, dim=1)),
    "cov": lambda m, x: (m.cov(x[0]), m.corrcoef(x[1]), m.cov(x[0, 0])),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(same: Any, name: str) -> None:
    same(CASES[name], X)


def test_running_products_with_zeros(same: Any) -> None:
    x = rand(4, 9)
    x[0, 3] = x[1, 0] = x[2, 2] = x[2, 6] = x[3, 8] = 0
    same(lambda m, x: m.cumprod(x, 1), x)


def test_running_extrema_of_ties_and_nan(same: Any) -> None:
    x = np.array([[1, 1, 3, 3, 2, 3], [2, np.nan, 1, 5, np.nan, 0]], np.float32)
    same(lambda m, x: (m.cummax(x, 1), m.cummin(x, 1)), x, grad=False)
    same(lambda m, x: (m.cummax(x, 1), m.cummin(x, 0)), ints(4, 9), grad=False)


def test_running_products_of_integers(same: Any) -> None:
    same(lambda m, x: m.cumprod(x, 0), ints(4, 3), grad=False)


def test_long_running_products(same: Any) -> None:
    same(lambda m, x: m.cumprod(x, 1), rand(2, 1500, low=0.95, high=1.05), tol=1e-3)


def test_second_derivative_of_a_running_product(device: wb.Device) -> None:
    x = wb.tensor([2.0, 0.0, 3.0], device=device)
    second = wb.grad(lambda t: wb.grad(lambda u: u.cumprod(0).sum())(t).sum())(x)
    # f = a + ab + abc: the gradient sums to 1 + b + bc + a + ac + ab.
    np.testing.assert_allclose(second.numpy(), [1 + 3 + 0, 1 + 3 + 2, 0 + 2])


def test_small_shapes(same: Any) -> None:
    same(lambda m, x: (m.norm(x), m.count_nonzero(x), m.cumprod(x, 0), m.cummax(x, 0)), rand())
    same(lambda m, x: (m.norm(x, dim=1), m.cumprod(x, 1), m.nansum(x)), rand(2, 0), grad=False)
    same(lambda m, x: (m.cumprod(x, 1), m.cummin(x, 1)), rand(3, 1))
