"""Gradients where no difference quotient exists (ties, kinks, zeros) follow torch's choices.

Only where torch is installed; the op table's own test needs nothing but numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wgburn as wb

torch = pytest.importorskip("torch")

_TIES = np.array([[1.0, 3.0, 3.0, -2.0], [0.0, 0.0, 0.0, 0.0], [-1.0, 2.0, -1.0, 2.0]])
_ZEROS = np.array([0.0, -0.0, 1.0, -1.0, 2.0])
_OTHER = np.array([0.0, 1.0, 1.0, -1.0, 3.0])
_IMAGE = np.round(np.sin(np.arange(72.0)).reshape(1, 2, 6, 6) * 2)

Pair = tuple[str, tuple[Any, ...], Callable[..., Any], Callable[..., Any]]

CHOICES: list[Pair] = [
    ("relu", (_ZEROS,), lambda x: x.relu(), lambda x: x.relu()),
    ("abs", (_ZEROS,), lambda x: x.abs(), lambda x: x.abs()),
    ("maximum", (_ZEROS, _OTHER), lambda x, y: x.maximum(y), torch.maximum),
    ("minimum", (_ZEROS, _OTHER), lambda x, y: x.minimum(y), torch.minimum),
    ("clamp", (_TIES,), lambda x: x.clamp(0, 2), lambda x: x.clamp(0, 2)),
    ("clamp low", (_ZEROS,), lambda x: x.clamp(0.0), lambda x: x.clamp(0.0)),
    ("clamp by tensors", (_ZEROS, _OTHER), lambda x, y: x.clamp(y), lambda x, y: x.clamp(y)),
    ("amax", (_TIES,), lambda x: x.amax(1), lambda x: x.amax(1)),
    ("amin", (_TIES,), lambda x: x.amin(), lambda x: x.amin()),
    ("max of a dim", (_TIES,), lambda x: x.max(1).values, lambda x: x.max(1).values),
    ("min of a dim", (_TIES,), lambda x: x.min(-1).values, lambda x: x.min(-1).values),
    ("prod", (_TIES,), lambda x: x.prod(1), lambda x: x.prod(1)),
    ("cumprod", (_TIES,), lambda x: x.cumprod(1), lambda x: x.cumprod(1)),
    ("x ** 2", (_ZEROS,), lambda x: x**2, lambda x: x**2),
    ("x ** 2.5", (np.abs(_ZEROS),), lambda x: x**2.5, lambda x: x**2.5),
    ("x ** 0", (_ZEROS,), lambda x: x**0, lambda x: x**0),
    ("x ** y", (np.abs(_ZEROS), np.abs(_OTHER)), lambda x, y: x**y, lambda x, y: x**y),
    ("0 ** y", (np.abs(_OTHER),), lambda x: 0.0**x, lambda x: 0.0**x),
    ("sqrt", (np.abs(_ZEROS),), lambda x: x.sqrt(), lambda x: x.sqrt()),
    ("floor", (_ZEROS * 1.5,), lambda x: x.floor() + x, lambda x: x.floor() + x),
    ("remainder", (_OTHER + 0.3,), lambda x: x % 2.0, lambda x: x % 2.0),
    ("fmod", (_OTHER + 0.3,), lambda x: x.fmod(-2.0), lambda x: x.fmod(-2.0)),
    (
        "where",
        (_ZEROS,),
        lambda x: wb.where(x > 0, x, x * 2),
        lambda x: torch.where(x > 0, x, x * 2),
    ),
    ("logsumexp", (_TIES,), lambda x: x.logsumexp(1), lambda x: x.logsumexp(1)),
    ("softmax", (_TIES,), lambda x: x.softmax(1), lambda x: x.softmax(1)),
    ("std", (_TIES[::2],), lambda x: x.std(1), lambda x: x.std(1)),
    (
        "max pooling",
        (_IMAGE,),
        lambda x: wb.nn.functional.max_pool2d(x, 3, 2, 1),
        lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1),
    ),
    (
        "average pooling",
        (_IMAGE,),
        lambda x: wb.nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    ),
    (
        "index twice",
        (_ZEROS,),
        lambda x: x[[0, 0, 2, -1]],
        lambda x: x[[0, 0, 2, -1]],
    ),
]


def _ours(operands: tuple[Any, ...], f: Callable[..., Any], device: wb.Device) -> list[Any]:
    dtype = wb.float64 if device.kind == "cpu" else wb.float32
    xs = [wb.tensor(a, dtype=dtype, device=device.autodiff()) for a in operands]
    for x in xs:
        x.requires_grad_()
    out = f(*xs)
    weight = np.linspace(0.5, 1.5, out.size).reshape(out.shape)
    (out * wb.tensor(weight, dtype=dtype, device=device)).sum().backward()
    return [out.numpy(), *[None if x.grad is None else x.grad.numpy() for x in xs]]


def _theirs(operands: tuple[Any, ...], f: Callable[..., Any]) -> list[Any]:
    xs = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in operands]
    out = f(*xs)
    weight = torch.linspace(0.5, 1.5, out.numel(), dtype=torch.float64).reshape(out.shape)
    (out * weight).sum().backward()
    return [out.detach().numpy(), *[None if x.grad is None else x.grad.numpy() for x in xs]]


@pytest.mark.parametrize("op_device", ["cpu", "wgpu"], indirect=True)
@pytest.mark.parametrize("name, operands, ours, theirs", CHOICES, ids=[c[0] for c in CHOICES])
def test_choices_are_those_of_torch(
    name: str, operands: tuple[Any, ...], ours: Any, theirs: Any, op_device: wb.Device
) -> None:
    got, want = _ours(operands, ours, op_device), _theirs(operands, theirs)
    for what, a, b in zip(("value", "gradient", "other gradient"), got, want, strict=False):
        if b is not None and a is not None:
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-6, err_msg=f"{name}: {what}")
        else:
            assert (a is None or not np.any(a)) and (b is None or not np.any(b))
