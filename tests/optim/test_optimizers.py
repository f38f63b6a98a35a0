"""Optimizers against torch over 50 steps; states, groups, failures in mid-step, plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import wgburn as wb
from wgburn import nn

STEPS = 50
TOLERANCE = 1e-5

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.01, "maximize": True, "momentum": 0.5}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-6}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("Adam", {"lr": 0.01, "maximize": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1}),
    (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    ),
]


def start() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (3,), (5,))]


def data(step: int) -> np.ndarray:
    return np.random.default_rng(step).standard_normal((6, 4)).astype(np.float32)


def torch_loss(p: list[torch.Tensor], step: int) -> torch.Tensor:
    y = torch.tanh(torch.from_numpy(data(step)) @ p[0] + p[1])
    return (y * y).mean() + (p[2] * p[2] * 0.1 * (step % 3)).sum()


def our_loss(p: list[Any], step: int) -> Any:
    y = (wb.tensor(data(step), device=p[0].device) @ p[0] + p[1]).tanh()
    return (y * y).mean() + (p[2] * p[2] * (0.1 * (step % 3))).sum()


def parameters(device: wb.Device) -> list[nn.Parameter]:
    return [nn.Parameter(wb.tensor(a, device=device.autodiff())) for a in start()]


def train(opt: Any, p: list[Any], loss: Callable[..., Any], steps: range) -> None:
    for i in steps:
        opt.zero_grad()
        loss(p, i).backward()
        opt.step()


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{'-'.join(c[1])}")
def test_fifty_steps_equal_torchs(case: tuple[str, dict[str, Any]], device: wb.Device) -> None:
    name, settings = case
    ours, theirs = parameters(device), [torch.from_numpy(a).requires_grad_() for a in start()]
    train(getattr(wb.optim, name)(ours, **settings), ours, our_loss, range(STEPS))
    train(getattr(torch.optim, name)(theirs, **settings), theirs, torch_loss, range(STEPS))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=TOLERANCE, rtol=TOLERANCE)


def test_adam_to_a_millionth(cpu: wb.Device) -> None:
    ours, theirs = parameters(cpu), [torch.from_numpy(a).requires_grad_() for a in start()]
    train(wb.optim.Adam(ours, lr=1e-3), ours, our_loss, range(STEPS))
    train(torch.optim.Adam(theirs, lr=1e-3), theirs, torch_loss, range(STEPS))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{'-'.join(c[1])}")
@pytest.mark.parametrize("source", ["torch", "wgburn"])
def test_states_resume(case: tuple[str, dict[str, Any]], source: str, cpu: wb.Device) -> None:
    """20 steps, state into a new optimizer (from torch too), 10 more: as 30 in one go."""
    name, settings = case
    theirs = [torch.from_numpy(a).requires_grad_() for a in start()]
    t_opt = getattr(torch.optim, name)(theirs, **settings)
    train(t_opt, theirs, torch_loss, range(20))
    if source == "torch":
        ours = [nn.Parameter(wb.tensor(p.detach().numpy(), device=cpu.autodiff())) for p in theirs]
        state = t_opt.state_dict()
    else:
        before = parameters(cpu)
        first = getattr(wb.optim, name)(before, **settings)
        train(first, before, our_loss, range(20))
        ours = [nn.Parameter(p.detach()) for p in before]
        state = first.state_dict()
    opt = getattr(wb.optim, name)(ours, lr=123.0)
    opt.load_state_dict(state)
    assert opt.param_groups[0]["lr"] == settings["lr"]
    train(opt, ours, our_loss, range(20, 30))
    train(t_opt, theirs, torch_loss, range(20, 30))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=TOLERANCE, rtol=TOLERANCE)


def test_torch_takes_our_state(cpu: wb.Device) -> None:
    ours = parameters(cpu)
    opt = wb.optim.AdamW(ours, lr=0.01)
    train(opt, ours, our_loss, range(3))
    theirs = [torch.from_numpy(p.numpy()).requires_grad_() for p in ours]
    t_opt = torch.optim.AdamW(theirs, lr=1.0)
    state = opt.state_dict()
    state["state"] = {
        i: {k: torch.from_numpy(v.numpy()) if isinstance(v, wb.Tensor) else v for k, v in s.items()}
        for i, s in state["state"].items()
    }
    t_opt.load_state_dict(state)
    train(t_opt, theirs, torch_loss, range(3, 6))
    train(opt, ours, our_loss, range(3, 6))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{'-'.join(c[1])}")
def test_every_step_runs_one_plan(case: tuple[str, dict[str, Any]], cpu: wb.Device) -> None:
    name, settings = case
    p = parameters(cpu)
    opt = getattr(wb.optim, name)(p, **settings)
    plans = cpu.backend.plan_misses
    for i in range(5):
        # A schedule through values that are structure elsewhere.
        opt.param_groups[0]["lr"] = (0.0, 1.0, 0.5, 0.25, 1.0)[i]
        opt.zero_grad()
        loss = our_loss(p, 1)
        loss.backward()
        del loss
        opt.step()
    assert cpu.backend.plan_misses - plans <= 1


def test_groups_have_their_own_settings(cpu: wb.Device) -> None:
    ours, theirs = parameters(cpu), [torch.from_numpy(a).requires_grad_() for a in start()]

    def groups(p: list[Any]) -> list[dict[str, Any]]:
        return [{"params": p[:1], "lr": 0.5}, {"params": p[1:2], "weight_decay": 0.3}]

    opt, t_opt = wb.optim.SGD(groups(ours), lr=0.1), torch.optim.SGD(groups(theirs), lr=0.1)
    opt.add_param_group({"params": ours[2], "momentum": 0.9})
    t_opt.add_param_group({"params": theirs[2], "momentum": 0.9})
    train(opt, ours, our_loss, range(8))
    train(t_opt, theirs, torch_loss, range(8))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=TOLERANCE)
    assert [g["params"] for g in opt.state_dict()["param_groups"]] == [[0], [1], [2]]


def test_without_a_gradient_nothing_moves(cpu: wb.Device) -> None:
    p = parameters(cpu)
    opt = wb.optim.Adam(p, lr=0.1, weight_decay=0.1)
    (p[0] * p[0]).sum().backward()
    opt.step()
    np.testing.assert_array_equal(p[1].numpy(), start()[1])
    assert (p[0].numpy() != start()[0]).all()
    assert list(opt.state_dict()["state"]) == [0]


def test_gradients_accumulate_and_are_let_go(cpu: wb.Device) -> None:
    p = parameters(cpu)
    opt = wb.optim.SGD(p, lr=0.1)
    for _ in range(2):
        (p[1] * 3.0).sum().backward()
    np.testing.assert_array_equal(p[1].grad.numpy(), [6, 6, 6])
    opt.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(p[1].grad.numpy(), [0, 0, 0])
    opt.zero_grad()
    assert all(q.grad is None for q in p)


def test_a_failed_step_leaves_everything_as_it_was(
    device: wb.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = parameters(device)
    opt = wb.optim.Adam(p, lr=0.1)
    train(opt, p, our_loss, range(2))
    values = [q.numpy() for q in p]
    states = {
        i: {k: np.asarray(v) for k, v in s.items()} for i, s in opt.state_dict()["state"].items()
    }
    opt.zero_grad()
    our_loss(p, 2).backward()
    gradients = [q.grad.numpy() for q in p]
    backend = p[0]._node.backend

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise wb.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "execute", refuse)
        with pytest.raises(wb.OutOfMemoryError):
            opt.step()
    for q, value in zip(p, values, strict=True):
        np.testing.assert_array_equal(q.numpy(), value)
    for i, s in opt.state_dict()["state"].items():
        for key, value in s.items():
            np.testing.assert_array_equal(np.asarray(value), states[i][key], err_msg=key)
    for q, g in zip(p, gradients, strict=True):
        np.testing.assert_array_equal(q.grad.numpy(), g)
    opt.step()
    # As if nothing had happened.
    again = parameters(device)
    opt2 = wb.optim.Adam(again, lr=0.1)
    train(opt2, again, our_loss, range(3))
    for a, b in zip(p, again, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_a_bad_batch_in_mid_step_leaves_model_and_optimizer_usable(cpu: wb.Device) -> None:
    """An index that only running can find out of range, behind a BatchNorm."""
    with wb.use_device(cpu.autodiff()):
        model = nn.Sequential(nn.Embedding(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    opt = wb.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(index: wb.Tensor) -> None:
        opt.zero_grad()
        model(index).sum().backward()
        opt.step()

    step(wb.tensor([0, 1, 2, 3]))
    before = {k: v.numpy() for k, v in model.state_dict().items() if "num_batches" not in k}
    bad = wb.tensor([0.0, 1.0, 2.0, 9.0]).int()
    with pytest.raises(IndexError):
        step(bad)
    step(wb.tensor([0, 1, 2, 3]))
    after = {k: v.numpy() for k, v in model.state_dict().items() if "num_batches" not in k}
    assert all(np.isfinite(v).all() for v in after.values())
    assert (after["1.running_mean"] != before["1.running_mean"]).any()


def test_a_loop_without_reads_stays_flat(cpu: wb.Device) -> None:
    p = parameters(cpu)
    opt = wb.optim.Adam(p, lr=1e-3)
    for i in range(60):
        opt.zero_grad()
        our_loss(p, i % 3).backward()
        opt.step()
    assert all(q._node.store is not None for q in p)
    assert not cpu.backend.pending.nodes()
    assert len(cpu.backend.pending.refs) < 50


def test_old_parameters_are_not_kept(cpu: wb.Device) -> None:
    import gc
    import weakref

    p = parameters(cpu)
    opt = wb.optim.SGD(p, lr=0.1)
    opt.zero_grad()
    loss = our_loss(p, 1)
    loss.backward()
    old = weakref.ref(p[0]._node)
    opt.step()
    gc.collect()
    assert old() is None
    assert np.isfinite(loss.item())


def test_update_between_forward_and_backward_is_named(cpu: wb.Device) -> None:
    with wb.use_device(cpu.autodiff()):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    opt = wb.optim.SGD(model.parameters(), lr=0.1)
    x = wb.ones(1, 3)
    model(x).sum().backward()
    loss = model(x).sum()
    opt.step()
    with pytest.raises(wb.GradError, match=r"parameter '1\.weight'"):
        loss.backward()


def test_closure(cpu: wb.Device) -> None:
    p = parameters(cpu)
    opt = wb.optim.SGD(p, lr=0.1)

    def closure() -> Any:
        opt.zero_grad()
        loss = our_loss(p, 1)
        loss.backward()
        return loss

    first = opt.step(closure).item()
    assert opt.step(closure).item() < first


def test_step_async_is_step(cpu: wb.Device) -> None:
    import asyncio

    ours, other = parameters(cpu), parameters(cpu)
    opt, opt2 = wb.optim.Adam(ours, lr=0.1), wb.optim.Adam(other, lr=0.1)
    our_loss(ours, 1).backward()
    our_loss(other, 1).backward()
    asyncio.run(opt.step_async())
    opt2.step()
    for a, b in zip(ours, other, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_moving_the_model_keeps_the_optimizer(cpu: wb.Device) -> None:
    model = nn.Linear(3, 2)
    opt = wb.optim.SGD(model.parameters(), lr=0.1)
    model.to(cpu.autodiff())
    model(wb.ones(1, 3)).sum().backward()
    before = model.bias.numpy()
    opt.step()
    np.testing.assert_allclose(model.bias.numpy(), before - 0.1, atol=1e-6)


def test_bad_settings_are_refused() -> None:
    p = [nn.Parameter(wb.ones(2))]
    for make, match in (
        (lambda: wb.optim.SGD(p, lr=-1.0), "lr"),
        (lambda: wb.optim.Adam(p, betas=(0.9, 1.0)), r"betas\[1\]"),
        (lambda: wb.optim.SGD(p, lr=0.1, nesterov=True), "nesterov"),
        (lambda: wb.optim.RMSprop(p, momentum=-1), "momentum"),
        (lambda: wb.optim.SGD([]), "no parameters"),
        (lambda: wb.optim.SGD([p[0], p[0]]), "twice"),
        (lambda: wb.optim.Adam(p, lr=float("nan")), "lr"),
    ):
        with pytest.raises(ValueError, match=match):
            make()
    with pytest.raises(wb.DTypeError, match="list of parameters"):
        wb.optim.SGD(p[0])
    opt = wb.optim.SGD(p)
    state = wb.optim.SGD([nn.Parameter(wb.ones(2)), nn.Parameter(wb.ones(2))]).state_dict()
    with pytest.raises(wb.StateDictError, match=r"\[2\]"):
        opt.load_state_dict(state)
    adam = wb.optim.Adam([nn.Parameter(wb.ones(3).to(wb.Device.cpu().autodiff()))])
    adam.param_groups[0]["params"][0].sum().backward()
    adam.step()
    other = wb.optim.Adam(p)
    with pytest.raises(wb.StateDictError, match="exp_avg"):
        other.load_state_dict(adam.state_dict())
    assert not other.state


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf"), 3.0])
def test_clip_grad_norm(norm: float, device: wb.Device) -> None:
    ours, theirs = parameters(device), [torch.from_numpy(a).requires_grad_() for a in start()]
    our_loss(ours, 2).backward()
    torch_loss(theirs, 2).backward()
    for limit in (0.1, 1e3):
        got = nn.utils.clip_grad_norm_(ours, limit, norm)
        want = torch.nn.utils.clip_grad_norm_(theirs, limit, norm)
        assert got.item() == pytest.approx(want.item(), rel=1e-4)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-6, rtol=1e-4)


def test_clip_grad_value_and_nonfinite(cpu: wb.Device) -> None:
    p = parameters(cpu)
    (p[1] * wb.tensor([5.0, -5.0, 0.25])).sum().backward()
    nn.utils.clip_grad_value_(p, 1.0)
    np.testing.assert_array_equal(p[1].grad.numpy(), [1, -1, 0.25])
    (p[1] * float("inf")).sum().backward()
    with pytest.raises(wb.ValueRangeError, match="inf"):
        nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
