"""Tape and memory semantics of a training step: what is computed, when, and what stays alive."""

import gc
import weakref

import numpy as np
import pytest
from engine_probe import probing, resident_bytes

import wgburn as wb
from wgburn.nn import functional as F


@pytest.fixture
def ad(device):
    wb.eval()
    device.synchronize()
    return device.autodiff()


def leaf(values, device, name=None):
    t = wb.tensor(np.asarray(values, np.float32), device=device).requires_grad_()
    t.name = name
    return t


def small_net(ad):
    rng = np.random.default_rng(0)
    w1 = leaf(rng.standard_normal((8, 16)) * 0.3, ad, "w1")
    w2 = leaf(rng.standard_normal((16, 1)) * 0.3, ad, "w2")
    x = wb.tensor(rng.standard_normal((32, 8)).astype(np.float32), device=ad)
    y = wb.tensor(rng.standard_normal((32, 1)).astype(np.float32), device=ad)

    def loss():
        return (((x @ w1).tanh() @ w2 - y) ** 2).mean()

    return [w1, w2], loss


def update(params, lr):
    """One step of gradient descent, computed at once as an optimizer does."""
    with wb.no_grad():
        for p in params:
            p.sub_(p.grad * lr)
            p.grad = None
    wb.eval(params)


# -- reading before backward ----------------------------------------------------------------------


@pytest.mark.quick
def test_item_before_backward_computes_the_forward_once(ad):
    params, loss = small_net(ad)
    wb.eval(params)
    with probing(ad) as probe:
        value = loss()
        value.item()
        assert probe.ops["tanh"] == 1
        assert probe.ops["matmul"] == 2
        probe.clear()
        value.backward()
        wb.eval([p.grad for p in params])
        assert probe.ops["tanh"] == 0
        assert probe.executions == 1
        # Of products only those of the gradients: of both weights and of the hidden layer.
        assert probe.ops["matmul"] == 3
    read = [p.grad.numpy() for p in params]
    for p in params:
        p.grad = None
    loss().backward()
    for p, g in zip(params, read, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), g)


@pytest.mark.quick
def test_a_whole_step_without_a_read_is_one_execution(ad):
    params, loss = small_net(ad)
    wb.eval(params)
    with probing(ad) as probe:
        value = loss()
        value.backward()
        update(params, 0.1)
        assert probe.executions == 1
        assert probe.ops["tanh"] == 1
        value.item()
        assert probe.executions == 1


@pytest.mark.quick
def test_reading_before_backward_repeats_no_effect(ad):
    """Running statistics move once a step, random numbers are drawn once."""
    x = wb.tensor(np.random.default_rng(2).standard_normal((16, 4)).astype(np.float32), device=ad)
    p = leaf(np.ones((16, 4)), ad)
    expected = []
    for reads in (False, True):
        bn = wb.nn.BatchNorm1d(4, device=ad)
        ad.seed(5)
        p.grad = None
        h = F.dropout(bn(x * p), 0.5, True)
        loss = (h * h).sum()
        if reads:
            loss.item()
            bn.running_mean.numpy()
            h.numpy()
        offset = ad.backend.stream.offset
        loss.backward()
        found = [t.numpy() for t in (bn.running_mean, bn.running_var, p.grad, h)]
        assert int(bn.num_batches_tracked) == 1
        assert ad.backend.stream.offset == offset
        if reads:
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        expected = found
    np.testing.assert_allclose(expected[0], 0.1 * x.numpy().mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.quick
def test_the_mask_of_forward_and_backward_is_one(ad):
    p = leaf(np.ones(64), ad)
    h = F.dropout(p, 0.5, True)
    h.sum().backward()
    np.testing.assert_array_equal(p.grad.numpy(), h.numpy())
    assert set(p.grad.tolist()) == {0, 2}


# -- what stays alive -----------------------------------------------------------------------------


@pytest.mark.quick
def test_a_kept_loss_keeps_nothing_else(ad):
    p = leaf(np.ones((256, 1024)), ad)
    wb.eval(p)
    losses, nodes = [], []
    for k in range(12):
        h = p.sin()
        nodes += [weakref.ref(h._node), weakref.ref(p._node)]
        loss = (h * h).mean()
        loss.backward()
        losses.append(loss)
        update([p], 1e4)
        del h, loss
        if k == 1:
            gc.collect()
            early = ad.memory().in_use
    gc.collect()
    # A megabyte each: the parameter and its values before would show.
    assert ad.memory().in_use <= early + (1 << 19)
    alive = [n for n in nodes if n() is not None and n() is not p._node]
    assert not alive
    assert len({round(x.item(), 6) for x in losses}) == 12


@pytest.mark.quick
def test_backward_frees_what_the_tape_saved(ad):
    p = leaf(np.ones((512, 512)), ad)
    loss = (p.exp().sin() * p).sum()
    wb.eval(loss)
    gc.collect()
    before = ad.memory().in_use
    assert before >= 3 * p.nbytes
    loss.backward()
    p.grad = None
    gc.collect()
    assert ad.memory().in_use <= before - 2 * p.nbytes


@pytest.mark.quick
def test_a_tape_that_nobody_holds_saves_nothing(ad):
    p = leaf(np.ones((512, 512)), ad)
    wb.eval(p)
    gc.collect()
    before = ad.memory().in_use
    value = float((p.exp().sin() * p).sum())
    assert value == pytest.approx(np.sin(np.e) * 512 * 512, rel=1e-4)
    gc.collect()
    assert ad.memory().in_use <= before + 4096


@pytest.mark.quick
def test_under_no_grad_nothing_is_saved(ad):
    p = leaf(np.ones((512, 512)), ad)
    with wb.no_grad():
        total = (p.exp().sin() * p).sum()
    wb.eval(total)
    gc.collect()
    assert total._fn is None
    assert ad.memory().in_use < 3 * p.nbytes + (1 << 16)


def test_two_thousand_steps_without_a_read(ad):
    """Memory is flat, the plan is one, and the result is that of numpy."""
    params, loss = small_net(ad)
    backend = ad.backend
    marks = []
    for k in range(2000):
        loss().backward()
        update(params, 0.05)
        refs = len(ad.backend.pending.refs)
        if k in (400, 1999):
            ad.synchronize()
            gc.collect()
            marks.append((resident_bytes(), ad.memory().in_use, backend.plan_misses))
    (rss, in_use, misses), (rss_late, in_use_late, misses_late) = marks
    assert rss_late - rss < 16 << 20
    assert in_use_late <= in_use + 4096
    assert misses_late == misses
    assert refs < 150
    assert loss().item() < 0.5


def test_a_loop_that_neither_reads_nor_steps_stays_bounded(ad):
    backend = ad.backend
    limit = backend.record_limit
    backend.record_limit = 200
    try:
        x = wb.ones(1000, device=ad)
        for _ in range(2000):
            x = x * 0.5 + 0.25
            assert backend.recorded <= 200
        depth, node = 0, x._node
        while node.srcs:
            depth, node = depth + 1, node.srcs[0]
        assert depth <= 200
        assert len(backend.pending.refs) <= 1000
        assert x.tolist() == [0.5] * 1000
    finally:
        backend.record_limit = limit


def test_the_record_limit_is_no_limit_of_a_tape(ad):
    """Values are computed on the way; the gradient at the end goes through all of them."""
    p = leaf([2.0], ad)
    backend, x = ad.backend, p
    limit, backend.record_limit = backend.record_limit, 150
    try:
        for _ in range(500):
            x = x * 1.001
        x.sum().backward()
        np.testing.assert_allclose(p.grad.item(), 1.001**500, rtol=1e-4)
    finally:
        backend.record_limit = limit


# -- exceptions in mid-step -----------------------------------------------------------------------


def good_step(params, loss):
    value = loss()
    value.backward()
    update(params, 0.1)
    return value.item()


@pytest.mark.quick
def test_a_shape_error_in_the_loss(ad):
    params, loss = small_net(ad)
    first = good_step(params, loss)
    before = [p.numpy() for p in params]
    with pytest.raises(wb.ShapeError, match="matmul"):
        (params[0].tanh() @ params[0]).sum().backward()
    assert all(p.grad is None for p in params)
    for p, a in zip(params, before, strict=True):
        np.testing.assert_array_equal(p.numpy(), a)
    assert good_step(params, loss) < first


@pytest.mark.quick
def test_an_error_in_the_middle_of_backward(ad):
    params, loss = small_net(ad)
    stale = (params[0] * params[0]).sum() * loss()
    with wb.no_grad():
        params[0].mul_(1.0)
    with pytest.raises(wb.GradError, match="'w1'"):
        stale.backward()
    assert all(p.grad is None for p in params)
    assert wb.is_grad_enabled()
    assert good_step(params, loss) > good_step(params, loss)


@pytest.mark.quick
def test_an_index_error_while_computing(cpu):
    """Known only when computed: raised by the read or the step; all stays as it was before."""
    ad = cpu.autodiff()
    table = wb.nn.Parameter(wb.ones(4, 2, device=ad))
    opt = wb.optim.Adam([table], lr=0.1)
    i = wb.tensor([1, 2], device=ad)

    def step(shift):
        opt.zero_grad()
        loss = (table[i + shift] ** 2).sum()
        loss.backward()
        opt.step()
        return loss.item()

    first = step(0)
    before = table.numpy()
    with pytest.raises(wb.IndexRangeError, match="index 4 is out of range"):
        step(2)
    np.testing.assert_array_equal(table.numpy(), before)
    assert step(1) < first + 1
    assert step(0) < first


@pytest.mark.quick
def test_a_failing_execution(ad, monkeypatch):
    w = wb.nn.Parameter(wb.ones(3, device=ad))
    opt = wb.optim.SGD([w], lr=0.1, momentum=0.9)
    backend = ad.backend

    def step():
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        opt.step()
        return loss.item()

    step()
    before = w.tolist()
    momentum = opt.state[w]["momentum_buffer"].tolist()
    with monkeypatch.context() as m:
        m.setattr(
            backend, "execute", lambda *args: (_ for _ in ()).throw(wb.DeviceError("the cable"))
        )
        with pytest.raises(wb.DeviceError, match="the cable"):
            step()
    assert w.tolist() == before
    assert opt.state[w]["momentum_buffer"].tolist() == momentum
    assert step() < 3
    assert w.tolist() != before


@pytest.mark.quick
def test_the_plan_is_found_again_while_the_rate_changes(ad):
    params, loss = small_net(ad)
    backend = ad.backend
    for k, lr in enumerate([0.1, 0.05, 0.31, 1e-3, 0.7, 0.2, 0.011]):
        if k == 2:
            misses, hits = backend.plan_misses, backend.plan_hits
        loss().backward()
        update(params, lr)
    assert backend.plan_misses == misses
    assert backend.plan_hits == hits + 5


@pytest.mark.quick
def test_an_optimizer_with_a_schedule_keeps_its_plan(ad):
    model = wb.nn.Sequential(wb.nn.Linear(4, 8), wb.nn.ReLU(), wb.nn.Linear(8, 1)).to(ad)
    opt = wb.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = wb.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=12)
    x = wb.ones(5, 4, device=ad)
    for k in range(10):
        if k == 2:
            misses = ad.backend.plan_misses
        opt.zero_grad()
        (model(x) ** 2).mean().backward()
        opt.step()
        schedule.step()
    assert ad.backend.plan_misses == misses
