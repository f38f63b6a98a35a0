"""Dry runs: what they say, that they leave everything as it was, what they refuse."""

import gc

import numpy as np
import pytest
from device.small_models import STEPS, pictures_step

import wgburn as wb
from wgburn import nn
from wgburn.core.node import Unread
from wgburn.device.device import Device
from wgburn.device.wgpu import WgpuBackend
from wgburn_runtime.fake import FakeDriver

KIB, MIB = 1 << 10, 1 << 20

quick = pytest.mark.quick


@pytest.mark.parametrize("name", STEPS)
def test_a_dry_run_says_what_the_first_step_takes(fresh, name):
    device = fresh.autodiff()
    step, model, _ = STEPS[name](device, 24)
    device.synchronize()
    stats = device.backend.driver.stats
    expected = wb.dry_run(step)()
    assert device.backend.driver.stats == stats  # nothing was made, compiled or launched
    loss = step()
    device.synchronize()
    real = device.memory()
    for figure in ("in_use", "reserved", "peak_in_use", "peak_reserved"):
        found, true = getattr(expected, figure), getattr(real, figure)
        assert found == pytest.approx(true, rel=0.02, abs=64 * KIB), figure
    kinds = [p["kind"] for p in expected.pools]
    assert kinds == [p["kind"] for p in real.pools]
    for told, true in zip(expected.pools, real.pools, strict=True):
        assert told["in_use"] == pytest.approx(true["in_use"], rel=0.02, abs=4 * KIB), told["kind"]
    assert real.peak_in_use > real.in_use > 3 * sum(p.nbytes for p in model.parameters())
    assert np.isfinite(loss.item())


@pytest.mark.parametrize("name", STEPS)
def test_a_dry_run_after_some_steps(fresh, name):
    """Gradients of the step before, which this one drops, do not count."""
    device = fresh.autodiff()
    step, _, _ = STEPS[name](device, 24)
    for _ in range(2):
        step()
        device.synchronize()
    stats = device.backend.driver.stats
    expected = wb.dry_run(step)()
    assert device.backend.driver.stats == stats
    step()
    device.synchronize()
    real = device.memory()
    for figure in ("in_use", "reserved"):
        found, true = getattr(expected, figure), getattr(real, figure)
        assert 0.98 * true - 64 * KIB <= found <= 1.02 * true + 64 * KIB, figure
    # The real peak may be an earlier step's, the first makes the optimizer's state.
    assert expected.in_use < expected.peak_in_use <= 1.02 * real.peak_in_use + 64 * KIB
    assert expected.pools[3]["kind"] == "scratch"
    assert expected.pools[3]["reserved"] == real.pools[3]["reserved"]


@quick
def test_a_larger_batch_needs_more(rules):
    device = rules.autodiff()
    device.synchronize()
    peaks = [wb.dry_run(pictures_step(device, batch)[0])().peak_in_use for batch in (8, 64, 512)]
    assert peaks[0] < peaks[1] < peaks[2]
    a, b = (p - q for p, q in zip(peaks[1:], peaks, strict=False))
    assert b / a == pytest.approx(448 / 56, rel=0.25)  # in proportion to the batch


@quick
@pytest.mark.parametrize("warm", [0, 2])
def test_a_dry_run_leaves_memory_as_it_was(training, warm):
    device, _, _, step = training
    for _ in range(warm):
        step()
    device.synchronize()
    gc.collect()
    memory = device.memory()
    report = wb.dry_run(step)()
    gc.collect()
    after = device.memory()
    assert after.reserved == memory.reserved
    # A layer's statistics of two steps ago, kept for a step that fails, go with the next forward.
    assert 0 <= memory.in_use - after.in_use <= 2 * 8 * 4
    assert report.peak_in_use >= report.in_use


@quick
def test_arguments_and_results_of_a_dry_run(device):
    x = wb.ones(300, 300, device=device)
    wb.eval(x)
    before = device.memory().in_use
    report = wb.dry_run(lambda t, k: (t * k, {"sum": (t @ t).relu()}))(x, k=2.0)
    # Two results, and on the host the product before it is made positive.
    most = before + (2 if device.kind == "wgpu" else 3) * x.nbytes
    assert report.peak_in_use == pytest.approx(most, abs=4 * KIB)
    with pytest.raises(wb.DTypeError, match="takes a function"):
        wb.dry_run(x)


@quick
def test_a_dry_run_of_too_much_tells_and_is_followed_by_less():
    with wb.config.override(memory={"max_bytes": 24 * MIB}):
        device = Device(WgpuBackend(FakeDriver(), "small"))

    weight = wb.ones(1024, 1024, device=device)
    wb.eval(weight)

    def work(n):
        x = wb.ones(n, 1024, device=device)
        return ((x * 2).softmax(-1) @ weight).sum(0)

    assert wb.dry_run(work)(8192).peak_reserved > 24 * MIB
    wb.eval(work(512))
    with pytest.raises(wb.OutOfMemoryError, match="no memory for"):
        wb.eval(work(8192))
    wb.eval(work(512))
    assert device.memory().peak_reserved <= 24 * MIB
    device.close()


def test_a_dry_run_finds_the_device_of_a_closure(wgpu):
    def work():
        return wb.eval(wb.ones(9, device=wgpu) * 3)

    before = wgpu.backend.queue.counters.executions
    wb.dry_run(work)()
    assert wgpu.backend.queue.counters.executions == before


def test_a_dry_run_counts_what_the_function_returns(wgpu):
    x = wb.ones(300, 300, device=wgpu)
    wgpu.synchronize()
    before = wgpu.memory().in_use
    assert wb.dry_run(lambda: x * 2)().in_use == before + x.nbytes


def test_a_dry_run_of_large_work_does_not_size_small_work(fresh):
    w = wb.ones(2048, 2048, device=fresh)

    def work(n):
        return ((w[:n] @ w).tanh() @ w).sum(0)

    fresh.synchronize()
    wb.dry_run(work)(2048)
    wb.eval(work(64))
    report = fresh.memory()
    assert report.reserved <= 1.3 * report.peak_in_use


def test_statistics_of_a_dry_run_are_forgotten(wgpu):
    with wb.use_device(wgpu.autodiff()):
        norm = nn.BatchNorm1d(4)
        x = wb.ones(8, 4)
    norm(x)
    wgpu.synchronize()

    def twice():
        norm(x)
        wgpu.backend.realise(())
        return norm(x)

    wb.dry_run(twice)()
    nodes = norm.__dict__["_good"].values()
    assert all(type(n.store.buf) is not Unread for n in nodes if n.store is not None)
    assert np.isfinite(norm.running_mean.numpy()).all()


def test_a_dry_run_inside_another_is_refused(device):
    x = wb.ones(3, device=device)

    def outer():
        wb.explain(lambda: x + 1)

    with pytest.raises(wb.DeviceError, match="one after the other"):
        wb.dry_run(outer)()
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]
    assert wb.dry_run(lambda: x + 1)().peak_in_use >= 0


def test_dry_runs_of_falling_sizes_each_find_their_own(rules):
    w = wb.ones(1024, 1024, device=rules)
    rules.synchronize()

    def work(n):
        return ((w[:n] @ w).tanh() @ w).sum(0)

    alone = wb.dry_run(work)(256)
    wb.dry_run(work)(1024)
    assert wb.dry_run(work)(256) == alone


def test_a_buffer_that_forward_assigns_survives_a_dry_run(device):
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(8, 8)
            self.register_buffer("h", wb.zeros(4, 8))

        def forward(self, x):
            self.h = (self.last(x) + self.h).tanh().detach()
            return self.h

    with wb.use_device(device):
        model, x = Memory(), wb.ones(4, 8)
    wb.dry_run(model)(x)
    assert (model.h.numpy() == 0).all()
    assert np.isfinite(model(x).numpy()).all()


def test_what_a_dry_run_made_is_refused_by_name(device):
    x, made = wb.ones(3, device=device), []
    wb.dry_run(lambda: made.append(x * 3) or wb.eval(*made))()
    with pytest.raises(wb.DeviceError, match=r"made inside|read inside"):
        (made[0] + 1).numpy()
    assert (x * 3).tolist() == [3.0] * 3
