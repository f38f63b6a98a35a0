"""Networks that examples, tests and benchmarks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import wgburn as wb
from wgburn import nn


class DigitCnn(nn.Module):
    """The digit classifier of the Burn 0.22 announcement: two convolution blocks, three layers.

    Takes images [n, 1, 28, 28], gives logits [n, 10].
    """

    def __init__(self, channels: int = 64, hidden: int = 128, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(25 * channels, hidden),
            nn.GELU(),
            nn.Dropout(0.25),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Dropout(0.25),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: wb.Tensor) -> wb.Tensor:
        return self.classifier(self.features(images))


class TextTransformer(nn.Module):
    """The text classifier of the Burn 0.22 announcement: pre-norm layers, mean over the tokens.

    Takes tokens [n, length], 0 where a text has ended; gives logits [n, classes].
    """

    def __init__(
        self,
        vocabulary: int = 28_996,
        length: int = 512,
        width: int = 512,
        hidden: int = 2048,
        heads: int = 8,
        layers: int = 6,
        classes: int = 4,
        dropout: float = 0.1,
        forget: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Embedding(length, width)
        # Drops whole words: channels of its input are the words of a text.
        self.forget = nn.Dropout1d(forget)
        layer = nn.TransformerEncoderLayer(
            width, heads, hidden, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)
        # Sums of both start with the spread of one, small beside what the layers add.
        with wb.no_grad():
            for table in (self.tokens, self.places):
                nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: wb.Tensor) -> wb.Tensor:
        places = wb.arange(tokens.shape[1], device=tokens.device)
        ended = tokens == 0
        x = self.forget(self.tokens(tokens) + self.places(places))
        x = self.encoder(x, src_key_padding_mask=ended)
        kept = (~ended).to(x.dtype).unsqueeze(-1)
        return self.head((x * kept).sum(1) / kept.sum(1).clamp(min=1.0))


class Bert(nn.Module):
    """A BERT encoder without pooler, with the names of the files that carry such weights.

    Takes tokens [n, length] and a mask of the same shape, 1 where there is a token; gives
    [n, length, width].
    """

    def __init__(
        self, vocabulary: int, width: int, hidden: int, heads: int, layers: int,
        length: int = 512, types: int = 2, eps: float = 1e-12,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(vocabulary, width),
                "position_embeddings": nn.Embedding(length, width),
                "token_type_embeddings": nn.Embedding(types, width),
                "LayerNorm": nn.LayerNorm(width, eps=eps),
            }
        )
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList([BertLayer(width, hidden, heads, eps) for _ in range(layers)])}
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Bert:
        """From the config.json beside such weights."""
        return cls(
            config["vocab_size"],
            config["hidden_size"],
            config["intermediate_size"],
            config["num_attention_heads"],
            config["num_hidden_layers"],
            config["max_position_embeddings"],
            config["type_vocab_size"],
            config["layer_norm_eps"],
        )

    def forward(self, tokens: wb.Tensor, mask: wb.Tensor) -> wb.Tensor:
        places = wb.arange(tokens.shape[1], device=tokens.device)
        own = self.embeddings
        x = own["word_embeddings"](tokens) + own["position_embeddings"](places)
        # One sentence a text: all tokens are of the first type.
        x = own["LayerNorm"](x + own["token_type_embeddings"].weight[0])
        allowed = (mask > 0).reshape(mask.shape[0], 1, 1, mask.shape[1])
        for layer in self.encoder["layer"]:
            x = layer(x, allowed)
        return x

    def sentences(self, tokens: wb.Tensor, mask: wb.Tensor) -> wb.Tensor:
        """[n, width], each of length 1: the mean over a sentence's tokens."""
        weight = mask.unsqueeze(-1)
        mean = (self(tokens, mask) * weight).sum(1) / weight.sum(1)
        return nn.functional.normalize(mean, dim=-1)


class BertLayer(nn.Module):
    """Attention and a feed-forward block, each added to its input and normalised after it."""

    def __init__(self, width: int, hidden: int, heads: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention = nn.ModuleDict(
            {
                "self": nn.ModuleDict(
                    {name: nn.Linear(width, width) for name in ("query", "key", "value")}
                ),
                "output": nn.ModuleDict(
                    {"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=eps)}
                ),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, hidden)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(hidden, width), "LayerNorm": nn.LayerNorm(width, eps=eps)}
        )

    def forward(self, x: wb.Tensor, allowed: wb.Tensor) -> wb.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.attention["self"][name](x)
            .reshape(batch, length, self.heads, width // self.heads)
            .transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        out = self.attention["output"]
        x = out["LayerNorm"](x + out["dense"](mixed))
        grown = nn.functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](x + self.output["dense"](grown))
