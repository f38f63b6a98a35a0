"""In-place methods: the handle takes another value, values recorded before stay what they were."""

import numpy as np
import pytest

import wgburn as wb

pytestmark = pytest.mark.quick


def test_arithmetic_in_place(device):
    t = wb.tensor([1.0, 2.0, 3.0], device=device)
    same = t
    assert t.add_(1) is same
    t.mul_(wb.tensor([2.0, 3.0, 4.0], device=device)).sub_(1).div_(2)
    assert same.tolist() == [1.5, 4, 7.5]
    assert t.clamp_(2, 5).tolist() == [2, 4, 5]
    assert t.copy_([7, 8, 9]).tolist() == [7, 8, 9]
    assert t.fill_(2.5).tolist() == [2.5] * 3
    assert t.zero_().tolist() == [0] * 3
    assert t.add_(t + 1, alpha=2).tolist() == [2] * 3


def test_operators_that_assign(device):
    t = wb.tensor([1.0, 2.0], device=device)
    t += 1
    t *= 2
    t -= wb.tensor([1.0, 1.0], device=device)
    t /= 2
    assert t.tolist() == [1.5, 2.5]


def test_the_dtype_and_shape_stay(device):
    t = wb.tensor([1, 2], device=device)
    assert t.mul_(2.6).dtype is wb.int32
    assert t.tolist() == [2, 5]
    assert t.copy_(wb.tensor([0.9], device=device)).tolist() == [0, 0]
    with pytest.raises(wb.ShapeError):
        t.add_(wb.ones(3, 2, device=device))
    assert t.tolist() == [0, 0]


def test_values_recorded_before_stay(device):
    t = wb.tensor([1.0, 2.0], device=device)
    double, view, twin = t * 2, t[:1], t.detach()
    t.add_(10)
    assert double.tolist() == [2, 4]
    assert view.tolist() == [1]
    assert twin.tolist() == [1, 2]
    assert t.tolist() == [11, 12]


def test_many_updates_of_one_handle(device):
    t = wb.zeros(3, device=device)
    for k in range(50):
        t.add_(k)
        if k % 7 == 0:
            wb.eval(t)
    assert t.tolist() == [sum(range(50))] * 3


def test_a_leaf_is_updated_under_no_grad_only(device):
    p = wb.ones(2, device=device.autodiff()).requires_grad_()
    with pytest.raises(wb.GradError, match="no_grad"):
        p.add_(1)
    with wb.no_grad():
        p.add_(1)
    assert p.tolist() == [2, 2]
    assert p.requires_grad and p.is_leaf


def test_data_is_the_value_without_the_tape(device):
    p = wb.ones(2, device=device.autodiff()).requires_grad_()
    assert not p.data.requires_grad
    p.data = p.data * 3
    assert p.tolist() == [3, 3]
    with pytest.raises(wb.ShapeError, match=r"\(2,\)"):
        p.data = wb.ones(3, device=device)


def test_gradients_through_updates_of_results(device):
    p = wb.tensor([1.0, 2.0], device=device.autodiff()).requires_grad_()
    y = p * 2
    y.mul_(p)
    y.add_(1)
    y.sum().backward()
    assert p.grad.tolist() == [4, 8]
    np.testing.assert_array_equal(y.numpy(), [3, 9])


def test_copy_takes_values_of_another_device(cpu, wgpu):
    t = wb.zeros(2, device=cpu)
    t.copy_(wb.tensor([1.0, 2.0], device=wgpu))
    assert t.tolist() == [1, 2]
    assert t.device == cpu


VIEWS = {
    "itself": lambda t: t.T.T,
    "reshaped": lambda t: t.reshape(-1),
    "there and back": lambda t: t.reshape(-1).reshape(t.shape),
    "transposed": lambda t: t.T,
    "sliced": lambda t: t[1:, ::2],
    "expanded": lambda t: t.reshape(1, *t.shape).expand(2, *t.shape),
    "computed": lambda t: t * 2,
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_pending_view_of_a_parameter_shows_the_value_before_the_update(device, name):
    view = VIEWS[name]
    with wb.use_device(device.autodiff()):
        p = wb.nn.Parameter(wb.tensor(np.arange(12, dtype=np.float32).reshape(3, 4)))
    optimizer = wb.optim.Adam([p], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        doubled = p * 2.0
        old = p.numpy()  # computes p * 2: the parameter itself has no reader left
        kept = view(p.detach())
        (doubled * doubled).sum().backward()
        optimizer.step()
        assert not np.array_equal(p.numpy(), old)
        expected = view(wb.tensor(old, device=device)).numpy()
        np.testing.assert_array_equal(kept.numpy(), expected)
