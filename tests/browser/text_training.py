"""The text classifier at tiny sizes, trained the same way on any device.

Owns: its sizes, its data, what its parity asks. Must not know: where it runs (see seed_training).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import wgburn as wb

from . import seed_training
from .seed_training import SEED, Arrays, Batch

SLOW_STEPS, SLOW_LR = 30, 1e-4  # parity (a)
FOLLOWED_STEPS, FOLLOWED_LR = 8, 1e-3  # parity (b)
VOCABULARY, LENGTH, WIDTH, BATCH = 20, 8, 16, 6


def batches() -> Iterator[Batch]:
    """Texts of which two end early, for ever."""
    step = 0
    while True:
        rng = np.random.default_rng([3, step])
        tokens = rng.integers(1, VOCABULARY, (BATCH, LENGTH)).astype(np.int32)
        tokens[0, 5:] = tokens[3, 2:] = 0
        # Something to learn: the class is that of the first word.
        yield tokens, tokens[:, 0] % 4
        step += 1


class Trainer(seed_training.Trainer):
    """The transformer and Adam on one device."""

    def __init__(self, device: wb.Device, lr: float) -> None:
        from models import TextTransformer  # seed_training put the examples on the path

        self.device = device
        learning = device.autodiff()
        learning.seed(SEED)
        with wb.use_device(learning):
            self.model = TextTransformer(
                VOCABULARY, LENGTH, WIDTH, hidden=24, heads=2, layers=2, dropout=0.1
            )
        self.optimizer = wb.optim.Adam(self.model.parameters(), lr=lr)

    async def gradients(
        self, inputs: NDArray[Any], labels: NDArray[np.int32]
    ) -> tuple[float, Arrays]:
        """Without those of the keys' biases: they are zero in truth, what is left is rounding."""
        loss, grads = await super().gradients(inputs, labels)
        for name in grads:
            if name.endswith("in_proj_bias"):
                grads[name] = np.delete(grads[name], np.s_[WIDTH : 2 * WIDTH])
        return loss, grads


async def losses(device: wb.Device) -> list[float]:
    """Parity (a): losses of a short, slow training."""
    return await seed_training.losses_of(Trainer(device, SLOW_LR), batches(), SLOW_STEPS)


async def recorded(device: wb.Device) -> list[Arrays]:
    """Parity (b), the run to follow."""
    trainer = Trainer(device, FOLLOWED_LR)
    return await seed_training.records_of(trainer, batches(), FOLLOWED_STEPS)


async def followed(
    device: wb.Device, records: list[Arrays]
) -> list[tuple[float, dict[str, float]]]:
    """Parity (b): how far loss and gradients are off, each step from a recorded state."""
    trainer = Trainer(device, 0.0)
    return [each async for each in seed_training.distances_of(trainer, batches(), records)]


def check_losses(runs: dict[str, list[float]]) -> None:
    """Parity (a): all within 1e-3; small steps, so rounding has no time to grow."""
    values = np.array(list(runs.values()))
    assert values.shape == (len(runs), SLOW_STEPS) and len(runs) > 1
    assert len(set(values[0])) == SLOW_STEPS
    assert np.ptp(values, axis=0).max() < 1e-3, runs


def check_followed(offs: list[tuple[float, dict[str, float]]]) -> None:
    """Parity (b): loss within 1e-5, each gradient within 1e-4 norm-wise. Nothing here has kinks."""
    assert len(offs) == FOLLOWED_STEPS
    for number, (loss, grads) in enumerate(offs):
        assert loss < 1e-5, (number, loss)
        assert len(grads) > 20
        far = {name: off for name, off in grads.items() if not off < 1e-4}
        assert not far, (number, far)
