"""Making tensors: from data, filled, ranges, random; and the dtypes they get."""

import numpy as np
import pytest
import torch

import wgburn as wb

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("data", "dtype", "values"),
    [
        (3, wb.int32, 3),
        (3.5, wb.float32, 3.5),
        (True, wb.bool_, True),
        ([1, -2], wb.int32, [1, -2]),
        ([1, 2.5], wb.float32, [1, 2.5]),
        ([[True], [False]], wb.bool_, [[True], [False]]),
        (np.float64(0.5), wb.float32, 0.5),
        (np.array([1, 2]), wb.int32, [1, 2]),
        (np.array([1, 2], np.uint8), wb.uint8, [1, 2]),
        (np.array([1, -2], np.int8), wb.int8, [1, -2]),
        (np.array([1, 2], np.uint32), wb.uint32, [1, 2]),
        (np.array([0.5], np.float16), wb.float16, [0.5]),
        ([], wb.float32, []),
        ([[], []], wb.float32, [[], []]),
        (range(3), wb.int32, [0, 1, 2]),
    ],
)
def test_tensor_takes_numbers_lists_and_arrays(device, data, dtype, values):
    if dtype not in device.backend.dtypes:
        pytest.skip(f"{device} has no {dtype.name}")
    t = wb.tensor(data, device=device)
    assert t.dtype is dtype
    assert t.tolist() == values
    assert t.device == device


def test_tensor_copies(device):
    a = np.arange(3, dtype=np.float32)
    t = wb.tensor(a, device=device)
    a[:] = 7
    assert t.tolist() == [0, 1, 2]
    out = t.numpy()
    out[:] = 9
    assert t.tolist() == [0, 1, 2]


def test_tensor_of_non_contiguous_arrays(device):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (a.T, a[:, ::2], a[::-1], np.broadcast_to(a[:1], (2, 4))):
        assert wb.tensor(view, device=device).tolist() == view.tolist()


def test_tensor_of_tensors_stacks(device):
    x = wb.tensor([1.0, 2.0], device=device)
    assert wb.tensor([x, x * 2], device=device).tolist() == [[1, 2], [2, 4]]
    assert wb.tensor(x, dtype=wb.int32, device=device).tolist() == [1, 2]
    assert wb.tensor([x[0], 5.0], device=device).tolist() == [1, 5]


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "int8", "uint8", "bool_"])
def test_every_common_dtype_goes_there_and_back(device, dtype):
    a = np.array([[0, 1, 2], [100, 5, 1]]).astype(wb.tensor(0, dtype=dtype).dtype.np)
    t = wb.tensor(a, dtype=dtype, device=device)
    assert t.dtype.name == dtype
    assert t.numpy().dtype == a.dtype
    assert t.numpy().tolist() == a.tolist()
    assert t.nbytes == a.nbytes


def test_dtype_names_and_python_types(cpu):
    for spec in ("float32", np.float32, np.dtype("f4"), float, wb.float32, "float"):
        assert wb.zeros(1, dtype=spec, device=cpu).dtype is wb.float32
    for spec, want in ((int, wb.int32), (bool, wb.bool_), ("bool", wb.bool_), ("i8", wb.int64)):
        assert wb.zeros(1, dtype=spec, device=cpu).dtype is want
    assert repr(wb.float32) == "wgburn.float32"


def test_64_bits_on_cpu_when_asked_for(cpu):
    assert wb.tensor([1.0], device=cpu).dtype is wb.float32
    assert wb.tensor([0.1], dtype="float64", device=cpu).item() == 0.1
    assert wb.tensor([2**40], dtype="int64", device=cpu).item() == 2**40
    assert wb.from_numpy(np.array([0.1]), device=cpu).dtype is wb.float64
    assert wb.from_numpy(np.array([2**40]), device=cpu).item() == 2**40


def test_from_numpy_narrows_where_the_device_has_no_64_bits(wgpu):
    assert wb.from_numpy(np.array([7]), device=wgpu).dtype is wb.int32
    assert wb.from_numpy(np.array([0.5]), device=wgpu).dtype is wb.float32


def test_dlpack_both_ways(device):
    a = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    t = wb.from_dlpack(a, device=device)
    assert t.tolist() == a.tolist()
    assert torch.from_dlpack(t * 2).tolist() == (a * 2).tolist()
    assert np.from_dlpack(t).tolist() == a.tolist()


def test_filled(device):
    assert wb.zeros(2, 3, device=device).tolist() == [[0] * 3] * 2
    assert wb.ones((2, 1), device=device).tolist() == [[1], [1]]
    assert wb.full((2,), 2.5, device=device).tolist() == [2.5, 2.5]
    assert wb.full(2, 7, device=device).dtype is wb.int32
    assert wb.full((), True, device=device).dtype is wb.bool_
    assert wb.full((2,), np.int64(3), device=device).dtype is wb.int32
    assert wb.full((2,), np.float64(3), device=device).dtype is wb.float32
    assert wb.full((1,), float("nan"), device=device).isnan().tolist() == [True]
    assert wb.full((1,), -float("inf"), device=device).tolist() == [-float("inf")]
    assert wb.zeros(device=device).shape == ()
    assert wb.zeros(0, 3, device=device).tolist() == []
    assert wb.empty(2, dtype="int8", device=device).dtype is wb.int8
    x = wb.ones(2, 2, dtype="int32", device=device)
    assert wb.zeros_like(x).dtype is wb.int32
    assert wb.full_like(x, 4).tolist() == [[4, 4], [4, 4]]
    assert wb.ones_like(x, dtype="float32").dtype is wb.float32


@pytest.mark.parametrize(
    "args",
    [(5,), (2, 7), (0, 10, 3), (5, 0, -2), (0.0, 1.0, 0.25), (1, 2, 0.5), (3, 3), (-3, 3)],
)
def test_arange_as_torch(device, args):
    want = torch.arange(*args)
    got = wb.arange(*args, device=device)
    assert got.tolist() == want.tolist()
    assert got.dtype is (wb.float32 if want.dtype.is_floating_point else wb.int32)
    assert wb.arange(5, 2, device=device).shape == (0,)


def test_arange_of_numpy_integers_and_dtypes(device):
    assert wb.arange(np.int64(3), device=device).dtype is wb.int32
    assert wb.arange(4, dtype="uint8", device=device).tolist() == [0, 1, 2, 3]
    assert wb.arange(3, dtype="float32", device=device).tolist() == [0, 1, 2]


def test_linspace_eye_one_hot_triangles(device):
    want = np.linspace(-1, 1, 7, dtype=np.float32)
    np.testing.assert_array_equal(wb.linspace(-1, 1, 7, device=device).numpy(), want)
    assert wb.linspace(0, 1, 0, device=device).shape == (0,)
    assert wb.eye(2, 3, device=device).tolist() == [[1, 0, 0], [0, 1, 0]]
    hot = wb.one_hot(wb.tensor([2, 0], device=device), 3)
    assert hot.tolist() == [[0, 0, 1], [1, 0, 0]]
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1
    t = wb.tensor(a, device=device)
    for k in (-1, 0, 2):
        np.testing.assert_array_equal(wb.tril(t, k).numpy(), np.tril(a, k))
        np.testing.assert_array_equal(wb.triu(t, k).numpy(), np.triu(a, k))


def test_creation_uses_the_default_device(wgpu):
    with wb.use_device(wgpu):
        assert wb.zeros(1).device == wgpu
        assert wb.tensor([1.0]).device == wgpu
        assert wb.rand(1).device == wgpu
    assert wb.zeros(1).device == wb.Device.cpu()


def test_random_numbers_are_equal_on_every_device(cpu, wgpu):
    streams = []
    for dev in (cpu, wgpu):
        dev.seed(42)
        streams.append(
            [
                wb.random_bits(5, device=dev).numpy(),
                wb.rand(3, 4, device=dev).numpy(),
                wb.randint(-3, 9, (50,), device=dev).numpy(),
                wb.bernoulli(wb.full((20,), 0.3, device=dev)).numpy(),
                wb.randperm(11, device=dev).numpy(),
                wb.randn(1000, device=dev).numpy(),
            ]
        )
    *exact, normal = zip(*streams, strict=True)
    for a, b in exact:
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(*normal, rtol=1e-6, atol=1e-6)


def test_random_numbers_are_what_they_say(device):
    device.seed(1)
    u = wb.rand(20000, device=device).numpy()
    assert 0 <= u.min() and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01
    n = wb.randn(20000, device=device).numpy()
    assert abs(n.mean()) < 0.03 and abs(n.std() - 1) < 0.03
    i = wb.randint(5, size=(5000,), device=device).numpy()
    assert set(i.tolist()) == {0, 1, 2, 3, 4}
    assert sorted(wb.randperm(100, device=device).tolist()) == list(range(100))
    b = wb.bernoulli(wb.full((5000,), 0.25, device=device)).numpy()
    assert set(b.tolist()) == {0, 1} and abs(b.mean() - 0.25) < 0.03


def test_the_stream_moves_on_and_restarts_with_the_seed(device):
    device.seed(7)
    a, b = wb.rand(4, device=device), wb.rand(4, device=device)
    assert a.tolist() != b.tolist()
    device.seed(7)
    assert wb.rand(4, device=device).tolist() == a.tolist()
    # Numbers belong to the op that was recorded: reading order and dead values change nothing.
    device.seed(7)
    wb.rand(4, device=device)
    later = wb.rand(4, device=device)
    assert later.tolist() == b.tolist()


def test_random_like(device):
    x = wb.zeros(3, 2, device=device)
    assert wb.rand_like(x).shape == wb.randn_like(x).shape == (3, 2)
    assert wb.rand(2, dtype="float32", device=device).dtype is wb.float32
    assert wb.randint(3, size=2, device=device).shape == (2,)
    assert wb.randint(3, device=device).shape == ()
