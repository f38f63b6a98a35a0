"""What the training examples share: the loop, its progress, the files it leaves."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import wgburn as wb
from wgburn import nn
from wgburn.data import Batches

SEED = 42
#: Seconds between two reads of the loss: each read waits for the device.
READ_EVERY = 0.5
#: Seconds between two lines where the output is no terminal.
LINE_EVERY = 10.0


class View(Protocol):
    """Where a run tells how it is going."""

    def update(self, epoch: int, samples: int, loss: float, accuracy: float) -> None: ...
    def say(self, line: str) -> None: ...


class Tally:
    """Losses and hits of the steps so far; leaves them on the device until they are read."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.hits = 0
        self.samples = 0
        self._unread: list[tuple[wb.Tensor, wb.Tensor, int]] = []
        self._read_at = time.perf_counter()

    def add(self, loss: wb.Tensor, hits: wb.Tensor, samples: int) -> None:
        self._unread.append((loss, hits, samples))

    def due(self) -> bool:
        return time.perf_counter() - self._read_at >= READ_EVERY

    def read(self) -> None:
        for loss, hits, samples in self._unread:
            self.losses.append(float(loss.item()))
            self.hits += int(hits.item())
            self.samples += samples
        self._unread.clear()
        self._read_at = time.perf_counter()

    @property
    def accuracy(self) -> float:
        return self.hits / self.samples if self.samples else 0.0


class Run:
    """A classifier, its optimizer and data, and what training showed so far.

    `what` names the samples in what is shown ("digits"); `to_input` makes the network's input of
    a batch as `train` and `test` have it.
    """

    def __init__(
        self,
        device: wb.Device,
        model: nn.Module,
        optimizer: Any,
        train: tuple[NDArray[Any], NDArray[Any]],
        test: tuple[NDArray[Any], NDArray[Any]],
        *,
        what: str,
        batch: int,
        epochs: int,
        to_input: Callable[[NDArray[Any]], NDArray[Any]],
        peak: float | None = None,
    ) -> None:
        self.device = device
        self.model = model
        self.optimizer = optimizer
        self.test_inputs, self.test_labels = test
        self.what = what
        self.batch = batch
        self.epochs = epochs
        self.to_input = to_input
        inputs, labels = train
        self.batches = Batches(
            inputs,
            labels.astype(np.int32),
            batch_size=min(batch, len(labels)),
            seed=SEED,
            drop_last=True,
        )
        self.schedule = None
        if peak is not None:
            self.schedule = wb.optim.lr_scheduler.OneCycleLR(
                optimizer, max_lr=peak, total_steps=epochs * len(self.batches)
            )
        self.losses: list[float] = []
        self.train_accuracy: list[float] = []
        self.test_accuracy: list[float] = []
        self.predictions = np.empty(0, np.int64)

    def step(self, inputs: NDArray[Any], labels: NDArray[np.int32], tally: Tally) -> None:
        target = wb.tensor(labels, device=self.device)
        logits = self.model(wb.tensor(self.to_input(inputs), device=self.device))
        loss = nn.functional.cross_entropy(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        with wb.no_grad():
            hits = (logits.argmax(1) == target).sum()
        tally.add(loss.detach(), hits, len(labels))
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def predict(self) -> NDArray[np.int64]:
        """The class the model gives each test sample."""
        self.model.eval()
        found = []
        with wb.no_grad():
            for (inputs,) in Batches(self.test_inputs, batch_size=self.batch, shuffle=False):
                logits = self.model(wb.tensor(self.to_input(inputs), device=self.device))
                found.append(logits.argmax(1).numpy())
        return np.concatenate(found)

    def epoch(self, view: View) -> None:
        number = len(self.test_accuracy) + 1
        before = (number - 1) * self.batches.samples
        tally = Tally()
        started = time.perf_counter()
        self.model.train()
        for inputs, labels in self.batches:
            self.step(inputs, labels, tally)
            if tally.due():
                tally.read()
                view.update(number, before + tally.samples, tally.losses[-1], tally.accuracy)
        tally.read()
        seconds = time.perf_counter() - started
        view.update(number, before + tally.samples, tally.losses[-1], tally.accuracy)
        self.predictions = self.predict()
        right = float(np.mean(self.predictions == self.test_labels))
        self.losses += tally.losses
        self.train_accuracy.append(tally.accuracy)
        self.test_accuracy.append(right)
        view.say(
            f"epoch {number}/{self.epochs}: loss {np.mean(tally.losses):.4f}, "
            f"training accuracy {tally.accuracy:.4f}, test accuracy {right:.4f}, "
            f"{tally.samples / seconds:.0f} {self.what}/s"
        )


class Lines:
    """A view for logs: a line now and then."""

    def __init__(self, console: Console, what: str, epochs: int, total: int) -> None:
        self.console = console
        self.what = what
        self.epochs = epochs
        self.total = total
        self.started = time.perf_counter()
        self.last = self.started

    def update(self, epoch: int, samples: int, loss: float, accuracy: float) -> None:
        now = time.perf_counter()
        if now - self.last < LINE_EVERY:
            return
        self.last = now
        rate = samples / (now - self.started)
        self.say(
            f"epoch {epoch}/{self.epochs}: {samples}/{self.total} {self.what}, loss {loss:.4f}, "
            f"accuracy {accuracy:.4f}, {rate:.0f} {self.what}/s, "
            f"{(self.total - samples) / rate:.0f} s left"
        )

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


class Bar:
    """A view for a terminal: one moving line."""

    def __init__(self, progress: Progress, what: str, epochs: int, total: int) -> None:
        self.progress = progress
        self.what = what
        self.epochs = epochs
        self.started = time.perf_counter()
        self.task = progress.add_task("starting", total=total, shown="")

    def update(self, epoch: int, samples: int, loss: float, accuracy: float) -> None:
        rate = samples / (time.perf_counter() - self.started)
        self.progress.update(
            self.task,
            completed=samples,
            description=f"epoch {epoch}/{self.epochs}",
            shown=f"loss {loss:.4f}  accuracy {accuracy:.4f}  {rate:.0f} {self.what}/s",
        )

    def say(self, line: str) -> None:
        self.progress.console.print(line, highlight=False)


@contextmanager
def open_view(console: Console, what: str, epochs: int, total: int) -> Iterator[View]:
    if not console.is_terminal:
        yield Lines(console, what, epochs, total)
        return
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    ]
    with Progress(*columns, console=console) as progress:
        yield Bar(progress, what, epochs, total)


def need_pillow() -> None:
    """Ask for Pillow before the training, not after it."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise ImportError("the pictures need Pillow: pip install 'wgburn[plot]'") from None


def need_folder(out: Path) -> None:
    """Make the folder of the results and see that it takes files, before the training."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise wb.FileFormatError(
            f"--out {out}: cannot write files there ({error.strerror}); choose another folder"
        ) from None


def train(run: Run, out: Path, finish: Callable[[Run, Path], Sequence[str]]) -> None:
    """The whole run: what it is, its progress, its files (written by `finish`), its last line."""
    need_folder(out)
    console = Console()
    tests = len(run.test_labels)
    console.print(
        f"{len(run.batches.arrays[0])} training {run.what}, {tests} test {run.what}, "
        f"device {run.device} ({run.device.info.name}), "
        f"{run.epochs} epochs of {len(run.batches)} steps",
        highlight=False,
        soft_wrap=True,
    )
    started = time.perf_counter()
    with open_view(console, run.what, run.epochs, run.epochs * run.batches.samples) as view:
        for _ in range(run.epochs):
            run.epoch(view)
    seconds = time.perf_counter() - started
    *files, last = finish(run, out)
    click.echo(f"wrote {', '.join(files)} and {last} to {out}")
    right = int(np.sum(run.predictions == run.test_labels))
    click.echo(
        f"test accuracy {right / tests:.4f} ({right}/{tests}), "
        f"device {run.device}, epochs {run.epochs}, {seconds:.0f} s"
    )
