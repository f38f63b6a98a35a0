"""wb.explain: plans without running, and leaves everything as it was."""

import numpy as np
import pytest
from compile.seed_models import cnn_step, training_step

import wgburn as wb
from wgburn import nn, optim

pytestmark = pytest.mark.quick


class Net(nn.Module):
    """Everything that a step changes: statistics, a counter, random numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x)).relu()))


@pytest.fixture
def training(device):
    d = device.autodiff()
    d.seed(3)
    with wb.use_device(d):
        model = Net()
        x, y = wb.randn(10, 6), wb.randint(0, 3, (10,))
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    scheduled = training_step(model, optimizer, x, y)

    def step():
        loss = scheduled()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    return d, model, optimizer, step


def state(device, model, optimizer):
    device.synchronize()
    values = {k: np.array(v.numpy()) for k, v in model.state_dict().items()}
    for k, p in model.named_parameters():
        if p.grad is not None:
            values[f"grad {k}"] = p.grad.numpy()
    kept = optimizer.state_dict()
    flat = {}

    def walk(tree, name):
        if isinstance(tree, dict):
            for k, v in tree.items():
                walk(v, f"{name}.{k}")
        elif isinstance(tree, (list, tuple)):
            for k, v in enumerate(tree):
                walk(v, f"{name}.{k}")
        else:
            flat[name] = tree.numpy() if isinstance(tree, wb.Tensor) else tree

    walk(kept, "optimizer")
    stream = device.backend.stream
    return values, flat, (stream.seed, stream.offset)


def same(a, b):
    assert a[2] == b[2]
    for one, two in zip(a[:2], b[:2], strict=True):
        assert one.keys() == two.keys()
        for k in one:
            np.testing.assert_array_equal(one[k], two[k], err_msg=k)


@pytest.mark.parametrize("warm", [0, 2])
def test_everything_is_as_it_was(training, warm):
    device, model, optimizer, step = training
    for _ in range(warm):
        step()
    before = state(device, model, optimizer)
    explanation = wb.explain(step)
    assert len(explanation.kernels) > 3
    same(before, state(device, model, optimizer))
    assert all((p.grad is None) == (warm == 0) for p in model.parameters())


def test_training_goes_on_as_if_nothing_was_asked(device):
    losses = []
    for asked in (False, True):
        d = device.autodiff()
        d.seed(11)
        with wb.use_device(d):
            model = Net()
            x, y = wb.randn(10, 6), wb.randint(0, 3, (10,))
        step = training_step(model, optim.AdamW(model.parameters(), lr=0.05), x, y)
        found = []
        for k in range(4):
            if asked and k in (0, 2):
                wb.explain(step)
            found.append(step().item())
        losses.append(found)
    assert losses[0] == losses[1]


def test_nothing_runs(wgpu):
    x = wb.ones(5, 5, device=wgpu)
    wgpu.synchronize()
    before = wgpu.backend.queue.counters.launches
    explanation = wb.explain(lambda: (x @ x).relu().sum())
    wgpu.synchronize()
    assert wgpu.backend.queue.counters.launches == before
    assert len(explanation) == len(explanation.kernels) >= 1


@pytest.mark.parametrize("read", [lambda t: t.item(), lambda t: t.numpy(), float, bool])
def test_a_read_inside_raises(device, read):
    x = wb.ones(3, device=device)

    def reads():
        total = (x * 2).sum()
        read(total)
        return total

    with pytest.raises(wb.DeviceError, match="explain"):
        wb.explain(reads)
    # The device is usable, and the same work runs outside.
    assert reads().item() == 6


def test_an_error_inside_restores_too(training):
    device, model, optimizer, step = training
    step()
    before = state(device, model, optimizer)

    def fails():
        step()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        wb.explain(fails)
    same(before, state(device, model, optimizer))


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
