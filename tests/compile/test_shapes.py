"""Graphs at the edges: very deep or wide, many dimensions, sizes 0 and 1, shapes side by side."""

import numpy as np
import pytest

import wgburn as wb
from wgburn.compile.graph import Work

rng = np.random.default_rng(7)


def plan_of(*tensors):
    return tensors[0]._node.backend.outline(Work([t._node for t in tensors]).graph()).plan


def test_chains_of_three_thousand_ops(device):
    p = wb.ones(5, device=device)
    device.synchronize()
    y = p
    for _ in range(3000):
        y = y + p
    np.testing.assert_array_equal(y.numpy(), np.full(5, 3001, np.float32))


def test_deep_chains_of_many_ops(device):
    x = rng.random(100, np.float32)
    y, wanted = wb.tensor(x, device=device), x.astype(np.float64)
    for k in range(400):
        y = (y * 0.9 + 0.1).sin() if k % 2 else y.abs()
        wanted = np.sin(wanted * 0.9 + 0.1) if k % 2 else np.abs(wanted)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [7, 8, 9, 30])
def test_wide_fan_in(wgpu, count):
    """More inputs than a kernel may bind."""
    arrays = [rng.random((6, 5), np.float32) for _ in range(count)]
    tensors = [wb.tensor(a, device=wgpu) for a in arrays]
    wgpu.synchronize()
    out = tensors[0]
    for k, t in enumerate(tensors[1:]):
        out = out * t if k % 3 == 1 else out + t
    total = out.sum(1)
    most = wgpu.limits["maxStorageBuffersPerShaderStage"] if hasattr(wgpu, "limits") else 8
    assert all(len(s.buffers) <= most for s in plan_of(total, out).steps)
    wanted = arrays[0]
    for k, a in enumerate(arrays[1:]):
        wanted = wanted * a if k % 3 == 1 else wanted + a
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(total.numpy(), wanted.sum(1), rtol=1e-5)


def test_wide_joins(device):
    arrays = [rng.random((2, 3), np.float32) for _ in range(20)]
    joined = wb.cat([wb.tensor(a, device=device) * 2 for a in arrays], 1)
    np.testing.assert_allclose(joined.numpy(), np.concatenate(arrays, 1) * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 5, 6), (1, 3, 1, 5, 2), (2, 1, 1, 1, 1), (1, 1, 1), (7, 1), (2, 2, 1, 3, 1)]
)
def test_many_dimensions_and_sizes_of_one(device, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    t = wb.tensor(x, device=device)
    turned = tuple(reversed(range(len(shape))))
    y = (t.permute(*turned) * 2 + 1).reshape(-1).reshape(*shape).softmax(-1)
    z = y.sum(tuple(range(1, len(shape)))) + t.flip(0).amax(tuple(range(1, len(shape))))
    mid = (x.transpose(turned) * 2 + 1).reshape(shape)
    e = np.exp(mid - mid.max(-1, keepdims=True))
    soft = e / e.sum(-1, keepdims=True)
    axes = tuple(range(1, len(shape)))
    np.testing.assert_allclose(y.numpy(), soft, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z.numpy(), soft.sum(axes) + np.flip(x, 0).max(axes), rtol=1e-5)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 5), (1, 0, 1)])
def test_no_elements(device, shape):
    t = wb.tensor(np.zeros(shape, np.float32), device=device)
    y = (t * 2 + 1).exp()
    assert y.shape == shape
    assert y.numpy().shape == shape
    assert (y.sum() + 5).item() == 5
    np.testing.assert_array_equal(y.sum(0).numpy(), np.zeros(shape[1:], np.float32))
    assert (y.reshape(-1) + 1).numpy().shape == (0,)


def test_products_over_no_elements(device):
    a = wb.ones(3, 0, device=device)
    np.testing.assert_array_equal((a @ a.T + 1).numpy(), np.ones((3, 3)))


def test_parts_of_different_shapes_share_a_kernel(wgpu):
    shapes = [(3, 5), (70,), (2, 2, 2), ()]
    arrays = [np.asarray(rng.random(s), np.float32) for s in shapes]
    tensors = [wb.tensor(a, device=wgpu) for a in arrays]
    wgpu.synchronize()
    outs = [t * 2 + k for k, t in enumerate(tensors)]
    plan = plan_of(*outs)
    assert len(plan.steps) == 1
    wb.eval(*outs)
    for k, (o, a) in enumerate(zip(outs, arrays, strict=True)):
        np.testing.assert_allclose(o.numpy(), a * 2 + k, rtol=1e-6)


def test_parts_that_need_other_loops_share_a_kernel(wgpu):
    """A reshape of a transpose takes loops apart in one part only."""
    a, b = rng.random((4, 6), np.float32), rng.random(10, np.float32)
    x, y = wb.tensor(a, device=wgpu), wb.tensor(b, device=wgpu)
    wgpu.synchronize()
    p, q = x.T.reshape(2, 12) * 3, y - 1
    wb.eval(p, q)
    np.testing.assert_allclose(p.numpy(), a.T.reshape(2, 12) * 3, rtol=1e-6)
    np.testing.assert_allclose(q.numpy(), b - 1, rtol=1e-6)


def test_results_of_a_row_kernel_go_where_their_dimensions_are(wgpu):
    """A full-size result whose kernel reads nothing by position."""
    x = wb.full((8, 5, 3, 3), 2.0, device=wgpu)
    full, total = x * 3, (x * 3).sum(1)
    wb.eval(full, total)
    np.testing.assert_array_equal(full.numpy(), np.full((8, 5, 3, 3), 6, np.float32))
    np.testing.assert_array_equal(total.numpy(), np.full((8, 3, 3), 30, np.float32))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_indexed_reads_inside_kernels(device, axis):
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    i = rng.integers(0, x.shape[axis], 7).astype(np.int32)
    i[0] = x.shape[axis] - 1
    t, index = wb.tensor(x, device=device), wb.tensor(i, device=device)
    found = ((t * 2).index_select(axis, index) + 1).sum(axis)
    np.testing.assert_allclose(found.numpy(), (x * 2).take(i, axis).sum(axis) + 7, rtol=1e-4)
    one = np.zeros(tuple(1 if d == axis else n for d, n in enumerate(x.shape)), np.int32) + 2
    picked = t.softmax(axis).gather(axis, wb.tensor(one, device=device))
    e = np.exp(x - x.max(axis, keepdims=True))
    soft = e / e.sum(axis, keepdims=True)
    np.testing.assert_allclose(picked.numpy(), np.take_along_axis(soft, one, axis), rtol=1e-5)
    spread = wb.zeros(4, 5, 6, device=device).scatter_add(
        axis, wb.tensor(one, device=device), picked
    )
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, one, np.take_along_axis(soft, one, axis), axis)
    np.testing.assert_allclose((spread * 2).numpy(), wanted * 2, rtol=1e-5)
