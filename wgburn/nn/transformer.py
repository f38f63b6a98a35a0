"""Transformer layers and stacks, pre- and post-norm, by torch's names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..core.dtype import dtype_of
from ..core.errors import ValueRangeError
from . import functional as F
from . import init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .functional.attention import causal_mask
from .linear import Linear
from .module import Module
from .norm import LayerNorm

Activation = str | Callable[[Any], Any]


def _activation(activation: Activation) -> Callable[[Any], Any]:
    if callable(activation):
        return activation
    known: dict[str, Callable[[Any], Any]] = {"relu": F.relu, "gelu": F.gelu}
    if activation not in known:
        raise ValueRangeError(
            f"transformer: activation {activation!r}; use 'relu', 'gelu' or a function"
        )
    return known[activation]


class _Layer(Module):
    """The feed-forward half, and how a half is wrapped in norm and residual."""

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int,
        dropout: float,
        activation: Activation,
        norm_first: bool,
        bias: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, device=device, dtype=dtype)
        self.norm_first = norm_first
        self.activation = _activation(activation)

    def _feed(self, x: Any, last: Module) -> Any:
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _around(self, x: Any, norm: Module, block: Callable[[Any], Any]) -> Any:
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual and a LayerNorm."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            d_model, dim_feedforward, dropout, activation, norm_first, bias, device, dtype
        )
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
        )
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        def attend(x: Any) -> Any:
            out, _ = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask)
            return self.dropout1(out)

        x = self._around(src, self.norm1, attend)
        return self._around(x, self.norm2, lambda y: self._feed(y, self.dropout2))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention over the encoder's memory, and a feed-forward network."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            d_model, dim_feedforward, dropout, activation, norm_first, bias, device, dtype
        )
        for name in ("self_attn", "multihead_attn"):
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
            )
            self.add_module(name, attention)
        for name in ("norm1", "norm2", "norm3"):
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            self.add_module(name, norm)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        def attend(x: Any) -> Any:
            out, _ = self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask)
            return self.dropout1(out)

        def remember(x: Any) -> Any:
            out, _ = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask
            )
            return self.dropout2(out)

        x = self._around(tgt, self.norm1, attend)
        x = self._around(x, self.norm2, remember)
        return self._around(x, self.norm3, lambda y: self._feed(y, self.dropout3))


class TransformerEncoder(Module):
    """num_layers copies of a layer, one after the other, and a last norm."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Any,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Any:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """num_layers copies of a layer, one after the other, and a last norm."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder that attends to what it made."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        settings: tuple[Any, ...] = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
        )

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = TransformerEncoder(
            TransformerEncoderLayer(*settings), num_encoder_layers, norm()
        )
        self.decoder = TransformerDecoder(
            TransformerDecoderLayer(*settings), num_decoder_layers, norm()
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Any:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """[sz, sz]: 0 where a row may look, -inf above the diagonal."""
        return causal_mask(sz, sz, dtype_of(dtype or "float32"), device)
