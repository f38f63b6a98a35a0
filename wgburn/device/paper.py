"""Host memory on paper: what a host plan would hold, for dry runs on Device.cpu().

Owns: the count. Must not know: how plans are made or run.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..compile.graph import Work
from ..compile.host import HostPlan
from ..core import hostmem
from ..core.node import Store, Unread


class Held:
    """Bytes that would be taken for as long as this lives."""

    __slots__ = ("nbytes", "paper")

    lasting = False

    def __init__(self, paper: HostPaper, nbytes: int) -> None:
        self.paper = paper
        self.nbytes = counted(nbytes)
        nbytes = self.nbytes
        paper.in_use += nbytes
        paper.peak = max(paper.peak, paper.in_use)

    def __del__(self) -> None:
        self.paper.in_use -= self.nbytes


def counted(nbytes: int) -> int:
    """Bytes of an array as `Device.cpu().memory()` counts them: large ones only."""
    return nbytes if nbytes >= hostmem.SMALL else 0


class HostPaper:
    """Bytes of large host arrays, starting from what is held now."""

    def __init__(self) -> None:
        self.in_use = self.peak = hostmem.usage().in_use

    def free(self, buf: Any) -> None:
        """Count a real array as given back."""
        self.in_use -= counted(buf.nbytes)

    def pretend(self, plan: HostPlan, work: Work) -> list[Store]:
        """The outputs of a plan that was not run."""
        leaves = work.leaves
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
        # On the host an update makes a new array; the old one goes when it is done.
        for _, slot in work.donations:
            buf = leaves[slot].buf
            if type(buf) is Unread:
                buf.held = None
            else:
                self.free(buf)
        return [
            Store(Unread(values[o]), shape, dtype)
            for o, (shape, dtype) in zip(plan.outputs, plan.shapes, strict=True)
        ]
