"""Pipelines that new batch sizes and sequence lengths cost, on a device that runs nothing.

    python -m benchmarks.pipelines [--sizes 20] [--start 32] [--json]

A kernel's text holds no size, so a new size should need new numbers, not a new pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from .fake import CnnSteps, Step, TransformerSteps, fake_device

#: Most pipelines of a sweep, relative to one size.
FOURS, ARBITRARY = 1.2, 2.5


class Sweep(NamedTuple):
    """Pipelines after the first size, after all, and how many a second pass added."""

    name: str
    sizes: int
    one: int
    all: int
    again: int

    @property
    def ratio(self) -> float:
        return self.all / self.one


def sweep(name: str, make: Callable[[Any], Any], sizes: Sequence[int]) -> Sweep:
    """A training step at each size, twice over, on a new device."""
    device = fake_device()
    steps = make(device)

    def created() -> int:
        return device.backend.queue.counters.pipelines_created  # type: ignore[no-any-return]

    def run(step: Step, times: int = 1) -> int:
        for _ in range(times):
            step()
        return created()

    # Fresh parameters are computed before the first step.
    start = created()
    one = run(steps.at(sizes[0]), 3)
    counts = [run(steps.at(size)) for size in sizes]
    again = [run(steps.at(size)) for size in sizes]
    return Sweep(name, len(sizes), one - start, counts[-1] - start, again[-1] - counts[-1])


def fours(n: int, start: int) -> list[int]:
    """Multiples of 4."""
    return [start + 4 * k for k in range(n)]


def arbitrary(n: int, start: int) -> list[int]:
    """Every third number: all remainders by 4, odd and even, a prime here and there."""
    return [start + 3 * k for k in range(n)]


def sweeps(n: int, start: int) -> list[tuple[Sweep, float]]:
    """The sweeps with what each may cost."""
    found = []
    kinds = (("x4", fours(n, start), FOURS), ("any", arbitrary(n, start), ARBITRARY))
    for label, sizes, most in kinds:
        found.append((sweep(f"cnn batch {label}", CnnSteps, sizes), most))
        found.append((sweep(f"transformer length {label}", TransformerSteps, sizes), most))
    return found


@click.command()
@click.option("--sizes", default=20, show_default=True, help="Sizes of each sweep.")
@click.option("--start", default=32, show_default=True, help="The smallest, a multiple of 4.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")
def main(sizes: int, start: int, as_json: bool) -> None:
    """Count the pipelines of a sweep over batch sizes and sequence lengths."""
    found = sweeps(sizes, start)
    if as_json:
        rows = [s._asdict() | {"ratio": s.ratio, "at_most": most} for s, most in found]
        click.echo(json.dumps(rows, indent=2))
        return
    for s, most in found:
        click.echo(
            f"{s.name:<24} {s.sizes} sizes  one {s.one:3}  all {s.all:3}  {s.ratio:5.2f} x "
            f"(at most {most})  second pass +{s.again}"
        )


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.pipelines")
