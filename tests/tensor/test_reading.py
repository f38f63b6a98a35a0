"""Reading values: numpy, item, tolist, Python's conversions, repr, copies, pickles."""

import copy
import pickle

import numpy as np
import pytest

import wgburn as wb

pytestmark = pytest.mark.quick


def test_numpy_is_a_fresh_writable_array(device):
    t = wb.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    a = t.numpy()
    a[0, 0] = 9
    assert t.tolist() == [[1, 2], [3, 4]]
    assert np.asarray(t).dtype == np.float32
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    assert np.array(t.T).tolist() == [[1, 3], [2, 4]]
    mask = (t > 1).numpy()
    mask[0, 0] = True


def test_item_and_conversions(device):
    x = wb.tensor([[2.5]], device=device)
    assert x.item() == float(x) == 2.5
    assert int(x) == 2
    assert type((x > 0).item()) is bool
    assert type(x.int().item()) is int
    assert bool(x) is True
    assert [10, 20, 30][wb.tensor(1, device=device)] == 20
    assert list(range(wb.tensor(3, device=device))) == [0, 1, 2]
    assert f"{x:.2f}" == "2.50"
    assert len(wb.zeros(3, 2, device=device)) == 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.item(), "2 elements"),
        (float, "2 elements"),
        (bool, r"any\(\) or all\(\)"),
        (lambda t: [1, 2][t], "integer tensor"),
        (lambda t: len(t[0]), "without dimensions"),
        (lambda t: iter(t[0]), "without dimensions"),
    ],
)
def test_what_cannot_be_read(device, call, words):
    with pytest.raises(wb.WgburnError, match=words):
        call(wb.tensor([0.5, 1.5], device=device))


def test_numpy_operands_on_both_sides(device):
    t = wb.tensor([1.0, 2.0], device=device)
    a = np.array([10, 20], np.float32)
    for got in (t + a, a + t, np.float32(3) * t, t * np.float64(3), [1, 1] * t, a @ t, a - t):
        assert isinstance(got, wb.Tensor)
    assert (a - t).tolist() == [9, 18]
    assert (2 / t).tolist() == [2, 1]
    assert (2**t).tolist() == [2, 4]
    assert (t < a).tolist() == [True, True]
    assert (7 // t).tolist() == [7, 3]
    assert (5 % t).tolist() == [0, 1]
    with pytest.raises(TypeError):
        _ = t + "text"
    assert (t == "text") is False
    assert (t != None) is True  # noqa: E711


def test_repr(cpu, wgpu):
    assert repr(wb.tensor([1.0, 2.5], device=cpu)) == "tensor([1. , 2.5])"
    assert repr(wb.tensor(3, device=cpu)) == "tensor(3)"
    assert repr(wb.tensor([True], device=cpu)) == "tensor([ True])"
    assert repr(wb.ones(1, dtype="uint8", device=cpu)) == "tensor([1], dtype=uint8)"
    assert repr(wb.ones(1, device=wgpu)) == f"tensor([1.], device={wgpu})"
    leaf = wb.ones(1, device=cpu.autodiff()).requires_grad_()
    assert repr(leaf) == "tensor([1.], device=cpu+autodiff, requires_grad=True)"
    assert "grad_fn=<mul>" in repr(leaf * 2)
    assert len(repr(wb.zeros(1000, 1000, device=cpu))) < 500
    assert repr(wb.tensor([[1], [2]], device=cpu)) == "tensor([[1],\n        [2]])"


def test_repr_does_not_disturb_training(device):
    p = wb.tensor([3.0], device=device.autodiff()).requires_grad_()
    loss = (p * p).sum()
    repr(loss)
    loss.backward()
    assert p.grad.item() == 6


def test_moves_and_casts(cpu, wgpu):
    t = wb.tensor([1.5, -2.5], device=cpu)
    assert t.to(cpu) is t
    assert t.to(wb.float32) is t
    there = t.to(wgpu)
    assert there.device == wgpu
    assert there.tolist() == t.tolist()
    both = t.to(wgpu, wb.int32)
    assert (both.device, both.dtype) == (wgpu, wb.int32)
    assert both.tolist() == [1, -2]
    assert t.to("cpu").device == cpu
    assert t.to("int8").dtype is wb.int8
    assert there.cpu().device == cpu
    assert t.to(both).dtype is wb.int32
    assert t.to(device=wgpu, dtype="bool").tolist() == [True, True]
    assert there.T.reshape(2).to(cpu).tolist() == [1.5, -2.5]
    for name, dtype in (("float", wb.float32), ("int", wb.int32), ("bool", wb.bool_)):
        assert getattr(t, name)().dtype is dtype
    assert t.half().dtype is wb.float16
    assert t.double().dtype is wb.float64


def test_moving_narrows_64_bits_with_a_check(cpu, wgpu):
    long = wb.tensor([1, 2], dtype="int64", device=cpu)
    assert long.to(wgpu).dtype is wb.int32
    assert wb.tensor([0.5], dtype="float64", device=cpu).to(wgpu).dtype is wb.float32
    with pytest.raises(wb.ValueRangeError, match="2199023255552 does not fit int32"):
        (long * 2**40).to(wgpu)
    with pytest.raises(wb.ValueRangeError, match="-2199023255552 does not fit int32"):
        wb.tensor([-(2**41), 3], dtype="int64", device=cpu).to(wgpu)


def test_gradients_cross_a_move(cpu, wgpu):
    p = wb.tensor([1.0, 2.0], device=cpu.autodiff()).requires_grad_()
    q = (p * 3).to(wgpu.autodiff())
    (q * q).sum().to(cpu.autodiff()).backward()
    assert p.grad.tolist() == [18, 36]
    assert p.grad.device == cpu


def test_pickles_and_copies(device):
    d = device.autodiff()
    for t in (
        wb.tensor([[1.0, float("nan")]], device=d),
        wb.arange(6, device=device).reshape(2, 3).T,
        wb.tensor([True, False], device=device),
        wb.zeros(0, 3, device=device),
    ):
        for other in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t), copy.copy(t)):
            assert (other.dtype, other.shape, other.device) == (t.dtype, t.shape, t.device)
            assert other.device.is_autodiff == t.device.is_autodiff
            np.testing.assert_array_equal(other.numpy(), t.numpy())
    leaf = wb.ones(2, device=d).requires_grad_()
    twin = copy.deepcopy(leaf)
    (twin * 3).sum().backward()
    assert twin.grad.tolist() == [3, 3]
    assert leaf.grad is None
    assert pickle.loads(pickle.dumps(leaf)).requires_grad
    with pytest.raises(wb.GradError, match="detach"):
        copy.deepcopy(leaf * 2)


def test_copies_are_values_of_their_own(device):
    t = wb.ones(2, device=device)
    twin = copy.deepcopy(t)
    twin.add_(1)
    assert t.tolist() == [1, 1]
    assert twin.tolist() == [2, 2]


def test_hash_and_equality_are_torchs(device):
    t = wb.ones(2, device=device)
    assert len({t, t}) == 1
    assert (t == wb.ones(2, device=device)).all()
    assert t.numel() == t.size == 2
    assert t.dim() == t.ndim == 1
