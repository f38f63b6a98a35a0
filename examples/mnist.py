"""Trains a convolutional network on handwritten digits and shows how well it does.

    python examples/mnist.py --device wgpu --epochs 5

Writes model.safetensors, curve.png and digits.png.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import wgburn as wb
from models import DigitCnn
from wgburn import nn
from wgburn.cli.errors import Command, debug_option
from wgburn.data import Batches, Digits, load_mnist

SEED = 42
BATCH = 256
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 5e-5
#: Top of the one-cycle schedule, which starts and ends far below it.
PEAK_LEARNING_RATE = 5e-3
# Mean and spread of the pixels of the full training set, as fractions of 255.
PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081
#: Seconds between two reads of the loss: each read waits for the device.
READ_EVERY = 0.5
#: Seconds between two lines where the output is no terminal.
LINE_EVERY = 10.0

SHIPPED_DATA = Path(__file__).resolve().parent / "data" / "mnist"


class View(Protocol):
    """Where a run tells how it is going."""

    def update(self, epoch: int, digits: int, loss: float, accuracy: float) -> None: ...
    def say(self, line: str) -> None: ...


def to_input(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Pixels as the network wants them: [n, 1, 28, 28], mean 0, spread 1."""
    scaled = (images.astype(np.float32) / 255 - PIXEL_MEAN) / PIXEL_STD
    return scaled[:, None].astype(np.float32)


def predict(model: nn.Module, digits: Digits, device: wb.Device) -> NDArray[np.int64]:
    """The class the model gives each digit."""
    model.eval()
    found = []
    with wb.no_grad():
        for (images,) in Batches(digits.images, batch_size=BATCH, shuffle=False):
            logits = model(wb.tensor(to_input(images), device=device))
            found.append(logits.argmax(1).numpy())
    return np.concatenate(found)


class Tally:
    """Losses and hits of the steps so far; leaves them on the device until they are read."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.hits = 0
        self.digits = 0
        self._unread: list[tuple[wb.Tensor, wb.Tensor, int]] = []
        self._read_at = time.perf_counter()

    def add(self, loss: wb.Tensor, hits: wb.Tensor, digits: int) -> None:
        self._unread.append((loss, hits, digits))

    def due(self) -> bool:
        return time.perf_counter() - self._read_at >= READ_EVERY

    def read(self) -> None:
        for loss, hits, digits in self._unread:
            self.losses.append(float(loss.item()))
            self.hits += int(hits.item())
            self.digits += digits
        self._unread.clear()
        self._read_at = time.perf_counter()

    @property
    def accuracy(self) -> float:
        return self.hits / self.digits if self.digits else 0.0


class Run:
    """A model, its optimizer and data, and what training showed so far."""

    def __init__(
        self, device: wb.Device, train: Digits, test: Digits, epochs: int, schedule: str
    ) -> None:
        self.device = device
        self.test = test
        self.epochs = epochs
        size = min(BATCH, len(train.labels))
        labels = train.labels.astype(np.int32)
        self.batches = Batches(train.images, labels, batch_size=size, seed=SEED, drop_last=True)
        learning = device.autodiff()
        learning.seed(SEED)
        with wb.use_device(learning):
            self.model = DigitCnn()
        self.optimizer = wb.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self.schedule = None
        if schedule == "onecycle":
            self.schedule = wb.optim.lr_scheduler.OneCycleLR(
                self.optimizer,
                max_lr=PEAK_LEARNING_RATE,
                total_steps=epochs * len(self.batches),
            )
        self.losses: list[float] = []
        self.train_accuracy: list[float] = []
        self.test_accuracy: list[float] = []
        self.predictions = np.empty(0, np.int64)

    def step(self, images: NDArray[np.uint8], labels: NDArray[np.int32], tally: Tally) -> None:
        target = wb.tensor(labels, device=self.device)
        logits = self.model(wb.tensor(to_input(images), device=self.device))
        loss = nn.functional.cross_entropy(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        with wb.no_grad():
            hits = (logits.argmax(1) == target).sum()
        tally.add(loss.detach(), hits, len(labels))
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def epoch(self, view: View) -> None:
        number = len(self.test_accuracy) + 1
        before = (number - 1) * self.batches.samples
        tally = Tally()
        started = time.perf_counter()
        self.model.train()
        for images, labels in self.batches:
            self.step(images, labels, tally)
            if tally.due():
                tally.read()
                view.update(number, before + tally.digits, tally.losses[-1], tally.accuracy)
        tally.read()
        seconds = time.perf_counter() - started
        view.update(number, before + tally.digits, tally.losses[-1], tally.accuracy)
        self.predictions = predict(self.model, self.test, self.device)
        right = float(np.mean(self.predictions == self.test.labels))
        self.losses += tally.losses
        self.train_accuracy.append(tally.accuracy)
        self.test_accuracy.append(right)
        view.say(
            f"epoch {number}/{self.epochs}: loss {np.mean(tally.losses):.4f}, "
            f"training accuracy {tally.accuracy:.4f}, test accuracy {right:.4f}, "
            f"{tally.digits / seconds:.0f} digits/s"
        )


class Lines:
    """A view for logs: a line now and then."""

    def __init__(self, console: Console, epochs: int, total: int) -> None:
        self.console = console
        self.epochs = epochs
        self.total = total
        self.started = time.perf_counter()
        self.last = self.started

    def update(self, epoch: int, digits: int, loss: float, accuracy: float) -> None:
        now = time.perf_counter()
        if now - self.last < LINE_EVERY:
            return
        self.last = now
        rate = digits / (now - self.started)
        self.say(
            f"epoch {epoch}/{self.epochs}: {digits}/{self.total} digits, loss {loss:.4f}, "
            f"accuracy {accuracy:.4f}, {rate:.0f} digits/s, "
            f"{(self.total - digits) / rate:.0f} s left"
        )

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


class Bar:
    """A view for a terminal: one moving line."""

    def __init__(self, progress: Progress, epochs: int, total: int) -> None:
        self.progress = progress
        self.epochs = epochs
        self.started = time.perf_counter()
        self.task = progress.add_task("starting", total=total, shown="")

    def update(self, epoch: int, digits: int, loss: float, accuracy: float) -> None:
        rate = digits / (time.perf_counter() - self.started)
        self.progress.update(
            self.task,
            completed=digits,
            description=f"epoch {epoch}/{self.epochs}",
            shown=f"loss {loss:.4f}  accuracy {accuracy:.4f}  {rate:.0f} digits/s",
        )

    def say(self, line: str) -> None:
        self.progress.console.print(line, highlight=False)


@contextmanager
def open_view(console: Console, epochs: int, total: int) -> Iterator[View]:
    if not console.is_terminal:
        yield Lines(console, epochs, total)
        return
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    ]
    with Progress(*columns, console=console) as progress:
        yield Bar(progress, epochs, total)


def load_data(folder: Path, limit: int | None) -> tuple[Digits, Digits]:
    train, test = load_mnist(folder, "train"), load_mnist(folder, "test")
    if limit is not None:
        train = Digits(train.images[:limit], train.labels[:limit])
    return train, test


def write_results(run: Run, out: Path) -> None:
    from pictures import draw_curves, draw_digits

    wb.save(run.model.state_dict(), out / "model.safetensors", metadata={"model": "DigitCnn"})
    draw_curves(out / "curve.png", run.losses, run.train_accuracy, run.test_accuracy)
    draw_digits(out / "digits.png", run.test.images, run.test.labels, run.predictions)


def need_pillow() -> None:
    """Ask for Pillow before the training, not after it."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise ImportError("the pictures need Pillow: pip install 'wgburn[plot]'") from None


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
    train, test = load_data(folder, limit)
    device = wb.Device.parse(name or wb.config.device or "best")
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    run = Run(device, train, test, epochs, schedule)
    console.print(
        f"{len(train.labels)} training digits, {len(test.labels)} test digits, device {device} "
        f"({device.info.name}), {epochs} epochs of {len(run.batches)} steps",
        highlight=False,
        soft_wrap=True,
    )
    started = time.perf_counter()
    with open_view(console, epochs, epochs * run.batches.samples) as view:
        for _ in range(epochs):
            run.epoch(view)
    seconds = time.perf_counter() - started
    write_results(run, out)
    click.echo(f"wrote model.safetensors, curve.png and digits.png to {out}")
    right = int(np.sum(run.predictions == test.labels))
    click.echo(
        f"test accuracy {right / len(test.labels):.4f} ({right}/{len(test.labels)}), "
        f"device {device}, epochs {epochs}, {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
