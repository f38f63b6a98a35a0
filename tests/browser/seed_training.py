"""The digit classifier trained the same way on any device, natively and in a browser.

Owns: the steps that the parity and leak tests compare. Must not know: where it runs; it waits with
`await` only.
"""

from __future__ import annotations

import io
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import wgburn as wb

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))

from models import DigitCnn  # noqa: E402

SEED = 42
Arrays = dict[str, NDArray[Any]]
Batch = tuple[NDArray[Any], NDArray[np.int32]]


def batches(batch: int) -> Iterator[Batch]:
    """Training digits in a fixed shuffled order, for ever."""
    from wgburn.data import Batches, load_mnist

    digits = load_mnist(EXAMPLES / "data" / "mnist", "train")
    images = ((digits.images.astype(np.float32) / 255 - 0.1307) / 0.3081)[:, None]
    labels = digits.labels.astype(np.int32)
    order = Batches(images.astype(np.float32), labels, batch_size=batch, seed=SEED, drop_last=True)
    while True:
        yield from order


class Trainer:
    """A model and its optimizer on one device. Initial values and dropout come from SEED."""

    model: wb.nn.Module
    optimizer: wb.optim.Optimizer

    def __init__(self, device: wb.Device, lr: float, **sizes: int) -> None:
        self.device = device
        learning = device.autodiff()
        learning.seed(SEED)
        with wb.use_device(learning):
            self.model = DigitCnn(**sizes)
        self.optimizer = wb.optim.AdamW(self.model.parameters(), lr=lr)

    def loss(self, inputs: NDArray[Any], labels: NDArray[np.int32]) -> wb.Tensor:
        logits = self.model(wb.tensor(inputs, device=self.device))
        target = wb.tensor(labels, device=self.device)
        return wb.nn.functional.cross_entropy(logits, target)

    async def step(self, inputs: NDArray[Any], labels: NDArray[np.int32]) -> float:
        """One update; waits for the loss."""
        loss = self.loss(inputs, labels)
        self.optimizer.zero_grad()
        loss.backward()
        await self.optimizer.step_async()
        return float(await loss.detach().numpy_async())

    async def state(self) -> Arrays:
        """Parameters and buffers."""
        return {k: await t.numpy_async() for k, t in self.model.state_dict().items()}

    async def gradients(
        self, inputs: NDArray[Any], labels: NDArray[np.int32]
    ) -> tuple[float, Arrays]:
        loss = self.loss(inputs, labels)
        self.optimizer.zero_grad()
        loss.backward()
        grads = {}
        for name, p in self.model.named_parameters():
            assert p.grad is not None, name
            grads[name] = await p.grad.numpy_async()
        return float(await loss.detach().numpy_async()), grads


async def losses(device: wb.Device, steps: int, batch: int, lr: float) -> list[float]:
    """Parity (a): losses of a short, slow training."""
    return await losses_of(Trainer(device, lr), batches(batch), steps)


async def losses_of(trainer: Trainer, data: Iterator[Batch], steps: int) -> list[float]:
    return [await trainer.step(*each) for _, each in zip(range(steps), data, strict=False)]


async def recorded(device: wb.Device, steps: int, batch: int, lr: float) -> list[Arrays]:
    """Parity (b), the run to follow: state before each step, then its loss and gradients."""
    return await records_of(Trainer(device, lr), batches(batch), steps)


async def records_of(trainer: Trainer, data: Iterator[Batch], steps: int) -> list[Arrays]:
    records = []
    for number, each in zip(range(steps), data, strict=False):
        trainer.device.seed(SEED + number)
        state = await trainer.state()
        loss, grads = await trainer.gradients(*each)
        record = {"loss": np.float64(loss)}
        record |= {f"state/{k}": v for k, v in state.items()}
        record |= {f"grad/{k}": v for k, v in grads.items()}
        records.append(record)
        await trainer.optimizer.step_async()
    return records


async def followed(
    device: wb.Device, records: list[Arrays], batch: int
) -> AsyncIterator[tuple[float, dict[str, float]]]:
    """Parity (b): from each recorded state, how far loss and gradients (norm-wise) are off."""
    async for each in distances_of(Trainer(device, 0.0), batches(batch), records):
        yield each


async def distances_of(
    trainer: Trainer, data: Iterator[Batch], records: list[Arrays]
) -> AsyncIterator[tuple[float, dict[str, float]]]:
    for number, (record, each) in enumerate(zip(records, data, strict=False)):
        state = {
            k.removeprefix("state/"): wb.tensor(v, device=trainer.device)
            for k, v in record.items()
            if k.startswith("state/")
        }
        trainer.model.load_state_dict(state)
        trainer.device.seed(SEED + number)
        loss, grads = await trainer.gradients(*each)
        off = {}
        for name, grad in grads.items():
            truth = record[f"grad/{name}"].astype(np.float64)
            off[name] = float(np.linalg.norm(grad - truth) / max(np.linalg.norm(truth), 1e-30))
        yield abs(loss - float(record["loss"])), off


def pack(records: list[Arrays]) -> bytes:
    out = io.BytesIO()
    flat = {f"{i}/{k}": v for i, record in enumerate(records) for k, v in record.items()}
    np.savez(out, **flat)
    return out.getvalue()


def unpack(data: bytes) -> list[Arrays]:
    records: dict[int, Arrays] = {}
    with np.load(io.BytesIO(data)) as file:
        for name in file.files:
            index, _, key = name.partition("/")
            records.setdefault(int(index), {})[key] = file[name]
    return [records[i] for i in sorted(records)]
