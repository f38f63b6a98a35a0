"""Layers against their torch twins: output, gradients of inputs and parameters, buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nn.twins import compare, integers, normal

import wgburn as wb

Case = tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]

CASES: list[Case] = [
    ("Linear", (5, 3), {}, (normal(4, 5),)),
    ("Linear", (5, 3), {"bias": False}, (normal(2, 4, 5),)),
    ("Linear", (5, 3), {}, (normal(5),)),
    ("Linear", (5, 3), {}, (normal(0, 5),)),
    ("Bilinear", (3, 4, 5), {}, (normal(2, 6, 3), normal(2, 6, 4, seed=1))),
    ("Conv1d", (3, 4, 3), {}, (normal(2, 3, 9),)),
    (
        "Conv1d",
        (4, 6, 3),
        {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
        (normal(2, 4, 11),),
    ),
    ("Conv1d", (3, 4, 4), {"padding": "same"}, (normal(2, 3, 9),)),
    ("Conv2d", (3, 4, 3), {}, (normal(2, 3, 7, 6),)),
    ("Conv2d", (3, 4, 3), {"bias": False}, (normal(3, 7, 6),)),
    (
        "Conv2d",
        (4, 4, (3, 2)),
        {"stride": (2, 1), "padding": (1, 2), "groups": 4},
        (normal(2, 4, 7, 6),),
    ),
    ("Conv2d", (3, 4, 3), {"padding": 2, "padding_mode": "reflect"}, (normal(2, 3, 7, 6),)),
    ("Conv2d", (3, 4, 3), {"padding": 1, "padding_mode": "circular"}, (normal(2, 3, 7, 6),)),
    (
        "Conv2d",
        (3, 4, (2, 3)),
        {"padding": "same", "padding_mode": "replicate"},
        (normal(2, 3, 7, 6),),
    ),
    ("Conv2d", (3, 4, 3), {}, (normal(0, 3, 7, 6),)),
    ("Conv3d", (2, 3, 2), {"padding": 1, "stride": 2}, (normal(2, 2, 4, 5, 6),)),
    (
        "ConvTranspose1d",
        (3, 4, 3),
        {"stride": 2, "padding": 1, "output_padding": 1},
        (normal(2, 3, 5),),
    ),
    ("ConvTranspose2d", (3, 4, 3), {}, (normal(2, 3, 4, 5),)),
    (
        "ConvTranspose2d",
        (4, 6, 3),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "dilation": 2},
        (normal(2, 4, 4, 5),),
    ),
    ("ConvTranspose3d", (2, 3, 2), {"stride": 2}, (normal(1, 2, 2, 3, 2),)),
    ("BatchNorm1d", (3,), {}, (normal(6, 3),)),
    ("BatchNorm1d", (3,), {"momentum": None}, (normal(4, 3, 5) * 3 + 20,)),
    ("BatchNorm2d", (3,), {}, (normal(4, 3, 5, 6),)),
    ("BatchNorm2d", (3,), {"affine": False}, (normal(4, 3, 5, 6),)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (normal(4, 3, 5, 6),)),
    ("BatchNorm3d", (2,), {}, (normal(3, 2, 2, 3, 4),)),
    ("InstanceNorm1d", (3,), {}, (normal(2, 3, 5),)),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (normal(2, 3, 5, 6),)),
    ("InstanceNorm2d", (3,), {"affine": True}, (normal(3, 5, 6),)),
    ("InstanceNorm3d", (2,), {}, (normal(2, 2, 2, 3, 4),)),
    ("GroupNorm", (2, 4), {}, (normal(3, 4, 5),)),
    ("GroupNorm", (1, 4), {"affine": False}, (normal(3, 4, 2, 3),)),
    ("GroupNorm", (4, 4), {}, (normal(3, 4, 2, 3),)),
    ("LayerNorm", (6,), {}, (normal(3, 4, 6) * 2 + 5,)),
    ("LayerNorm", ((4, 6),), {"bias": False}, (normal(3, 4, 6),)),
    ("LayerNorm", (6,), {"elementwise_affine": False}, (normal(3, 6),)),
    ("RMSNorm", (6,), {}, (normal(3, 4, 6),)),
    ("RMSNorm", ((4, 6),), {"eps": 1e-3}, (normal(3, 4, 6),)),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, (normal(2, 3, 9),)),
    ("MaxPool2d", (2,), {}, (normal(2, 3, 6, 7),)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, (normal(2, 3, 6, 7),)),
    ("MaxPool2d", (2,), {"dilation": 2, "stride": 1}, (normal(3, 6, 7),)),
    ("MaxPool2d", (2,), {"return_indices": True}, (normal(2, 3, 6, 7),)),
    ("MaxPool3d", (2,), {}, (normal(2, 2, 4, 4, 5),)),
    ("AvgPool1d", (3,), {"padding": 1}, (normal(2, 3, 9),)),
    (
        "AvgPool2d",
        (3,),
        {"stride": 2, "padding": 1, "count_include_pad": False},
        (normal(2, 3, 6, 7),),
    ),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, (normal(2, 3, 6, 8),)),
    ("AvgPool2d", ((2, 3),), {"divisor_override": 5}, (normal(2, 3, 6, 7),)),
    ("AvgPool3d", (2,), {}, (normal(2, 2, 4, 4, 5),)),
    ("AdaptiveAvgPool1d", (4,), {}, (normal(2, 3, 9),)),
    ("AdaptiveAvgPool2d", ((3, None),), {}, (normal(2, 3, 6, 7),)),
    ("AdaptiveAvgPool2d", ((3, 5),), {}, (normal(2, 3, 7, 8),)),
    ("AdaptiveAvgPool3d", (2,), {}, (normal(2, 2, 3, 4, 5),)),
    ("AdaptiveMaxPool1d", (4,), {"return_indices": True}, (normal(2, 3, 9),)),
    (
        "AdaptiveMaxPool2d",
        ((3, 5),),
        {"return_indices": True},
        (np.maximum(normal(2, 3, 7, 8), 0),),
    ),
    ("AdaptiveMaxPool2d", (2,), {"return_indices": True}, (normal(2, 3, 6, 8),)),
    ("AdaptiveMaxPool3d", (2,), {}, (normal(2, 2, 3, 4, 5),)),
    ("Embedding", (7, 4), {}, (integers(7, 3, 5),)),
    ("Embedding", (7, 4), {"padding_idx": 2}, (integers(7, 3, 5),)),
    ("Flatten", (), {}, (normal(2, 3, 4),)),
    ("Unflatten", (1, (2, 3)), {}, (normal(2, 6, 4),)),
    ("Identity", (), {}, (normal(2, 3),)),
    ("PReLU", (), {}, (normal(2, 3, 4),)),
    ("PReLU", (3,), {}, (normal(2, 3, 4),)),
    ("GLU", (1,), {}, (normal(2, 4, 3),)),
    ("Softmax", (-1,), {}, (normal(2, 4, 3) * 30,)),
    ("LogSoftmax", (1,), {}, (normal(2, 4, 3) * 30,)),
    ("Softmin", (1,), {}, (normal(2, 4, 3),)),
    ("PixelShuffle", (2,), {}, (normal(2, 8, 3, 4),)),
    ("PixelUnshuffle", (2,), {}, (normal(2, 2, 4, 6),)),
    ("ChannelShuffle", (2,), {}, (normal(2, 4, 3, 2),)),
    ("Upsample", (), {"scale_factor": 2}, (normal(2, 3, 4, 5),)),
    ("Upsample", (), {"size": (7, 9), "mode": "bilinear"}, (normal(2, 3, 4, 5),)),
    (
        "Upsample",
        (),
        {"scale_factor": 1.7, "mode": "bilinear", "align_corners": True},
        (normal(2, 3, 4, 5),),
    ),
    ("Unfold", ((2, 3),), {"padding": 1, "stride": 2}, (normal(2, 3, 5, 6),)),
    ("Fold", ((5, 6), (2, 3)), {"padding": 1, "stride": 2}, (normal(2, 12, 9),)),
    ("ZeroPad2d", ((1, 2, 0, 3),), {}, (normal(2, 3, 4, 5),)),
    ("ReflectionPad2d", ((1, 2, 2, 1),), {}, (normal(2, 3, 4, 5),)),
    ("ReplicationPad1d", (3,), {}, (normal(2, 3, 4),)),
    ("CircularPad2d", ((1, 2, 2, 1),), {}, (normal(2, 3, 4, 5),)),
    ("ConstantPad1d", ((1, -1), 2.5), {}, (normal(2, 3, 4),)),
    ("CosineSimilarity", (), {"dim": 1}, (normal(3, 5), normal(3, 5, seed=1))),
    ("PairwiseDistance", (), {}, (normal(3, 5), normal(3, 5, seed=1))),
]

ACTIVATIONS = [
    "ReLU",
    "ReLU6",
    "SiLU",
    "Mish",
    "Tanh",
    "Sigmoid",
    "LogSigmoid",
    "Softsign",
    "Tanhshrink",
    "Hardswish",
    "Hardsigmoid",
    "SELU",
    "Hardtanh",
    "ELU",
    "CELU",
    "LeakyReLU",
    "Softplus",
    "Softshrink",
    "Hardshrink",
    "GELU",
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}")
def test_layer_equals_its_twin(case: Case, device: wb.Device) -> None:
    name, args, kwargs, inputs = case
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    compare(getattr(wb.nn, name)(*args, **kwargs), theirs, inputs, device)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_equals_its_twin(name: str, device: wb.Device) -> None:
    edges = np.array([-1e3, -30, -3, -1, -0.5, -1e-4, 0, 1e-4, 0.5, 1, 3, 6, 30, 1e3], np.float32)
    for x in (normal(3, 4) * 3, edges):
        compare(getattr(wb.nn, name)(), getattr(torch.nn, name)(), (x,), device)


def test_activations_with_arguments(device: wb.Device) -> None:
    for name, args in (
        ("GELU", ("tanh",)),
        ("ELU", (0.5,)),
        ("CELU", (0.5,)),
        ("LeakyReLU", (0.2,)),
        ("Softplus", (2.0, 3.0)),
        ("Hardtanh", (-2.0, 0.5)),
        ("Threshold", (0.1, -3.0)),
    ):
        compare(
            getattr(wb.nn, name)(*args), getattr(torch.nn, name)(*args), (normal(4, 5) * 2,), device
        )


@pytest.mark.parametrize("name", ["BatchNorm1d", "InstanceNorm1d"], ids=["batch", "instance"])
def test_eval_uses_running_statistics(name: str, device: wb.Device) -> None:
    theirs = getattr(torch.nn, name)(3, affine=True, track_running_stats=True)
    ours = getattr(wb.nn, name)(3, affine=True, track_running_stats=True)
    for seed in range(3):
        x = normal(4, 3, 5, seed=seed) + seed
        theirs.zero_grad()
        ours.zero_grad()
        compare(ours, theirs, (x,), device)
    theirs.zero_grad()
    ours.zero_grad()
    compare(ours.eval(), theirs.eval(), (normal(4, 3, 5, seed=9),), device)


@pytest.mark.parametrize(
    "make",
    [
        lambda nn: nn.BatchNorm1d(3),
        lambda nn: nn.GroupNorm(3, 3),
        lambda nn: nn.LayerNorm(5),
        lambda nn: nn.GELU(),
    ],
    ids=["batch", "group", "layer", "gelu"],
)
def test_second_derivatives(make: Any) -> None:
    """Closed-form gradients differentiate again: gradient of the gradient's square, against
    torch.
    """
    theirs, ours = make(torch.nn), make(wb.nn)
    x, w = normal(4, 3, 5), normal(4, 3, 5, seed=1)
    tx = torch.from_numpy(x).requires_grad_()
    (g,) = torch.autograd.grad((theirs(tx) * torch.from_numpy(w)).sum(), tx, create_graph=True)
    (want,) = torch.autograd.grad((g * g).sum(), tx)
    weight = wb.tensor(w)

    def inner(v: wb.Tensor) -> wb.Tensor:
        gradient = wb.grad(lambda u: (ours(u) * weight).sum())(v)
        return (gradient * gradient).sum()

    np.testing.assert_allclose(
        wb.grad(inner)(wb.tensor(x)).numpy(), want.numpy(), atol=2e-4, rtol=2e-4
    )


def test_dropout_scales_and_only_trains(device: wb.Device) -> None:
    layer = wb.nn.Dropout(0.25)
    device.seed(3)
    x = wb.ones(200, 50, device=device.autodiff()).requires_grad_()
    y = layer(x)
    values = y.numpy()
    assert set(np.unique(values).round(4)) == {0.0, np.float32(4 / 3).round(4)}
    assert abs(values.mean() - 1) < 0.03
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)
    assert layer.eval()(x) is x
    assert (wb.nn.Dropout(1.0)(x).numpy() == 0).all()
    whole = wb.nn.Dropout2d(0.5)(wb.ones(8, 16, 3, 3, device=device)).numpy()
    assert set(np.unique(whole.reshape(128, 9).std(1))) == {0.0}
    assert 0 < (whole.reshape(128, 9).max(1) == 0).mean() < 1


def test_dropout_takes_new_numbers_each_time(device: wb.Device) -> None:
    device.seed(1)
    x = wb.ones(64, device=device)
    first, second = wb.nn.functional.dropout(x), wb.nn.functional.dropout(x)
    assert (first.numpy() != second.numpy()).any()
    device.seed(1)
    np.testing.assert_array_equal(wb.nn.functional.dropout(x).numpy(), first.numpy())
