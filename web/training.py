"""What the page's worker runs: finds devices, trains the digit classifier, tells the page.

Owns: the training loop of the page. Must not know: the DOM, or how messages travel. Everything
waits with `await`, so it works where blocking is impossible, and the same code runs natively.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import wgburn as wb
from models import DigitCnn
from wgburn import nn
from wgburn.data import Batches, Digits, load_mnist

DIGITS = "/page/digits"
SEED = 42
LEARNING_RATE = 1e-3
SHOWN = 36  # test digits on the page
TESTED = 512  # test digits behind the accuracy on the page
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081

_stopped = False


def stop() -> None:
    """End the training after the current step."""
    global _stopped
    _stopped = True


async def devices() -> str:
    """JSON: what can be trained on, and why not where that is not possible."""
    found = await wb.Device.enumerate_async()
    return json.dumps(
        [
            {
                "value": info.kind if info.kind == "cpu" else f"{info.kind}:{info.index}",
                "name": "CPU (numpy)" if info.kind == "cpu" else f"WebGPU, {info.name}",
                "available": info.available,
                "reason": info.reason,
            }
            for info in found
        ]
    )


def to_input(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    scaled = (images.astype(np.float32) / 255 - PIXEL_MEAN) / PIXEL_STD
    return scaled[:, None].astype(np.float32)


async def _open(name: str) -> wb.Device:
    kind, _, index = name.partition(":")
    return wb.Device.cpu() if kind == "cpu" else await wb.Device.wgpu_async(int(index or 0))


class _Training:
    """One run: model, optimizer, data, figures."""

    def __init__(
        self, device: wb.Device, batch: int, post: Callable[[dict[str, Any]], None]
    ) -> None:
        self.device = device
        self.post = post
        self.train_digits: Digits = load_mnist(DIGITS, "train")
        self.test_digits: Digits = load_mnist(DIGITS, "test")
        labels = self.train_digits.labels.astype(np.int32)
        self.batches = Batches(
            self.train_digits.images, labels, batch_size=batch, seed=SEED, drop_last=True
        )
        learning = device.autodiff()
        learning.seed(SEED)
        with wb.use_device(learning):
            self.model = DigitCnn()
        self.optimizer = wb.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)

    async def step(self, images: NDArray[np.uint8], labels: NDArray[np.int32]) -> tuple[float, int]:
        """The loss and how many digits were right."""
        target = wb.tensor(labels, device=self.device)
        logits = self.model(wb.tensor(to_input(images), device=self.device))
        loss = nn.functional.cross_entropy(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        with wb.no_grad():
            hits = (logits.argmax(1) == target).sum()
        await self.optimizer.step_async()
        return float(await loss.detach().numpy_async()), int(await hits.numpy_async())

    async def test(self) -> None:
        """Accuracy on test digits, and the first of them for the page."""
        self.model.eval()
        images, labels = self.test_digits.images[:TESTED], self.test_digits.labels[:TESTED]
        found = []
        with wb.no_grad():
            for (part,) in Batches(images, batch_size=128, shuffle=False):
                logits = self.model(wb.tensor(to_input(part), device=self.device))
                found.append(await logits.argmax(1).numpy_async())
        self.model.train()
        guesses = np.concatenate(found)
        self.post(
            {
                "type": "test",
                "accuracy": float(np.mean(guesses == labels)),
                "pixels": images[:SHOWN].reshape(SHOWN, -1).tolist(),
                "labels": labels[:SHOWN].tolist(),
                "guesses": guesses[:SHOWN].tolist(),
            }
        )


async def train(name: str, batch: int, steps: int, send: Callable[[str], None]) -> None:
    """Train for `steps` steps, or one epoch if 0, or until `stop`."""
    global _stopped
    _stopped = False

    def post(message: dict[str, Any]) -> None:
        send(json.dumps(message))

    device = await _open(name)
    post({"type": "log", "text": f"training on {device}: {device.info.name}"})
    post({"type": "status", "text": f"training on {device}"})
    training = _Training(device, batch, post)
    total = steps or len(training.batches)
    seen = hits = 0
    seconds = 0.0
    for number, (images, labels) in enumerate(training.batches, 1):
        started = time.perf_counter()
        loss, right = await training.step(images, labels)
        took = time.perf_counter() - started
        seen, hits = seen + batch, hits + right
        if number == 1:
            # Compiling belongs to the first step and would spoil the rate.
            post({"type": "log", "text": f"first step, with compiling: {took:.2f} s"})
        else:
            seconds += took
        rate = (number - 1) * batch / seconds if seconds else 0.0
        figures = {"loss": loss, "accuracy": hits / seen, "rate": rate}
        post({"type": "step", "step": number, "steps": total, **figures})
        if number % 50 == 0:
            await training.test()
        await asyncio.sleep(0)  # numpy never waits by itself, and `stop` arrives only while we do
        if number >= total or _stopped:
            break
    await training.test()
    word = "stopped" if _stopped else "done"
    post({"type": "done", "text": f"{word} after {number} steps, {rate:.0f} digits/s"})
    post({"type": "log", "text": f"{word}: {number} steps of {batch}, {rate:.1f} digits/s"})
