"""The numpy backend: runs host plans by the ops' numpy rules, block by block on all cores.

Owns: execution of host plans, scratch memory. Must not know: WGSL, drivers, grouping.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compile.graph import Graph, Work
from ..compile.host import MADE, HostPlan, HostStep, Inner, plan_host
from ..compile.parts import Cut, Threads
from ..core import dtype as dt
from ..core import hostmem
from ..core.config import config
from ..core.dtype import DType
from ..core.node import Store, Unread
from ..ops.record import Call
from .backend import Backend, DeviceInfo, MemoryReport
from .blas import can_limit, single_threaded
from .helpers import WORKERS, Job, hand_out, share
from .paper import Held, HostPaper

_BYTES = np.dtype(np.uint8)


def _sliced(a: NDArray[Any], axis: int | None, lo: int, hi: int) -> NDArray[Any]:
    if axis is None or (not lo and hi == a.shape[axis]):
        return a
    return a[(slice(None),) * axis + (slice(lo, hi),)]


def _at(axis: int, a: NDArray[Any], part: slice) -> tuple[Any, ...]:
    return (slice(None),) * (axis % a.ndim) + (part,)


class Runner:
    """One execution of a plan."""

    def __init__(self, plan: HostPlan, leaves: list[Store], numbers: list[Any]) -> None:
        self.values: list[Any] = [None] * plan.size
        self.numbers = numbers
        for i, slot in plan.leaves:
            self.values[i] = leaves[slot].buf
        running: dict[int, Job] = {}
        try:
            for k, step in enumerate(plan.steps):
                for b in step.joins:
                    running.pop(b).join()
                if step.beside:
                    running[k] = hand_out(partial(self._run, step))
                else:
                    self._run(step)
                for d in step.dead:
                    self.values[d] = None
            while running:
                running.popitem()[1].join()
        finally:
            for job in running.values():
                with suppress(BaseException):  # an error is on its way already
                    job.drop()

    def _run(self, step: HostStep) -> None:
        if step.inputs:
            self._blocks(step)
        elif step.cut is not None:
            self._in_parts(step.inner[0], step.cut)
        else:
            self._whole(step.inner[0])

    def _whole(self, n: Inner) -> None:
        values = self.values
        args = [values[s] for s in n.srcs]
        lo, hi = n.dyn
        call = n.call
        if lo != hi:
            call = Call(call.attrs, tuple(self.numbers[lo:hi]), call.shape, call.dtype)
        if n.elementwise:
            out = values[n.node] = hostmem.empty(n.shape, n.dtype)
            n.rule(call, out, *args)
            return
        made = n.rule(call, *args)
        values[n.node] = made if made.dtype == n.dtype else made.astype(n.dtype)

    def _in_parts(self, n: Inner, cut: Cut) -> None:
        """Run a heavy op on pieces of its inputs."""
        args = [self.values[s] for s in n.srcs]
        out = hostmem.empty(n.shape, n.dtype) if cut.joins else None
        found: list[Any] = [None] * len(cut.pieces)

        def run(mine: Iterator[int]) -> None:
            for k in mine:
                piece = cut.pieces[k]
                own = [
                    a if axis is None else a[_at(axis, a, piece)]
                    for axis, a in zip(cut.inputs, args, strict=True)
                ]
                if out is None:
                    found[k] = n.rule(n.call, *own)
                    continue
                to = out[_at(cut.axis, out, piece)]
                made = n.rule(n.call._replace(shape=to.shape, out=to), *own)
                if made is not to:
                    np.copyto(to, made, casting="unsafe")

        share(range(len(cut.pieces)), run)
        if out is None:
            total: NDArray[Any] = sum(found[1:], start=found[0])
            out = total.astype(n.dtype, copy=False)
        self.values[n.node] = out

    def _blocks(self, step: HostStep) -> None:
        for n in step.inner:
            if n.node in step.outputs:
                self.values[n.node] = hostmem.empty(n.shape, n.dtype)
        starts = range(0, step.extent, step.block)
        if step.shared:
            share(starts, lambda mine: self._walk(step, mine))
        else:
            self._walk(step, starts)

    def _walk(self, step: HostStep, starts: Iterable[int]) -> None:
        """Compute the blocks that begin at `starts`."""
        values = self.values
        room = hostmem.empty((step.room,), _BYTES)
        inputs = [(i, axis, values[i]) for i, axis in step.inputs]
        local: dict[int, NDArray[Any]] = {}
        for lo in starts:
            hi = min(lo + step.block, step.extent)
            for i, axis, a in inputs:
                local[i] = _sliced(a, axis, lo, hi)
            # Runs for every op of every block: few lookups, few objects.
            for k, rule, call, srcs, elementwise, place, dtype, axis in step.calls[hi - lo]:
                if axis is None and k in local:
                    continue  # the same in every block
                if place == MADE:
                    made = rule(call, *[local[s] for s in srcs])
                    local[k] = made if made.dtype == dtype else made.astype(dtype)
                    continue
                if place >= 0:
                    to = np.ndarray(call.shape, dtype, room, place)
                else:
                    to = _sliced(values[k], axis, lo, hi)
                local[k] = to
                if not elementwise:
                    np.copyto(to, rule(call, *[local[s] for s in srcs]), casting="unsafe")
                elif len(srcs) == 2:
                    rule(call, to, local[srcs[0]], local[srcs[1]])
                else:
                    rule(call, to, *[local[s] for s in srcs])


def _how(s: HostStep, blocks: int) -> str:
    """How a step runs, for people."""
    if s.inputs:
        how = f"walked in {blocks} blocks"
    elif s.cut is not None:
        how = f"one op in {len(s.cut.pieces)} parts on all cores"
    else:
        how = "one op on whole arrays"
    if s.beside:
        return f"{how}, on a helper thread until it is needed"
    return f"{how} on all cores" if s.shared else how


class CpuBackend(Backend):
    """numpy on the host."""

    kind = "cpu"
    dtypes = frozenset(dt.ALL)

    def __init__(self) -> None:
        name = platform.processor() or platform.machine() or "cpu"
        info = DeviceInfo(
            "cpu",
            0,
            name,
            f"numpy {np.__version__}",
            "CPU",
            frozenset({"float64", "int64", "float16"}),
            {"threads": os.cpu_count() or 1},
            f"cpu/numpy-{np.__version__}/{name}",
        )
        super().__init__("cpu", info)

    def outline(self, graph: Graph) -> HostPlan:
        return plan_host(graph, config.fuse, Threads(WORKERS, can_limit()))

    def rehearse(self) -> HostPaper:
        return HostPaper()

    def pretend(
        self, plan: HostPlan, work: Work, lasting: Sequence[bool], paper: HostPaper
    ) -> list[Store]:
        return paper.pretend(plan, work)

    def rehearsed(self, paper: HostPaper) -> MemoryReport:
        u = hostmem.usage()
        reserved = u.reserved + max(paper.peak - u.in_use, 0)
        usage = {"in_use": paper.in_use, "reserved": reserved, "peak_in_use": paper.peak}
        return MemoryReport(
            paper.in_use, reserved, u.padding, paper.peak, reserved, [{"kind": "host", **usage}]
        )

    def describe(self, plan: HostPlan, make: Any) -> list[Any]:
        """One entry a step that computes (views and single numbers cost nothing)."""
        found = []
        for s in plan.steps:
            if len(s.inner) == 1 and (s.inner[0].view or s.inner[0].name == "const"):
                continue
            ops = tuple(n.name for n in s.inner if not n.view)
            writes = tuple(f"{n.dtype.name}{list(n.shape)}" for n in s.inner if n.node in s.outputs)
            size = sum(prod(n.shape) * n.dtype.itemsize for n in s.inner if n.node in s.outputs)
            blocks = -(-s.extent // s.block)
            found.append(
                make(
                    "_".join(dict.fromkeys(ops))[:60],
                    ops,
                    s.reads,
                    writes,
                    size,
                    blocks,
                    _how(s, blocks),
                    "",
                )
            )
        return found

    async def compile(self, graph: Graph) -> HostPlan:
        return self.outline(graph)

    def execute(
        self,
        plan: HostPlan,
        leaves: list[Store],
        numbers: list[Any],
        lasting: Sequence[bool] = (),
    ) -> list[Store]:
        # Products in parts share the cores by our own threads; in a small one BLAS' second thread
        # saves nothing, and on a busy machine it is waited for.
        with np.errstate(all="ignore"), single_threaded():
            values = Runner(plan, leaves, numbers).values
        return [
            Store(values[o], shape, dtype)
            for o, (shape, dtype) in zip(plan.outputs, plan.shapes, strict=True)
        ]

    def from_host(self, array: NDArray[Any], dtype: DType, lasting: bool = False) -> Store:
        if self.rehearsal is not None:
            return Store(Unread(Held(self.rehearsal.paper, array.nbytes)), array.shape, dtype)
        own = hostmem.empty(array.shape, dtype.np)
        np.copyto(own, array)
        return Store(own, array.shape, dtype)

    async def to_host(self, store: Store, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
        return np.array(store.buf, dtype=dtype.np, order="C")

    def memory(self) -> MemoryReport:
        u = hostmem.usage()
        return MemoryReport.of(u, [{"kind": "host", **u._asdict()}])

    def memory_cleanup(self) -> None:
        hostmem.release()
