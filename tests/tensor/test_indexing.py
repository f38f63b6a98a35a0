"""x[...] beside numpy's, and gather, scatter and their kin beside torch's."""

import numpy as np
import pytest
import torch

import wgburn as wb

A = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
I2 = np.array([1, 0, 1], np.int32)
I34 = np.array([[0, 2, -1, 1], [1, 1, 0, -3], [2, 2, 2, 2]], np.int32)


@pytest.fixture(scope="module")
def on_each(cpu, wgpu):
    return {"cpu": wb.tensor(A, device=cpu), "wgpu": wb.tensor(A, device=wgpu)}


@pytest.fixture
def x(device, on_each):
    return on_each[device.kind]


BASIC = [
    0,
    -1,
    (1, 2, 3, 4),
    (-2, -3, -4, -5),
    slice(None),
    slice(1, None),
    slice(-1, None),
    slice(5, 9),
    slice(1, 1),
    slice(None, None, -1),
    (slice(None), slice(None, None, 2), slice(3, 0, -2)),
    (0, slice(None), 1, slice(4, None, -3)),
    (Ellipsis, 2),
    (1, Ellipsis, slice(0, 3)),
    (Ellipsis,),
    (0, 0, 0, 0, Ellipsis),
    None,
    (None, 1, None, Ellipsis, None),
    (slice(None), None, -1),
    (),
    np.int64(1),
    (slice(-100, 100), slice(None, -1), slice(-3, -1), slice(-1, -100, -1)),
]


@pytest.mark.quick
@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic_indexing(x, index):
    got = x[index]
    want = A[index]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


ADVANCED = [
    I2,
    (slice(None), I34),
    (I2, I2),
    (I2, slice(None), I2),
    (slice(None), I2, I2),
    (slice(None), slice(None), I2, I2),
    (Ellipsis, np.array([4, -5, 0])),
    (0, I34),
    (I34 % 2, Ellipsis, I34),
    (I2[:, None], I34[0][None]),
    (slice(None, None, -1), I2, 1),
    (slice(1), None, I2),
    [1, 0, 0],
    (slice(None), [2, 1]),
    np.array(1),
    np.zeros((0,), np.int32),
    [],
    np.zeros((2, 0), np.int32),
]


@pytest.mark.quick
@pytest.mark.parametrize("index", ADVANCED, ids=str)
def test_advanced_indexing(x, index):
    items = index if isinstance(index, tuple) else (index,)
    ours = tuple(
        wb.tensor(i, device=x.device) if isinstance(i, np.ndarray) and i.size % 2 else i
        for i in items
    )
    got = x[ours]
    # An int among arrays is an array for numpy; torch and we take it first.
    want = (
        torch.tensor(A)[
            tuple(torch.tensor(i).long() if isinstance(i, (np.ndarray, list)) else i for i in items)
        ]
        if not any(isinstance(i, slice) and i.step == -1 for i in items)
        else torch.tensor(A[::-1].copy())[
            (slice(None), *[torch.tensor(i) if isinstance(i, np.ndarray) else i for i in items[1:]])
        ]
    )
    assert got.shape == tuple(want.shape)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.quick
def test_masks(x, device):
    mask = A > 60
    np.testing.assert_array_equal(x[mask].numpy(), A[mask])
    np.testing.assert_array_equal(x[x > 60].numpy(), A[mask])
    rows = np.array([True, False])
    np.testing.assert_array_equal(x[rows].numpy(), A[rows])
    np.testing.assert_array_equal(x[:, [True, False, True]].numpy(), A[:, [True, False, True]])
    pairs = A[:, :, 0, 0] > 30
    np.testing.assert_array_equal(x[wb.tensor(pairs, device=device)].numpy(), A[pairs])
    np.testing.assert_array_equal(x[pairs, 1].numpy(), A[pairs, 1])
    assert x[A < 0].shape == (0,)


@pytest.mark.quick
def test_computed_indices(x, device):
    i = wb.arange(3, device=device) - 2
    np.testing.assert_array_equal(x[:, i].numpy(), A[:, [-2, -1, 0]])
    np.testing.assert_array_equal(x[:, i, i + 1].numpy(), A[:, [-2, -1, 0], [-1, 0, 1]])
    best = x.argmax(3)
    np.testing.assert_array_equal(best.numpy(), np.full((2, 3, 4), 4))
    k = wb.tensor(1, device=device)
    np.testing.assert_array_equal(x[k].numpy(), A[1])
    np.testing.assert_array_equal(x[:, : int(k + 1)].numpy(), A[:, :2])


@pytest.mark.quick
def test_gather_scatter_and_kin_as_torch(device):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 5, 3)).astype(np.float32)
    src = rng.standard_normal((4, 5, 3)).astype(np.float32)
    t, s = wb.tensor(a, device=device), wb.tensor(src, device=device)
    ta, ts = torch.tensor(a), torch.tensor(src)
    for dim in (0, 1, 2, -1):
        index = rng.integers(0, a.shape[dim], (3, 4, 2)).astype(np.int64)
        i, ti = wb.tensor(index, device=device), torch.tensor(index)
        np.testing.assert_array_equal(t.gather(dim, i).numpy(), ta.gather(dim, ti).numpy())
        part, tpart = s[:3, :4, :2], ts[:3, :4, :2]
        np.testing.assert_allclose(
            t.scatter_add(dim, i, part).numpy(),
            ta.scatter_add(dim, ti, tpart).numpy(),
            rtol=1e-6,
            atol=1e-6,
        )
        flat = rng.integers(0, a.shape[dim], a.shape[dim]).astype(np.int64)
        i, ti = wb.tensor(flat, device=device), torch.tensor(flat)
        np.testing.assert_array_equal(
            t.index_select(dim, i).numpy(), ta.index_select(dim, ti).numpy()
        )
        np.testing.assert_allclose(
            t.index_add(dim, i, s).numpy(),
            ta.index_add(dim, ti, ts).numpy(),
            rtol=1e-6,
            atol=1e-6,
        )
    order = t.argmax(1, keepdim=True)
    np.testing.assert_array_equal(
        t.take_along_dim(order, 1).numpy(), np.take_along_axis(a, order.numpy(), 1)
    )


@pytest.mark.quick
def test_masked_fill_and_where(device):
    a = np.array([[1.0, -2.0], [np.nan, 4.0]], np.float32)
    t = wb.tensor(a, device=device)
    assert t.masked_fill(t < 0, 9).tolist()[0] == [1, 9]
    got = wb.where(t > 0, t, 0.0).numpy()
    np.testing.assert_array_equal(got, np.where(a > 0, a, 0))
    assert (t > 0).where(1, 2.5).dtype is wb.float32
    row = wb.tensor([True, False], device=device)
    np.testing.assert_array_equal(
        wb.where(row, t, wb.zeros(2, 1, device=device)).numpy(), np.where([True, False], a, 0)
    )


@pytest.mark.quick
def test_setting_parts(device):
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    cases = [
        (0, 5),
        ((1, -1), np.array([1, 2, 3, 4])),
        ((slice(None), slice(None, None, 2)), -1.5),
        ((slice(None), 1, slice(3, 0, -2)), np.array([[1, 2], [3, 4]])),
        ((Ellipsis, None, 0), 7),
        (slice(1, 1), 3),
        ((), 2),
        (a > 11, 0),
        (a[:, :, 0] > 3, np.array([1, 2, 3, 4])),
        ([True, False], 9),
        (slice(None, None, -1), np.arange(2).reshape(2, 1, 1)),
    ]
    for index, value in cases:
        t = wb.tensor(a, device=device)
        want = a.copy()
        t[index] = value
        want[index] = value
        np.testing.assert_array_equal(t.numpy(), want, err_msg=str(index))
    t = wb.tensor(a, device=device)
    before = t * 1
    t[0] += 1
    np.testing.assert_array_equal(t[0].numpy(), a[0] + 1)
    np.testing.assert_array_equal(before.numpy(), a)
    t[wb.tensor([1, 0], device=device)] = t[:, :1] * 0 + 8
    np.testing.assert_array_equal(t.numpy(), np.full_like(a, 8))
    with pytest.raises(wb.ShapeError, match=r"\(5,\).*\(3, 4\)"):
        t[0] = np.zeros(5)


@pytest.mark.quick
def test_gradients_flow_through_an_assignment(device):
    p = wb.tensor([1.0, 2.0, 3.0], device=device.autodiff()).requires_grad_()
    t = p * 2
    t[1] = p[0] * 10
    t.sum().backward()
    assert p.grad.tolist() == [12, 0, 2]


@pytest.mark.quick
def test_iteration_and_unpacking(device):
    t = wb.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert [row.tolist() for row in t] == [[1, 2], [3, 4]]
    first, second = t
    assert first.tolist() == [1, 2]
    assert second.tolist() == [3, 4]
    assert len(t) == 2
    assert len(list(wb.zeros(0, 2, device=device))) == 0
