"""Where optimizers' states lie, and in-place arithmetic on parameters."""

import numpy as np
import pytest

import wgburn as wb
from wgburn import nn, optim

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True),
        lambda p: optim.AdamW(p, lr=0.1),
        lambda p: optim.Adagrad(p, lr=0.1),
    ],
)
def test_states_are_weights(wgpu, make):
    with wb.use_device(wgpu.autodiff()):
        p = nn.Parameter(wb.ones(300))
        opt = make([p])
    for _ in range(3):
        p.grad = p.detach() * 2
        opt.step()
    wgpu.synchronize()
    states = [s for s in opt.state[p].values() if isinstance(s, wb.Tensor)]
    assert states and all(s._node.store.lasting for s in (p, *states))
    loaded = make([p])
    loaded.load_state_dict(opt.state_dict())
    assert all(s._node.store.lasting for s in loaded.state[p].values() if isinstance(s, wb.Tensor))


def test_arithmetic_in_place_changes_a_parameter(device):
    with wb.use_device(device.autodiff()):
        p = q = nn.Parameter(wb.ones(3))
    with wb.no_grad():
        p -= 0.5
        p *= 4
        p += np.array([1, 2, 3], np.float32)
        p /= 2
    assert p is q and q.tolist() == [1.5, 2.0, 2.5]
    with pytest.raises(wb.GradError, match="no_grad"):
        p -= 1
    assert q.tolist() == [1.5, 2.0, 2.5]
