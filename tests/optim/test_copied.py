"""An update that is recorded once and copied does to each parameter what its own would."""

import numpy as np
import pytest

import wgburn as wb
from wgburn import nn, optim
from wgburn.optim import Adam

quick = pytest.mark.quick

SHAPES = [(3, 4), (5,), (4, 3), (), (1,), (2, 1, 3), (7,), (0, 3)]
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1),
}


def trained(device, make, plain):
    """Values of parameters that join one after the other, in two groups."""
    rng = np.random.default_rng(0)
    with wb.use_device(device.autodiff()):
        params = [nn.Parameter(wb.tensor(rng.standard_normal(s, np.float32))) for s in SHAPES]
    optimizer = make([{"params": params[:4]}, {"params": params[4:], "lr": 0.02}])
    if plain:
        optimizer.elementwise = False
    for k in range(5):
        optimizer.zero_grad()
        late = params[k % 3 :]  # the first ones miss some steps: other counts, other corrections
        loss = sum(((p * p + p).sum() for p in late), start=params[0].sum() * 0.0)
        loss.backward()
        optimizer.step()
    return [p.numpy() for p in params], optimizer.state_dict()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=quick if n == "adam" else ()) for n in OPTIMIZERS]
)
def test_a_copied_update_is_the_update(device, name):
    values, state = trained(device, OPTIMIZERS[name], plain=False)
    expected, reference = trained(device, OPTIMIZERS[name], plain=True)
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert state["state"].keys() == reference["state"].keys()
    for k, entries in reference["state"].items():
        assert list(state["state"][k]) == list(entries)
        for key, value in entries.items():
            found = state["state"][k][key]
            if isinstance(value, wb.Tensor):
                np.testing.assert_array_equal(found.numpy(), value.numpy(), err_msg=key)
            else:
                assert found == value, key


@quick
def test_most_updates_are_copied(cpu, monkeypatch):
    calls = []
    update = Adam.update

    def counted(self, *args):
        calls.append(1)
        return update(self, *args)

    monkeypatch.setattr(Adam, "update", counted)
    with wb.use_device(cpu.autodiff()):
        model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(5)])
        x = wb.ones(2, 6)
    optimizer = optim.Adam(model.parameters())
    for k in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        assert len(calls) <= 2 * (k + 1)  # for ten parameters


class ByShape(optim.Optimizer):
    """Decays matrices only."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def update(self, group, p, grad, state):
        step = grad + p if p.ndim > 1 else grad
        return p - step * self.slot("lr", group["lr"], p)


class Normed(optim.Optimizer):
    """Reduces, though it claims to be elementwise."""

    elementwise = True

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def update(self, group, p, grad, state):
        return p - grad / grad.abs().amax() * self.slot("lr", group["lr"], p)


@quick
@pytest.mark.parametrize("kind", [ByShape, Normed])
def test_an_update_that_looks_at_shapes_is_recorded_each_time(device, kind):
    with wb.use_device(device.autodiff()):
        params = [nn.Parameter(wb.ones(*s)) for s in ((2, 2), (3,), (3, 2))]
        scale = [wb.tensor(np.full(s, k + 1.0, np.float32)) for k, s in enumerate(((2, 2), (3,)))]
    optimizer = kind(params)
    sum((p * s).sum() for p, s in zip(params, scale, strict=False)).backward()
    optimizer.step()
    found = [p.numpy() for p in params]
    steps = [2.0, 2.0] if kind is ByShape else [1.0, 1.0]
    for value, step in zip(found, steps, strict=False):
        np.testing.assert_allclose(value, 1.0 - 0.1 * step, rtol=1e-6)
    assert (found[2] == 1).all()


@quick
def test_numbers_of_a_group_are_one_slot_each(cpu):
    backend = cpu.backend
    with wb.use_device(cpu.autodiff()):
        model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(5)])
        x = wb.ones(2, 6)
    optimizer = optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    step()
    plan = list(backend.plans.values())[-1]
    consts = [n for s in plan.steps for n in s.inner if n.name == "const" and n.dyn[0] != n.dyn[1]]
    assert len(consts) == 6  # for ten parameters
