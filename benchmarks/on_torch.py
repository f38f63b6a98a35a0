"""The works on PyTorch, on the CPU with every core."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from . import works


class Cnn(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(1600, 128), nn.GELU(), nn.Dropout(0.25),
            nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.25), nn.Linear(128, 10),
        )  # fmt: skip


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = works.TR_WIDTH
        self.tokens = nn.Embedding(works.TR_VOCABULARY, width)
        self.places = nn.Embedding(works.TR_LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, works.TR_HEADS, works.TR_HIDDEN, dropout=0.0, activation="gelu",
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.layers = nn.TransformerEncoder(
            layer, works.TR_LAYERS, nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.head = nn.Linear(width, works.TR_CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(works.TR_LENGTH))
        return self.head(self.layers(x).mean(1))


class System:
    """torch; its calls return when the work is done."""

    def __init__(self, device: str) -> None:
        torch.set_num_threads(os.cpu_count() or 1)
        torch.manual_seed(42)
        self.label = f"torch {torch.__version__} {device}"

    def build(self, name: str) -> Callable[[], Any]:
        return getattr(self, f"_{name}")()

    def _mm512(self) -> Callable[[], Any]:
        a, b = torch.randn(512, 512), torch.randn(512, 512)
        return lambda: a @ b

    def _mm1024(self) -> Callable[[], Any]:
        a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
        return lambda: a @ b

    def _ew(self) -> Callable[[], Any]:
        a, b = torch.randn(works.ELEMENTS), torch.randn(works.ELEMENTS)

        def chain() -> torch.Tensor:
            x = (a * b + a).relu() * 0.5
            x = x.tanh() - b
            return ((-x.abs()).exp() + 1.0) * a

        return chain

    def _mlp(self) -> Callable[[], Any]:
        layers: list[nn.Module] = []
        for _ in range(works.MLP_DEPTH):
            layers += [nn.Linear(works.MLP_WIDTH, works.MLP_WIDTH), nn.ReLU()]
        model = nn.Sequential(*layers).eval()
        x = torch.randn(1, works.MLP_WIDTH)

        def infer() -> float:
            with torch.no_grad():
                return model(x).sum().item()

        return infer

    def _train(
        self, model: nn.Module, x: torch.Tensor, y: torch.Tensor, update: torch.optim.Optimizer
    ) -> Callable[[], Any]:
        model.train()

        def step() -> float:
            update.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            update.step()
            return loss.item()

        return step

    def _cnn(self) -> Callable[[], Any]:
        model = Cnn()
        x, y = torch.randn(works.CNN_BATCH, 1, 28, 28), torch.randint(0, 10, (works.CNN_BATCH,))
        update = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=5e-5)
        return self._train(model, x, y, update)

    def _tr(self) -> Callable[[], Any]:
        model = Transformer()
        x = torch.randint(0, works.TR_VOCABULARY, (works.TR_BATCH, works.TR_LENGTH))
        y = torch.randint(0, works.TR_CLASSES, (works.TR_BATCH,))
        return self._train(model, x, y, torch.optim.Adam(model.parameters(), lr=1e-4))
