"""The works that every system runs: names, sizes and how often they are timed. Knows no system."""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """One thing to time. A sample is `inner` calls; `rounds` times `samples` are taken."""

    name: str
    group: str  # what --works selects
    what: str
    samples: int = 5
    rounds: int = 3
    inner: int = 1


WORKS = (
    Work("mm512", "mm", "matrix product 512 x 512 x 512", samples=7, inner=4),
    Work("mm1024", "mm", "matrix product 1024 x 1024 x 1024"),
    Work("ew", "ew", "chain of 11 elementwise ops on 4 Mi floats"),
    Work("mlp", "mlp", "10 layers of 64 x 64 + ReLU, batch 1, inference", samples=7, inner=20),
    Work("cnn", "cnn", "training step of the digit CNN, batch 256", samples=3),
    Work("tr", "tr", "training step of a 2-layer transformer, batch 8, 64 tokens"),
)
GROUPS = tuple(dict.fromkeys(work.group for work in WORKS))

# Sizes, the same everywhere.
ELEMENTS = 4 * 1024 * 1024
MLP_WIDTH, MLP_DEPTH = 64, 10
CNN_BATCH = 256
TR_VOCABULARY, TR_WIDTH, TR_HIDDEN, TR_HEADS, TR_LAYERS = 1000, 128, 512, 4, 2
TR_LENGTH, TR_CLASSES, TR_BATCH = 64, 4, 8


def by_name(name: str) -> Work:
    return next(work for work in WORKS if work.name == name)
