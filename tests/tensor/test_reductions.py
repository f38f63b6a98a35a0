"""Reductions, running sums and matrix products beside torch and numpy."""

import numpy as np
import pytest
import torch

import wgburn as wb

pytestmark = pytest.mark.quick

A = np.random.default_rng(3).standard_normal((3, 4, 5)).astype(np.float32)
DIMS = [None, 0, -1, 1, (0, 2), (-1, -2), (0, 1, 2)]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "var", "std", "logsumexp"])
def test_as_torch(device, name, dim, keepdim):
    t = torch.tensor(A)
    dims = tuple(range(3)) if dim is None else dim
    got = getattr(wb.tensor(A, device=device), name)(dim, keepdim=keepdim)
    want = getattr(t, name)(dims, keepdim=keepdim)
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dim", [None, 0, -1, 1])
def test_positions_and_truth(device, dim):
    a = np.round(A)  # with ties
    t, n = wb.tensor(a, device=device), a
    np.testing.assert_array_equal(t.argmax(dim).numpy(), n.argmax(dim))
    np.testing.assert_array_equal(t.argmin(dim).numpy(), n.argmin(dim))
    np.testing.assert_array_equal((t > 1).any(dim).numpy(), (n > 1).any(dim))
    np.testing.assert_array_equal((t > -3).all(dim).numpy(), (n > -3).all(dim))
    np.testing.assert_array_equal(t.prod(dim).numpy(), n.prod(dim))


def test_max_and_min_with_positions(device):
    t = wb.tensor(A, device=device)
    values, indices = t.max(1)
    np.testing.assert_array_equal(values.numpy(), A.max(1))
    np.testing.assert_array_equal(indices.numpy(), A.argmax(1))
    found = t.min(-1, keepdim=True)
    np.testing.assert_array_equal(found.values.numpy(), A.min(-1, keepdims=True))
    assert found.indices.shape == (3, 4, 1)
    assert t.max().item() == A.max()
    np.testing.assert_array_equal(t.max(t * 2).numpy(), np.maximum(A, A * 2))


def test_nan_propagates(device):
    t = wb.tensor([[1.0, float("nan"), 3.0], [1.0, 2.0, -float("inf")]], device=device)
    assert t.amax(1).isnan().tolist() == [True, False]
    assert t.amin(1).tolist()[1] == -float("inf")
    assert t.sum(1).isnan().tolist() == [True, False]
    assert t.argmax(1).tolist() == [1, 1]
    assert (t == t).all().item() is False
    assert t.maximum(0).isnan().tolist()[0] == [False, True, False]
    assert (t < 5).tolist()[0] == [True, False, True]


def test_nothing_to_reduce(device):
    e = wb.zeros(2, 0, 3, device=device)
    assert e.sum(1).tolist() == [[0] * 3] * 2
    assert e.prod(1).tolist() == [[1] * 3] * 2
    assert e.any(1).tolist() == [[False] * 3] * 2
    assert e.all(1).tolist() == [[True] * 3] * 2
    assert e.mean(1).isnan().all().item() is True
    assert e.sum().item() == 0
    assert e.sum(0).shape == (0, 3)
    assert e.amax(0).shape == (0, 3)
    for name in ("amax", "argmin", "max"):
        with pytest.raises(wb.ShapeError, match="no elements"):
            getattr(e, name)(1)


def test_scalars_reduce(device):
    s = wb.tensor(2.5, device=device)
    assert s.sum().item() == s.mean().item() == s.amax().item() == s.sum(0).item() == 2.5
    assert s.argmax().item() == 0
    assert s.max(0).values.item() == 2.5
    assert s.var().isnan().item() is True


def test_running_sums(device):
    t = wb.tensor(A, device=device)
    for dim in (0, 1, -1):
        np.testing.assert_allclose(t.cumsum(dim).numpy(), A.cumsum(dim), rtol=1e-5, atol=1e-5)
    ones = wb.ones(2, 300, dtype="bool", device=device)
    assert ones.cumsum(1)[1, -1].item() == 300


def test_softmaxes(device):
    t, r = wb.tensor(A * 30, device=device), torch.tensor(A * 30)
    for dim in (0, -1):
        np.testing.assert_allclose(
            t.softmax(dim).numpy(), r.softmax(dim).numpy(), rtol=2e-5, atol=1e-7
        )
        np.testing.assert_allclose(
            t.log_softmax(dim).numpy(), r.log_softmax(dim).numpy(), rtol=1e-5, atol=1e-5
        )
    far = wb.tensor([[1e4, 0.0], [-float("inf"), 0.0]], device=device)
    assert far.softmax(1).tolist() == [[1, 0], [0, 1]]
    assert far.logsumexp(1).tolist() == [1e4, 0]
    assert wb.tensor([[-float("inf")] * 2], device=device).logsumexp(1).item() == -float("inf")


SHAPES = [
    ((4, 5), (5, 6)),
    ((5,), (5,)),
    ((5,), (5, 6)),
    ((4, 5), (5,)),
    ((3, 4, 5), (5, 6)),
    ((3, 4, 5), (3, 5, 6)),
    ((3, 1, 4, 5), (2, 5, 6)),
    ((5,), (3, 5, 6)),
    ((3, 4, 5), (5,)),
    ((1, 1), (1, 1)),
    ((0, 5), (5, 3)),
    ((4, 0), (0, 3)),
    ((2, 0, 3), (3, 2)),
    ((70, 33), (33, 65)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_matmul_in_every_shape(device, a, b):
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in (a, b))
    got = wb.tensor(x, device=device) @ wb.tensor(y, device=device)
    want = x.astype(np.float64) @ y.astype(np.float64)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


def test_matmul_of_views_integers_and_arrays(device):
    x, y = A[0], A[1]
    t, s = wb.tensor(x, device=device), wb.tensor(y, device=device)
    np.testing.assert_allclose((t.T @ s).numpy(), x.T @ y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose((t[:, ::2] @ s[:3].flip(0)).numpy(), x[:, ::2] @ y[2::-1], rtol=1e-5)
    np.testing.assert_allclose((x.T @ s).numpy(), x.T @ y, rtol=1e-5, atol=1e-5)
    i = wb.tensor([[1, 2], [3, 4]], device=device)
    assert (i @ i).tolist() == [[7, 10], [15, 22]]
    assert i.dtype is wb.int32
    assert (t[0].dot(s[0])).shape == ()
    big = wb.tensor(np.full((2, 300), 100, np.int8), device=device)
    assert (big @ big.T).tolist() == [[3000000] * 2] * 2


def test_sums_are_accurate(device):
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((20000, 3)) + 1000).astype(np.float32)
    t = wb.tensor(a, device=device)
    want = a.astype(np.float64)
    np.testing.assert_allclose(t.sum(0).numpy(), want.sum(0), rtol=1e-6)
    np.testing.assert_allclose(t.mean().item(), want.mean(), rtol=1e-6)
    np.testing.assert_allclose(t.var(0).numpy(), want.var(0, ddof=1), rtol=1e-4)
