"""Loss functions."""

from __future__ import annotations

import math
from typing import Any

from ...autodiff.custom import attach
from ...autodiff.functional import no_grad
from ...core.errors import DTypeError, IndexRangeError, ShapeError, ValueRangeError
from .checks import need_float, reduction_of
from .norm import vector_norm


def _same_shape(op: str, input: Any, target: Any) -> None:
    need_float(op, input=input, target=target)
    if input.shape != target.shape:
        raise ShapeError(
            f"{op}: input {input.shape} and target {target.shape} must have one shape; reshape or "
            "squeeze one"
        )


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """(input - target) squared.
    Raises ShapeError unless the shapes are equal (torch would broadcast).
    """
    _same_shape("mse_loss", input, target)
    d = input - target
    return reduction_of("mse_loss", d * d, reduction)


def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    _same_shape("l1_loss", input, target)
    return reduction_of("l1_loss", (input - target).abs(), reduction)


def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    """Half the square over beta below beta, linear above."""
    if beta < 0:
        raise ValueRangeError(f"smooth_l1_loss: beta={beta} must not be negative")
    if beta == 0:
        return l1_loss(input, target, reduction)
    _same_shape("smooth_l1_loss", input, target)
    d = (input - target).abs()
    return reduction_of(
        "smooth_l1_loss", (d < beta).where(d * d * (0.5 / beta), d - 0.5 * beta), reduction
    )


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    """Half the square up to delta, linear above."""
    if delta <= 0:
        raise ValueRangeError(f"huber_loss: delta={delta} must be positive")
    _same_shape("huber_loss", input, target)
    d = (input - target).abs()
    return reduction_of(
        "huber_loss", (d <= delta).where(d * d * 0.5, (d - 0.5 * delta) * delta), reduction
    )


# -- classes


def _class_layout(op: str, input: Any, target: Any, weight: Any) -> tuple[Any, Any]:
    """input as [N, C, P] and class indices as [N, P]."""
    if input.ndim < 1:
        raise ShapeError(f"{op}: input must be [N, C, ...] or [C], got {input.shape}")
    classes = input.shape[1] if input.ndim > 1 else input.shape[0]
    want = (input.shape[0], *input.shape[2:]) if input.ndim > 1 else ()
    if target.shape != want:
        raise ShapeError(
            f"{op}: input {input.shape} holds {classes} classes along dimension "
            f"{1 if input.ndim > 1 else 0}, so class "
            f"indices must be {want}, got {target.shape}"
        )
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"{op}: weight {weight.shape} must be ({classes},), one a class")
    n = input.shape[0] if input.ndim > 1 else 1
    places = math.prod(want[1:]) if want else 1
    return input.reshape((n, classes, places)), target.reshape((n, places))


def _all_count(op: str, target: Any, classes: int, ignore_index: int) -> bool:
    """True where the host knows that no target is to be ignored.

    Raises IndexRangeError where it knows of a class that there isn't.
    """
    store = target._node.store
    if store is None or store.bounds is None:
        return False
    low, high = store.bounds
    for bad in (low, high):
        if not 0 <= bad < classes and bad != ignore_index:
            raise IndexRangeError(
                f"{op}: target {bad} is no class of {classes} (0 to {classes - 1})"
            )
    return not low <= ignore_index <= high  # type: ignore[no-any-return]


def _picked(logp: Any, target: Any) -> Any:
    return logp.gather(1, target.unsqueeze(1)).squeeze(1)


def _finish(op: str, loss: Any, counted: Any, reduction: str, shape: tuple[int, ...]) -> Any:
    """counted: total weight that the mean divides by, or None for the number of elements."""
    if reduction == "none":
        return loss.reshape(shape)
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.mean() if counted is None else loss.sum() / counted
    raise ValueRangeError(f"{op}: reduction {reduction!r}; use 'mean', 'sum' or 'none'")


def _indices(op: str, target: Any) -> Any:
    if target.dtype.kind not in "iu":
        raise DTypeError(
            f"{op}: target is {target.dtype.name}, class indices are integers; convert first: "
            "target.int()"
        )
    return target


def _class_loss(
    op: str,
    input: Any,
    target: Any,
    weight: Any,
    ignore_index: int,
    reduction: str,
    smoothing: float | None,
) -> Any:
    """Negative log-likelihood of classes;
    smoothing None: the input is log-probabilities, else logits.
    """
    x, index = _class_layout(op, input, _indices(op, target), weight)
    classes = x.shape[1]
    keep, safe = None, index
    if not _all_count(op, target, classes, ignore_index):
        keep = index != ignore_index
        safe = keep.where(index, 0)
    logp = x if smoothing is None else x.log_softmax(1)
    loss = -_picked(logp, safe)
    counted: Any = None
    if weight is not None:
        each = weight.index_select(0, safe.reshape(-1)).reshape(safe.shape)
        loss = loss * each
        counted = each if keep is None else keep.where(each, 0.0)
        counted = counted.sum()
    elif keep is not None:
        counted = keep.to(logp.dtype).sum()
    if smoothing:
        spread = logp if weight is None else logp * weight.reshape((1, classes, 1))
        loss = loss * (1.0 - smoothing) - spread.sum(1) * (smoothing / classes)
    if keep is not None:
        loss = keep.where(loss, 0.0)
    return _finish(op, loss, counted, reduction, target.shape)


def nll_loss(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    """Minus the log-probability (input [N, C, *]) of the target class [N, *].
    Raises IndexRangeError, ShapeError.
    """
    need_float("nll_loss", input=input, weight=weight)
    return _class_loss("nll_loss", input, target, weight, ignore_index, reduction, None)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy of logits [N, C, *] with class indices [N, *] (integers) or probabilities [N,
    C, *] (floats).

    `weight` [C]; targets equal to ignore_index do not count. Raises IndexRangeError for a class
    that there
    isn't where the host knows it, ShapeError, DTypeError, ValueRangeError.
    """
    op = "cross_entropy"
    need_float(op, input=input, weight=weight)
    if not 0 <= label_smoothing <= 1:
        raise ValueRangeError(f"{op}: label_smoothing={label_smoothing} must be 0 to 1")
    if target.dtype.is_float:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    return _class_loss(op, input, target, weight, ignore_index, reduction, label_smoothing)


def _soft_cross_entropy(
    input: Any, target: Any, weight: Any, reduction: str, smoothing: float
) -> Any:
    op = "cross_entropy"
    if input.shape != target.shape:
        raise ShapeError(
            f"{op}: probabilities {target.shape} must have the shape of the logits, {input.shape}; "
            "class indices are integers"
        )
    dim = 1 if input.ndim > 1 else 0
    classes = input.shape[dim]
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    each = input.log_softmax(dim) * target
    if weight is not None:
        each = each * weight.reshape(tuple(classes if i == dim else 1 for i in range(input.ndim)))
    loss = -each.sum(dim)
    return _finish(op, loss, None, reduction, loss.shape)


# -- probabilities

#: log(0) counts as this, as in torch: a wrong sure prediction stays finite.
_LOG_FLOOR = -100.0


def _bce_grad(c: Any, g: Any) -> tuple[Any, Any]:
    p, t = c.ins
    gp = g * (p - t) / (p * (1.0 - p)).maximum(1e-12) if c.needs[0] else None
    gt = g * ((1.0 - p).log() - p.log()) if c.needs[1] else None
    return gp, gt


def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    """Of probabilities; with logits use binary_cross_entropy_with_logits, which loses no digits."""
    _same_shape("binary_cross_entropy", input, target)
    with no_grad():
        yes, no = input.log().maximum(_LOG_FLOOR), (1.0 - input).log().maximum(_LOG_FLOOR)
        loss = (target - 1.0) * no - target * yes
    loss = attach(loss, "binary_cross_entropy", (input, target), _bce_grad, ((0, 1), (0,)))
    return reduction_of(
        "binary_cross_entropy", loss if weight is None else loss * weight, reduction
    )


def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """Of logits; pos_weight (broadcast) weighs the positive part."""
    _same_shape("binary_cross_entropy_with_logits", input, target)
    soft = (-input).softplus()
    if pos_weight is not None:
        soft = soft * ((pos_weight - 1.0) * target + 1.0)
    loss = (1.0 - target) * input + soft
    return reduction_of(
        "binary_cross_entropy_with_logits", loss if weight is None else loss * weight, reduction
    )


def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    """Divergence of log-probabilities `input` from `target` (probabilities, or logs with
    log_target).

    reduction "batchmean" divides the sum by the first size, which is the mathematical definition.
    """
    need_float("kl_div", input=input, target=target)
    if log_target:
        loss = target.exp() * (target - input)
    else:
        positive = target > 0
        loss = (
            positive.where(target * positive.where(target, 1.0).log(), target * 0.0)
            - target * input
        )
    if reduction == "batchmean":
        return loss.sum() / float(loss.shape[0] if loss.ndim else 1)
    return reduction_of("kl_div", loss, reduction)


def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    """Of a Poisson rate (its logarithm with log_input);
    full adds Stirling's term for targets above 1.
    """
    _same_shape("poisson_nll_loss", input, target)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        large = (target > 1).where(target, 2.0)
        stirling = large * large.log() - large + (large * (2 * math.pi)).log() * 0.5
        loss = loss + (target > 1).where(stirling, 0.0)
    return reduction_of("poisson_nll_loss", loss, reduction)


def gaussian_nll_loss(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """Of a normal distribution with mean `input` and variance `var` (a tensor that broadcasts,
    or a number).
    """
    need_float("gaussian_nll_loss", input=input, target=target)
    if isinstance(var, (int, float)):
        var = input.ones_of(input.shape) * float(var)
    elif var.ndim == input.ndim - 1 and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    limited = (var < eps).where(var.detach() * 0.0 + eps, var)
    loss = (limited.log() + (input - target) * (input - target) / limited) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduction_of("gaussian_nll_loss", loss, reduction)


# -- distances


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """Cosine of the angle between vectors along dim; each length counts at least eps."""
    a, b = vector_norm(x1, 2, dim).maximum(eps), vector_norm(x2, 2, dim).maximum(eps)
    return (x1 * x2).sum(dim) / (a * b)


def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """1 - cosine for target 1; the cosine above margin for target -1."""
    need_float("cosine_embedding_loss", input1=input1, input2=input2)
    if input1.shape != input2.shape or target.shape != input1.shape[:-1]:
        raise ShapeError(
            f"cosine_embedding_loss: inputs {input1.shape}, {input2.shape} must be equal and "
            f"target {target.shape} "
            f"one a vector, {input1.shape[:-1]}"
        )
    square1, square2 = (input1 * input1).sum(-1) + 1e-12, (input2 * input2).sum(-1) + 1e-12
    cosine = (input1 * input2).sum(-1) / (square1 * square2).sqrt()
    apart = (cosine > margin).where(cosine - margin, 0.0)
    loss = (target == 1).where(1.0 - cosine, (target == -1).where(apart, 0.0))
    return reduction_of("cosine_embedding_loss", loss, reduction)


def _positive(x: Any) -> Any:
    return (x >= 0).where(x, 0.0)


def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """How much less than `margin` the negative is farther from the anchor than the positive."""
    need_float("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    if not anchor.shape == positive.shape == negative.shape:
        raise ShapeError(
            f"triplet_margin_loss: shapes {anchor.shape}, {positive.shape} and {negative.shape} "
            "must be equal"
        )
    near, far = (
        pairwise_distance(anchor, positive, p, eps),
        pairwise_distance(anchor, negative, p, eps),
    )
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduction_of("triplet_margin_loss", _positive(near - far + margin), reduction)


def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """target 1: input1 shall rank higher; -1: input2."""
    return reduction_of(
        "margin_ranking_loss", _positive(-(target * (input1 - input2)) + margin), reduction
    )


def hinge_embedding_loss(
    input: Any, target: Any, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """The distance `input` for target 1, what it lacks of margin for target -1."""
    loss = (target == 1).where(input, (target == -1).where(_positive(margin - input), 0.0))
    return reduction_of("hinge_embedding_loss", loss, reduction)


def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """log(1 + exp(-target * input))."""
    _same_shape("soft_margin_loss", input, target)
    return reduction_of("soft_margin_loss", (-(target * input)).softplus(), reduction)
