"""The works on tinygrad, compiled with its own jit, on the device that the DEV variable names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tinygrad
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.helpers import Context

from . import works


class Cnn:
    def __init__(self) -> None:
        self.conv1, self.norm1 = nn.Conv2d(1, 64, 3), nn.BatchNorm(64)
        self.conv2, self.norm2 = nn.Conv2d(64, 64, 3), nn.BatchNorm(64)
        self.dense = [nn.Linear(1600, 128), nn.Linear(128, 128), nn.Linear(128, 10)]

    def __call__(self, x: Any) -> Any:
        x = self.norm1(self.conv1(x)).relu().max_pool2d(2)
        x = self.norm2(self.conv2(x)).relu().max_pool2d(2).flatten(1)
        x = self.dense[0](x).gelu().dropout(0.25)
        x = self.dense[1](x).gelu().dropout(0.25)
        return self.dense[2](x)


class Layer:
    def __init__(self) -> None:
        width, hidden = works.TR_WIDTH, works.TR_HIDDEN
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def __call__(self, x: Any) -> Any:
        batch, length, width = x.shape
        heads = works.TR_HEADS
        split = self.qkv(self.norm1(x)).reshape(batch, length, 3, heads, width // heads)
        qkv = split.permute(2, 0, 3, 1, 4)
        mixed = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class Transformer:
    def __init__(self) -> None:
        self.tokens = nn.Embedding(works.TR_VOCABULARY, works.TR_WIDTH)
        self.places = Tensor.randn(works.TR_LENGTH, works.TR_WIDTH)
        self.layers = [Layer() for _ in range(works.TR_LAYERS)]
        self.norm = nn.LayerNorm(works.TR_WIDTH)
        self.head = nn.Linear(works.TR_WIDTH, works.TR_CLASSES)

    def __call__(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class System:
    """tinygrad; every work is jitted, so the first calls compile."""

    def __init__(self, device: str) -> None:
        Tensor.manual_seed(42)
        self.rng = np.random.default_rng(0)
        version = getattr(tinygrad, "__version__", "")
        self.label = " ".join(["tinygrad", version, Device.DEFAULT.lower()]).replace("  ", " ")

    def build(self, name: str) -> Callable[[], Any]:
        return getattr(self, f"_{name}")()

    def _floats(self, *shape: int) -> Any:
        return Tensor(self.rng.standard_normal(shape, dtype=np.float32)).realize()

    def _integers(self, high: int, *shape: int) -> Any:
        return Tensor(self.rng.integers(0, high, shape).astype(np.int32)).realize()

    def _jitted(self, f: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        jitted = TinyJit(lambda *xs: f(*xs).realize())

        def run() -> None:
            jitted(*args)
            Device[Device.DEFAULT].synchronize()

        return run

    def _mm512(self) -> Callable[[], Any]:
        return self._jitted(lambda a, b: a @ b, self._floats(512, 512), self._floats(512, 512))

    def _mm1024(self) -> Callable[[], Any]:
        return self._jitted(lambda a, b: a @ b, self._floats(1024, 1024), self._floats(1024, 1024))

    def _ew(self) -> Callable[[], Any]:
        def chain(a: Any, b: Any) -> Any:
            x = (a * b + a).relu() * 0.5
            x = x.tanh() - b
            return ((-x.abs()).exp() + 1.0) * a

        return self._jitted(chain, self._floats(works.ELEMENTS), self._floats(works.ELEMENTS))

    def _mlp(self) -> Callable[[], Any]:
        width = works.MLP_WIDTH
        layers = [nn.Linear(width, width) for _ in range(works.MLP_DEPTH)]
        x = self._floats(1, width)

        def forward(x: Any) -> Any:
            for layer in layers:
                x = layer(x).relu()
            return x.sum().realize()

        jitted = TinyJit(forward)
        return lambda: jitted(x).item()

    def _train(self, model: Any, x: Any, y: Any, update: Any) -> Callable[[], Any]:
        @TinyJit
        def step(x: Any, y: Any) -> Any:
            with Context(TRAINING=1):
                update.zero_grad()
                loss = model(x).sparse_categorical_crossentropy(y).backward()
                return loss.realize(*update.schedule_step())

        return lambda: step(x, y).item()

    def _cnn(self) -> Callable[[], Any]:
        model = Cnn()
        update = nn.optim.AdamW(nn.state.get_parameters(model), lr=1e-3, weight_decay=5e-5)
        x = self._floats(works.CNN_BATCH, 1, 28, 28)
        return self._train(model, x, self._integers(10, works.CNN_BATCH), update)

    def _tr(self) -> Callable[[], Any]:
        model = Transformer()
        update = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-4)
        x = self._integers(works.TR_VOCABULARY, works.TR_BATCH, works.TR_LENGTH)
        return self._train(model, x, self._integers(works.TR_CLASSES, works.TR_BATCH), update)
