"""How many kernels well-known pieces of work take with the limits that a browser gives.

Second stages of split reductions are not counted. Whole models run on the driver that only enforces
WebGPU's rules: their counts depend on shapes and limits, not on what computes.
"""

import pytest
from compile.seed_models import cnn_step, transformer_step

import wgburn as wb
import wgburn.nn.functional as F
from wgburn import nn
from wgburn.device.device import Device
from wgburn.device.wgpu import WgpuBackend
from wgburn_runtime.fake import FakeDriver

pytestmark = pytest.mark.quick


def kernels(explanation):
    return len([k for k in explanation.kernels if not k.second_stage])


def launches(device, fn):
    """What the driver saw while a function's result was computed."""
    device.synchronize()
    before = device.backend.queue.counters.launches
    result = fn()
    wb.eval(result)
    device.synchronize()
    return device.backend.queue.counters.launches - before


@pytest.fixture(scope="module")
def pieces(wgpu):
    device = wgpu.autodiff()
    with wb.use_device(device):
        x, w, b = wb.randn(64, 1024), wb.randn(1024, 64), wb.randn(64)
        gain, bias = wb.randn(1024), wb.randn(1024)
        pictures, filters, biases = wb.randn(4, 3, 16, 16), wb.randn(8, 3, 3, 3), wb.randn(8)
        classes, norm = wb.randint(0, 1024, (64,)), nn.BatchNorm2d(3)
        wb.eval(x, w, b, gain, bias, pictures, filters, biases, classes)

    def chain():
        y = x
        for k in range(5):
            y = (y * (0.5 + k)).tanh()
        return y

    return device, {
        "chain of 10": (1, chain),
        "linear + relu": (1, lambda: (x @ w + b).relu()),
        "conv + bias + relu": (1, lambda: F.conv2d(pictures, filters, biases).relu()),
        "softmax": (1, lambda: F.softmax(x, -1)),
        "log_softmax": (1, lambda: F.log_softmax(x, -1)),
        "layer_norm": (1, lambda: F.layer_norm(x, (1024,), gain, bias)),
        "cross entropy": (2, lambda: F.cross_entropy(x, classes)),
        "batch norm in training": (2, lambda: norm(pictures)),
        "sum of a transposed": (1, lambda: (x.T + 1).sum(0)),
        "x * x + x": (1, lambda: x * x + x),
        "embedding + elementwise": (1, lambda: F.embedding(classes, w) * 2 + 1),
    }


@pytest.mark.parametrize(
    "name",
    [
        "chain of 10",
        "linear + relu",
        "conv + bias + relu",
        "softmax",
        "log_softmax",
        "layer_norm",
        "cross entropy",
        "batch norm in training",
        "sum of a transposed",
        "x * x + x",
        "embedding + elementwise",
    ],
)
def test_pieces(pieces, name):
    device, found = pieces
    most, fn = found[name]
    explanation = wb.explain(fn)
    assert 1 <= kernels(explanation) <= most, str(explanation)
    assert launches(device, fn) == len(explanation.kernels)


def test_a_value_read_twice_is_bound_once(pieces):
    _, found = pieces
    (kernel,) = wb.explain(found["x * x + x"][1]).kernels
    assert kernel.reads == ("float32[64, 1024]",)
    assert kernel.source.count("var<storage") == 2  # x and the result


def test_a_transpose_is_no_copy(pieces):
    _, found = pieces
    (kernel,) = wb.explain(found["sum of a transposed"][1]).kernels
    assert kernel.reads == ("float32[64, 1024]",)
    assert kernel.writes == ("float32[64]",)


def test_unfused_runs_one_kernel_an_op(pieces):
    _, found = pieces
    before = wb.config.fuse
    wb.config.fuse = False
    try:
        assert len(wb.explain(found["chain of 10"][1]).kernels) == 10
    finally:
        wb.config.fuse = before


@pytest.fixture(scope="module")
def browser_like():
    """A device with the spec's limits on which nothing runs."""
    return Device(WgpuBackend(FakeDriver(), "rules")).autodiff()


@pytest.mark.parametrize(
    "make, most",
    [
        (lambda d: cnn_step(d, 256), 45),
        (lambda d: cnn_step(d, 8), 45),
        (transformer_step, 95),
    ],
    ids=["cnn batch 256", "cnn batch 8", "transformer"],
)
def test_whole_training_steps(browser_like, make, most):
    step, _, _ = make(browser_like)
    step()
    browser_like.synchronize()
    step()
    browser_like.synchronize()
    explanation = wb.explain(step)
    assert kernels(explanation) <= most, str(explanation)
    misses = browser_like.backend.plan_misses
    assert launches(browser_like, step) == len(explanation.kernels)
    assert browser_like.backend.plan_misses == misses  # the plan is found, not made


def test_adamw_over_fourteen_parameters(browser_like):
    _, model, optimizer = cnn_step(browser_like, 8)
    parameters = list(model.parameters())
    assert len(parameters) == 14

    def update():
        optimizer.step()
        return [p.detach() for p in parameters]

    for p in parameters:
        p.grad = wb.randn(*p.shape, device=browser_like)
    browser_like.synchronize()
    optimizer.step()
    browser_like.synchronize()
    explanation = wb.explain(optimizer.step)
    assert kernels(explanation) <= 7, str(explanation)
    browser_like.synchronize()
    before = browser_like.backend.queue.counters.launches
    optimizer.step()
    browser_like.synchronize()
    assert browser_like.backend.queue.counters.launches - before == len(explanation.kernels)
