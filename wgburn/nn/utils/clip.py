"""Limits to gradients, applied without reading any."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from ...autodiff.functional import no_grad
from ...core import journal
from ...core.errors import ValueRangeError
from ...tensor.creation import zeros
from ...tensor.movement import stack
from ...tensor.tensor import Tensor
from ..functional.norm import vector_norm


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Any]:
    every = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in every if p.grad is not None]


def _replace(p: Any, grad: Any) -> None:
    journal.note(partial(setattr, p, "grad", p.grad))
    p.grad = grad


def get_total_norm(tensors: Iterable[Any], norm_type: float = 2.0) -> Any:
    """The norm of all elements together, as a 0-d tensor."""
    with no_grad():
        items = list(tensors)
        if not items:
            return zeros(())
        norms = stack([vector_norm(t.detach(), norm_type) for t in items])
        return vector_norm(norms, norm_type)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Any:
    """Scale all gradients so that their norm together is at most max_norm. Returns the norm
    before, a tensor.

    error_if_nonfinite reads the norm and raises ValueRangeError where it is NaN or infinite.
    """
    held = _with_gradients(parameters)
    total = get_total_norm([p.grad for p in held], norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise ValueRangeError(
            f"clip_grad_norm_: the norm of the gradients is {total.item()}, so they cannot be "
            "scaled; "
            "look for a diverging loss, or pass error_if_nonfinite=False"
        )
    with no_grad():
        scale = (max_norm / (total + 1e-6)).minimum(1.0)
        for p in held:
            _replace(p, p.grad * scale.to(p.grad.dtype))
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of the gradients to -clip_value..clip_value."""
    limit = float(clip_value)
    with no_grad():
        for p in _with_gradients(parameters):
            _replace(p, p.grad.clamp(-limit, limit))
