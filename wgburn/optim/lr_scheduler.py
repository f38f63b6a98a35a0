"""Learning rate schedules by torch's names and values.

Owns: when a group's lr (and momentum) changes. Must not know: update rules. lr is a slot of the
optimizer's plan, so changing it compiles nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.errors import StateDictError, ValueRangeError
from .optimizer import Optimizer


class LRScheduler:
    """Base: `next(i, group)` gives the lr of group i at `self.last_epoch`;
    step() moves on by one.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        self.last_epoch = last_epoch
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueRangeError(
                    f"{type(self).__name__}: resuming at epoch {last_epoch} needs 'initial_lr' in "
                    f"group {i}; "
                    "load the optimizer's state_dict first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.step()

    def next(self, i: int, group: dict[str, Any]) -> float:
        raise NotImplementedError

    def at(self, i: int, epoch: int) -> float:
        """The lr of group i at an epoch where nothing else changes it."""
        raise NotImplementedError

    def step(self) -> None:
        """Move on: once after each optimizer.step(), or each epoch, as the schedule is meant."""
        self.last_epoch += 1
        self._set([self.next(i, group) for i, group in enumerate(self.optimizer.param_groups)])

    def restart(self) -> None:
        """Begin again at epoch 0, from the base lr."""
        self.last_epoch = 0
        self._set([self.at(i, 0) for i in range(len(self.base_lrs))])

    def _set(self, lrs: list[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            group["lr"] = lr
        self._last_lr = lrs

    def get_last_lr(self) -> list[float]:
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {
            k: v for k, v in self.__dict__.items() if k != "optimizer" and not _holds_function(v)
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        unknown = sorted(set(state_dict) - set(self.__dict__))
        if unknown:
            raise StateDictError(
                f"{type(self).__name__} has no {', '.join(unknown)}: the state is of another "
                "schedule"
            )
        self.__dict__.update(state_dict)


def _holds_function(value: Any) -> bool:
    return callable(value) or (isinstance(value, list) and any(callable(v) for v in value))


class _Multiplied(LRScheduler):
    """lr = floor + (base - floor) * factor(epoch), reached step by step from the lr that is there.

    Steps by the ratio of two factors, so that several schedules may act on one optimizer.
    """

    floor = 0.0

    def factor(self, epoch: int) -> float:
        raise NotImplementedError

    def at(self, i: int, epoch: int) -> float:
        return self.floor + (self.base_lrs[i] - self.floor) * self.factor(epoch)

    def next(self, i: int, group: dict[str, Any]) -> float:
        epoch = self.last_epoch
        now = self.factor(epoch)
        before = self.factor(epoch - 1) if epoch > 0 else 1.0
        if now == before:
            return group["lr"]  # type: ignore[no-any-return]
        if abs(before) < 1e-9:
            return self.at(i, epoch)
        return self.floor + (group["lr"] - self.floor) * (now / before)


class StepLR(_Multiplied):
    """Multiplies by gamma every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(_Multiplied):
    """Multiplies by gamma at each of the milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return float(self.gamma ** sum(n for m, n in self.milestones.items() if m <= epoch))


class ExponentialLR(_Multiplied):
    """Multiplies by gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return float(self.gamma**epoch)


class ConstantLR(_Multiplied):
    """factor times the base for total_iters epochs, then the base."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueRangeError(f"ConstantLR: factor={factor} must be 0 to 1")
        self.start, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return self.start if epoch < self.total_iters else 1.0


class LinearLR(_Multiplied):
    """From start_factor times the base to end_factor times the base in total_iters epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueRangeError(
                f"LinearLR: start_factor={start_factor} must be above 0, and both factors at most 1"
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        share = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start_factor + (self.end_factor - self.start_factor) * share


class CosineAnnealingLR(_Multiplied):
    """Half a cosine from the base to eta_min in T_max epochs (and back in the next T_max)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.floor = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    @property
    def eta_min(self) -> float:
        return self.floor

    def factor(self, epoch: int) -> float:
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class _OfEpoch(LRScheduler):
    """lr is a function of the base and the epoch alone."""

    def next(self, i: int, group: dict[str, Any]) -> float:
        return self.at(i, self.last_epoch)


class LambdaLR(_OfEpoch):
    """base * lr_lambda(epoch); one function, or one a group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        n = len(optimizer.param_groups)
        self.lr_lambdas = (
            list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        )
        if len(self.lr_lambdas) != n:
            raise ValueRangeError(
                f"LambdaLR: {len(self.lr_lambdas)} functions for {n} parameter groups"
            )
        super().__init__(optimizer, last_epoch)

    def at(self, i: int, epoch: int) -> float:
        return float(self.base_lrs[i] * self.lr_lambdas[i](epoch))


class NoamLR(_OfEpoch):
    """Linear warm-up, then falling with the root of the step: base / sqrt(model_size) *
    min(n^-0.5, n * warmup^-1.5).
    """

    def __init__(
        self, optimizer: Optimizer, model_size: int, warmup_steps: int = 4000, last_epoch: int = -1
    ) -> None:
        if model_size < 1 or warmup_steps < 1:
            raise ValueRangeError(
                f"NoamLR: model_size={model_size} and warmup_steps={warmup_steps} must be at least "
                "1"
            )
        self.model_size, self.warmup_steps = model_size, warmup_steps
        super().__init__(optimizer, last_epoch)

    def at(self, i: int, epoch: int) -> float:
        n = epoch + 1
        return float(
            self.base_lrs[i] * self.model_size**-0.5 * min(n**-0.5, n * self.warmup_steps**-1.5)
        )


class CosineAnnealingWarmRestarts(_OfEpoch):
    """Half a cosine from the base to eta_min, again and again;
    each T_mult times as long as the last.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ValueRangeError(
                f"CosineAnnealingWarmRestarts: T_0={T_0} and T_mult={T_mult} must be at least 1"
            )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def at(self, i: int, epoch: int) -> float:
        length, done = self.T_0, epoch
        if self.T_mult == 1:
            done %= length
        while done >= length:
            done -= length
            length *= self.T_mult
        return (
            self.eta_min
            + (self.base_lrs[i] - self.eta_min) * (1 + math.cos(math.pi * done / length)) / 2
        )


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))


def _straight(start: float, end: float, share: float) -> float:
    return (end - start) * share + start


class OneCycleLR(_OfEpoch):
    """Up from max_lr / div_factor to max_lr and down to far below where it began; momentum the
    other way round.

    Meant to be stepped after every batch, total_steps (or epochs * steps_per_epoch) times.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if not epochs or not steps_per_epoch:
                raise ValueRangeError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1:
            raise ValueRangeError(
                f"OneCycleLR: total_steps={total_steps} must be positive and pct_start={pct_start} "
                "0 to 1"
            )
        if anneal_strategy not in ("cos", "linear"):
            raise ValueRangeError(
                f"OneCycleLR: anneal_strategy={anneal_strategy!r}; use 'cos' or 'linear'"
            )
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        first = float(pct_start * total_steps) - 1
        last = total_steps - 1
        # (end, lr from, lr to, momentum from, momentum to)
        self.phases: list[tuple[float, str, str, str, str]] = [
            (first, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        ]
        if three_phase:
            self.phases.append(
                (
                    float(2 * pct_start * total_steps) - 2,
                    "max_lr",
                    "initial_lr",
                    "base_momentum",
                    "max_momentum",
                )
            )
            self.phases.append((last, "initial_lr", "min_lr", "max_momentum", "max_momentum"))
        else:
            self.phases.append((last, "max_lr", "min_lr", "base_momentum", "max_momentum"))
        if last_epoch == -1:
            self._prepare(
                optimizer, max_lr, base_momentum, max_momentum, div_factor, final_div_factor
            )
        super().__init__(optimizer, last_epoch)

    def _prepare(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        base_momentum: Any,
        max_momentum: Any,
        div: float,
        final_div: float,
    ) -> None:
        groups = optimizer.param_groups
        n = len(groups)
        if self.cycle_momentum and not all("momentum" in g or "betas" in g for g in groups):
            raise ValueRangeError(
                f"OneCycleLR: {type(optimizer).__name__} has neither momentum nor betas to cycle; "
                "pass cycle_momentum=False"
            )
        tops, lows, highs = (
            _each(name, v, n)
            for name, v in (
                ("max_lr", max_lr),
                ("base_momentum", base_momentum),
                ("max_momentum", max_momentum),
            )
        )
        for group, top, low, high in zip(groups, tops, lows, highs, strict=True):
            group["initial_lr"] = top / div
            group["max_lr"] = top
            group["min_lr"] = group["initial_lr"] / final_div
            if self.cycle_momentum:
                group["base_momentum"], group["max_momentum"] = low, high

    def at(self, i: int, epoch: int) -> float:
        if epoch > self.total_steps:
            raise ValueRangeError(
                f"OneCycleLR: step {epoch} of {self.total_steps}; the cycle is over, so stop "
                "stepping or give more total_steps"
            )
        group = self.optimizer.param_groups[i]
        curve = _cosine if self.anneal_strategy == "cos" else _straight
        start = 0.0
        for k, (end, lr_from, lr_to, m_from, m_to) in enumerate(self.phases):
            if epoch <= end or k == len(self.phases) - 1:
                share = (epoch - start) / (end - start) if end != start else 1.0
                if self.cycle_momentum:
                    _set_momentum(group, curve(group[m_from], group[m_to], share))
                return curve(group[lr_from], group[lr_to], share)
            start = end
        raise AssertionError("the last phase takes every step")


def _set_momentum(group: dict[str, Any], value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _each(name: str, value: Any, n: int) -> list[float]:
    if isinstance(value, (list, tuple)):
        if len(value) != n:
            raise ValueRangeError(f"{name}: {len(value)} values for {n} parameter groups")
        return [float(v) for v in value]
    return [float(value)] * n


class SequentialLR(LRScheduler):
    """Schedules one after the other: the next one begins at each milestone."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ValueRangeError(
                f"SequentialLR: {len(schedulers)} schedules need {max(len(schedulers) - 1, 1)} "
                f"milestones, got {len(milestones)}"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueRangeError("SequentialLR: every schedule must be of the optimizer given")
        self.optimizer = optimizer
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        self.last_epoch = 0
        # Building the later schedules has moved the lr already.
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self.schedulers[0].restart()
        self._last_lr = self.schedulers[0].get_last_lr()

    def step(self) -> None:
        self.last_epoch += 1
        i = bisect_right(self.milestones, self.last_epoch)
        if i > 0 and self.milestones[i - 1] == self.last_epoch:
            self.schedulers[i].restart()
        else:
            self.schedulers[i].step()
        self._last_lr = self.schedulers[i].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        out = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "schedulers")}
        return {**out, "schedulers": [s.state_dict() for s in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        inner = state_dict.get("schedulers", [])
        if len(inner) != len(self.schedulers):
            raise StateDictError(
                f"{type(self).__name__}: the state has {len(inner)} schedules, this one "
                f"{len(self.schedulers)}"
            )
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "schedulers"})
        for scheduler, state in zip(self.schedulers, inner, strict=True):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau:
    """Multiplies the lr by `factor` when a metric has not become better for `patience` steps:
    step(metric).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if not factor < 1.0:
            raise ValueRangeError(f"ReduceLROnPlateau: factor={factor} must be below 1")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueRangeError(
                f"ReduceLROnPlateau: mode={mode!r}, threshold_mode={threshold_mode!r}; use 'min' "
                "or 'max', 'rel' or 'abs'"
            )
        self.optimizer = optimizer
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = (
            threshold,
            threshold_mode,
            cooldown,
            eps,
        )
        self.min_lrs = _each("min_lr", min_lr, len(optimizer.param_groups))
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def _better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if math.isinf(self.best):
            return value == value and value != self.best
        relative = self.threshold_mode == "rel"
        limit = (
            self.best * (1.0 + sign * self.threshold)
            if relative
            else self.best + sign * self.threshold
        )
        return value > limit if self.mode == "max" else value < limit

    def step(self, metrics: Any) -> None:
        """Take the epoch's metric (a number or a 0-d tensor, which is read)."""
        value = float(metrics)
        self.last_epoch += 1
        if self._better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                new = max(group["lr"] * self.factor, least)
                if group["lr"] - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)
