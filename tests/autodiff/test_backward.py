"""backward: leaves, accumulation, graphs that are kept or freed, stale parameters."""

import gc
import weakref

import numpy as np
import pytest
import torch

import wgburn as wb
from wgburn.nn import functional as F

pytestmark = pytest.mark.quick


@pytest.fixture
def ad(device):
    return device.autodiff()


def leaf(values, device):
    return wb.tensor(values, device=device).requires_grad_()


def test_gradients_accumulate_in_leaves(ad):
    p = leaf([1.0, 2.0], ad)
    for _ in range(3):
        (p * p).sum().backward()
    assert p.grad.tolist() == [6, 12]
    p.grad = None
    (p * 2 + p).sum().backward()
    assert p.grad.tolist() == [3, 3]
    assert not p.grad.requires_grad
    assert p.grad.device.is_autodiff


def test_a_value_used_twice(ad):
    p = leaf([2.0], ad)
    h = p * p
    (h * h + h).sum().backward()
    assert p.grad.item() == 4 * 8 + 4


def test_gradient_of_more_than_one_element(ad):
    p = leaf([1.0, 2.0], ad)
    y = p * p
    with pytest.raises(wb.GradError, match=r"\(2,\).*gradient="):
        y.backward()
    y.backward(wb.tensor([1.0, 10.0], device=ad), retain_graph=True)
    assert p.grad.tolist() == [2, 40]
    y.backward(np.array([1, 0]), retain_graph=True)
    assert p.grad.tolist() == [4, 40]
    with pytest.raises(wb.DTypeError, match="str"):
        y.backward("ones")


def test_backward_on_a_plain_device(device):
    p = wb.ones(2, device=device).requires_grad_()
    with pytest.raises(wb.GradError, match=r"autodiff\(\)"):
        (p * p).sum().backward()
    with pytest.raises(wb.GradError, match="does not depend on any leaf"):
        (p.detach().to(device.autodiff()) * 2).sum().backward()


def test_a_leaf_made_on_a_plain_device(device, cpu):
    """The wish is noted there; on an autodiff device the moved tensor is the leaf."""
    p = wb.tensor([1.0, 2.0], device=device).requires_grad_()
    assert p.requires_grad
    assert not (p * 2).requires_grad
    for target in (device.autodiff(), cpu.autodiff()):
        moved = p.to(target)
        (moved * moved).sum().backward()
        assert moved.grad.tolist() == [2, 4]
    assert p.grad is None


def test_plain_and_autodiff_tensors_mix(device, ad):
    p = leaf([1.0, 2.0], ad)
    c = wb.tensor([3.0, 4.0], device=device)
    y = c * p + c
    assert y.device.is_autodiff
    assert not (c * 2).device.is_autodiff
    y.sum().backward()
    assert p.grad.tolist() == [3, 4]
    assert c.grad is None


def test_detach_and_no_grad_are_constants(ad):
    p = leaf([2.0], ad)
    with wb.no_grad():
        constant = p * 10
    (p.detach() * p + constant * p).sum().backward()
    assert p.grad.item() == 22


def test_only_floats_are_leaves(ad):
    with pytest.raises(wb.DTypeError, match="int32"):
        wb.tensor([1, 2], device=ad).requires_grad_()
    p = leaf([1.5], ad)
    assert not (p > 1).requires_grad
    assert not p.int().requires_grad
    assert not p.argmax().requires_grad
    (p * (p > 1)).sum().backward()
    assert p.grad.item() == 1


def test_a_leaf_can_be_given_up(ad):
    p = leaf([1.0], ad)
    p.requires_grad_(False)
    assert not (p * 2).requires_grad
    with pytest.raises(wb.GradError, match="detach"):
        (leaf([1.0], ad) * 2).requires_grad_(False)


def test_a_second_backward_needs_the_graph_kept(ad):
    p = leaf([3.0], ad)
    loss = (p * p).sum()
    loss.backward()
    with pytest.raises(wb.GradError, match="retain_graph=True"):
        loss.backward()
    assert p.grad.item() == 6
    loss = (p * p).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert p.grad.item() == 18
    with pytest.raises(wb.GradError, match="retain_graph=True"):
        loss.backward()


def test_a_freed_part_shared_by_two_losses(ad):
    p = leaf([3.0], ad)
    shared = p * p
    (shared * 2).sum().backward()
    with pytest.raises(wb.GradError, match="second time"):
        (shared * 3).sum().backward()


def test_create_graph(ad):
    p = leaf([2.0], ad)
    (p**3).sum().backward(create_graph=True)
    g = p.grad
    assert g.item() == 12
    assert g.requires_grad
    p.grad = None
    g.sum().backward()
    assert p.grad.item() == 12


def test_an_update_between_forward_and_backward_names_the_parameter(ad):
    w = leaf([1.0, 2.0], ad)
    w.name = "layer.weight"
    loss = (w * w).sum()
    with wb.no_grad():
        w.sub_(0.5)
    with pytest.raises(wb.GradError, match=r"'layer\.weight' was changed in place.*forward"):
        loss.backward()
    assert w.grad is None
    # The next step works.
    (w * w).sum().backward()
    assert w.grad.tolist() == [1, 3]


def test_an_update_that_no_gradient_reads_is_fine(ad):
    w = leaf([1.0, 2.0], ad)
    loss = (w * 3).sum()
    with wb.no_grad():
        w.sub_(0.5)
    loss.backward()
    assert w.grad.tolist() == [3, 3]


def test_a_clone_keeps_the_old_value(ad):
    w = leaf([2.0], ad)
    v = w.clone()
    loss = (v * v).sum()
    with wb.no_grad():
        w.zero_()
    loss.backward()
    assert w.grad.item() == 4


def test_loading_a_value_counts_as_a_change(ad):
    w = leaf([2.0], ad)
    w.name = "w"
    loss = (w * w).sum()
    w.data = wb.tensor([5.0], device=ad)
    with pytest.raises(wb.GradError, match="'w'"):
        loss.backward()


def test_a_dead_leaf_gets_nothing(ad):
    p, q = leaf([1.0], ad), leaf([2.0], ad)
    loss = (p * q).sum()
    gone = weakref.ref(q)
    del q
    gc.collect()
    assert gone() is None
    loss.backward()
    assert p.grad.item() == 2


def test_deep_tapes_need_no_recursion(ad):
    p = leaf([1.0], ad)
    y = p
    for _ in range(3000):
        y = y + p
    y.sum().backward()
    assert p.grad.item() == 3001


def test_gradient_dtypes_and_shapes_are_the_leafs(cpu):
    ad = cpu.autodiff()
    half = wb.tensor([[1.0], [2.0]], dtype="float16", device=ad).requires_grad_()
    wide = wb.tensor([1.0, 2.0, 3.0], dtype="float64", device=ad).requires_grad_()
    (half * wide).sum().backward()
    assert (half.grad.dtype, half.grad.shape) == (wb.float16, (2, 1))
    assert (wide.grad.dtype, wide.grad.shape) == (wb.float64, (3,))
    assert wide.grad.tolist() == [3, 3, 3]


def test_an_unsupported_gradient_says_so(ad):
    p = leaf([1.5, -2.5], ad)
    assert not p.floor().requires_grad
    with pytest.raises(wb.GradError, match="does not depend"):
        p.round().sum().backward()


def test_a_network_as_torch(device, ad):
    """A small CNN, every gradient of it beside torch's."""
    rng = np.random.default_rng(5)

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32) * 0.5

    values = {
        "x": draw(4, 1, 8, 8),
        "w1": draw(3, 1, 3, 3),
        "b1": draw(3),
        "w2": draw(27, 5),
        "b2": draw(5),
        "scale": draw(5),
    }
    labels = np.array([1, 4, 0, 2], np.int32)

    def loss(v, relu, pool, conv, log_softmax, pick):
        h = pool(relu(conv(v["x"], v["w1"], v["b1"])), 2)
        h = h.reshape(4, 27) @ v["w2"] + v["b2"]
        h = (h - h.mean(0, keepdim=True)) * v["scale"]
        return -pick(log_softmax(h, 1)).mean()

    ours = {k: leaf(a, ad) for k, a in values.items()}
    index = wb.tensor(labels, device=device).reshape(4, 1)
    got = loss(
        ours,
        F.relu,
        F.max_pool2d,
        F.conv2d,
        F.log_softmax,
        lambda p: p.gather(1, index),
    )
    got.backward()
    theirs = {k: torch.tensor(a, requires_grad=True) for k, a in values.items()}
    tf = torch.nn.functional
    want = loss(
        theirs,
        tf.relu,
        tf.max_pool2d,
        tf.conv2d,
        tf.log_softmax,
        lambda p: p.gather(1, torch.tensor(labels).long().reshape(4, 1)),
    )
    want.backward()
    np.testing.assert_allclose(got.item(), want.item(), rtol=1e-5)
    for name, t in theirs.items():
        np.testing.assert_allclose(
            ours[name].grad.numpy(), t.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name
        )
