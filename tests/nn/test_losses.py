"""Losses against torch: values and gradients, every option."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nn.twins import compare, integers, normal

import wgburn as wb
import wgburn.nn.functional as F

logits = normal(6, 5) * 3
classes = integers(5, 6)
probabilities = np.abs(normal(6, 5, seed=2)) + 0.1
probabilities /= probabilities.sum(1, keepdims=True)
signs = np.sign(normal(6, seed=4)).astype(np.float32)
unit = 1 / (1 + np.exp(-normal(6, 5)))
weight = np.abs(normal(5, seed=3)) + 0.1
some_ignored = np.where(np.arange(6) % 3 == 0, -100, classes).astype(np.int32)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("mse_loss", (logits, normal(6, 5, seed=1)), {}),
    ("l1_loss", (logits, normal(6, 5, seed=1)), {}),
    ("smooth_l1_loss", (logits, normal(6, 5, seed=1)), {"beta": 0.7}),
    ("smooth_l1_loss", (logits, normal(6, 5, seed=1)), {"beta": 0.0}),
    ("huber_loss", (logits, normal(6, 5, seed=1)), {"delta": 0.7}),
    ("cross_entropy", (logits, classes), {}),
    ("cross_entropy", (logits * 100, classes), {}),
    ("cross_entropy", (logits, classes), {"weight": weight}),
    ("cross_entropy", (logits, classes), {"label_smoothing": 0.1}),
    ("cross_entropy", (logits, classes), {"weight": weight, "label_smoothing": 0.1}),
    ("cross_entropy", (logits, classes), {"ignore_index": 2}),
    ("cross_entropy", (logits, some_ignored), {"weight": weight, "label_smoothing": 0.2}),
    ("cross_entropy", (normal(2, 5, 3, 4), integers(5, 2, 3, 4)), {"weight": weight}),
    ("cross_entropy", (normal(5), integers(5)), {}),
    ("cross_entropy", (logits, probabilities), {}),
    ("cross_entropy", (logits, probabilities), {"weight": weight, "label_smoothing": 0.1}),
    ("nll_loss", (np.log(probabilities), classes), {}),
    ("nll_loss", (np.log(probabilities), some_ignored), {"weight": weight}),
    ("binary_cross_entropy", (unit, (unit > 0.4).astype(np.float32)), {}),
    (
        "binary_cross_entropy",
        (np.array([0, 1, 0, 1, 0.5], "f"), np.array([0, 1, 1, 0, 0.3], "f")),
        {},
    ),
    ("binary_cross_entropy", (unit, probabilities), {"weight": weight}),
    ("binary_cross_entropy_with_logits", (logits * 20, (unit > 0.4).astype(np.float32)), {}),
    (
        "binary_cross_entropy_with_logits",
        (logits, probabilities),
        {"weight": weight, "pos_weight": weight + 1},
    ),
    ("kl_div", (np.log(unit), probabilities), {}),
    ("kl_div", (np.log(unit), (probabilities > 0.3).astype(np.float32)), {}),
    ("kl_div", (np.log(unit), np.log(probabilities)), {"log_target": True}),
    ("poisson_nll_loss", (logits, np.abs(normal(6, 5, seed=5)) * 3), {"full": True}),
    (
        "poisson_nll_loss",
        (np.abs(logits) + 0.1, np.abs(normal(6, 5, seed=5))),
        {"log_input": False},
    ),
    (
        "gaussian_nll_loss",
        (logits, normal(6, 5, seed=1), np.abs(normal(6, 5, seed=6))),
        {"full": True},
    ),
    ("cosine_embedding_loss", (logits, normal(6, 5, seed=1), signs), {"margin": 0.1}),
    ("triplet_margin_loss", (logits, normal(6, 5, seed=1), normal(6, 5, seed=2)), {}),
    (
        "triplet_margin_loss",
        (logits, normal(6, 5, seed=1), normal(6, 5, seed=2)),
        {"swap": True, "p": 1.0},
    ),
    ("margin_ranking_loss", (normal(6), normal(6, seed=1), signs), {"margin": 0.3}),
    ("hinge_embedding_loss", (normal(6), signs), {}),
    ("soft_margin_loss", (normal(6), signs), {}),
]


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{'-'.join(c[2])}")
def test_loss_equals_torch(case: tuple[str, Any, Any], reduction: str, device: wb.Device) -> None:
    name, args, kwargs = case
    plain = {k: v for k, v in kwargs.items() if not isinstance(v, np.ndarray)}
    arrays = {k: v for k, v in kwargs.items() if isinstance(v, np.ndarray)}
    w_const = {k: wb.tensor(v, device=device) for k, v in arrays.items()}
    t_const = {k: torch.from_numpy(v) for k, v in arrays.items()}
    args = tuple(a.astype(np.float32) if a.dtype.kind == "f" else a for a in args)
    # torch has no gradient for these targets, or NaN.
    constant = name == "soft_margin_loss" or (name == "kl_div" and 0 in args[1])

    def ours(*a: Any) -> Any:
        a = (a[0], a[1].detach()) if constant else a
        return getattr(F, name)(*a, reduction=reduction, **plain, **w_const)

    def theirs(*a: Any) -> Any:
        a = (a[0], a[1].detach()) if constant else a
        return getattr(torch.nn.functional, name)(*a, reduction=reduction, **plain, **t_const)

    compare(ours, theirs, args, device)


def test_batchmean() -> None:
    got = F.kl_div(
        wb.tensor(np.log(unit).astype("f")), wb.tensor(probabilities.astype("f")), "batchmean"
    )
    want = torch.nn.functional.kl_div(
        torch.tensor(np.log(unit)), torch.tensor(probabilities), reduction="batchmean"
    )
    assert got.item() == pytest.approx(want.item(), rel=1e-5)


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
def test_modules_pass_their_options_on() -> None:
    x, t = wb.tensor(logits), wb.tensor(some_ignored)
    module = wb.nn.CrossEntropyLoss(weight=wb.tensor(weight), label_smoothing=0.1, reduction="sum")
    want = torch.nn.CrossEntropyLoss(
        weight=torch.from_numpy(weight), label_smoothing=0.1, reduction="sum"
    )(torch.from_numpy(logits), torch.from_numpy(some_ignored).long())
    assert module(x, t).item() == pytest.approx(want.item(), rel=1e-5)
    assert list(module.state_dict()) == ["weight"]
    for name, args in (
        ("MSELoss", (x, x * 2)),
        ("L1Loss", (x, x * 2)),
        ("HuberLoss", (x, x * 2)),
        ("SmoothL1Loss", (x, x * 2)),
        ("BCEWithLogitsLoss", (x, wb.tensor(unit.astype("f")))),
        ("BCELoss", (wb.tensor(unit.astype("f")), wb.tensor(unit.astype("f")))),
        ("NLLLoss", (x, t)),
        ("KLDivLoss", (x, wb.tensor(probabilities.astype("f")))),
    ):
        theirs = getattr(torch.nn, name)()(
            *[
                torch.from_numpy(a.numpy()).long()
                if a.dtype is wb.int32
                else torch.from_numpy(a.numpy())
                for a in args
            ]
        )
        assert getattr(wb.nn, name)()(*args).item() == pytest.approx(theirs.item(), rel=1e-5), name


def test_classes_that_do_not_exist(device: wb.Device) -> None:
    x = wb.tensor(logits, device=device)
    with pytest.raises(wb.IndexRangeError, match="target 5 is no class of 5"):
        F.cross_entropy(x, wb.tensor([0, 1, 2, 3, 4, 5], device=device))
    with pytest.raises(IndexError, match="target -1"):
        F.nll_loss(x, wb.tensor([0, 1, 2, 3, 4, -1], device=device))


def test_wrong_arguments_say_what_to_write() -> None:
    x, t = wb.tensor(logits), wb.tensor(classes)
    with pytest.raises(wb.DTypeError, match=r"float"):
        F.cross_entropy(t, t)
    with pytest.raises(wb.ShapeError, match=r"class indices must be \(6,\), got \(5,\)"):
        F.cross_entropy(x, t[:5])
    with pytest.raises(wb.ShapeError, match="probabilities"):
        F.cross_entropy(x, x[:, :3])
    with pytest.raises(wb.ShapeError, match="one shape"):
        F.mse_loss(x, x[0])
    with pytest.raises(wb.ValueRangeError, match="reduction 'men'"):
        F.mse_loss(x, x, reduction="men")
    with pytest.raises(wb.DTypeError, match="target is int32"):
        F.mse_loss(x, t.reshape(6, 1))
    with pytest.raises(wb.ShapeError, match=r"weight \(3,\) must be \(5,\)"):
        F.cross_entropy(x, t, weight=wb.ones(3))
    with pytest.raises(wb.ValueRangeError, match="label_smoothing"):
        F.cross_entropy(x, t, label_smoothing=2.0)
