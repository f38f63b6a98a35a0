"""The first step: what has to be computed before it, and that nothing else is."""

import numpy as np
import pytest

import wgburn as wb


def small(device):
    with wb.use_device(device.autodiff()):
        model = wb.nn.Sequential(
            wb.nn.Linear(6, 16), wb.nn.GELU(), wb.nn.Dropout(0.2), wb.nn.Linear(16, 3)
        )
    x = wb.tensor(np.ones((4, 6), np.float32), device=device)
    return model, x


@pytest.mark.quick
@pytest.mark.parametrize("make", [wb.optim.AdamW, wb.optim.RMSprop, wb.optim.Adagrad])
def test_it_has_the_plan_of_all_later_ones(device, make):
    model, x = small(device)
    optimizer = make(model.parameters(), lr=1e-2)
    misses = []
    for _ in range(3):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        misses.append(device.backend.plan_misses)
    assert misses == [misses[0]] * 3


@pytest.mark.quick
def test_what_is_pending_beside_the_parameters_stays_so(device):
    model, x = small(device)
    beside = (x + 1).exp()
    fresh = [p._node for p in model.parameters()]
    device.backend.realise(fresh, alone=True)
    assert all(node.store is not None for node in fresh)
    assert beside._node.store is None
    np.testing.assert_allclose(beside.numpy(), np.exp(2 * np.ones((4, 6))), rtol=1e-5)


@pytest.mark.quick
def test_values_that_failed_before_stay_failed(cpu):
    """Computing parameters alone must not make others' failed work pending again."""
    index = (wb.tensor([2.0], device=cpu) * 2.5).to(wb.int32)
    bad = wb.tensor([1.0, 2.0], device=cpu)[index]
    with pytest.raises(wb.WgburnError, match="out of range"):
        bad.numpy()
    model, x = small(cpu)
    optimizer = wb.optim.AdamW(model.parameters(), lr=1e-2)
    (model(x) ** 2).mean().backward()
    plans = cpu.backend.plan_hits + cpu.backend.plan_misses
    optimizer.step()
    plans = cpu.backend.plan_hits + cpu.backend.plan_misses - plans
    assert plans == 2  # the parameters, the step
    with pytest.raises(wb.WgburnError, match="out of range"):
        bad.numpy()
