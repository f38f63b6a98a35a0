"""Shuffled batches of arrays that fit in memory.

Owns: the order of samples. Must not know: tensors, or where the arrays came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import ShapeError, ValueRangeError


class Batches:
    """Iterates over (a[i], b[i], ...) for index sets i of `batch_size`; each pass is one epoch.

    The order depends on `seed` and the number of the epoch only, so a run repeats exactly, and a
    run that starts at epoch 3 (`batches.epoch = 3`) sees what the first run saw there.
    """

    def __init__(
        self,
        *arrays: NDArray[Any],
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if not arrays:
            raise ValueRangeError("Batches needs at least one array")
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) > 1:
            raise ShapeError(f"Batches: arrays of different lengths {lengths}")
        if batch_size < 1:
            raise ValueRangeError(f"Batches: batch_size is {batch_size}, must be at least 1")
        self.arrays = arrays
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    @property
    def samples(self) -> int:
        """Samples one epoch yields."""
        total = len(self.arrays[0])
        return total - total % self.batch_size if self.drop_last else total

    def __len__(self) -> int:
        """Batches one epoch yields."""
        return -(-self.samples // self.batch_size)

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        order = np.arange(len(self.arrays[0]))
        if self.shuffle:
            np.random.default_rng([self.seed, epoch]).shuffle(order)
        for start in range(0, self.samples, self.batch_size):
            picked = order[start : start + self.batch_size]
            yield tuple(array[picked] for array in self.arrays)
