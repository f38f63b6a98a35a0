"""One comparison for all op tests: the same lines run with wgburn and with torch.

A case is a function of a namespace and tensors, `lambda m, x: m.hypot(x, x)`: names and meanings
are torch's, so it serves both. Values and the gradients of a weighted sum are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wgburn as wb

torch = pytest.importorskip("torch", reason="torch is not installed (pip install wgburn[parity])")


def rand(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Floats without ties."""
    r = np.random.default_rng(seed + 31 * len(shape) + sum(shape))
    return r.uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, seed: int = 0, low: int = -5, high: int = 5, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(seed + sum(shape)).integers(low, high, shape).astype(dtype)


def _to_torch(a: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    # torch indexes with int64 only.
    return torch.tensor(a.astype(np.int64) if a.dtype == np.int32 else a)


def leaves(out: Any) -> list[Any]:
    if isinstance(out, (tuple, list)):
        return [leaf for o in out for leaf in leaves(o)]
    return [out]


def _array(t: Any) -> np.ndarray:
    if isinstance(t, torch.Tensor):
        return t.detach().numpy()
    return t.numpy() if isinstance(t, wb.Tensor) else np.asarray(t)


def _grads(outs: list[Any], inputs: list[Any], weights: list[np.ndarray], make: Any) -> list[Any]:
    total: Any = None
    for t, w in zip(outs, weights, strict=True):
        # Piecewise constant results are constants here; torch carries a gradient of zeros.
        if w.size and t.requires_grad:
            part = (t * make(w)).sum()
            total = part if total is None else total + part
    if total is not None:
        total.backward()
    return [None if t.grad is None else _array(t.grad) for t in inputs]


def compare(
    device: wb.Device, case: Any, *arrays: Any, grad: bool = True, tol: float = 2e-5
) -> None:
    """Run a case with both and compare shapes, kinds, values and gradients."""
    dev = device.autodiff()
    is_float = [isinstance(a, np.ndarray) and a.dtype == np.float32 for a in arrays]
    mine = [wb.tensor(a, device=dev) if isinstance(a, np.ndarray) else a for a in arrays]
    theirs = [_to_torch(a) for a in arrays]
    mine = [t.requires_grad_() if f and grad else t for t, f in zip(mine, is_float, strict=True)]
    theirs = [
        t.requires_grad_() if f and grad else t for t, f in zip(theirs, is_float, strict=True)
    ]
    got, want = leaves(case(wb, *mine)), leaves(case(torch, *theirs))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        a, b = _array(g), _array(w)
        assert a.shape == b.shape, (a.shape, b.shape)
        assert a.dtype.kind == b.dtype.kind, (a.dtype, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
    differentiable = [
        i for i, w in enumerate(want) if isinstance(w, torch.Tensor) and w.requires_grad
    ]
    if not grad or not differentiable:
        return
    r = np.random.default_rng(1)
    weights = [r.uniform(0.5, 1.5, want[i].shape).astype(np.float32) for i in differentiable]
    xs = [t for t, f in zip(mine, is_float, strict=True) if f]
    ys = [t for t, f in zip(theirs, is_float, strict=True) if f]
    have = _grads([got[i] for i in differentiable], xs, weights, lambda w: wb.tensor(w, device=dev))
    need = _grads([want[i] for i in differentiable], ys, weights, torch.tensor)
    for a, b in zip(have, need, strict=True):
        if b is None:
            assert a is None or not a.any()
        else:
            np.testing.assert_allclose(np.zeros_like(b) if a is None else a, b, rtol=tol, atol=tol)


@pytest.fixture
def same(device: wb.Device) -> Any:
    """`same(case, *arrays, grad=True, tol=2e-5)` on the device of the test."""

    def check(case: Any, *arrays: Any, grad: bool = True, tol: float = 2e-5) -> None:
        compare(device, case, *arrays, grad=grad, tol=tol)

    return check
