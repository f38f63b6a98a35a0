"""grad, value_and_grad, gradient_of and the grad mode."""

import math

import numpy as np
import pytest

import wgburn as wb
from wgburn.nn import functional as F

pytestmark = pytest.mark.quick


def close(got, want, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=tolerance, atol=tolerance)


def test_grad_of_a_scalar_function(device):
    x = wb.tensor([1.0, 2.0, 3.0], device=device)
    value, g = wb.value_and_grad(lambda x: (x * x).sum())(x)
    assert value.item() == 14
    assert g.tolist() == [2, 4, 6]
    assert wb.grad(lambda x: (x * x).sum())(x).tolist() == [2, 4, 6]


def test_results_are_constants_of_the_same_kind_of_device(device):
    for d in (device, device.autodiff()):
        x = wb.ones(2, device=d)
        value, g = wb.value_and_grad(lambda x: x.sum())(x)
        for t in (value, g):
            assert t.device.is_autodiff == d.is_autodiff
            assert not t.requires_grad
        assert not x.requires_grad


def test_argnums(device):
    def f(x, y, scale):
        return (x * y * scale).sum()

    x, y = wb.tensor([1.0, 2.0], device=device), wb.tensor([3.0, 5.0], device=device)
    assert wb.grad(f, 1)(x, y, 2).tolist() == [2, 4]
    gx, gy = wb.grad(f, (0, 1))(x, y, 2)
    assert (gx.tolist(), gy.tolist()) == ([6, 10], [2, 4])
    gy, gx = wb.grad(f, argnums=(1, 0))(x, y, scale=3)
    assert (gx.tolist(), gy.tolist()) == ([9, 15], [3, 6])
    (only,) = wb.grad(f, (0,))(x, y, 1)
    assert only.tolist() == [3, 5]


def test_containers(device):
    params = {
        "w": wb.tensor([[1.0, 2.0]], device=device),
        "rest": [wb.tensor(0.5, device=device), (wb.tensor(2.0, device=device),)],
    }

    def f(p, x):
        return (x @ p["w"].T).sum() * p["rest"][0] + p["rest"][1][0] ** 2

    x = wb.ones(3, 2, device=device)
    value, g = wb.value_and_grad(f)(params, x)
    assert value.item() == 8.5
    assert g["w"].tolist() == [[1.5, 1.5]]
    assert g["rest"][0].item() == 9
    assert isinstance(g["rest"][1], tuple)
    assert g["rest"][1][0].item() == 4


def test_has_aux(device):
    def f(x):
        y = x * 3
        return y.sum(), {"y": y, "note": "text"}

    x = wb.ones(2, device=device)
    (value, aux), g = wb.value_and_grad(f, has_aux=True)(x)
    assert value.item() == 6
    assert aux["y"].tolist() == [3, 3]
    assert aux["note"] == "text"
    assert not aux["y"].requires_grad
    g2, aux = wb.grad(f, has_aux=True)(x)
    assert g.tolist() == g2.tolist() == [3, 3]


def test_an_unused_argument_has_a_zero_gradient(device):
    x, y = wb.ones(2, device=device), wb.ones(3, device=device)
    gx, gy = wb.grad(lambda x, y: x.sum(), (0, 1))(x, y)
    assert gx.tolist() == [1, 1]
    assert gy.tolist() == [0, 0, 0]
    assert wb.grad(lambda x: wb.tensor(3.0, device=device))(x).tolist() == [0, 0]


def test_what_cannot_be_differentiated(device):
    x = wb.ones(2, device=device)
    with pytest.raises(wb.GradError, match=r"shape \(2,\).*mean"):
        wb.grad(lambda x: x * 2)(x)
    with pytest.raises(wb.DTypeError, match="int32"):
        wb.grad(lambda x: x.sum())(x.int())
    with pytest.raises(wb.DTypeError, match="str"):
        wb.grad(lambda x: x.sum())("x")
    with pytest.raises(wb.GradError, match="float, not a tensor"):
        wb.grad(lambda x: 1.0)(x)


SMOOTH = {
    "tanh": (lambda x: x.tanh(), lambda v: -2 * math.tanh(v) / math.cosh(v) ** 2),
    "exp": (lambda x: x.exp(), math.exp),
    "pow": (lambda x: x**3.5, lambda v: 3.5 * 2.5 * v**1.5),
    "cube": (lambda x: x**3, lambda v: 6 * v),
    "log": (lambda x: x.log(), lambda v: -1 / v**2),
    "sin": (lambda x: x.sin(), lambda v: -math.sin(v)),
    "sqrt": (lambda x: x.sqrt(), lambda v: -0.25 * v**-1.5),
    "reciprocal": (lambda x: 1 / x, lambda v: 2 / v**3),
    "softplus": (lambda x: x.softplus(), lambda v: math.exp(-v) / (1 + math.exp(-v)) ** 2),
    "erf": (lambda x: x.erf(), lambda v: -4 * v / math.sqrt(math.pi) * math.exp(-v * v)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives(device, name):
    f, want = SMOOTH[name]
    for v in (0.4, 1.3):
        x = wb.tensor(v, device=device)
        close(wb.grad(wb.grad(f))(x).item(), want(v), 2e-5)


def test_third_derivative_and_mixed_arguments(device):
    x = wb.tensor(0.7, device=device)
    close(wb.grad(wb.grad(wb.grad(lambda x: x.sin())))(x).item(), -math.cos(0.7), 1e-5)
    y = wb.tensor(2.0, device=device)
    mixed = wb.grad(wb.grad(lambda x, y: x**3 * y**2, 0), 1)(x, y)
    close(mixed.item(), 6 * 0.49 * 2, 1e-5)


def test_second_derivatives_of_products(device):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 4)).astype(np.float32)
    v = rng.standard_normal((4, 3)).astype(np.float32)
    x = wb.tensor(a, device=device)
    t = wb.tensor(v, device=device)

    def f(x):
        return ((x @ t) ** 2).sum() * 0.5

    # The Hessian times a direction, of a quadratic: (direction @ t) @ t.T
    direction = wb.tensor(rng.standard_normal((3, 4)).astype(np.float32), device=device)
    got = wb.grad(lambda x: (wb.grad(f)(x) * direction).sum())(x)
    close(got.numpy(), direction.numpy() @ v @ v.T, 1e-4)


def test_second_derivatives_of_convolution(device):
    rng = np.random.default_rng(1)
    x = wb.tensor(rng.standard_normal((1, 2, 5, 5)).astype(np.float32), device=device)
    w = wb.tensor(rng.standard_normal((3, 2, 3, 3)).astype(np.float32), device=device)
    d = wb.tensor(rng.standard_normal((3, 2, 3, 3)).astype(np.float32), device=device)

    def f(w):
        return (F.conv2d(x, w, stride=2, padding=1) ** 2).sum() * 0.5

    got = wb.grad(lambda w: (wb.grad(f)(w) * d).sum())(w)
    # f is a quadratic form: its Hessian times d is its gradient at d.
    close(got.numpy(), wb.grad(f)(d).numpy(), 1e-4)


def test_gradient_of(device):
    d = device.autodiff()
    x = wb.tensor([1.0, 2.0], device=d).requires_grad_()
    unused = wb.ones(1, device=d).requires_grad_()
    h = x * x
    y = (h * 3).sum()
    gh, gx, none = wb.gradient_of(y, [h, x, unused])
    assert gh.tolist() == [3, 3]
    assert gx.tolist() == [6, 12]
    assert none is None
    assert x.grad is None
    with pytest.raises(wb.GradError, match="does not depend"):
        wb.gradient_of(wb.ones(1, device=d), [x])
    with pytest.raises(wb.GradError, match="requires_grad_"):
        wb.gradient_of((x * 2).sum(), [wb.ones(1, device=d)])


def test_gradient_of_with_a_given_gradient(device):
    x = wb.tensor([1.0, 2.0], device=device.autodiff()).requires_grad_()
    (g,) = wb.gradient_of(x * x, [x], gradient=wb.tensor([1.0, 10.0], device=device))
    assert g.tolist() == [2, 40]
    with pytest.raises(wb.ShapeError, match=r"\(3,\).*\(2,\)"):
        wb.gradient_of(x * x, [x], gradient=wb.ones(3, device=device))


def test_gradient_penalty(device):
    """A gradient inside the loss: its own gradient reaches the parameters."""
    d = device.autodiff()
    w = wb.tensor([[0.5, -1.0]], device=d).requires_grad_()
    x = wb.tensor([[1.0, 2.0]], device=d).requires_grad_()
    score = (x @ w.T).tanh().sum()
    (gx,) = wb.gradient_of(score, [x], create_graph=True)
    penalty = (gx * gx).sum()
    penalty.backward()
    s = 0.5 - 2.0
    sech = 1 / math.cosh(s) ** 2
    # penalty = sech(s)^4 |w|^2
    want = [
        2 * sech**2 * wi + 1.25 * 4 * sech**2 * -math.tanh(s) * xi
        for wi, xi in ((0.5, 1.0), (-1.0, 2.0))
    ]
    close(w.grad.numpy()[0], want, 1e-5)


def test_grad_beside_a_tape_that_is_recorded(device):
    """wb.grad within a model: parameters that f closes over get gradients of the gradient."""
    p = wb.tensor(3.0, device=device.autodiff()).requires_grad_()
    x = wb.tensor(2.0, device=device)
    g = wb.grad(lambda x: p * x * x)(x)
    assert g.item() == 12
    g.backward()
    assert p.grad.item() == 4


def test_the_mode_nests(device):
    p = wb.ones(1, device=device.autodiff()).requires_grad_()
    assert wb.is_grad_enabled()
    with wb.no_grad():
        assert not wb.is_grad_enabled()
        assert not (p * 2).requires_grad
        with wb.enable_grad():
            assert (p * 2).requires_grad
            with wb.set_grad_enabled(False):
                assert not (p * 2).requires_grad
        assert not wb.is_grad_enabled()
    assert wb.is_grad_enabled()


def test_the_mode_survives_exceptions_and_decorates(device):
    p = wb.ones(1, device=device.autodiff()).requires_grad_()

    @wb.no_grad()
    def f(fail):
        if fail:
            raise KeyError("x")
        return p * 2

    assert not f(False).requires_grad
    with pytest.raises(KeyError):
        f(True)
    assert wb.is_grad_enabled()
    guard = wb.no_grad()
    with guard, guard:
        assert not wb.is_grad_enabled()
    assert wb.is_grad_enabled()


def test_grad_inside_no_grad(device):
    x = wb.tensor(2.0, device=device)
    with wb.no_grad():
        g = wb.grad(lambda x: x * x)(x)
    assert g.item() == 4
