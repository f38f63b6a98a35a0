"""Element-wise functions beside the primitives, against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wgburn as wb

from .conftest import ints, rand

X = rand(3, 4)
Y = rand(3, 4, seed=7)
SPECIAL = np.array([1.5, -2.5, 0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, -0.5], np.float32)

CASES: dict[str, Any] = {
    "hypot": lambda m, x, y: m.hypot(x, y),
    "hypot broadcast": lambda m, x, y: m.hypot(x[:, :1], y[:1]),
    "logaddexp": lambda m, x, y: m.logaddexp(x, y),
    "logaddexp2": lambda m, x, y: m.logaddexp2(x, y),
    "xlogy": lambda m, x, y: m.xlogy(x, y.abs()),
    "copysign": lambda m, x, y: m.copysign(x, y),
    "heaviside": lambda m, x, y: m.heaviside(x.detach(), y.detach()),
    "fmax": lambda m, x, y: m.fmax(x, y),
    "fmin": lambda m, x, y: m.fmin(x, y),
    "ldexp": lambda m, x, y: m.ldexp(x, y.round().detach()),
    "lerp": lambda m, x, y: m.lerp(x, y, 0.3),
    "lerp far": lambda m, x, y: m.lerp(x, y, 0.8),
    "lerp tensor": lambda m, x, y: m.lerp(x, y, y.sigmoid()),
    "addcmul": lambda m, x, y: m.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda m, x, y: m.addcdiv(x, x, y.abs() + 1, value=-2),
    "clamp tensors": lambda m, x, y: m.clamp(x, min=y - 0.5, max=y + 0.5),
    "clamp_min": lambda m, x, y: m.clamp_min(x, 0.25),
    "clamp_max": lambda m, x, y: m.clamp_max(x, 0.25),
    "rsub": lambda m, x, y: m.rsub(x, y),
    "float_power": lambda m, x, y: m.float_power(x.abs(), 1.5).float(),
    "erfc": lambda m, x, y: m.erfc(x),
    "sinc": lambda m, x, y: m.sinc(x),
    "logit": lambda m, x, y: m.logit(x.sigmoid()),
    "logit eps": lambda m, x, y: m.logit(x, eps=0.1),
    "frac": lambda m, x, y: m.frac(x),
    "deg2rad": lambda m, x, y: m.deg2rad(x) + m.rad2deg(y),
    "comparisons": lambda m, x, y: (
        m.greater(x, y),
        m.greater_equal(x, y),
        m.less(x, y),
        m.less_equal(x, y),
        m.not_equal(x, y),
        m.isclose(x, y, rtol=0.5, atol=0.2),
        m.signbit(x),
    ),
    "round decimals": lambda m, x, y: (m.round(x, decimals=1), m.round(x * 100, decimals=-1)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(same: Any, name: str) -> None:
    same(CASES[name], X, Y)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_small_shapes(same: Any, shape: tuple[int, ...]) -> None:
    x, y = rand(*shape), rand(*shape, seed=3)
    same(lambda m, x, y: (m.hypot(x, y), m.lerp(x, y, 0.7), m.logaddexp(x, y)), x, y)


def test_special_values(same: Any) -> None:
    def case(m: Any, x: Any) -> Any:
        pairs = x.unsqueeze(1), x.unsqueeze(0)
        return (
            m.hypot(*pairs),
            m.logaddexp(*pairs),
            m.fmax(*pairs),
            m.fmin(*pairs),
            m.xlogy(*pairs),
            m.isclose(*pairs),
            m.isclose(*pairs, equal_nan=True),
            m.heaviside(*pairs),
            m.nan_to_num(x),
            m.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-3.0),
            m.isposinf(x),
            m.isneginf(x),
            m.signbit(x[:4]),
            m.copysign(x[:3].unsqueeze(1), x[:4]),
        )

    same(case, SPECIAL, grad=False)


def test_large_and_small_sides(same: Any) -> None:
    x = np.array([3e30, 3e-30, 1e38, 1e-38], np.float32)
    y = np.array([4e30, 4e-30, 1e38, 1e-38], np.float32)
    same(lambda m, x, y: m.hypot(x, y) / x, x, y, grad=False)


def test_integers(same: Any) -> None:
    def case(m: Any, a: Any, b: Any) -> Any:
        return (
            m.hypot(a.float(), b.float()),
            m.fmax(a, b),
            m.clamp(a, min=b),
            m.bitwise_left_shift(a, b.abs()),
            m.bitwise_right_shift(a, b.abs()),
            m.isclose(a, b),
            m.nan_to_num(a),
            m.signbit(a),
            m.addcmul(a, a, b),
            m.deg2rad(a),
            m.round(a),
        )

    same(case, ints(3, 4), ints(3, 4, seed=5))


def test_whole_answers(device: wb.Device) -> None:
    x = wb.tensor([1.0, math.nan], device=device)
    assert x.allclose(x + 1e-9, equal_nan=True)
    assert not x.allclose(x)
    assert wb.equal(x[:1], x[:1])
    assert not wb.equal(x, x)
    assert not wb.equal(x, x[:1])
    with pytest.raises(wb.ValueRangeError, match="rtol"):
        x.isclose(x, rtol=-1)
