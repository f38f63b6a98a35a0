"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .optimizer import Group, Optimizer, State, check, zeros_beside


class Adam(Optimizer):
    """Steps by the mean of gradients over the root of the mean of their squares, both corrected
    for their start.

    weight_decay adds to the gradient (AdamW: takes off the parameter); amsgrad divides by the
    largest root so far.
    """

    elementwise = True
    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check_group(self, group: Group) -> None:
        name = type(self).__name__
        check(f"{name}: lr", group["lr"], 0.0)
        check(f"{name}: eps", group["eps"], 0.0)
        check(f"{name}: weight_decay", group["weight_decay"], 0.0)
        for i in (0, 1):
            check(f"{name}: betas[{i}]", group["betas"][i], 0.0, 1.0, open_high=True)

    def start(self, group: Group, p: Any) -> State:
        state: State = {"step": 0, "exp_avg": zeros_beside(p), "exp_avg_sq": zeros_beside(p)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_beside(p)
        return state

    def update(self, group: Group, p: Any, grad: Any, state: State) -> Any:
        step = state["step"] = state["step"] + 1
        beta1, beta2 = group["betas"]
        lr, decay = group["lr"], group["weight_decay"]
        if group["maximize"]:
            grad = -grad
        if decay and self.decoupled:
            p = p * self.slot("shrink", 1.0 - lr * decay, p)
        elif decay:
            grad = grad + p * self.slot("weight_decay", decay, p)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean = state["exp_avg"] = mean + (grad - mean) * self.slot("new in mean", 1.0 - beta1, p)
        square = state["exp_avg_sq"] = square * self.slot(
            "beta2", beta2, p
        ) + grad * grad * self.slot("new in square", 1.0 - beta2, p)
        if group["amsgrad"]:
            square = state["max_exp_avg_sq"] = state["max_exp_avg_sq"].maximum(square)
        unbias = self.slot("unbias", 1.0 / math.sqrt(1.0 - beta2**step), p)
        root = square.sqrt() * unbias + self.slot("eps", group["eps"], p)
        return p - mean / root * self.slot("lr", lr / (1.0 - beta1**step), p)


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
