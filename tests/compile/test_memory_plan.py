"""Places of intermediates, and updates that take the place of old values."""

import gc

import numpy as np
import pytest

import wgburn as wb
from wgburn import nn, optim
from wgburn.compile.graph import Work

pytestmark = pytest.mark.quick


def plan_of(*tensors):
    backend = tensors[0]._node.backend
    nodes = [t._node for t in tensors]
    return backend.outline(Work(nodes).graph()).plan


def test_no_two_live_values_share_a_place(wgpu):
    x = wb.ones(64, 64, device=wgpu)
    wgpu.synchronize()
    y, kept = x, []
    for k in range(12):
        y = (y @ x).softmax(-1)
        if k % 4 == 0:
            kept.append(y)
    out = sum(k.sum() for k in kept) + y.sum()
    plan = plan_of(out)
    regions = plan.launches.regions
    spots, lives = {}, {}
    for k, launch in enumerate(plan.launches.launches):
        for step, slot in zip(plan.steps[k].buffers, launch.slots, strict=True):
            if slot < 0:
                spots[step] = regions[-1 - slot]
                lives[step] = (lives.get(step, (k, k))[0], k)
    assert len(lives) > 12
    for a in lives:
        for b in lives:
            if a < b and lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]:
                (p, at, size), (q, to, other) = spots[a], spots[b]
                assert p != q or at + size <= to or to + other <= at
    # Memory is shared: all of them would need three times as much.
    assert sum(plan.launches.pages) * 3 < sum(s.size for s in spots.values())


def test_a_buffer_in_a_launch_is_bound_once(wgpu):
    x = wb.ones(32, 32, device=wgpu)
    wgpu.synchronize()
    for step in plan_of((x @ x.T + x * x).sum(0)).steps:
        assert len(set(step.buffers)) == len(step.buffers)


@pytest.fixture
def parameter(wgpu):
    p = nn.Parameter(wb.tensor(np.arange(600, dtype=np.float32), device=wgpu.autodiff()))
    wgpu.synchronize()
    return p


def step(p, lr=0.5):
    """One step of plain gradient descent with a gradient of ones."""
    p.grad = wb.ones(*p.shape, device=p.device)
    optim.SGD([p], lr=lr).step()


def buffer(p):
    return id(p._node.store.buf)


def test_an_update_takes_the_old_values_memory(parameter):
    before = buffer(parameter)
    step(parameter)
    assert buffer(parameter) == before
    np.testing.assert_array_equal(parameter.numpy(), np.arange(600) - 0.5)


def test_a_whole_training_step_updates_in_place(wgpu):
    device = wgpu.autodiff()
    with wb.use_device(device):
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        opt = optim.Adam(model.parameters(), lr=1e-2)
        x = wb.randn(8, 16)

    def one():
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()

    one()
    one()
    before = {buffer(p) for p in model.parameters()}
    one()
    assert {buffer(p) for p in model.parameters()} == before


@pytest.mark.parametrize("how", ["detached", "view", "slice"])
def test_a_held_old_value_stays(parameter, how):
    old = {
        "detached": lambda p: p.detach(),
        "view": lambda p: p.detach().reshape(20, 30),
        "slice": lambda p: p.detach()[100:],
    }[how](parameter)
    wb.eval(old)
    first = buffer(parameter)
    step(parameter)
    assert buffer(parameter) != first
    expected = np.arange(600, dtype=np.float32)
    np.testing.assert_array_equal(
        old.numpy().reshape(-1), expected[100:] if how == "slice" else expected
    )
    np.testing.assert_array_equal(parameter.numpy(), expected - 0.5)
    del old
    gc.collect()
    second = buffer(parameter)
    step(parameter)
    assert buffer(parameter) == second
    np.testing.assert_array_equal(parameter.numpy(), expected - 1)


def test_a_retained_tape_keeps_the_old_value(parameter):
    loss = (parameter * parameter).sum()
    loss.backward(retain_graph=True)
    parameter.grad.numpy()
    before = buffer(parameter)
    optim.SGD([parameter], lr=0.1).step()
    assert buffer(parameter) != before
    expected = np.arange(600, dtype=np.float32)
    np.testing.assert_allclose(parameter.numpy(), expected - 0.2 * expected, rtol=1e-6)


def test_what_is_read_elsewhere_in_the_plan_is_not_overwritten(wgpu):
    device = wgpu.autodiff()
    p = nn.Parameter(wb.tensor(np.arange(40, dtype=np.float32), device=device))
    wgpu.synchronize()
    turned = p.detach().flip(0) * 2  # pending: reads the old value at other places
    step(p)
    np.testing.assert_array_equal(turned.numpy(), np.arange(40)[::-1] * 2)
    np.testing.assert_array_equal(p.numpy(), np.arange(40) - 0.5)
