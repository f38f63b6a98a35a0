"""Adagrad."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .optimizer import Group, Optimizer, State, check, zeros_beside


class Adagrad(Optimizer):
    """Divides gradients by the root of the sum of all their squares so far."""

    elementwise = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check_group(self, group: Group) -> None:
        for name in ("lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value"):
            check(f"Adagrad: {name}", group[name], 0.0)

    def start(self, group: Group, p: Any) -> State:
        return {"step": 0, "sum": zeros_beside(p, group["initial_accumulator_value"])}

    def update(self, group: Group, p: Any, grad: Any, state: State) -> Any:
        step = state["step"] = state["step"] + 1
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"]:
            grad = grad + p * self.slot("weight_decay", group["weight_decay"], p)
        total = state["sum"] = state["sum"] + grad * grad
        lr = group["lr"] / (1.0 + (step - 1) * group["lr_decay"])
        return p - grad / (total.sqrt() + self.slot("eps", group["eps"], p)) * self.slot(
            "lr", lr, p
        )
