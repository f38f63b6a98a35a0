"""Tensor methods over the op table beside numpy: negative dims, keepdim, 0-d and 0-size tensors.

The op table's own test calls records with dims that are normal already; what turns a user's dims
into those is tested here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wgburn as wb

from .case import rng

pytestmark = pytest.mark.quick

_A = rng("a").normal(size=(2, 3, 4)).astype(np.float32)
_B = rng("b").normal(size=(3, 4)).astype(np.float32)
_SQUARE = rng("square").normal(size=(2, 4, 4)).astype(np.float32)
_I = rng("i").integers(-3, 3, (2, 3, 4)).astype(np.int32)
_FLAGS = _A > 0
_NONE = np.zeros((2, 0, 3), np.float32)
_ZERO = np.array(1.5, np.float32)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-2, keepdims=True))
    return e / e.sum(-2, keepdims=True)


Method = tuple[str, Any, Callable[[Any], Any], Callable[[Any], Any]]

METHODS: list[Method] = [
    ("sum -1", _A, lambda t: t.sum(-1), lambda x: x.sum(-1)),
    ("sum (-1, 0)", _A, lambda t: t.sum((-1, 0)), lambda x: x.sum((-1, 0))),
    ("sum all", _A, lambda t: t.sum(), lambda x: x.sum()),
    ("sum keepdim", _A, lambda t: t.sum(-2, keepdim=True), lambda x: x.sum(-2, keepdims=True)),
    ("sum of none", _NONE, lambda t: t.sum(-2), lambda x: x.sum(-2)),
    ("sum 0-d", _ZERO, lambda t: t.sum(), lambda x: x.sum()),
    ("sum 0-d dim", _ZERO, lambda t: t.sum(-1), lambda x: x),
    ("mean -1", _A, lambda t: t.mean(-1), lambda x: x.mean(-1)),
    ("mean of none", _NONE, lambda t: t.mean(1), lambda x: np.full((2, 3), np.nan)),
    ("var -1", _A, lambda t: t.var(-1), lambda x: x.var(-1, ddof=1)),
    ("std all", _A, lambda t: t.std(correction=0), lambda x: x.std()),
    ("prod -2", _A, lambda t: t.prod(-2), lambda x: x.prod(-2)),
    ("amax (-1, -3)", _A, lambda t: t.amax((-1, -3)), lambda x: x.max((-1, -3))),
    ("amin -1", _I, lambda t: t.amin(-1), lambda x: x.min(-1)),
    ("max values", _A, lambda t: t.max(-2).values, lambda x: x.max(-2)),
    ("max indices", _A, lambda t: t.max(-2).indices, lambda x: x.argmax(-2)),
    ("min keepdim", _A, lambda t: t.min(-1, True).values, lambda x: x.min(-1, keepdims=True)),
    ("argmax", _A, lambda t: t.argmax(), lambda x: x.argmax()),
    ("argmin -3", _A, lambda t: t.argmin(-3), lambda x: x.argmin(-3)),
    ("any -1", _FLAGS, lambda t: t.any(-1), lambda x: x.any(-1)),
    ("all of floats", _A, lambda t: t.all(-1), lambda x: x.all(-1)),
    ("all of none", _NONE, lambda t: t.all(1), lambda x: x.all(1)),
    ("cumsum -2", _A, lambda t: t.cumsum(-2), lambda x: x.cumsum(-2)),
    ("cumsum 0-d", _ZERO, lambda t: t.cumsum(0), lambda x: x),
    ("cumsum of bools", _FLAGS, lambda t: t.cumsum(-1), lambda x: x.cumsum(-1)),
    ("softmax -2", _A, lambda t: t.softmax(-2), _softmax),
    ("log_softmax -2", _A, lambda t: t.log_softmax(-2), lambda x: np.log(_softmax(x))),
    (
        "logsumexp (-1, 0)",
        _A,
        lambda t: t.logsumexp((-1, 0)),
        lambda x: np.log(np.exp(x).sum((-1, 0))),
    ),
    ("flip -1", _A, lambda t: t.flip(-1), lambda x: np.flip(x, -1)),
    ("flip -1 -2", _A, lambda t: t.flip(-1, -2), lambda x: np.flip(x, (-1, -2))),
    ("transpose", _A, lambda t: t.transpose(-1, 0), lambda x: x.swapaxes(-1, 0)),
    ("permute", _A, lambda t: t.permute(-1, 0, -2), lambda x: x.transpose(-1, 0, -2)),
    ("movedim", _A, lambda t: t.movedim(-1, 0), lambda x: np.moveaxis(x, -1, 0)),
    ("T", _A, lambda t: t.T, lambda x: x.T),
    ("unsqueeze -1", _A, lambda t: t.unsqueeze(-1), lambda x: x[..., None]),
    ("unsqueeze -4", _A, lambda t: t.unsqueeze(-4), lambda x: x[None]),
    ("squeeze -1", _A[..., :1], lambda t: t.squeeze(-1), lambda x: x.squeeze(-1)),
    ("squeeze other", _A, lambda t: t.squeeze(-1), lambda x: x),
    ("flatten -2", _A, lambda t: t.flatten(-2), lambda x: x.reshape(2, 12)),
    ("unflatten -1", _A, lambda t: t.unflatten(-1, (2, -1)), lambda x: x.reshape(2, 3, 2, 2)),
    ("reshape -1", _A, lambda t: t.reshape(4, -1), lambda x: x.reshape(4, -1)),
    ("expand -1", _A[:1], lambda t: t.expand(5, -1, -1), lambda x: np.repeat(x, 5, 0)),
    ("narrow -1", _A, lambda t: t.narrow(-1, -3, 2), lambda x: x[..., 1:3]),
    ("split -1", _A, lambda t: t.split(3, -1)[1], lambda x: x[..., 3:]),
    ("chunk -2", _A, lambda t: t.chunk(2, -2)[1], lambda x: x[:, 2:]),
    ("unbind -1", _A, lambda t: t.unbind(-1)[2], lambda x: x[..., 2]),
    ("roll -1", _A, lambda t: t.roll(-1, -1), lambda x: np.roll(x, -1, -1)),
    ("repeat", _B, lambda t: t.repeat(2, 1, 3), lambda x: np.tile(x, (2, 1, 3))),
    ("interleave", _B, lambda t: t.repeat_interleave(2, -1), lambda x: x.repeat(2, -1)),
    ("stack -1", _B, lambda t: wb.stack([t, t], -1), lambda x: np.stack([x, x], -1)),
    ("cat -1", _B, lambda t: wb.cat([t, t.flip(0)], -1), lambda x: np.hstack([x, x[::-1]])),
    ("tril", _SQUARE, lambda t: t.tril(-1), lambda x: np.tril(x, -1)),
    ("triu", _SQUARE, lambda t: t.triu(1), lambda x: np.triu(x, 1)),
    ("matmul", _SQUARE, lambda t: t @ t.mT, lambda x: x @ x.swapaxes(-1, -2)),
    ("vector", _B, lambda t: t[0] @ t.T, lambda x: x[0] @ x.T),
    ("dot", _B, lambda t: t[0].dot(t[1]), lambda x: x[0] @ x[1]),
    ("x[-1]", _A, lambda t: t[-1], lambda x: x[-1]),
    ("x[..., ::-2]", _A, lambda t: t[..., ::-2], lambda x: x[..., ::-2]),
    ("x[:, None, -2:]", _A, lambda t: t[:, None, -2:], lambda x: x[:, None, -2:]),
    ("x[5:2]", _A, lambda t: t[5:2], lambda x: x[5:2]),
    ("x[index]", _A, lambda t: t[:, [2, -1, 0]], lambda x: x[:, [2, -1, 0]]),
    ("x[i, :, j]", _A, lambda t: t[[0, 1], :, [3, -2]], lambda x: x[[0, 1], :, [3, -2]]),
    ("x[x > 0]", _A, lambda t: t[t > 0], lambda x: x[x > 0]),
    ("x[()]", _ZERO, lambda t: t[()], lambda x: x[()]),
    ("clamp", _A, lambda t: t.clamp(-0.5, 0.5), lambda x: x.clip(-0.5, 0.5)),
    ("int / int", _I, lambda t: t / 3, lambda x: x / np.float32(3)),
    ("int // int", _I, lambda t: t // 2, lambda x: x // 2),
    ("int % int", _I, lambda t: t % -3, lambda x: x % -3),
    ("2 ** int", _I, lambda t: 2 ** (t * t), lambda x: 2 ** (x * x)),
    ("x ** 3", _A, lambda t: t**3, lambda x: x**3),
    ("1 - x", _A, lambda t: 1 - t, lambda x: 1 - x),
    ("x * True", _A, lambda t: t * (t > 0), lambda x: x * (x > 0)),
    ("~flags", _FLAGS, lambda t: ~t, lambda x: ~x),
    ("where", _A, lambda t: wb.where(t > 0, t, -1), lambda x: np.where(x > 0, x, -1)),
]


@pytest.mark.parametrize("op_device", ["cpu", "wgpu"], indirect=True)
def test_methods_agree_with_numpy(op_device: wb.Device) -> None:
    results = []
    for name, x, ours, theirs in METHODS:
        results.append((name, ours(wb.tensor(x, device=op_device)), theirs(x)))
    wb.eval([t for _, t, _ in results])
    wrong = []
    for name, t, want in results:
        got, want = t.numpy(), np.asarray(want)
        kinds = {"i": "iu", "u": "iu"}.get(want.dtype.kind, want.dtype.kind)
        if got.shape != want.shape or got.dtype.kind not in kinds:
            wrong.append(f"{name}: {got.shape} {got.dtype}, numpy {want.shape} {want.dtype}")
        elif not np.allclose(got, want, rtol=2e-6, atol=2e-6, equal_nan=True):
            wrong.append(f"{name}: {got!r}, numpy {want!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("op_device", ["cpu", "wgpu"], indirect=True)
@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.sum(3),
        lambda t: t.sum((0, -3)),
        lambda t: t.flip(-4),
        lambda t: t.transpose(0, 3),
        lambda t: t.unsqueeze(5),
        lambda t: t.softmax(-4),
        lambda t: t.cumsum(3),
        lambda t: wb.cat([t, t], 3),
        lambda t: t.gather(3, t.int()),
    ],
)
def test_dims_out_of_range_are_refused(op_device: wb.Device, call: Any) -> None:
    with pytest.raises(wb.ShapeError, match="dim"):
        call(wb.tensor(_A, device=op_device))
