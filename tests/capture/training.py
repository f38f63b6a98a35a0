"""A small training and everything that a step of it changes, for tests of what leaves it alone."""

import numpy as np
from compile.seed_models import training_step

import wgburn as wb
from wgburn import nn, optim


class Net(nn.Module):
    """Everything that a step changes: statistics, a counter, random numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x)).relu()))


def small_training(device, seed=3):
    """An autodiff device, a model on it, its optimizer and a step."""
    d = device.autodiff()
    d.seed(seed)
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
