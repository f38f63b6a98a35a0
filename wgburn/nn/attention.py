"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import ShapeError
from ..tensor.creation import empty, zeros
from ..tensor.movement import cat
from . import functional as F
from . import init
from .functional.attention import attention_weights, float_mask
from .linear import Linear
from .module import Module
from .parameter import Parameter


class MultiheadAttention(Module):
    """Attention of several heads over one embedding; inputs [L, N, E], with batch_first [N, L, E].

    Boolean masks are true where attention is blocked; float masks are added to the scores.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(
                f"MultiheadAttention: embed_dim={embed_dim} does not divide into {num_heads} heads"
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn

        def weight(*shape: int) -> Parameter:
            return Parameter(empty(shape, dtype=dtype, device=device))

        one = self.kdim == embed_dim and self.vdim == embed_dim
        self.register_parameter("in_proj_weight", weight(3 * embed_dim, embed_dim) if one else None)
        for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            own = None if one else weight(embed_dim, size)
            self.register_parameter(f"{name}_proj_weight", own)
        self.register_parameter("in_proj_bias", weight(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.register_parameter("bias_k", weight(1, 1, embed_dim) if add_bias_kv else None)
        self.register_parameter("bias_v", weight(1, 1, embed_dim) if add_bias_kv else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if self._parameters[name] is not None:
                init.xavier_uniform_(self._parameters[name])
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                # Fans of [1, 1, E]: E elements of window on either side.
                init.normal_(extra, 0.0, math.sqrt(2.0 / (2 * self.embed_dim)))

    def _project(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        e = self.embed_dim
        b = self.in_proj_bias
        biases = (None, None, None) if b is None else (b[:e], b[e : 2 * e], b[2 * e :])
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return F.linear(query, self.in_proj_weight, b).split(e, -1)  # type: ignore[no-any-return]
        else:
            w = self.in_proj_weight
            weights = (w[:e], w[e : 2 * e], w[2 * e :])
        q, k, v = (
            F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)
        )
        return q, k, v

    def _mask(self, attn_mask: Any, padding: Any, n: int, rows: int, columns: int, q: Any) -> Any:
        """Both masks as one to add to scores [N, heads, L, S], or None."""
        mask: Any = None
        if attn_mask is not None:
            mask = float_mask(attn_mask, q.dtype, True)
            if mask.shape == (n * self.num_heads, rows, columns):
                mask = mask.reshape((n, self.num_heads, rows, columns))
            elif mask.shape != (rows, columns):
                raise ShapeError(
                    f"MultiheadAttention: attn_mask {mask.shape} must be {(rows, columns)} or "
                    f"{(n * self.num_heads, rows, columns)}"
                )
        if padding is not None:
            if padding.shape != (n, columns):
                raise ShapeError(
                    f"MultiheadAttention: key_padding_mask {padding.shape} must be {(n, columns)}, "
                    "one element a key of each item"
                )
            blocked = float_mask(padding, q.dtype, True).reshape((n, 1, 1, columns))
            mask = blocked if mask is None else mask + blocked
        return mask

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """(output, weights [N, L, S] or None). is_causal only says that attn_mask is causal."""
        single = query.ndim == 2
        same = query is key and key is value
        if single:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        if same:
            key = value = query
        self._check(query, key, value)
        n, rows, _ = query.shape
        columns = key.shape[1]
        q, k, v = self._project(query, key, value)
        mask = self._mask(attn_mask, key_padding_mask, n, rows, columns, q)
        k, v, mask = self._extended(k, v, mask)

        def heads(t: Any) -> Any:
            return t.reshape((n, t.shape[1], self.num_heads, self.head_dim)).transpose(1, 2)

        weights = attention_weights(heads(q), heads(k), mask, 1.0 / math.sqrt(self.head_dim))
        weights = F.dropout(weights, self.dropout, self.training)
        out = (weights @ heads(v)).transpose(1, 2).reshape((n, rows, self.embed_dim))
        out = self.out_proj(out)
        if single:
            out = out.squeeze(0)
        elif not self.batch_first:
            out = out.transpose(0, 1)
        if not need_weights:
            return out, None
        weights = weights.mean(1) if average_attn_weights else weights
        return out, weights.squeeze(0) if single else weights

    def _check(self, query: Any, key: Any, value: Any) -> None:
        sizes = (self.embed_dim, self.kdim, self.vdim)
        shapes = [t.shape for t in (query, key, value)]
        if any(len(s) != 3 or s[2] != e for s, e in zip(shapes, sizes, strict=True)) or (
            shapes[1][:2] != shapes[2][:2] or shapes[0][0] != shapes[1][0]
        ):
            order = "[N, L, E]" if self.batch_first else "[L, N, E]"
            raise ShapeError(
                f"MultiheadAttention: query, key and value {shapes} (batch first) do not fit sizes "
                f"{sizes}; inputs are {order}, keys and values of one length"
            )

    def _extended(self, k: Any, v: Any, mask: Any) -> tuple[Any, Any, Any]:
        """Keys and values with the learned one and the zero one, which no mask blocks."""
        n, added = k.shape[0], 0
        if self.bias_k is not None:
            k = cat([k, self.bias_k.expand((n, 1, self.embed_dim))], 1)
            v = cat([v, self.bias_v.expand((n, 1, self.embed_dim))], 1)
            added += 1
        if self.add_zero_attn:
            zero = zeros((n, 1, self.embed_dim), dtype=k.dtype, device=k.device.inner())
            k, v = cat([k, zero], 1), cat([v, zero], 1)
            added += 1
        if added and mask is not None:
            mask = F.pad(mask, (0, added))
        return k, v, mask
