"""Schedules against torch: the lr (and momentum) of 50 steps, states, bad settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import wgburn as wb
from wgburn import nn

pytestmark = [
    pytest.mark.quick,
    pytest.mark.filterwarnings("ignore:Detected call of:UserWarning"),
    pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning"),
]

STEPS = 50


def pair(**settings: Any) -> tuple[Any, Any]:
    """An optimizer of ours and torch's, two groups of different lr."""
    kind = settings.pop("kind", "SGD")
    ours = [nn.Parameter(wb.ones(1)) for _ in range(2)]
    theirs = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]

    def groups(p: list[Any]) -> list[dict[str, Any]]:
        return [{"params": p[:1]}, {"params": p[1:], "lr": 0.3}]

    return (
        getattr(wb.optim, kind)(groups(ours), lr=0.1, **settings),
        getattr(torch.optim, kind)(groups(theirs), lr=0.1, **settings),
    )


def lrs(opt: Any) -> list[float]:
    return [float(g["lr"]) for g in opt.param_groups]


CASES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 7, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 10, 10, 30], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 6}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.0, "total_iters": 20}),
    ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    ("CosineAnnealingLR", {"T_max": 49}),
    ("LambdaLR", {"lr_lambda": lambda e: 0.95**e}),
    ("LambdaLR", {"lr_lambda": [lambda e: 1 / (e + 1), lambda e: 0.5]}),
    ("CosineAnnealingWarmRestarts", {"T_0": 7, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": STEPS}),
    ("OneCycleLR", {"max_lr": [1.0, 2.0], "epochs": 5, "steps_per_epoch": 10, "three_phase": True}),
    (
        "OneCycleLR",
        {
            "max_lr": 1.0,
            "total_steps": STEPS,
            "anneal_strategy": "linear",
            "pct_start": 0.1,
            "div_factor": 10.0,
            "final_div_factor": 100.0,
        },
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{'-'.join(c[1])}")
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_fifty_steps_equal_torchs(case: tuple[str, dict[str, Any]], kind: str) -> None:
    name, settings = case
    ours, theirs = pair(kind=kind, **({"momentum": 0.9} if kind == "SGD" else {}))
    a = getattr(wb.optim.lr_scheduler, name)(ours, **settings)
    b = getattr(torch.optim.lr_scheduler, name)(theirs, **settings)
    for step in range(STEPS):
        assert lrs(ours) == pytest.approx(lrs(theirs), rel=1e-5, abs=1e-12), step
        assert a.get_last_lr() == pytest.approx(b.get_last_lr(), rel=1e-5, abs=1e-12)
        for g, h in zip(ours.param_groups, theirs.param_groups, strict=True):
            key = "momentum" if kind == "SGD" else "betas"
            assert g[key] == pytest.approx(h[key], rel=1e-6)
        if step < STEPS - 1:
            ours.step(), theirs.step()
            a.step(), b.step()


def test_two_schedules_at_once_equal_torchs() -> None:
    ours, theirs = pair()
    a = [
        wb.optim.lr_scheduler.LinearLR(ours, 0.1, total_iters=10),
        wb.optim.lr_scheduler.ExponentialLR(ours, 0.9),
    ]
    b = [
        torch.optim.lr_scheduler.LinearLR(theirs, 0.1, total_iters=10),
        torch.optim.lr_scheduler.ExponentialLR(theirs, 0.9),
    ]
    for _ in range(20):
        assert lrs(ours) == pytest.approx(lrs(theirs), rel=1e-5)
        for s in (*a, *b):
            s.step()


def test_sequential_equals_torchs() -> None:
    ours, theirs = pair()

    def build(lib: Any, opt: Any) -> Any:
        s = lib.lr_scheduler
        parts = [
            s.LinearLR(opt, 0.1, total_iters=5),
            s.CosineAnnealingLR(opt, 20),
            s.ExponentialLR(opt, 0.9),
        ]
        return s.SequentialLR(opt, parts, [5, 15])

    a, b = build(wb.optim, ours), build(torch.optim, theirs)
    for step in range(STEPS):
        assert lrs(ours) == pytest.approx(lrs(theirs), rel=1e-5), step
        a.step(), b.step()


@pytest.mark.parametrize(
    "settings",
    [
        {"patience": 2},
        {"mode": "max", "patience": 1, "cooldown": 2, "threshold_mode": "abs", "threshold": 0.1},
        {"patience": 0, "min_lr": [0.01, 0.05], "factor": 0.5},
    ],
)
def test_plateau_equals_torchs(settings: dict[str, Any]) -> None:
    ours, theirs = pair()
    a = wb.optim.lr_scheduler.ReduceLROnPlateau(ours, **settings)
    b = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **settings)
    values = [
        3,
        2,
        2,
        2,
        2.0001,
        1,
        1,
        1,
        1,
        float("nan"),
        5,
        0.5,
        0.5,
        0.5,
        0.5,
        7,
        7,
        7,
        8,
        8,
    ] * 2
    for i, value in enumerate(values):
        a.step(wb.tensor(value) if i % 2 else value)
        b.step(value)
        assert lrs(ours) == pytest.approx(lrs(theirs), rel=1e-6), i
        assert a.num_bad_epochs == b.num_bad_epochs, i


def test_noam_rises_and_falls() -> None:
    opt = wb.optim.SGD([nn.Parameter(wb.ones(1))], lr=2.0)
    schedule = wb.optim.lr_scheduler.NoamLR(opt, model_size=64, warmup_steps=10)
    seen = []
    for _ in range(40):
        seen.append(opt.param_groups[0]["lr"])
        schedule.step()
    assert seen[0] == pytest.approx(2.0 / 8 * 10**-1.5)
    assert seen.index(max(seen)) == 9
    assert seen[39] == pytest.approx(2.0 / 8 * 40**-0.5)


@pytest.mark.parametrize("case", [c for c in CASES if c[0] != "LambdaLR"], ids=lambda c: c[0])
def test_states_resume(case: tuple[str, dict[str, Any]]) -> None:
    name, settings = case
    opt, _ = pair(momentum=0.9)
    schedule = getattr(wb.optim.lr_scheduler, name)(opt, **settings)
    for _ in range(11):
        schedule.step()
    again, _ = pair(momentum=0.9)
    other = getattr(wb.optim.lr_scheduler, name)(again, **settings)
    again.load_state_dict(opt.state_dict())
    other.load_state_dict(schedule.state_dict())
    for _ in range(20):
        schedule.step()
        other.step()
        assert lrs(again) == lrs(opt)


def test_bad_settings_are_refused() -> None:
    opt, _ = pair()
    s = wb.optim.lr_scheduler
    for make, match in (
        (lambda: s.OneCycleLR(opt, 1.0), "total_steps"),
        (lambda: s.OneCycleLR(opt, [1.0], 10), "max_lr"),
        (lambda: s.OneCycleLR(opt, 1.0, 10, anneal_strategy="x"), "anneal"),
        (lambda: s.LinearLR(opt, 0.0), "start_factor"),
        (lambda: s.SequentialLR(opt, [s.ExponentialLR(opt, 0.9)], [3]), "milestones"),
        (lambda: s.ReduceLROnPlateau(opt, factor=1.0), "factor"),
        (lambda: s.LambdaLR(opt, [lambda e: 1.0]), "groups"),
        (lambda: s.ExponentialLR(pair()[0], 0.9, last_epoch=3), "initial_lr"),
        (lambda: s.OneCycleLR(wb.optim.Adagrad([nn.Parameter(wb.ones(1))]), 1.0, 10), "momentum"),
    ):
        with pytest.raises(ValueError, match=match):
            make()
    schedule = s.OneCycleLR(opt, 1.0, 3)
    with pytest.raises(wb.ValueRangeError, match="over"):
        for _ in range(4):
            schedule.step()
    with pytest.raises(wb.StateDictError):
        s.ExponentialLR(opt, 0.9).load_state_dict({"T_max": 3})
