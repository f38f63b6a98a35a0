"""What recording, backward and looking up the plan cost an op, in a steady state.

    python -m benchmarks.overhead [--json]

wgburn runs on a device that computes nothing, so all its time is its own; torch and tinygrad run
the same chain on the CPU with tiny tensors. Times are the thread's CPU time, medians.
"""

from __future__ import annotations

import importlib
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from wgburn.ops.source import const

from .fake import CnnSteps, Step, TransformerSteps, chain_step, fake_device

#: Microseconds for each recorded primitive.
TARGET = 15.0
CHAIN = 20
#: Links for tinygrad, which writes them as one expression: WGSL compilers refuse deep ones.
SHORT_CHAIN = 4
WARM_UP = 3


class Cost(NamedTuple):
    """One system and work: recorded primitives a step, and what each costs."""

    name: str
    ops: int
    us: float
    hits: int = 0
    misses: int = 0  # plans looked for in vain after the second step

    @property
    def hit_rate(self) -> float:
        return self.hits / max(self.hits + self.misses, 1)


def cpu_ms(step: Step, repeats: int) -> float:
    """The median of a step's CPU time in this thread."""
    found = []
    for _ in range(repeats):
        started = time.thread_time()
        step()
        found.append(time.thread_time() - started)
    return statistics.median(found) * 1e3


def ours(name: str, make: Callable[[Any], Step], repeats: int) -> Cost:
    """A step on the fake device; primitives are counted as they are recorded."""
    device = fake_device()
    backend = device.backend
    step = make(device)
    for _ in range(2):
        step()
    hits, misses = backend.plan_hits, backend.plan_misses
    step()
    ops = primitives(backend, step)
    ms = cpu_ms(step, repeats)
    return Cost(name, ops, ms * 1e3 / ops, backend.plan_hits - hits, backend.plan_misses - misses)


def primitives(backend: Any, step: Step) -> int:
    """How many ops a step records, those of the optimizer included, Python scalars not."""
    total = 0
    look_up = backend._cached

    def counted(work: Any) -> Any:
        nonlocal total
        total += sum(node.store is None and node.op is not const for node in work.order)
        return look_up(work)

    backend._cached = counted
    try:
        step()
    finally:
        del backend._cached
    return total


def forward_ops(links: int) -> int:
    """A product, a sum and a tanh each time, and the last sum."""
    return 3 * links + 1


def torch_chain(links: int) -> Step:
    torch = importlib.import_module("torch")
    x = torch.ones(8, 8)
    w = torch.ones(8, 8, requires_grad=True)

    def step() -> None:
        y = x
        for _ in range(links):
            y = (y * w + x).tanh()
        y.sum().backward()
        w.grad = None

    return step


def tinygrad_chain(links: int) -> Step:
    tensor = importlib.import_module("tinygrad").Tensor
    x = tensor.ones(8, 8).contiguous().realize()
    w = tensor.ones(8, 8).contiguous().realize()
    w.requires_grad = True

    def step() -> None:
        y = x
        for _ in range(links):
            y = (y * w + x).tanh()
        loss = y.sum()
        loss.backward()
        loss.realize(w.grad)
        w.grad = None

    return step


def peers(repeats: int) -> list[Cost | str]:
    """The chain on each peer, forward and backward, by op of the forward pass; or why not."""
    found: list[Cost | str] = []
    works = (("torch", torch_chain, CHAIN), ("tinygrad", tinygrad_chain, SHORT_CHAIN))
    for name, make, links in works:
        try:
            step = make(links)
            for _ in range(WARM_UP):
                step()
            few = repeats if name == "torch" else min(repeats, 5)
            ops = forward_ops(links)
            found.append(Cost(f"{name} chain", ops, cpu_ms(step, few) * 1e3 / ops))
        except ModuleNotFoundError as error:
            found.append(f"{name}: not installed ({error.name})")
        except Exception as error:  # a peer that can't run here is a line of the report
            found.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    return found


def measure(repeats: int) -> list[Cost]:
    """The works on wgburn."""
    return [
        ours("chain", lambda device: chain_step(device, CHAIN), repeats),
        ours("cnn step", lambda device: CnnSteps(device).at(8), repeats),
        ours("transformer step", lambda device: TransformerSteps(device).at(16), repeats),
    ]


@click.command()
@click.option("--repeats", default=30, show_default=True, help="Steps that are timed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")
def main(repeats: int, as_json: bool) -> None:
    """Time an eager step on a device that computes nothing, beside torch and tinygrad."""
    mine, others = measure(repeats), peers(repeats)
    chain = mine[0]
    # A peer's price of a whole chain against ours: they record other primitives in backward.
    if as_json:
        rows = [c._asdict() | {"hit_rate": c.hit_rate, "target_us": TARGET} for c in mine]
        rows += [
            {"name": c.name, "ops": c.ops, "us": c.us} if isinstance(c, Cost) else {"missing": c}
            for c in others
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    for c in mine:
        click.echo(
            f"wgburn {c.name:<18} {c.us:7.2f} us a primitive ({c.ops} a step; target {TARGET:.0f})"
            f"  plans found {c.hit_rate:.0%}"
        )
    click.echo(
        f"wgburn chain by forward op     {chain.us * chain.ops / forward_ops(CHAIN):7.2f} us"
    )
    for other in others:
        if isinstance(other, Cost):
            click.echo(f"{other.name:<16} by forward op {other.us:7.2f} us")
        else:
            click.echo(f"# {other}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.overhead")
