"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.errors import ValueRangeError
from .optimizer import Group, Optimizer, State, check, zeros_beside


class SGD(Optimizer):
    """p - lr * g;
    with momentum g is a running sum of gradients, with nesterov looked at one step ahead.
    """

    elementwise = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check_group(self, group: Group) -> None:
        check("SGD: lr", group["lr"], 0.0)
        check("SGD: momentum", group["momentum"], 0.0)
        check("SGD: weight_decay", group["weight_decay"], 0.0)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueRangeError("SGD: nesterov needs momentum above 0 and dampening 0")

    def update(self, group: Group, p: Any, grad: Any, state: State) -> Any:
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"]:
            grad = grad + p * self.slot("weight_decay", group["weight_decay"], p)
        if group["momentum"]:
            # torch keeps the first gradient undampened: the same ops on a buffer of zeros.
            before = state.get("momentum_buffer")
            first = before is None
            keep = 1.0 if first else 1.0 - group["dampening"]
            momentum = self.slot("momentum", group["momentum"], p)
            moved = (zeros_beside(p) if first else before) * momentum + grad * self.slot(
                "keep", keep, p
            )
            state["momentum_buffer"] = moved
            grad = grad + moved * momentum if group["nesterov"] else moved
        return p - grad * self.slot("lr", group["lr"], p)
