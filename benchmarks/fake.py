"""A device that runs nothing and small training steps for it: what Python and the compiler cost.

Owns: the device on the fake driver, the steps that overhead and pipelines are measured with. Must
not know: how anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wgburn as wb
from examples.models import DigitCnn, TextTransformer
from wgburn import nn
from wgburn.device.device import Device
from wgburn.device.wgpu import WgpuBackend
from wgburn_runtime.fake import FakeDriver

Step = Callable[[], Any]


def fake_device() -> Device:
    """A new WebGPU device without a GPU: launches are checked, never run."""
    device = Device(WgpuBackend(FakeDriver(), "fake")).autodiff()
    device.seed(42)
    return device


def chain_step(device: Device, ops: int) -> Step:
    """Small elementwise ops one after another, forward and backward."""
    x = wb.tensor(np.ones((8, 8), np.float32), device=device)
    w = wb.tensor(np.ones((8, 8), np.float32), device=device).requires_grad_()

    def step() -> None:
        y = x
        for _ in range(ops):
            y = (y * w + x).tanh()
        loss = y.sum()
        loss.backward()
        wb.eval(loss, w.grad)
        w.grad = None

    return step


class Training:
    """A model with its optimizer; `step(inputs, labels)` is one update."""

    def __init__(self, device: Device, make: Callable[[], nn.Module], optimizer: Any) -> None:
        self.device = device
        with wb.use_device(device):
            self.model = make().train()
        self.update = optimizer(self.model.parameters())

    def step(self, x: wb.Tensor, y: wb.Tensor) -> None:
        self.update.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.update.step()
        wb.eval(loss)


class CnnSteps(Training):
    """Steps of the digit CNN, by batch size."""

    def __init__(self, device: Device, channels: int = 8, hidden: int = 16) -> None:
        super().__init__(
            device,
            lambda: DigitCnn(channels, hidden),
            lambda parameters: wb.optim.AdamW(parameters, lr=1e-3, weight_decay=5e-5),
        )

    def at(self, batch: int) -> Step:
        images = np.zeros((batch, 1, 28, 28), np.float32)
        x = wb.tensor(images, device=self.device)
        y = wb.tensor(np.zeros(batch, np.int32), device=self.device)
        return lambda: self.step(x, y)


class TransformerSteps(Training):
    """Steps of a small text transformer, by length of the sequences."""

    def __init__(self, device: Device, layers: int = 2, longest: int = 512) -> None:
        super().__init__(
            device,
            lambda: TextTransformer(100, longest, 32, 64, 4, layers, dropout=0.0),
            lambda parameters: wb.optim.Adam(parameters, lr=1e-4),
        )

    def at(self, length: int, batch: int = 4) -> Step:
        x = wb.tensor(np.ones((batch, length), np.int32), device=self.device)
        y = wb.tensor(np.zeros(batch, np.int32), device=self.device)
        return lambda: self.step(x, y)
