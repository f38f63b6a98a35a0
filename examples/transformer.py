"""Trains a transformer to tell which area of Python's standard library a passage is from.

    python examples/transformer.py --small --device wgpu

Without --small it is the text classifier of the Burn 0.22 announcement in its full size (6 pre-norm
layers of width 512, 512 words, batch 8): for a GPU. What the task is and why: see stdlib_text.py.
Writes model.safetensors (with its vocabulary), curve.png and passages.png.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

import stdlib_text
import wgburn as wb
from models import TextTransformer
from running import SEED, Run, need_pillow, train
from wgburn.cli.errors import Command, debug_option


@dataclass(frozen=True)
class Preset:
    """Sizes and training of one model."""

    layers: int
    width: int
    hidden: int
    heads: int
    length: int
    vocabulary: int
    batch: int
    epochs: int
    rate: float
    #: Top of a one-cycle schedule; None keeps the rate.
    peak: float | None
    dropout: float = 0.1
    #: Words of a training text that are left out, at random: fewer are learned by heart.
    forget: float = 0.0


FULL = Preset(6, 512, 2048, 8, 512, 28_996, 8, 5, 1e-4, None)
SMALL = Preset(2, 32, 64, 4, 128, 8_000, 32, 3, 1e-3, 3e-3, dropout=0.0, forget=0.6)


def make_run(device: wb.Device, preset: Preset, limit: int | None) -> tuple[Run, Any]:
    """A run and what its results are made of: the vocabulary and the test passages."""
    learn, test = stdlib_text.load(preset.length, limit, SEED)
    vocabulary = stdlib_text.Vocabulary.of((p.text for p in learn), preset.vocabulary)
    learning = device.autodiff()
    learning.seed(SEED)
    with wb.use_device(learning):
        model = TextTransformer(
            preset.vocabulary,
            preset.length,
            preset.width,
            preset.hidden,
            preset.heads,
            preset.layers,
            len(stdlib_text.NAMES),
            preset.dropout,
            preset.forget,
        )
    optimizer = wb.optim.Adam(model.parameters(), lr=preset.rate)
    inputs, labels = (
        [vocabulary.encode([p.text for p in part], preset.length) for part in (learn, test)],
        [np.array([p.area for p in part], np.int64) for part in (learn, test)],
    )
    run = Run(
        device,
        model,
        optimizer,
        (inputs[0], labels[0]),
        (inputs[1], labels[1]),
        what="passages",
        batch=preset.batch,
        epochs=preset.epochs,
        to_input=lambda tokens: tokens,
        peak=preset.peak,
    )
    return run, (vocabulary, test)


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", "name", help="best, cpu, wgpu or wgpu:N.  [default: best]")
@click.option("--small", is_flag=True, help="A model that a CPU trains in minutes.")
@click.option("--epochs", type=click.IntRange(min=1), help="[default: 5, small 3]")
@click.option("--layers", type=click.IntRange(min=1), help="[default: 6, small 2]")
@click.option("--width", type=click.IntRange(min=1), help="[default: 512, small 32]")
@click.option("--hidden", type=click.IntRange(min=1), help="[default: 2048, small 64]")
@click.option("--heads", type=click.IntRange(min=1), help="[default: 8, small 4]")
@click.option("--length", type=click.IntRange(min=32), help="Words.  [default: 512, small 128]")
@click.option("--batch", type=click.IntRange(min=1), help="[default: 8, small 32]")
@click.option("--rate", type=float, help="Learning rate, constant.  [default: 1e-4]")
@click.option("--limit", type=click.IntRange(min=4), help="Train on N passages only.")
@click.option(
    "--out",
    default=Path("out/transformer"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for the model and the pictures.",
)
@debug_option
def main(
    name: str | None,
    small: bool,
    limit: int | None,
    out: Path,
    debug: bool,
    rate: float | None,
    **sizes: int | None,
) -> None:
    """Train a transformer to tell which area of Python's library a passage is from."""
    need_pillow()
    preset = replace(SMALL if small else FULL, **{k: v for k, v in sizes.items() if v is not None})
    if rate is not None:
        preset = replace(preset, rate=rate, peak=None)
    if preset.width % preset.heads:
        raise click.UsageError(f"--width {preset.width} does not split into {preset.heads} heads")
    device = wb.Device.parse(name or wb.config.device or "best")
    run, (vocabulary, test) = make_run(device, preset, limit)

    def write_results(run: Run, out: Path) -> list[str]:
        from pictures import draw_curves, draw_texts

        wb.save(
            run.model.state_dict(),
            out / "model.safetensors",
            metadata={
                "model": "TextTransformer",
                "areas": json.dumps(stdlib_text.NAMES),
                "vocabulary": json.dumps(vocabulary.listed),
            },
        )
        draw_curves(out / "curve.png", run.losses, run.train_accuracy, run.test_accuracy, run.what)
        draw_texts(
            out / "passages.png",
            [p.text for p in test],
            stdlib_text.NAMES,
            run.test_labels,
            run.predictions,
        )
        return ["model.safetensors", "curve.png", "passages.png"]

    train(run, out, write_results)


if __name__ == "__main__":
    main()
