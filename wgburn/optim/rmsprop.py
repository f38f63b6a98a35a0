"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .optimizer import Group, Optimizer, State, check, zeros_beside


class RMSprop(Optimizer):
    """Divides gradients by the root of a running mean of their squares (about their mean, if
    centered).
    """

    elementwise = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check_group(self, group: Group) -> None:
        for name in ("lr", "eps", "weight_decay", "momentum", "alpha"):
            check(f"RMSprop: {name}", group[name], 0.0)

    def start(self, group: Group, p: Any) -> State:
        state: State = {"step": 0, "square_avg": zeros_beside(p)}
        if group["momentum"]:
            state["momentum_buffer"] = zeros_beside(p)
        if group["centered"]:
            state["grad_avg"] = zeros_beside(p)
        return state

    def update(self, group: Group, p: Any, grad: Any, state: State) -> Any:
        state["step"] += 1
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"]:
            grad = grad + p * self.slot("weight_decay", group["weight_decay"], p)
        alpha, rest = (
            self.slot("alpha", group["alpha"], p),
            self.slot("new in square", 1.0 - group["alpha"], p),
        )
        square = state["square_avg"] = state["square_avg"] * alpha + grad * grad * rest
        if group["centered"]:
            mean = state["grad_avg"] = state["grad_avg"] + (grad - state["grad_avg"]) * rest
            square = square - mean * mean
        direction = grad / (square.sqrt() + self.slot("eps", group["eps"], p))
        if group["momentum"]:
            direction = (
                state["momentum_buffer"] * self.slot("momentum", group["momentum"], p) + direction
            )
            state["momentum_buffer"] = direction
        return p - direction * self.slot("lr", group["lr"], p)
