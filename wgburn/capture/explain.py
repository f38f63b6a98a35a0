"""wb.explain: the kernels that a function would run, without running them.

Owns: the report. Must not know: how a function is rehearsed (rehearsal.py), how plans are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import DTypeError
from ..tensor.tensor import Tensor
from .rehearsal import rehearsed, run


@dataclass(frozen=True)
class Kernel:
    """One launch. reads/writes: "float32[256, 64]" each; bytes: of all of them together."""

    name: str
    ops: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    bytes: int
    groups: int
    why: str
    source: str

    @property
    def second_stage(self) -> bool:
        """Whether it only adds up the parts of a split reduction."""
        return self.name.endswith("_second_stage")


class Explanation:
    """What `explain` found: `.kernels`, one entry a launch in order; str() is a table."""

    def __init__(self, kernels: list[Kernel], device: str) -> None:
        self.kernels = kernels
        self.device = device

    def __len__(self) -> int:
        return len(self.kernels)

    def __str__(self) -> str:
        rows = [("#", "kernel", "ops", "reads", "writes", "MiB", "ends because")]
        for k, n in enumerate(self.kernels):
            ops = " ".join(n.ops)
            rows.append(
                (
                    str(k),
                    n.name[:28],
                    ops if len(ops) <= 44 else ops[:41] + "...",
                    str(len(n.reads)),
                    ", ".join(n.writes)[:40],
                    f"{n.bytes / 2**20:.2f}",
                    n.why[:60],
                )
            )
        widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
        lines = [
            "  ".join(v.ljust(w) for v, w in zip(r, widths, strict=True)).rstrip() for r in rows
        ]
        lines.insert(1, "  ".join("-" * w for w in widths))
        total = sum(k.bytes for k in self.kernels) / 2**20
        stages = sum(k.second_stage for k in self.kernels)
        lines.append(
            f"{len(self.kernels)} kernels ({stages} second stages) on {self.device}, "
            f"{total:.2f} MiB read and written"
        )
        return "\n".join(lines)

    __repr__ = __str__


def explain(what: Any, *args: Any, **kwargs: Any) -> Explanation:
    """The kernels of a function's work, or of tensors that are pending: nothing is run.

    `explain(fn, *args)` calls fn with computing replaced by planning: parameters, optimizer state,
    gradients, running statistics and random streams are afterwards as they were.
    `explain(*tensors)` plans what reading them would compute. Raises DeviceError for a read inside
    fn, whose value does not exist.
    """
    if isinstance(what, Tensor):
        return _explain_tensors([what, *args])
    if not callable(what):
        raise DTypeError(
            f"explain takes a function and its arguments, or tensors; got {type(what).__name__}"
        )
    kernels: list[Kernel] = []
    with rehearsed(what, args, kwargs) as rehearsals:
        for r in rehearsals:
            r.backend.realise(())  # what waited already is not the function's
        before = [len(r.plans) for r in rehearsals]
        run(rehearsals, what, args, kwargs)
        for r, skip in zip(rehearsals, before, strict=True):
            for plan in r.plans[skip:]:
                kernels += r.backend.describe(plan, Kernel)
    names = [r.backend.name for r in rehearsals if r.plans] or [rehearsals[0].backend.name]
    return Explanation(kernels, ", ".join(names))


def _explain_tensors(tensors: list[Tensor]) -> Explanation:
    backend = tensors[0]._node.backend
    plan = backend.plan_for([t._node for t in tensors if t._node.store is None])
    found = backend.describe(plan, Kernel) if plan is not None else []
    return Explanation(found, backend.name)
