"""Updates in place: what somebody holds is not written over, whatever it is a view of.

The cpu writes every update to new memory, so it says what is right.
"""

import random

import numpy as np
import pytest

import wgburn as wb
from wgburn import nn, optim

VIEWS = [
    lambda t: t,
    lambda t: t.T,
    lambda t: t.T.T,
    lambda t: t.reshape(-1),
    lambda t: t[1:],
    lambda t: t * 2,
    lambda t: t.sum(0),
    lambda t: t.reshape(1, *t.shape).expand(2, *t.shape),
    lambda t: t + t.T.T,
    lambda t: t.flatten()[::2],
]
OPTIMIZERS = [
    lambda p: optim.SGD(p, lr=0.05),
    lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
    lambda p: optim.Adam(p, lr=0.05),
    lambda p: optim.AdamW(p, lr=0.05, amsgrad=True),
    lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    lambda p: optim.Adagrad(p, lr=0.05),
]


class Program:
    """Training steps between which values are held, read, let go of and computed at random."""

    def __init__(self, seed, device):
        self.rng = random.Random(seed)
        self.device = device
        values = np.random.default_rng(seed)
        pick = self.rng.choice
        with wb.use_device(device.autodiff()):
            self.params = [
                nn.Parameter(
                    wb.tensor(values.standard_normal((pick([2, 3, 4]), pick([2, 5])), np.float32))
                )
                for _ in range(self.rng.randint(1, 4))
            ]
        self.optimizer = pick(OPTIMIZERS)(self.params)
        self.held = []
        self.log = []

    def run(self):
        """Every value that was read, and at the end all that is held."""
        for _ in range(6):
            self.step()
        states = [s[k] for s in self.optimizer.state.values() for k in s]
        left = [*self.held, *self.params, *[t for t in states if isinstance(t, wb.Tensor)]]
        return [*self.log, *[t.numpy() for t in left]]

    def step(self):
        rng = self.rng
        if rng.random() < 0.8:
            self.optimizer.zero_grad()
        for _ in range(rng.randint(0, 4)):
            self.hold(rng.choice(self.params), rng.choice(VIEWS))
        if self.held and rng.random() < 0.3:
            self.log.append(rng.choice(self.held).numpy())
        if self.held and rng.random() < 0.3:
            self.held.pop(rng.randrange(len(self.held)))
        if self.held and rng.random() < 0.2:
            wb.eval(*self.held)
        loss = 0.0
        for p in [p for p in self.params if rng.random() < 0.8] or self.params[:1]:
            q = rng.choice(VIEWS)(p)
            loss = loss + (q * q + q.sin()).sum()
        loss.backward()
        if rng.random() < 0.1:
            self.device.memory_cleanup()
        if rng.random() < 0.15:
            with wb.no_grad():
                p = rng.choice(self.params)
                p -= 0.1 * p
        self.optimizer.step()

    def hold(self, p, view):
        kind = self.rng.randint(0, 6)
        if kind <= 2:
            self.held.append(view(p.detach()))
        elif kind == 3:
            self.held.append(view(p))
        elif kind == 4 and p.grad is not None:
            self.held.append(view(p.grad))
        elif kind == 5:
            states = [t for t in self.optimizer.state.get(p, {}).values() if hasattr(t, "numpy")]
            if states:
                self.held.append(view(self.rng.choice(states)))
        elif kind == 6:
            self.log.append(p.numpy())


@pytest.mark.parametrize("seed", [0, 4, 7, 9, 13, 21, 30, 44])
def test_programs_that_hold_values_across_updates(cpu, wgpu, seed):
    expected, found = Program(seed, cpu).run(), Program(seed, wgpu).run()
    for k, (a, b) in enumerate(zip(expected, found, strict=True)):
        np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-4, err_msg=f"value {k}")


@pytest.mark.parametrize(
    "make", [pytest.param(OPTIMIZERS[2], marks=pytest.mark.quick), OPTIMIZERS[1], *OPTIMIZERS[3:]]
)
def test_a_state_dict_is_the_state_when_it_was_taken(device, make):
    rng = np.random.default_rng(0)
    with wb.use_device(device.autodiff()):
        params = [nn.Parameter(wb.tensor(rng.standard_normal(4, np.float32))) for _ in range(3)]
    optimizer = make(params)

    def steps(n):
        for _ in range(n):
            optimizer.zero_grad()
            sum((p * p).sum() for p in params).backward()
            optimizer.step()
        return [p.numpy() for p in params]

    start = steps(2)
    taken = optimizer.state_dict()
    alone = dict(optimizer.state[params[0]])
    was = {k: v.numpy() for k, v in alone.items() if isinstance(v, wb.Tensor)}
    on = steps(3)
    for k, value in was.items():
        np.testing.assert_array_equal(alone[k].numpy(), value)
    optimizer.load_state_dict(taken)  # back to where it was
    with wb.no_grad():
        for p, value in zip(params, start, strict=True):
            p.copy_(value)
    for a, b in zip(steps(3), on, strict=True):
        np.testing.assert_array_equal(a, b)
