"""The numpy backend: runs host plans by the ops' numpy rules, block by block on all cores.

Owns: execution of host plans, threads, scratch memory. Must not know: WGSL, drivers, grouping.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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

_BYTES = np.dtype(np.uint8)


def _sliced(a: NDArray[Any], axis: int | None, lo: int, hi: int) -> NDArray[Any]:
    return a if axis is None else a[(slice(None),) * axis + (slice(lo, hi),)]


class Cut(NamedTuple):
    """How a heavy op falls into independent parts: the axis of each input that is cut (None: every
    part reads it whole), and the axis of the result; joins=False: the parts' results add up."""

    inputs: tuple[int | None, ...]
    axis: int = 0
    joins: bool = True


#: Samples of a batch are independent in convolutions and pools.
PARTS = {
    "conv": Cut((0, None)),
    "conv_input_grad": Cut((0, None)),
    "conv_weight_grad": Cut((0, 0), joins=False),
    "max_pool": Cut((0,)),
    "max_pool_index": Cut((0,)),
    "max_pool_grad": Cut((0, 0)),
    "avg_pool": Cut((0,)),
    "avg_pool_grad": Cut((0,)),
}
#: Elements read and written below which a second thread does not pay; multiplications for products.
PART_ELEMENTS = 1 << 17
PART_PRODUCTS = 1 << 26
#: Blocks below which a second thread does not pay.
PART_BLOCKS = 16


def _product_cut(n: Inner, args: list[NDArray[Any]]) -> Cut:
    """Rows are independent in a matrix product, and so are the products of a batch."""
    rank = len(n.shape)
    axis = max(range(rank - 1), key=n.shape.__getitem__) - rank
    a, b = (axis if x.ndim >= -axis and x.shape[axis] != 1 else None for x in args)
    return Cut((a, b if axis < -2 else None), axis)


def _at(axis: int, a: NDArray[Any], part: slice) -> tuple[Any, ...]:
    return (slice(None),) * (axis % a.ndim) + (part,)


def _parts(n: Inner, args: list[NDArray[Any]]) -> tuple[Cut, list[slice]] | None:
    """The pieces to run at the same time, or None where that would not pay."""
    if n.name == "matmul":
        if prod(n.shape) * args[0].shape[-1] < PART_PRODUCTS or not can_limit():
            return None
        cut = _product_cut(n, args)
    else:
        found = PARTS.get(n.name)
        if found is None or sum(a.size for a in args) + prod(n.shape) < PART_ELEMENTS:
            return None
        cut = found
    extent = (n.shape if cut.joins else args[0].shape)[cut.axis]
    if extent < 2 * WORKERS:
        return None
    step = -(-extent // WORKERS)
    return cut, [slice(lo, min(lo + step, extent)) for lo in range(0, extent, step)]


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

    def _whole(self, n: Inner) -> NDArray[Any]:
        values = self.values
        args = [values[s] for s in n.srcs]
        lo, hi = n.dyn
        call = n.call
        if lo != hi:
            call = Call(call.attrs, tuple(self.numbers[lo:hi]), call.shape, call.dtype)
        if n.elementwise:
            out = hostmem.empty(n.shape, n.dtype)
            n.rule(call, out, *args)
            return out
        if WORKERS > 1 and not n.view:
            found = _parts(n, args)
            if found is not None:
                return self._in_parts(n, args, *found)
        made: NDArray[Any] = n.rule(call, *args)
        return made if made.dtype == n.dtype else made.astype(n.dtype)

    def _in_parts(
        self, n: Inner, args: list[NDArray[Any]], cut: Cut, parts: list[slice]
    ) -> NDArray[Any]:
        """Run a heavy op on pieces of its inputs."""
        out = hostmem.empty(n.shape, n.dtype) if cut.joins else None
        found: list[Any] = [None] * len(parts)

        def run(mine: Iterator[int]) -> None:
            for k in mine:
                own = [
                    a if axis is None else a[_at(axis, a, parts[k])]
                    for axis, a in zip(cut.inputs, args, strict=True)
                ]
                if out is None:
                    found[k] = n.rule(n.call, *own)
                    continue
                to = out[_at(cut.axis, out, parts[k])]
                made = n.rule(n.call._replace(shape=to.shape, out=to), *own)
                if made is not to:
                    np.copyto(to, made, casting="unsafe")

        share(range(len(parts)), run)
        if out is not None:
            return out
        total: NDArray[Any] = sum(found[1:], start=found[0])
        return total.astype(n.dtype, copy=False)

    def _blocks(self, step: HostStep) -> None:
        for n in step.inner:
            if n.node in step.outputs:
                self.values[n.node] = hostmem.empty(n.shape, n.dtype)
        starts = range(0, step.extent, step.block)
        if len(starts) < PART_BLOCKS:
            self._walk(step, starts)
        else:
            share(starts, lambda mine: self._walk(step, mine))

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
            for n, call in step.calls[hi - lo]:
                k = n.node
                if n.axis is None and k in local:
                    continue  # the same in every block
                args = [local[s] for s in n.srcs]
                if n.at >= 0:
                    to = np.ndarray(call.shape, n.dtype, room, n.at)
                elif k in step.outputs:
                    to = _sliced(values[k], n.axis, lo, hi)
                else:
                    made = n.rule(call, *args)
                    local[k] = made if made.dtype == n.dtype else made.astype(n.dtype)
                    continue
                if n.elementwise:
                    n.rule(call, to, *args)
                else:
                    np.copyto(to, n.rule(call, *args), casting="unsafe")
                local[k] = to


#: Threads that walk blocks; numpy's loops release the interpreter lock.
WORKERS = min(os.cpu_count() or 1, 4) if sys.platform != "emscripten" else 1
_pool: list[Any] = []


def pool() -> Any:
    """The helper threads, started at first use."""
    if not _pool:
        from concurrent.futures import ThreadPoolExecutor

        _pool.append(ThreadPoolExecutor(WORKERS - 1, "wgburn-cpu"))
    return _pool[0]


def share(items: Sequence[int], work: Callable[[Iterator[int]], None]) -> None:
    """Let the threads draw items until none is left. A helper that has not woken by then is not
    waited for: on a busy machine that takes longer than the work."""
    left = deque(items)

    def mine() -> Iterator[int]:
        while True:
            try:
                item = left.popleft()
            except IndexError:
                return
            yield item

    def help_() -> None:
        with np.errstate(all="ignore"):
            work(mine())

    helpers = [pool().submit(help_) for _ in range(min(WORKERS, len(items)) - 1)]
    try:
        work(mine())
    finally:
        for h in helpers:
            if not h.cancel():
                h.result()


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
        return plan_host(graph, config.fuse)

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
