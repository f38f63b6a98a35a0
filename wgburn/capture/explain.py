"""wb.explain: the kernels that a function would run, without running them.

Owns: the rehearsal of a function and its report. Must not know: how plans are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import journal
from ..core.errors import DTypeError
from ..core.node import Node, Store, Unread
from ..device.backend import Backend
from ..tensor.tensor import Tensor


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


class Rehearsal:
    """Stands in for a backend's execution: plans are made and kept, values are not computed."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.plans: list[Any] = []

    def realise(self, nodes: Sequence[Node], plan: Any) -> None:
        """Note a plan and pretend that its outputs exist."""
        self.plans.append(plan)
        for n in nodes:
            n.realised(Store(Unread(), n.shape, n.dtype))


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
    backends = _backends((args, kwargs, what))
    for b in backends:
        b.realise(())
    kernels: list[Kernel] = []
    rehearsals = [Rehearsal(b) for b in backends]
    streams = [(b.stream.seed, b.stream.offset) for b in backends]
    journal.start()
    try:
        for r in rehearsals:
            r.backend.rehearsal = r
        result = what(*args, **kwargs)
        for r in rehearsals:
            wanted = [t._node for t in _tensors(result) if t._node.backend is r.backend]
            r.backend.realise(wanted)
            for plan in r.plans:
                kernels += r.backend.describe(plan, Kernel)
    finally:
        for r in rehearsals:
            r.backend.rehearsal = None
            r.backend.pending.refs.clear()
        journal.finish()
        for b, (seed, offset) in zip(backends, streams, strict=True):
            b.stream.seed, b.stream.offset = seed, offset
    return Explanation(kernels, ", ".join(b.name for b in backends))


def _explain_tensors(tensors: list[Tensor]) -> Explanation:
    backend = tensors[0]._node.backend
    plan = backend.plan_for([t._node for t in tensors if t._node.store is None])
    found = backend.describe(plan, Kernel) if plan is not None else []
    return Explanation(found, backend.name)


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        return [t for v in tree.values() for t in _tensors(v)]
    if isinstance(tree, (list, tuple)):
        return [t for v in tree for t in _tensors(v)]
    return []


def _backends(tree: Any) -> list[Backend]:
    """Backends of every tensor and module among the arguments, else the default device's."""
    from ..device.device import default_device

    found: dict[int, Backend] = {}
    stack = [tree]
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            found[id(item._node.backend)] = item._node.backend
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif hasattr(item, "parameters"):
            stack.extend(item.parameters())
        elif isinstance(item, Callable):  # type: ignore[arg-type]
            stack.extend(
                c.cell_contents for c in getattr(item, "__closure__", None) or () if _filled(c)
            )
            owner = getattr(item, "__self__", None)
            if owner is not None:
                stack.append(owner)
            stack.extend(
                getattr(item, "__globals__", {}).get(n)
                for n in getattr(getattr(item, "__code__", None), "co_names", ())
            )
        elif hasattr(item, "param_groups"):
            stack.extend(item.param_groups)
    if not found:
        b = default_device().backend
        found[id(b)] = b
    return list(found.values())


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
