"""wb.explain: plans without running, and leaves everything as it was."""

import numpy as np
import pytest
from compile.seed_models import cnn_step

import wgburn as wb

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("warm", [0, 2])
def test_a_training_step_is_several_kernels(training, warm):
    *_, step = training
    for _ in range(warm):
        step()
    assert len(wb.explain(step).kernels) > 3


def test_nothing_runs(wgpu):
    x = wb.ones(5, 5, device=wgpu)
    wgpu.synchronize()
    before = wgpu.backend.queue.counters.launches
    explanation = wb.explain(lambda: (x @ x).relu().sum())
    wgpu.synchronize()
    assert wgpu.backend.queue.counters.launches == before
    assert len(explanation) == len(explanation.kernels) >= 1


def test_pending_tensors(wgpu):
    x = wb.ones(8, 8, device=wgpu)
    wgpu.synchronize()
    a, b = x.exp().sum(0), (x @ x).relu()
    explanation = wb.explain(a, b)
    assert len(explanation.kernels) == 2
    assert {"exp", "matmul", "relu", "sum"} <= {o for k in explanation.kernels for o in k.ops}
    np.testing.assert_allclose(a.numpy(), 8 * np.e * np.ones(8), rtol=1e-5)
    assert len(wb.explain(a).kernels) == 0


def test_arguments_reach_the_function(device):
    x = wb.ones(4, device=device)
    explanation = wb.explain(lambda t, scale: t * scale, x, scale=3.0)
    assert len(explanation.kernels) == 1


def test_kernels_say_what_they_do(wgpu):
    x, w, b, v = (wb.ones(*s, device=wgpu) for s in ((16, 8), (8, 4), (4,), (4, 5)))
    wgpu.synchronize()
    explanation = wb.explain(lambda: (x @ w + b).relu() @ v)
    first, second = explanation.kernels
    assert {"matmul", "add", "relu"} <= set(first.ops)
    assert first.reads == ("float32[16, 8]", "float32[8, 4]", "float32[4]")
    assert first.writes == ("float32[16, 4]",)
    assert first.bytes == 4 * (16 * 8 + 8 * 4 + 4 + 16 * 4)
    assert "matmul" in first.why
    assert "fn main" in second.source
    text = str(explanation)
    assert all(name in text for name in ("matmul", "float32[16, 4]", "2 kernels"))


def test_a_whole_model_is_found_through_the_function(wgpu):
    """explain finds the device through what a function closes over."""
    step, _, _ = cnn_step(wgpu.autodiff(), 2)
    explanation = wb.explain(step)
    assert explanation.device == wgpu.backend.name
    assert sum("conv" in k.ops for k in explanation.kernels) >= 2


def test_two_joins_of_one_shape_are_planned_on_the_host(cpu):
    a, b = (wb.tensor(np.ones((100, 100), np.float32), device=cpu) for _ in range(2))
    found = wb.explain(lambda: (wb.cat([a, a], 0), wb.cat([b, b], 0)))
    assert [k.writes for k in found.kernels] == [("float32[200, 100]",)] * 2
