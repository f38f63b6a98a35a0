"""Comparing modules with their torch twins: same weights, same input, output and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import wgburn as wb

TOLERANCE = 1e-4


def close(got: Any, want: Any, what: str, tolerance: float = TOLERANCE) -> None:
    got = np.asarray(got.numpy() if isinstance(got, wb.Tensor) else got)
    want = np.asarray(want.detach().numpy() if isinstance(want, torch.Tensor) else want)
    assert got.shape == want.shape, f"{what}: {got.shape} is not {want.shape}"
    np.testing.assert_allclose(got, want, atol=tolerance, rtol=tolerance, err_msg=what)


def as_torch(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        t = torch.from_numpy(value.copy())
        if t.dtype.is_floating_point:
            return t.requires_grad_()
        return t.long() if t.dtype == torch.int32 else t
    return value


def as_wgburn(value: Any, device: wb.Device) -> Any:
    if isinstance(value, np.ndarray):
        t = wb.tensor(value, device=device)
        return t.requires_grad_() if t.dtype.is_float else t
    return value


def first(out: Any) -> list[Any]:
    """The tensors of an output, in order."""
    if isinstance(out, (tuple, list)):
        return [t for o in out for t in first(o)]
    return [] if out is None else [out]


def weigh(outs: list[Any], weights: list[np.ndarray], make: Any) -> Any:
    """A scalar that depends on every output differently."""
    total: Any = 0.0
    for out, w in zip(outs, weights, strict=True):
        total = total + (out * make(w)).sum()
    return total


def is_float(t: Any) -> bool:
    return t.dtype.is_floating_point if isinstance(t, torch.Tensor) else t.dtype.is_float


def scale_of(t: torch.Tensor) -> float:
    finite = t[torch.isfinite(t)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def compare(
    ours: Any,
    theirs: Any,
    args: tuple[Any, ...],
    device: wb.Device,
    tolerance: float = TOLERANCE,
    **kwargs: Any,
) -> None:
    """Outputs, gradients of inputs and gradients of parameters of two modules or functions."""
    dev = device.autodiff()
    if isinstance(ours, wb.nn.Module):
        ours.load_state_dict(theirs.state_dict())
        ours.to(dev)
    t_args = tuple(as_torch(a) for a in args)
    w_args = tuple(as_wgburn(a, dev) for a in args)
    t_kw = {k: as_torch(v) for k, v in kwargs.items()}
    w_kw = {k: as_wgburn(v, dev) for k, v in kwargs.items()}
    t_out = first(theirs(*t_args, **t_kw))
    w_out = first(ours(*w_args, **w_kw))
    assert len(t_out) == len(w_out)
    for i, (w, t) in enumerate(zip(w_out, t_out, strict=True)):
        close(w, t, f"output {i}", tolerance)
    rng = np.random.default_rng(7)
    weights = [rng.standard_normal(tuple(t.shape)).astype(np.float32) for t in t_out if is_float(t)]
    t_float, w_float = [t for t in t_out if is_float(t)], [w for w in w_out if is_float(w)]
    t_loss = weigh(t_float, weights, torch.from_numpy)
    if not t_loss.requires_grad:
        return
    t_loss.backward()
    weigh(w_float, weights, lambda a: wb.tensor(a, device=dev)).backward()
    for i, (w, t) in enumerate(
        zip([*w_args, *w_kw.values()], [*t_args, *t_kw.values()], strict=True)
    ):
        if isinstance(t, torch.Tensor) and t.requires_grad and t.grad is not None:
            assert w.grad is not None, f"argument {i} has no gradient"
            close(
                w.grad, t.grad, f"gradient of argument {i}", tolerance * max(1.0, scale_of(t.grad))
            )
    if isinstance(ours, wb.nn.Module):
        named = dict(ours.named_parameters())
        for name, p in theirs.named_parameters():
            if p.grad is None:
                assert named[name].grad is None, f"{name} has a gradient"
                continue
            assert named[name].grad is not None, f"{name} has no gradient"
            close(
                named[name].grad,
                p.grad,
                f"gradient of {name}",
                tolerance * max(1.0, scale_of(p.grad)),
            )
        for name, b in theirs.state_dict().items():
            close(ours.state_dict()[name], b, f"{name} after the step", tolerance)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)
