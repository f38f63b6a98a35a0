"""wb.explain and wb.dry_run alike: nothing is computed, and everything is left as it was."""

import pytest
from capture.training import same, small_training, state

import wgburn as wb

pytestmark = pytest.mark.quick


@pytest.fixture(params=["explain", "dry_run"])
def ask(request):
    """What is asked of a function without arguments."""
    return wb.explain if request.param == "explain" else lambda f: wb.dry_run(f)()


@pytest.mark.parametrize("warm", [0, 2])
def test_everything_is_as_it_was(training, ask, warm):
    device, model, optimizer, step = training
    for _ in range(warm):
        step()
    before = state(device, model, optimizer)
    ask(step)
    same(before, state(device, model, optimizer))
    assert all((p.grad is None) == (warm == 0) for p in model.parameters())


def test_training_goes_on_as_if_nothing_was_asked(device, ask):
    losses = []
    for asked in (False, True):
        *_, step = small_training(device, seed=11)
        found = []
        for k in range(4):
            if asked and k in (0, 2):
                ask(step)
            found.append(step().item())
        losses.append(found)
    assert losses[0] == losses[1]


@pytest.mark.parametrize("read", [lambda t: t.item(), lambda t: t.numpy(), float, bool])
def test_a_read_inside_raises(device, ask, read):
    x = wb.ones(3, device=device)

    def reads():
        total = (x * 2).sum()
        read(total)
        return total

    with pytest.raises(wb.DeviceError, match=r"explain or wb\.dry_run"):
        ask(reads)
    # The device is usable, and the same work runs outside.
    assert reads().item() == 6


def test_an_error_inside_restores_too(training, ask):
    device, model, optimizer, step = training
    step()
    before = state(device, model, optimizer)

    def fails():
        step()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ask(fails)
    same(before, state(device, model, optimizer))
