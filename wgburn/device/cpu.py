"""The numpy backend: runs host plans by the ops' numpy rules, block by block on all cores.

Owns: execution of host plans, threads, scratch memory. Must not know: WGSL, drivers, grouping.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compile.graph import Graph, Work
from ..compile.host import HostPlan, HostStep, Inner, plan_host
from ..core import dtype as dt
from ..core import hostmem
from ..core.config import config
from ..core.dtype import DType
from ..core.node import Store, Unread
from ..ops.record import Call
from .backend import Backend, DeviceInfo, MemoryReport
from .blas import can_limit, single_threaded
from .paper import Held, HostPaper


def _sliced(a: NDArray[Any], axis: int | None, lo: int, hi: int) -> NDArray[Any]:
    return a if axis is None else a[(slice(None),) * axis + (slice(lo, hi),)]


def _sized(n: Inner, size: int) -> tuple[int, ...]:
    """A value's shape within a block of `size`."""
    return n.shape if n.axis is None else (*n.shape[: n.axis], size, *n.shape[n.axis + 1 :])


class Cut(NamedTuple):
    """How a heavy op falls into independent parts: the axis of each input that is cut (None: every
    part reads it whole), and the axis of the result; joins=False: the parts' results add up."""

    inputs: tuple[int | None, ...]
    axis: int = 0
    joins: bool = True


#: Samples of a batch are independent in convolutions and pools; rows are in a matrix product.
PARTS = {
    "conv": Cut((0, None)),
    "conv_input_grad": Cut((0, None)),
    "conv_weight_grad": Cut((0, 0), joins=False),
    "max_pool": Cut((0,)),
    "max_pool_index": Cut((0,)),
    "max_pool_grad": Cut((0, 0)),
    "avg_pool": Cut((0,)),
    "avg_pool_grad": Cut((0,)),
    "matmul": Cut((-2, None), axis=-2),
}
#: Elements read and written below which a second thread does not pay; multiplications for products.
PART_ELEMENTS = 1 << 17
PART_PRODUCTS = 1 << 22


def _at(axis: int, a: NDArray[Any], part: slice) -> tuple[Any, ...]:
    return (slice(None),) * (axis % a.ndim) + (part,)


def _parts(cut: Cut, n: Inner, args: list[NDArray[Any]]) -> list[slice]:
    """The pieces to run at the same time; one piece where that would not pay."""
    first = args[0]
    if n.name == "matmul":
        if first.ndim != 2 or args[1].ndim != 2 or not can_limit():
            return [slice(0, 0)]
        busy = first.shape[0] * first.shape[1] * args[1].shape[1] >= PART_PRODUCTS
    else:
        busy = sum(a.size for a in args) + prod(n.shape) >= PART_ELEMENTS
    extent = first.shape[(cut.inputs[0] or 0) % first.ndim] if first.ndim else 0
    if not busy or extent < 2 * WORKERS:
        return [slice(0, extent)]
    step = -(-extent // WORKERS)
    return [slice(lo, min(lo + step, extent)) for lo in range(0, extent, step)]


class Runner:
    """One execution of a plan."""

    def __init__(self, plan: HostPlan, leaves: list[Store], numbers: list[Any]) -> None:
        self.values: list[Any] = [None] * plan.size
        self.numbers = numbers
        for i, slot in plan.leaves:
            self.values[i] = leaves[slot].buf
        for step in plan.steps:
            if step.inputs:
                self._blocks(step)
            else:
                (n,) = step.inner
                self.values[n.node] = self._whole(n)
            for d in step.dead:
                self.values[d] = None

    def _call(self, n: Inner, shape: tuple[int, ...]) -> Call:
        lo, hi = n.dyn
        return Call(n.attrs, tuple(self.numbers[lo:hi]) if hi > lo else (), shape, n.dtype)

    def _whole(self, n: Inner) -> NDArray[Any]:
        call = self._call(n, n.shape)
        args = [self.values[s] for s in n.srcs]
        if n.elementwise:
            out = hostmem.empty(n.shape, n.dtype)
            n.rule(call, out, *args)
            return out
        cut = PARTS.get(n.name)
        if cut is not None and WORKERS > 1:
            parts = _parts(cut, n, args)
            if len(parts) > 1:
                return self._in_parts(n, cut, args, parts)
        made: NDArray[Any] = n.rule(call, *args)
        return made if made.dtype == n.dtype else made.astype(n.dtype)

    def _in_parts(
        self, n: Inner, cut: Cut, args: list[NDArray[Any]], parts: list[slice]
    ) -> NDArray[Any]:
        """Run a heavy op on pieces of its inputs, a thread each."""
        out = hostmem.empty(n.shape, n.dtype) if cut.joins else None

        def run(part: slice) -> Any:
            own = [
                a if axis is None else a[_at(axis, a, part)]
                for axis, a in zip(cut.inputs, args, strict=True)
            ]
            shape = list(n.shape)
            if out is not None:
                shape[cut.axis] = part.stop - part.start
            with np.errstate(all="ignore"):
                made = n.rule(self._call(n, tuple(shape)), *own)
                if out is None:
                    return made
                np.copyto(out[_at(cut.axis, out, part)], made, casting="unsafe")
            return None

        with single_threaded():
            others = [pool().submit(run, part) for part in parts[1:]]
            found = [run(parts[0]), *(f.result() for f in others)]
        if out is not None:
            return out
        total: NDArray[Any] = sum(found[1:], start=found[0])
        return total.astype(n.dtype, copy=False)

    def _blocks(self, step: HostStep) -> None:
        outputs = set(step.outputs)
        for n in step.inner:
            if n.node in outputs:
                self.values[n.node] = hostmem.empty(n.shape, n.dtype)
        starts = range(0, step.extent, step.block)
        if len(starts) < 4 or WORKERS == 1:
            self._walk(step, outputs, starts)
            return
        half = len(starts) // WORKERS
        parts = [
            starts[k * half : (k + 1) * half if k + 1 < WORKERS else None] for k in range(WORKERS)
        ]
        others = [pool().submit(self._walk_quietly, step, outputs, p) for p in parts[1:]]
        self._walk(step, outputs, parts[0])
        for f in others:
            f.result()

    def _walk_quietly(self, step: HostStep, outputs: set[int], starts: range) -> None:
        with np.errstate(all="ignore"):
            self._walk(step, outputs, starts)

    def _walk(self, step: HostStep, outputs: set[int], starts: range) -> None:
        """Compute the blocks that begin at `starts`."""
        values = self.values
        scratch: dict[int, NDArray[Any]] = {}
        calls: dict[int, Call] = {}
        inputs = [(i, axis, values[i]) for i, axis in step.inputs]
        previous = -1
        local: dict[int, NDArray[Any]] = {}
        for lo in starts:
            hi = min(lo + step.block, step.extent)
            size = hi - lo
            for i, axis, a in inputs:
                local[i] = _sliced(a, axis, lo, hi)
            for n in step.inner:
                k = n.node
                if n.axis is None and lo != starts[0]:
                    continue
                if size != previous or k not in calls:
                    shape = _sized(n, size)
                    attrs = shape if n.view in ("reshape", "expand") else n.attrs
                    calls[k] = self._call(n, shape)._replace(attrs=attrs)
                args = [local[s] for s in n.srcs]
                if k in outputs:
                    to = _sliced(values[k], n.axis, lo, hi)
                    if n.elementwise:
                        n.rule(calls[k], to, *args)
                    else:
                        np.copyto(to, n.rule(calls[k], *args), casting="unsafe")
                    local[k] = to
                elif n.elementwise:
                    room = scratch.get(k)
                    if room is None:
                        room = scratch[k] = hostmem.empty(_sized(n, step.block), n.dtype)
                    to = room if size == step.block else _sliced(room, n.axis, 0, size)
                    n.rule(calls[k], to, *args)
                    local[k] = to
                else:
                    made = n.rule(calls[k], *args)
                    local[k] = made if made.dtype == n.dtype else made.astype(n.dtype)
            previous = size


#: Threads that walk blocks; numpy's loops release the interpreter lock.
WORKERS = min(os.cpu_count() or 1, 4) if sys.platform != "emscripten" else 1
_pool: list[Any] = []


def pool() -> Any:
    """The helper threads, started at first use."""
    if not _pool:
        from concurrent.futures import ThreadPoolExecutor

        _pool.append(ThreadPoolExecutor(WORKERS - 1, "wgburn-cpu"))
    return _pool[0]


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
        return plan_host(graph, config.fuse, WORKERS)

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
                    f"walked in {blocks} blocks" if s.inputs else "one op on whole arrays",
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
        with np.errstate(all="ignore"):
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
