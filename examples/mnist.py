"""Trains a convolutional network on handwritten digits and shows how well it does.

    python examples/mnist.py --device wgpu --epochs 5

Writes model.safetensors, curve.png and digits.png.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

import wgburn as wb
from models import DigitCnn
from running import SEED, Run, need_pillow, train
from wgburn.cli.errors import Command, debug_option
from wgburn.data import Digits, load_mnist

BATCH = 256
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 5e-5
#: Top of the one-cycle schedule, which starts and ends far below it.
PEAK_LEARNING_RATE = 5e-3
# Mean and spread of the pixels of the full training set, as fractions of 255.
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081

SHIPPED_DATA = Path(__file__).resolve().parent / "data" / "mnist"


def to_input(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Pixels as the network wants them: [n, 1, 28, 28], mean 0, spread 1."""
    scaled = (images.astype(np.float32) / 255 - PIXEL_MEAN) / PIXEL_STD
    return scaled[:, None].astype(np.float32)


def load_data(folder: Path, limit: int | None) -> tuple[Digits, Digits]:
    train, test = load_mnist(folder, "train"), load_mnist(folder, "test")
    if limit is not None:
        train = Digits(train.images[:limit], train.labels[:limit])
    return train, test


def make_run(device: wb.Device, train: Digits, test: Digits, epochs: int, schedule: str) -> Run:
    learning = device.autodiff()
    learning.seed(SEED)
    with wb.use_device(learning):
        model = DigitCnn()
    optimizer = wb.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    return Run(
        device,
        model,
        optimizer,
        (train.images, train.labels),
        (test.images, test.labels),
        what="digits",
        batch=BATCH,
        epochs=epochs,
        to_input=to_input,
        peak=PEAK_LEARNING_RATE if schedule == "onecycle" else None,
    )


def write_results(run: Run, out: Path) -> list[str]:
    from pictures import draw_curves, draw_digits

    wb.save(run.model.state_dict(), out / "model.safetensors", metadata={"model": "DigitCnn"})
    draw_curves(out / "curve.png", run.losses, run.train_accuracy, run.test_accuracy)
    draw_digits(out / "digits.png", run.test_inputs, run.test_labels, run.predictions)
    return ["model.safetensors", "curve.png", "digits.png"]


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", "name", help="best, cpu, wgpu or wgpu:N.  [default: best]")
@click.option("--epochs", default=5, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--schedule",
    default="onecycle",
    show_default=True,
    type=click.Choice(["onecycle", "constant"]),
    help="Learning rate over time.",
)
@click.option("--limit", type=click.IntRange(min=2), help="Train on the first N digits only.")
@click.option(
    "--data",
    "folder",
    default=SHIPPED_DATA,
    type=click.Path(path_type=Path),
    help="Folder with the four IDX files, gzipped or not.  [default: the digits shipped here]",
)
@click.option(
    "--out",
    default=Path("out/mnist"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for the model and the pictures.",
)
@debug_option
def main(
    name: str | None,
    epochs: int,
    schedule: str,
    limit: int | None,
    folder: Path,
    out: Path,
    debug: bool,
) -> None:
    """Train a convolutional network on handwritten digits."""
    need_pillow()
    digits = load_data(folder, limit)
    device = wb.Device.parse(name or wb.config.device or "best")
    train(make_run(device, *digits, epochs, schedule), out, write_results)


if __name__ == "__main__":
    main()
