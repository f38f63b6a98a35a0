"""The MNIST digits from a folder of IDX files.

Owns: names of the four files and what must hold between images and labels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import FileFormatError
from .idx import find_idx, read_idx

_PREFIX = {"train": "train", "test": "t10k"}
SIZE = 28
CLASSES = 10


class Digits(NamedTuple):
    """Images [n, 28, 28] of 0..255 and labels [n] of 0..9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


def load_mnist(folder: str | os.PathLike[str], split: Literal["train", "test"]) -> Digits:
    """One split of the set in `folder`. Raises FileFormatError for what is missing or damaged."""
    prefix = _PREFIX[split]
    image_path = find_idx(folder, f"{prefix}-images-idx3-ubyte")
    label_path = find_idx(folder, f"{prefix}-labels-idx1-ubyte")
    images = read_idx(image_path)
    labels = read_idx(label_path)
    _check(image_path, images, (len(images), SIZE, SIZE), "images")
    _check(label_path, labels, (len(labels),), "labels")
    if len(images) != len(labels):
        raise FileFormatError(
            f"{label_path}: {len(labels)} labels for the {len(images)} images of {image_path.name}"
        )
    if not len(labels):
        raise FileFormatError(f"{image_path}: holds no digit")
    if labels.max() >= CLASSES:
        raise FileFormatError(f"{label_path}: label {labels.max()} is no digit")
    return Digits(images, labels)


def _check(path: Path, array: NDArray[np.uint8], shape: tuple[int, ...], what: str) -> None:
    if array.dtype != np.uint8 or array.shape != shape:
        wanted = "[n, 28, 28]" if len(shape) == 3 else "[n]"
        raise FileFormatError(
            f"{path}: {what} must be uint8 {wanted}, not {array.dtype} {list(array.shape)}"
        )
