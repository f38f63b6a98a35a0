"""Normalisation: batch, instance, group, layer and RMS norm, with gradients in closed form.

Each forward computes mean and variance in two passes (no cancellation) and each backward is a few
full-size passes, where the tape of the composite would keep and walk a dozen.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...autodiff.custom import attach, recording
from ...autodiff.functional import no_grad
from ...core.errors import ShapeError, ValueRangeError
from .checks import need_float


def _moments(x: Any, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and biased variance over dims, which stay as size 1."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    return mean, (centred * centred).mean(dims, keepdim=True)


# -- statistics a channel or a group of channels: x as [N, G, K, S], K channels a group ---------------


def _grouped_rule(dims: tuple[int, ...], eps: float) -> Any:
    count = "n"

    def rule(c: Any, g: Any) -> tuple[Any, ...]:
        x, weight, _, mean, rstd = c.ins
        if mean is None:  # only the bias wants a gradient
            return None, None, g.sum_to(c.shapes[2]), None, None
        if recording():
            mean, var = _moments(x, dims)
            rstd = (var + eps).rsqrt()
        scale = rstd if weight is None else rstd * weight
        kept = scale.shape if weight is not None else c.shapes[3]
        n = prod(c.shapes[0][i] for i in dims)
        centred = x - mean
        s0 = g.sum_to(kept)
        s1 = (g * centred).sum_to(kept)
        gx = gw = None
        if c.needs[0]:
            w0, w1 = (s0, s1) if weight is None else (s0 * weight, s1 * weight)
            m0 = w0.sum_to(mean.shape) / float(n)
            m1 = w1.sum_to(mean.shape) / float(n)
            gx = g * scale - centred * (m1 * rstd * rstd * rstd) - m0 * rstd
        if c.needs[1]:
            gw = (s1 * rstd).sum_to(c.shapes[1])
        return gx, gw, s0.sum_to(c.shapes[2]) if c.needs[2] else None, None, None

    del count
    return rule


def _grouped(op: str, x: Any, weight: Any, bias: Any, dims: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(x - mean) / sqrt(var + eps) * weight + bias with statistics over dims of the 4-d x; and both statistics."""
    with no_grad():
        mean, var = _moments(x, dims)
        rstd = (var + eps).rsqrt()
        scale = rstd if weight is None else rstd * weight
        shift = -(mean * scale)
        shift = shift if bias is None else shift + bias
        out = x * scale + shift
    # Absent weights are stood in for by constants, which no rule reads.
    inputs = (x, mean if weight is None else weight, mean if bias is None else bias, mean, rstd)
    read = (0, 3, 4) if weight is None else (0, 1, 3, 4)
    return attach(out, op, inputs, _grouped_rule(dims, eps), (read, read, ())), mean, var
