"""Normalisation: batch, instance, group, layer and RMS norm, with gradients in closed form.

Each forward computes mean and variance in two passes (no cancellation) and each backward is a few
full-size passes, where the tape of the composite would keep and walk a dozen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

from ...autodiff.custom import attach, recording
from ...autodiff.functional import no_grad
from ...core.errors import ShapeError, ValueRangeError
from ...core.shape import axes, broadcast
from .checks import need_float


def _moments(x: Any, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and biased variance over dims, which stay as size 1."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    return mean, (centred * centred).mean(dims, keepdim=True)


# -- statistics of channels or groups of channels: x as [N, G, K, S], K channels a group


def _channel_rule(dims: tuple[int, ...], eps: float) -> Any:
    def rule(c: Any, g: Any) -> tuple[Any, ...]:
        x, weight, _, mean, rstd = c.ins
        kept = broadcast("norm", *c.shapes[1:4])
        sum_g = g.sum_to(kept)
        gb = sum_g.sum_to(c.shapes[2]) if c.needs[2] else None
        if x is None:  # only the bias has a gradient
            return None, None, gb, None, None
        if recording():
            mean, var = _moments(x, dims)
            rstd = (var + eps).rsqrt()
        centred = x - mean
        sum_gc = (g * centred).sum_to(kept)
        gw = (sum_gc * rstd).sum_to(c.shapes[1]) if c.needs[1] else None
        if not c.needs[0]:
            return None, gw, gb, None, None
        n = float(prod(c.shapes[0][i] for i in dims))
        scale = rstd
        if weight is not None:
            scale, sum_g, sum_gc = rstd * weight, sum_g * weight, sum_gc * weight
        shift = sum_g.sum_to(mean.shape) * rstd / n
        slope = sum_gc.sum_to(mean.shape) * (rstd * rstd * rstd) / n
        return g * scale - centred * slope - shift, gw, gb, None, None

    return rule


def _channel_norm(
    op: str, x: Any, weight: Any, bias: Any, dims: tuple[int, ...], eps: float
) -> tuple[Any, Any, Any]:
    """(x - mean) / sqrt(var + eps) * weight + bias with statistics over dims of [N, G, K, S],
    and both of them.
    """
    with no_grad():
        mean, var = _moments(x, dims)
        rstd = (var + eps).rsqrt()
        scale = rstd if weight is None else rstd * weight
        shift = -(mean * scale)
        shift = shift if bias is None else shift + bias
        out = x * scale + shift
    # Where weight or bias is absent a constant stands in, which no rule reads.
    inputs = (x, mean if weight is None else weight, mean if bias is None else bias, mean, rstd)
    reads = (0, 3, 4) if weight is None else (0, 1, 3, 4)
    return attach(out, op, inputs, _channel_rule(dims, eps), (reads, reads, ())), mean, var


def _channels(op: str, x: Any, least: int, **per_channel: Any) -> tuple[int, int, int]:
    """(N, C, S) of x [N, C, *S]; checks that everything per channel has C elements."""
    if x.ndim < least:
        raise ShapeError(
            f"{op}: input {x.shape} must be [N, C, ...] with at least {least} dimensions"
        )
    for name, t in per_channel.items():
        if t is not None and t.shape != (x.shape[1],):
            raise ShapeError(
                f"{op}: {name} {t.shape} must be ({x.shape[1]},), one a channel of input {x.shape}"
            )
    need_float(op, input=x, weight=per_channel.get("weight"), bias=per_channel.get("bias"))
    return x.shape[0], x.shape[1], prod(x.shape[2:])


def _update(running: Any, seen: Any, momentum: float) -> None:
    if running is not None:
        running.copy_(running * (1.0 - momentum) + seen.reshape(running.shape) * momentum)


def _by_running(
    x: Any, view: tuple[int, ...], mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    """Normalise by given statistics: one multiplication and one addition an element."""
    per_channel = (1, view[1], 1, 1)
    scale = (var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -(mean * scale)
    shift = shift if bias is None else shift + bias
    return x.reshape(view) * scale.reshape(per_channel) + shift.reshape(per_channel)


def _as_column(t: Any, view: tuple[int, ...]) -> Any:
    return None if t is None else t.reshape((1, view[1], view[2], 1))


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalise each channel of [N, C, *] over everything else.

    In training by the batch's statistics, which also move the running ones (in place; the variance
    unbiased);
    else by the running ones. Raises ShapeError for a training batch of one value a channel.
    """
    op = "batch_norm"
    n, c, s = _channels(
        op, input, 2, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    view = (n, c, 1, s)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueRangeError("batch_norm: training=False needs running_mean and running_var")
        return _by_running(input, view, running_mean, running_var, weight, bias, eps).reshape(
            input.shape
        )
    if n * s == 1:
        raise ShapeError(
            f"batch_norm: input {input.shape} has one value a channel, whose variance is unknown "
            "in training; "
            "use a larger batch or eval()"
        )
    x = input.reshape(view)
    y, mean, var = _channel_norm(
        op, x, _as_column(weight, view), _as_column(bias, view), (0, 2, 3), eps
    )
    with no_grad():
        _update(running_mean, mean, momentum)
        _update(running_var, var * (n * s / (n * s - 1.0)), momentum)
    return y.reshape(input.shape)


def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalise each channel of each item of [N, C, *].
    Raises ShapeError for one value a channel.
    """
    op = "instance_norm"
    n, c, s = _channels(
        op, input, 3, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    view = (n, c, 1, s)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueRangeError(
                "instance_norm: use_input_stats=False needs running_mean and running_var"
            )
        return _by_running(input, view, running_mean, running_var, weight, bias, eps).reshape(
            input.shape
        )
    if s == 1:
        raise ShapeError(
            f"instance_norm: input {input.shape} has one value a channel, whose variance is unknown"
        )
    x = input.reshape(view)
    y, mean, var = _channel_norm(
        op, x, _as_column(weight, view), _as_column(bias, view), (2, 3), eps
    )
    with no_grad():
        _update(running_mean, mean.mean(0), momentum)
        _update(running_var, var.mean(0) * (s / (s - 1.0)), momentum)
    return y.reshape(input.shape)


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Normalise groups of channels of each item of [N, C, *].
    Raises ShapeError where groups do not divide C.
    """
    n, c, s = _channels("group_norm", input, 2, weight=weight, bias=bias)
    if num_groups < 1 or c % num_groups:
        raise ShapeError(
            f"group_norm: {c} channels of input {input.shape} do not form {num_groups} equal groups"
        )
    view = (n, num_groups, c // num_groups, s)
    x = input.reshape(view)
    y, _, _ = _channel_norm(
        "group_norm", x, _as_column(weight, view), _as_column(bias, view), (2, 3), eps
    )
    return y.reshape(input.shape)


# -- statistics of rows: x as [rows, D], weight and bias [D]


def _row_rule(eps: float) -> Any:
    def rule(c: Any, g: Any) -> tuple[Any, ...]:
        x, weight, _, mean, rstd = c.ins
        gb = g.sum_to(c.shapes[2]) if c.needs[2] else None
        if x is None:
            return None, None, gb, None, None
        if recording():
            mean, var = _moments(x, (1,))
            rstd = (var + eps).rsqrt()
        normal = (x - mean) * rstd
        gn = g * normal
        gw = gn.sum_to(c.shapes[1]) if c.needs[1] else None
        if not c.needs[0]:
            return None, gw, gb, None, None
        if weight is not None:
            g, gn = g * weight, gn * weight
        gx = (g - g.mean(1, keepdim=True) - normal * gn.mean(1, keepdim=True)) * rstd
        return gx, gw, gb, None, None

    return rule


def _row_shape(op: str, x: Any, normalized_shape: Any, weight: Any, bias: Any) -> int:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[x.ndim - len(shape) :] != shape or x.ndim < len(shape):
        raise ShapeError(f"{op}: input {x.shape} must end in the normalized shape {shape}")
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and t.shape != shape:
            raise ShapeError(f"{op}: {name} {t.shape} must be the normalized shape {shape}")
    need_float(op, input=x, weight=weight, bias=bias)
    return prod(shape)


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Normalise over the last dimensions, which are normalized_shape."""
    d = _row_shape("layer_norm", input, normalized_shape, weight, bias)
    x = input.reshape((input.size // max(d, 1), d))
    w = None if weight is None else weight.reshape(d)
    b = None if bias is None else bias.reshape(d)
    with no_grad():
        mean, var = _moments(x, (1,))
        rstd = (var + eps).rsqrt()
        out = (x - mean) * rstd
        out = out if w is None else out * w
        out = out if b is None else out + b
    inputs = (x, mean if w is None else w, mean if b is None else b, mean, rstd)
    reads = (0, 3, 4) if w is None else (0, 1, 3, 4)
    y = attach(out, "layer_norm", inputs, _row_rule(eps), (reads, reads, ()))
    return y.reshape(input.shape)


def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    """Divide by the root mean square over the last dimensions;
    eps None: the dtype's smallest step.
    """
    _row_shape("rms_norm", input, normalized_shape, weight, None)
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    dims = tuple(range(input.ndim - count, input.ndim))
    small = {16: 2.0**-10, 32: 2.0**-23, 64: 2.0**-52}[input.dtype.bits] if eps is None else eps
    y = input * ((input * input).mean(dims, keepdim=True) + small).rsqrt()
    return y if weight is None else y * weight


# -- vectors


def vector_norm(
    x: Any, p: float = 2.0, dim: int | Sequence[int] | None = None, keepdim: bool = False
) -> Any:
    """The p-norm along dims, with gradient 0 at 0."""
    dims = axes("vector_norm", dim, x.ndim)
    if p == math.inf:
        return x.abs().amax(dims, keepdim)
    if p == 1:
        return x.abs().sum(dims, keepdim)
    total = (x * x if p == 2 else x.abs() ** p).sum(dims, keepdim)
    zero = total == 0
    safe = zero.where(1.0, total)
    return zero.where(0.0, safe.sqrt() if p == 2 else safe ** (1.0 / p))


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    """Divide by the p-norm along dim, or by eps where that is larger."""
    return input / vector_norm(input, p, dim, keepdim=True).maximum(eps)
