"""The works on wgburn, on one of its devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wgburn as wb
from examples.models import DigitCnn
from wgburn import nn

from . import works

F = nn.functional


class Block(nn.Module):
    """A pre-norm transformer layer without dropout."""

    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def attend(self, x: wb.Tensor) -> wb.Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        qkv = split.permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5
        mixed = F.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: wb.Tensor) -> wb.Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Token classifier: embeddings, layers, mean over tokens, one dense layer."""

    def __init__(self) -> None:
        super().__init__()
        width = works.TR_WIDTH
        self.tokens = nn.Embedding(works.TR_VOCABULARY, width)
        self.places = nn.Embedding(works.TR_LENGTH, width)
        self.layers = nn.Sequential(
            *[Block(width, works.TR_HIDDEN, works.TR_HEADS) for _ in range(works.TR_LAYERS)]
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, works.TR_CLASSES)

    def forward(self, tokens: wb.Tensor) -> wb.Tensor:
        places = wb.arange(works.TR_LENGTH, device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        return self.head(self.norm(self.layers(x)).mean(1))


class System:
    """wgburn on one device."""

    def __init__(self, device: str) -> None:
        self.device = wb.Device.parse(device)
        self.device.seed(42)
        self.rng = np.random.default_rng(0)
        self.label = f"wgburn {self.device}"

    def build(self, name: str) -> Callable[[], None]:
        """A call that does the work once and waits for it."""
        return getattr(self, f"_{name}")()

    def _floats(self, *shape: int) -> wb.Tensor:
        return wb.tensor(self.rng.standard_normal(shape, dtype=np.float32), device=self.device)

    def _integers(self, high: int, *shape: int) -> wb.Tensor:
        values = self.rng.integers(0, high, shape).astype(np.int32)
        return wb.tensor(values, device=self.device)

    def _run(self, f: Callable[[], wb.Tensor]) -> Callable[[], None]:
        def run() -> None:
            wb.eval(f())
            self.device.synchronize()

        return run

    def _matmul(self, n: int) -> Callable[[], None]:
        a, b = self._floats(n, n), self._floats(n, n)
        return self._run(lambda: a @ b)

    def _mm512(self) -> Callable[[], None]:
        return self._matmul(512)

    def _mm1024(self) -> Callable[[], None]:
        return self._matmul(1024)

    def _ew(self) -> Callable[[], None]:
        a, b = self._floats(works.ELEMENTS), self._floats(works.ELEMENTS)

        def chain() -> wb.Tensor:
            x = (a * b + a).relu() * 0.5
            x = x.tanh() - b
            return ((-x.abs()).exp() + 1.0) * a

        return self._run(chain)

    def _mlp(self) -> Callable[[], None]:
        with wb.use_device(self.device):
            layers: list[Any] = []
            for _ in range(works.MLP_DEPTH):
                layers += [nn.Linear(works.MLP_WIDTH, works.MLP_WIDTH), nn.ReLU()]
            model = nn.Sequential(*layers).eval()
        x = self._floats(1, works.MLP_WIDTH)

        def infer() -> None:
            with wb.no_grad():
                model(x).sum().item()

        return infer

    def _train(
        self, make: Callable[[], nn.Module], x: wb.Tensor, y: wb.Tensor, optimizer: Any
    ) -> Callable[[], None]:
        with wb.use_device(self.device.autodiff()):
            model = make().train()
        update = optimizer(model.parameters())

        def step() -> None:
            update.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            update.step()
            loss.item()
            self.device.synchronize()

        return step

    def _cnn(self) -> Callable[[], None]:
        return self._train(
            DigitCnn,
            self._floats(works.CNN_BATCH, 1, 28, 28),
            self._integers(10, works.CNN_BATCH),
            lambda parameters: wb.optim.AdamW(parameters, lr=1e-3, weight_decay=5e-5),
        )

    def _tr(self) -> Callable[[], None]:
        return self._train(
            Transformer,
            self._integers(works.TR_VOCABULARY, works.TR_BATCH, works.TR_LENGTH),
            self._integers(works.TR_CLASSES, works.TR_BATCH),
            lambda parameters: wb.optim.Adam(parameters, lr=1e-4),
        )
