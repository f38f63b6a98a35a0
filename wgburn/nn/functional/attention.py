"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from ...core.errors import DTypeError, ShapeError, ValueRangeError
from ...tensor.creation import arange
from .checks import need_float
from .linear import dropout


def masked_softmax(scores: Any, mask: Any) -> Any:
    """softmax of scores + mask over the last dimension; a row that is masked whole gives zeros."""
    x = scores + mask
    top = x.amax(-1, keepdim=True).detach()
    top = (top == -math.inf).where(0.0, top)
    e = (x - top).exp()
    total = e.sum(-1, keepdim=True)
    return e / (total == 0).where(1.0, total)


def float_mask(mask: Any, dtype: Any, blocked_where_true: bool) -> Any:
    """A mask to add to scores: -inf where a boolean mask blocks; float masks as they are."""
    if mask.dtype.is_float:
        return mask.to(dtype)
    if mask.dtype.kind != "b":
        raise DTypeError(f"attention: a mask is bool_ or float, got {mask.dtype.name}")
    zero = mask.zeros_of((), dtype)
    low = zero + -math.inf
    return mask.where(low, zero) if blocked_where_true else mask.where(zero, low)


def causal_mask(rows: int, columns: int, dtype: Any, device: Any) -> Any:
    """[rows, columns]: 0 where column <= row, -inf above."""
    r = arange(rows, device=device).reshape(rows, 1)
    c = arange(columns, device=device).reshape(1, columns)
    return float_mask(c > r, dtype, True)


def _heads(q: Any, k: Any, v: Any, enable_gqa: bool) -> tuple[Any, Any]:
    """Keys and values with as many heads as queries."""
    if not enable_gqa or q.shape[-3] == k.shape[-3]:
        return k, v
    times, rest = divmod(q.shape[-3], k.shape[-3])
    if rest or k.shape[-3] != v.shape[-3]:
        raise ShapeError(
            f"scaled_dot_product_attention: {q.shape[-3]} query heads of {q.shape} are no multiple "
            "of "
            f"{k.shape[-3]} key heads"
        )
    return k.repeat_interleave(times, -3), v.repeat_interleave(times, -3)


def attention_weights(q: Any, k: Any, mask: Any, scale: float) -> Any:
    scores = (q * scale) @ k.mT
    return scores.softmax(-1) if mask is None else masked_softmax(scores, mask)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query @ key.T * scale + mask) @ value for [*, L, E], [*, S, E], [*, S, V].

    attn_mask broadcasts to [*, L, S]: boolean (true takes part) or float (added); is_causal lets
    each row see columns up to its own. A row that may see nothing gives zeros. enable_gqa: keys and
    values have fewer heads (dimension -3). Raises ShapeError, DTypeError.
    """
    op = "scaled_dot_product_attention"
    need_float(op, query=query, key=key, value=value)
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"{op}: query {query.shape} and key {key.shape} must be [*, length, size] of one size"
        )
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"{op}: key {key.shape} and value {value.shape} differ in length")
    if is_causal and attn_mask is not None:
        raise ValueRangeError(f"{op}: give attn_mask or is_causal, not both")
    key, value = _heads(query, key, value, enable_gqa)
    mask = None if attn_mask is None else float_mask(attn_mask, query.dtype, False)
    if is_causal:
        mask = causal_mask(query.shape[-2], key.shape[-2], query.dtype, query.device.inner())
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights = attention_weights(query, key, mask, factor)
    return dropout(weights, dropout_p, dropout_p > 0) @ value
