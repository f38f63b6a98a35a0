"""checkpoint: the same gradients with less kept, the same random numbers, parameters included."""

import numpy as np
import pytest

import wgburn as wb
from wgburn.nn import functional as F

pytestmark = pytest.mark.quick


@pytest.fixture
def ad(device):
    return device.autodiff()


def both(run):
    """What `run(wrap)` returns with plain calls and with checkpoints."""
    return run(lambda f, *xs: f(*xs)), run(wb.checkpoint)


def same(pair):
    for plain, kept in zip(*pair, strict=True):
        np.testing.assert_allclose(kept, plain, rtol=1e-6, atol=1e-7)


def test_gradients_of_inputs_and_parameters(ad):
    def run(wrap):
        x = wb.tensor([[0.3, -0.2], [0.1, 0.4]], device=ad).requires_grad_()
        w = wb.tensor([[1.0, 2.0], [-1.0, 0.5]], device=ad).requires_grad_()
        b = wb.tensor([0.1, 0.2], device=ad).requires_grad_()
        h = wrap(lambda x: (x @ w + b).tanh(), x)
        y = wrap(lambda h, x: (h @ w).exp() + x, h, x)
        loss = (y * y).sum()
        loss.backward()
        return [t.numpy() for t in (loss, x.grad, w.grad, b.grad)]

    same(both(run))


def test_dropout_draws_the_same_numbers(ad):
    def run(wrap):
        ad.seed(3)
        x = wb.ones(50, device=ad).requires_grad_()
        y = wrap(lambda x: F.dropout(x * 2, 0.5, True), x)
        after = wb.rand(3, device=ad)
        y.sum().backward()
        late = wb.rand(3, device=ad)
        return [y.numpy(), x.grad.numpy(), after.numpy(), late.numpy()]

    pair = both(run)
    same(pair)
    assert set(pair[1][1].tolist()) == {0, 4}


def test_a_constant_first_input(device, ad):
    x = wb.tensor([1.0, 2.0], device=device)
    p = wb.tensor([3.0, 4.0], device=ad).requires_grad_()
    q = wb.tensor([1.0, 1.0], device=ad).requires_grad_()
    wb.checkpoint(lambda x, p: x * p * q, x, p).sum().backward()
    assert p.grad.tolist() == [1, 2]
    assert q.grad.tolist() == [3, 8]


def test_integer_inputs(ad):
    table = wb.tensor([[1.0], [2.0], [3.0]], device=ad).requires_grad_()
    i = wb.tensor([2, 0, 2], device=ad)
    wb.checkpoint(lambda t, i: t[i] * t[i], table, i).sum().backward()
    assert table.grad.tolist() == [[2], [0], [12]]


def test_nothing_to_differentiate(device, ad):
    x = wb.ones(2, device=device)
    assert wb.checkpoint(lambda x: x * 2, x).tolist() == [2, 2]
    with wb.no_grad():
        p = wb.ones(2, device=ad).requires_grad_()
        assert not wb.checkpoint(lambda x: x * p, x).requires_grad


def test_inside_wb_grad(device):
    """Parameters that are arguments of wb.grad, read by the block without being its inputs."""
    params = {"w": wb.tensor([2.0, 3.0], device=device), "v": wb.tensor([1.0, -1.0], device=device)}
    x = wb.tensor([0.5, 0.25], device=device)

    def f(p, wrap):
        h = wrap(lambda x: (x * p["w"]).sin(), x)
        return (wrap(lambda h: h * p["v"] * p["w"], h)).sum()

    plain = wb.grad(f)(params, lambda g, *xs: g(*xs))
    kept = wb.grad(f)(params, wb.checkpoint)
    for name in params:
        np.testing.assert_allclose(kept[name].numpy(), plain[name].numpy(), rtol=1e-6)


def test_gradients_of_gradients(device):
    x = wb.tensor(0.7, device=device)

    def f(x):
        return wb.checkpoint(lambda x: x.sin() * x, x)

    want = 2 * np.cos(0.7) - 0.7 * np.sin(0.7)
    np.testing.assert_allclose(wb.grad(wb.grad(f))(x).item(), want, rtol=1e-5)


def test_a_gradient_penalty_through_a_checkpoint(ad):
    def run(wrap):
        x = wb.tensor([1.0, 2.0], device=ad).requires_grad_()
        w = wb.tensor([0.5, -1.0], device=ad).requires_grad_()
        score = wrap(lambda x: (x * w).tanh(), x).sum()
        (gx,) = wb.gradient_of(score, [x], create_graph=True)
        (gx * gx).sum().backward()
        return [x.grad.numpy(), w.grad.numpy()]

    same(both(run))


def test_a_parameter_changed_before_backward(ad):
    x = wb.ones(2, device=ad).requires_grad_()
    w = wb.ones(2, device=ad).requires_grad_()
    w.name = "w"
    y = wb.checkpoint(lambda x: x * w, x).sum()
    with wb.no_grad():
        w.add_(1)
    with pytest.raises(wb.GradError, match="'w' was changed"):
        y.backward()


def test_less_is_kept(ad):
    def held(wrap):
        x = wb.ones(1000, device=ad).requires_grad_()

        def block(x):
            for _ in range(8):
                x = x.sin() * 1.5
            return x

        y = wrap(block, x)
        wb.eval(y)
        todo, nodes, seen = [y._fn], set(), set()
        while todo:
            fn = todo.pop()
            if id(fn) in seen or not hasattr(fn, "held_nodes"):
                continue
            seen.add(id(fn))
            nodes |= {id(n) for n in fn.held_nodes()}
            todo += [p for p in fn.parents if p is not None]
        return len(nodes)

    plain, kept = both(held)
    assert plain >= 8
    assert kept == 1


def test_it_returns_one_tensor(ad):
    x = wb.ones(2, device=ad).requires_grad_()
    with pytest.raises(wb.GradError, match="tuple, not a tensor"):
        wb.checkpoint(lambda x: (x, x), x)
