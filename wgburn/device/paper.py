"""Host memory on paper: what a host plan would hold, for dry runs on Device.cpu().

Owns: the count. Must not know: how plans are made or run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..compile.host import HostPlan
from ..core import hostmem
from ..core.node import Store, Unread


class Held:
    """Bytes that would be taken for as long as this lives."""

    __slots__ = ("nbytes", "paper")

    lasting = False

    def __init__(self, paper: HostPaper, nbytes: int) -> None:
        self.paper = paper
        self.nbytes = nbytes
        paper.in_use += nbytes
        paper.peak = max(paper.peak, paper.in_use)

    def __del__(self) -> None:
        self.paper.in_use -= self.nbytes


class HostPaper:
    """Bytes of large host arrays, starting from what is held now."""

    def __init__(self) -> None:
        self.in_use = self.peak = hostmem.usage().in_use

    def pretend(self, plan: HostPlan, leaves: Sequence[Store]) -> list[Store]:
        """The outputs of a plan that was not run."""
        values: dict[int, Any] = {}
        for i, slot in plan.leaves:
            buf = leaves[slot].buf
            values[i] = buf.held if type(buf) is Unread else buf
        for step in plan.steps:
            made = set(step.outputs) if step.inputs else {step.inner[0].node}
            for n in step.inner:
                if n.node in made:
                    size = prod(n.shape) * n.dtype.itemsize
                    values[n.node] = values[n.srcs[0]] if n.view and n.srcs else Held(self, size)
            for d in step.dead:
                values.pop(d, None)
        return [
            Store(Unread(values[o]), shape, dtype)
            for o, (shape, dtype) in zip(plan.outputs, plan.shapes, strict=True)
        ]
