"""Result dtypes of mixed operands, checked against torch's."""

import itertools

import numpy as np
import pytest
import torch

import wgburn as wb

pytestmark = pytest.mark.quick

TORCH = {
    wb.bool_: torch.bool,
    wb.uint8: torch.uint8,
    wb.int8: torch.int8,
    wb.uint32: torch.uint32,
    wb.int32: torch.int32,
    wb.int64: torch.int64,
    wb.float16: torch.float16,
    wb.float32: torch.float32,
    wb.float64: torch.float64,
}
OURS = {t: w for w, t in TORCH.items()}


def expected(a, b):
    """torch's result, but int32 where that is int16. torch has no rule for uint32 with integers:
    it wins over unsigned ones, int64 over it, and with other signed ones the result is int32."""
    if wb.uint32 in (a, b) and not (a.is_float or b.is_float):
        other = b if a is wb.uint32 else a
        return wb.uint32 if other.kind in "bu" else wb.int64 if other is wb.int64 else wb.int32
    found = torch.promote_types(TORCH[a], TORCH[b])
    return wb.int32 if found is torch.int16 else OURS[found]


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.combinations_with_replacement(TORCH, 2)), ids=lambda d: d.name
)
def test_two_tensors(cpu, a, b):
    x, y = wb.ones(2, dtype=a, device=cpu), wb.ones(2, dtype=b, device=cpu)
    want = expected(a, b)
    # Booleans compute as int32.
    sums = wb.int32 if want is wb.bool_ else want
    assert (x + y).dtype is sums
    assert (y * x).dtype is sums
    assert (x / y).dtype is (want if want.is_float else wb.float32)
    assert (x == y).dtype is wb.bool_
    assert wb.where(x > 0, x, y).dtype is want
    assert (x + y).tolist() == [2, 2]


@pytest.mark.parametrize("d", list(TORCH), ids=lambda d: d.name)
def test_a_scalar_widens_only_the_kind(cpu, d):
    x = wb.ones(2, dtype=d, device=cpu)
    assert (x + 1).dtype is (wb.int32 if d is wb.bool_ else d)
    assert (x * 2.5).dtype is (d if d.is_float else wb.float32)
    assert (2.5 - x).dtype is (d if d.is_float else wb.float32)
    assert (x + np.float64(1)).dtype is (d if d.is_float else wb.float32)
    assert (x / 2).dtype is (d if d.is_float else wb.float32)
    assert (x + True).dtype is (wb.int32 if d is wb.bool_ else d)


@pytest.mark.parametrize("d", ["bool_", "int8", "uint8", "int32", "uint32", "float32"])
def test_sums_and_positions_are_32_bits(device, d):
    x = wb.ones(3, 2, dtype=d, device=device)
    total = {"float32": wb.float32, "uint32": wb.uint32}.get(d, wb.int32)
    assert x.sum().dtype is total
    assert x.sum(0).tolist() == [3, 3]
    assert x.cumsum(0).dtype is total
    assert x.argmax().dtype is wb.int32
    assert x.any().dtype is wb.bool_
    assert x.amax().dtype is x.dtype


def test_functions_of_floats_take_integers(device):
    x = wb.tensor([1, 4], device=device)
    assert x.sqrt().dtype is wb.float32
    assert x.sqrt().tolist() == [1, 2]
    assert wb.tensor([True], device=device).exp().dtype is wb.float32


def test_integer_arithmetic_wraps_and_floors(device):
    x = wb.tensor([7, -7], device=device)
    assert (x // 2).tolist() == [3, -4]
    assert (x % 3).tolist() == [1, 2]
    assert x.fmod(3).tolist() == [1, -1]
    assert (x**2).tolist() == [49, 49]
    assert (wb.tensor([250], dtype="uint8", device=device) + 10).tolist() == [4]
    assert (wb.tensor([100], dtype="int8", device=device) * 2).tolist() == [-56]


def test_casts_truncate_and_saturate(device):
    x = wb.tensor([1.9, -1.9, 3e9, -3e9, float("nan")], device=device)
    assert x.int().tolist() == [1, -1, 2**31 - 1, -(2**31), 0]
    assert x.bool().tolist() == [True] * 5
    assert wb.tensor([300, -1], device=device).to(wb.uint8).tolist() == [44, 255]
    assert wb.tensor([0, 2], device=device).bool().tolist() == [False, True]
    assert wb.tensor([True, False], device=device).float().tolist() == [1, 0]
