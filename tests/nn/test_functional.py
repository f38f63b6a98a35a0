"""Functions beyond the layers: resizing and padding modes, checks and their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nn.twins import close, compare, normal

import wgburn as wb
import wgburn.nn.functional as F

TF = torch.nn.functional


@pytest.mark.parametrize(
    "case",
    [
        ((2, 3, 5), {"size": 8, "mode": "linear"}),
        ((2, 3, 5), {"scale_factor": 2.5}),
        ((2, 3, 5, 6), {"size": (3, 11), "mode": "nearest-exact"}),
        ((2, 3, 5, 6), {"scale_factor": (0.5, 1.5), "mode": "bilinear"}),
        ((2, 3, 5, 6), {"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True}),
        ((2, 3, 5, 6), {"size": (1, 7), "mode": "bilinear", "align_corners": True}),
        ((2, 3, 5, 6), {"size": (9, 4), "mode": "bicubic"}),
        ((2, 3, 5, 6), {"scale_factor": 2, "mode": "bicubic", "align_corners": True}),
        ((2, 3, 5, 6), {"size": (2, 4), "mode": "area"}),
        ((1, 2, 3, 4, 3), {"size": (5, 2, 4), "mode": "trilinear"}),
        ((1, 2, 3, 4, 3), {"scale_factor": 2}),
    ],
    ids=str,
)
def test_interpolate(case: Any, device: wb.Device) -> None:
    shape, kwargs = case
    compare(F.interpolate, TF.interpolate, (normal(*shape),), device, **kwargs)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode: str, device: wb.Device) -> None:
    for widths in ((2, 1), (1, 2, 3, 0), (-1, 2), (0, 0, -1, -1)):
        if mode != "constant" and min(widths) < 0:
            continue
        x = normal(2, 3, 4, 5) if len(widths) == 4 else normal(2, 3, 4)
        compare(F.pad, TF.pad, (x,), device, pad=widths, mode=mode)
    with pytest.raises(wb.ValueRangeError, match="mode 'mirror'"):
        F.pad(wb.ones(2, 2), (1, 1), "mirror")
    with pytest.raises(wb.ShapeError, match="last dimension first"):
        F.pad(wb.ones(2), (1, 1, 1, 1))
    with pytest.raises(wb.ShapeError, match="reflect"):
        F.pad(wb.ones(2, 3), (3, 0), "reflect")


def test_normalize_and_distances(device: wb.Device) -> None:
    x = normal(4, 5)
    x[1] = 0
    for p in (1.0, 2.0, 3.0):
        compare(F.normalize, TF.normalize, (x,), device, p=p, dim=1)
    compare(F.cosine_similarity, TF.cosine_similarity, (x, normal(4, 5, seed=1)), device)
    zero = wb.zeros(3, device=device.autodiff()).requires_grad_()
    F.normalize(zero, dim=0).sum().backward()
    assert np.isfinite(zero.grad.numpy()).all()


def test_one_hot_and_norms(device: wb.Device) -> None:
    index = wb.tensor([[0, 2], [1, 1]], device=device)
    want = TF.one_hot(torch.tensor([[0, 2], [1, 1]])).numpy()
    np.testing.assert_array_equal(F.one_hot(index).numpy(), want)
    assert F.one_hot(index, 5).shape == (2, 2, 5)
    weight, bias = normal(4), normal(4, seed=1)
    for fn, name in ((F.layer_norm, "layer_norm"), (F.rms_norm, "rms_norm")):
        extra = (weight, bias) if name == "layer_norm" else (weight,)

        def ours(x: Any, *p: Any, fn: Any = fn) -> Any:
            return fn(x, (4,), *p)

        def theirs(x: Any, *p: Any, name: str = name) -> Any:
            return getattr(TF, name)(x, (4,), *p)

        compare(ours, theirs, (normal(3, 4), *extra), device)


def test_norm_gradients_where_only_some_are_wanted(cpu: wb.Device) -> None:
    """Each of input, weight and bias alone, for the norms with closed-form gradients."""
    arrays = [normal(4, 6, 3), np.abs(normal(6)) + 0.5, normal(6, seed=2)]
    calls = [
        (lambda f, x, w, b: f.batch_norm(x, None, None, w, b, True)),
        (lambda f, x, w, b: f.group_norm(x, 2, w, b)),
        (lambda f, x, w, b: f.instance_norm(x, weight=w, bias=b)),
        (lambda f, x, w, b: f.layer_norm(x.transpose(1, 2), (6,), w, b)),
    ]
    out_weight = normal(4, 6, 3, seed=5)
    for i, call in enumerate(calls):
        for wanted in range(3):
            ours = [wb.tensor(a, device=cpu.autodiff()) for a in arrays]
            theirs = [torch.from_numpy(a.copy()) for a in arrays]
            ours[wanted].requires_grad_()
            theirs[wanted].requires_grad_()
            w = out_weight.transpose(0, 2, 1).copy() if i == 3 else out_weight
            (call(F, *ours) * wb.tensor(w)).sum().backward()
            (call(TF, *theirs) * torch.from_numpy(w)).sum().backward()
            close(ours[wanted].grad, theirs[wanted].grad, f"{i} {wanted}")
            assert all(t.grad is None for j, t in enumerate(ours) if j != wanted)


def test_batch_norm_of_a_far_mean(cpu: wb.Device) -> None:
    """Two passes: no digits are lost to the mean."""
    x = normal(64, 3) * 0.01 + np.array([1000.0, -50.0, 0.0], np.float32)
    got = F.batch_norm(wb.tensor(x), None, None, training=True).numpy()
    exact = x.astype(np.float64)
    want = (exact - exact.mean(0)) / np.sqrt(exact.var(0) + 1e-5)
    # The product by 1 / std leaves the rounding of the mean itself, 6e-5 at 1000.
    np.testing.assert_allclose(got[:, 1:], want[:, 1:], atol=1e-3)
    np.testing.assert_allclose(got[:, 0], want[:, 0], atol=2e-2)


def test_gelu_twice(cpu: wb.Device) -> None:
    x = normal(7)
    tx = torch.from_numpy(x).requires_grad_()
    (g,) = torch.autograd.grad(TF.gelu(tx).sum(), tx, create_graph=True)
    (want,) = torch.autograd.grad(g.sum(), tx)
    got = wb.grad(lambda t: wb.grad(lambda u: F.gelu(u).sum())(t).sum())(wb.tensor(x))
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-5)


x44 = wb.ones(2, 3, 4, 4)
MESSAGES: list[tuple[Any, type[Exception], str]] = [
    (lambda: F.linear(wb.ones(2, 3), wb.ones(4, 5)), wb.ShapeError, r"linear.*\(2, 3\).*\(4, 5\)"),
    (lambda: F.linear(wb.ones(2, 3, dtype=wb.int32), wb.ones(4, 3)), wb.DTypeError, "int32"),
    (lambda: F.conv2d(x44, wb.ones(5, 2, 3, 3)), wb.ShapeError, "3 channels.*takes 2"),
    (lambda: F.conv2d(x44, wb.ones(5, 3, 3)), wb.ShapeError, "4 dimensions"),
    (lambda: F.conv2d(wb.ones(2, 3), wb.ones(5, 3, 3, 3)), wb.ShapeError, r"\[N, C, H, W\]"),
    (lambda: F.conv2d(x44, wb.ones(5, 3, 5, 5)), wb.ShapeError, "larger than the padded input"),
    (lambda: F.conv2d(x44, wb.ones(5, 3, 3, 3), wb.ones(4)), wb.ShapeError, r"bias \(4,\)"),
    (lambda: F.conv2d(x44, wb.ones(5, 3, 3, 3), stride=0), wb.ValueRangeError, "stride"),
    (
        lambda: F.conv2d(x44, wb.ones(5, 3, 3, 3), stride=(1, 2, 3)),
        wb.ValueRangeError,
        "one int or 2",
    ),
    (
        lambda: F.conv2d(x44, wb.ones(5, 3, 3, 3), stride=2, padding="same"),
        wb.ValueRangeError,
        "stride 1",
    ),
    (lambda: F.conv2d(x44, wb.ones(5, 3, 3, 3).half()), wb.DTypeError, "float16"),
    (lambda: F.conv_transpose2d(x44, wb.ones(2, 3, 3, 3)), wb.ShapeError, "3 channels"),
    (
        lambda: F.conv_transpose2d(x44, wb.ones(3, 3, 3, 3), output_padding=1),
        wb.ValueRangeError,
        "output_padding",
    ),
    (lambda: F.max_pool2d(x44, 5), wb.ShapeError, "window of 5"),
    (lambda: F.max_pool2d(x44, 2, padding=2), wb.ValueRangeError, "padding"),
    (lambda: F.avg_pool2d(x44.int(), 2), wb.DTypeError, "int32"),
    (lambda: F.adaptive_avg_pool2d(x44, 0), wb.ShapeError, "cannot pool"),
    (
        lambda: F.batch_norm(wb.ones(1, 3), None, None, training=True),
        wb.ShapeError,
        "one value a channel",
    ),
    (lambda: F.batch_norm(x44, wb.ones(4), wb.ones(4)), wb.ShapeError, "running_mean"),
    (lambda: F.group_norm(x44, 2), wb.ShapeError, "2 equal groups"),
    (lambda: F.layer_norm(x44, 3), wb.ShapeError, r"\(3,\)"),
    (lambda: F.dropout(x44, 1.5), wb.ValueRangeError, "probability"),
    (lambda: F.interpolate(x44, 3, mode="linear"), wb.ShapeError, "3 dimensions"),
    (lambda: F.interpolate(x44), wb.ValueRangeError, "either size or scale_factor"),
    (lambda: F.scaled_dot_product_attention(x44, x44[..., :3], x44), wb.ShapeError, "query"),
    (lambda: F.pixel_shuffle(x44, 2), wb.ShapeError, "multiple of 4"),
    (lambda: F.glu(x44, 1), wb.ShapeError, "odd"),
    (lambda: wb.nn.BatchNorm2d(3)(wb.ones(2, 3)), wb.ShapeError, "BatchNorm2d takes 4"),
    (lambda: wb.nn.Conv2d(3, 4, 3, groups=2), wb.ShapeError, "divisible by groups=2"),
    (lambda: wb.nn.Softmax()(x44), wb.ShapeError, "needs the dimension"),
    (lambda: wb.nn.Module()(x44), NotImplementedError, "forward"),
]


@pytest.mark.quick
@pytest.mark.parametrize("case", MESSAGES, ids=lambda c: c[2])
def test_errors_say_what_to_write(case: Any) -> None:
    call, kind, match = case
    with pytest.raises(kind, match=match) as error:
        call()
    assert "\n" not in str(error.value)
