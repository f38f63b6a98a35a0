"""The WebGPU backend: plans become launches on a driver, wherever WebGPU runs.

Owns: opening drivers, compiling and executing plans on a queue, host copies, translating the
runtime's errors. Must not know: which driver it got, kernels' texts, tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wgburn_runtime import drivers
from wgburn_runtime import errors as rt
from wgburn_runtime.driver import AdapterInfo, Driver
from wgburn_runtime.memory import MemoryUsage, Rehearsal
from wgburn_runtime.queue import Prepared, Queue

from ..compile import debug
from ..compile.graph import Graph, Work
from ..compile.lower import lower
from ..compile.memory import device_bytes
from ..compile.plan import Plan
from ..core import dtype as dt
from ..core import errors as er
from ..core.config import config
from ..core.dtype import DType
from ..core.node import Node, Store, Unread, leaf
from ..ops.elementwise import copy
from .backend import Backend, DeviceInfo, MemoryReport

T = TypeVar("T")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """The runtime's errors as wgburn's."""
    try:
        yield
    except rt.OutOfMemoryError as error:
        raise er.OutOfMemoryError(str(error)) from error
    except rt.DeviceLostError as error:
        raise er.DeviceLostError(str(error)) from error
    except rt.SyncUnavailableError as error:
        raise er.SyncUnavailableError(str(error)) from error
    except rt.RuntimeLayerError as error:
        raise er.DeviceError(str(error)) from error


def _info(a: AdapterInfo) -> DeviceInfo:
    fingerprint = f"{a.backend}/{a.vendor}/{a.name}/{a.driver}".lower()
    return DeviceInfo(
        "wgpu",
        a.index,
        a.name,
        a.backend,
        a.adapter_type,
        a.features,
        dict(a.limits),
        fingerprint,
        a.available,
        a.reason,
    )


def stores(plan: Plan, slots: Sequence[Any], numbers: Sequence[Any]) -> list[Store]:
    """A plan's outputs over its allocations."""
    out = []
    for o in plan.outputs:
        buf = slots[o.slot]
        layout = None if o.strides is None else (o.strides, o.offset.value(numbers))
        out.append(Store(buf, o.shape, o.dtype, layout, None, buf.lasting))
    return out


def report(u: MemoryUsage) -> MemoryReport:
    """The runtime's figures as wgburn's."""
    return MemoryReport.of(u, [asdict(pool) for pool in u.pools])


@dataclass(frozen=True)
class Ready:
    """A plan with its programs compiled."""

    plan: Plan
    prepared: Prepared | None


class WgpuBackend(Backend):
    """One opened WebGPU device."""

    kind = "wgpu"

    def __init__(self, driver: Driver, name: str) -> None:
        super().__init__(name, _info(driver.info))
        self.driver = driver
        self.queue = Queue(driver, budget=config.memory.max_bytes)
        dtypes = {dt.float32, dt.int32, dt.uint32, dt.int8, dt.uint8, dt.bool_}
        if "shader-f16" in driver.info.features:
            dtypes.add(dt.float16)
        self.dtypes = frozenset(dtypes)

    @property
    def layout(self) -> int:
        return self.queue.memory.weights.moves

    # -- plans ------------------------------------------------------------------------------------
    def outline(self, graph: Graph) -> Ready:
        i = self.driver.info
        return Ready(lower(graph, i.limits, i.features, config.fuse, i.is_software), None)

    def describe(self, plan: Ready, make: Any) -> list[Any]:
        return [
            make(s.program.name, s.ops, s.reads, s.writes, s.bytes, s.groups, s.why, s.program.wgsl)
            for s in plan.plan.steps
        ]

    async def compile(self, graph: Graph) -> Ready:
        plan = self.outline(graph).plan
        if config.debug:
            debug.show(config.debug, self.name, plan)
        if not plan.steps:
            return Ready(plan, None)
        with translated():
            return Ready(plan, await self.queue.prepare(plan.launches))

    def execute(
        self,
        plan: Ready,
        leaves: list[Store],
        numbers: list[Any],
        lasting: Sequence[bool] = (),
    ) -> list[Store]:
        p = plan.plan
        with translated():
            slots = [s.buf for s in leaves]
            if p.requests:
                slots += self.queue.alloc_all(p.asked(lasting))
            if plan.prepared is not None:
                if p.bases:
                    numbers = [*numbers, *[slots[k].offset // 4 for k in p.bases]]
                self.queue.execute(plan.prepared, slots, p.params(numbers))
        return stores(p, slots, numbers)

    def rehearse(self) -> Rehearsal:
        return self.queue.rehearsal()

    def pretend(
        self, plan: Ready, work: Work, lasting: Sequence[bool], paper: Rehearsal
    ) -> list[Store]:
        p = plan.plan
        slots = [s.buf if type(s.buf) is Unread else Unread(s.buf) for s in work.leaves]
        with translated():
            slots += [Unread(a) for a in paper.alloc_all(p.asked(lasting))]
            paper.run(p.launches.pages, p.launches.params_bytes)
        return stores(p, slots, work.numbers)

    def rehearsed(self, paper: Rehearsal) -> MemoryReport:
        self.queue.memory.install(paper.layout())
        return report(paper.usage)

    # -- host -------------------------------------------------------------------------------------
    def from_host(self, array: NDArray[Any], dtype: DType, lasting: bool = False) -> Store:
        host = array.astype(np.uint32) if dtype is dt.bool_ else array
        with self.lock, translated():
            nbytes, label = device_bytes(array.shape, dtype), f"{dtype.name}{list(array.shape)}"
            if self.rehearsal is not None:
                held = self.rehearsal.paper.alloc(nbytes, lasting, label)
                return Store(Unread(held), array.shape, dtype, lasting=lasting)
            alloc = self.queue.alloc(nbytes, lasting, label)
            data: Any = host.reshape(-1)
            self.queue.upload(alloc, memoryview(data).cast("B") if host.size else b"")
        return Store(alloc, array.shape, dtype, lasting=lasting)

    def keep(self, node: Node) -> None:
        super().keep(node)
        old = node.store
        if old is None or old.lasting or old.layout is not None or self.rehearsal is not None:
            return
        with translated():
            alloc = self.queue.alloc(old.buf.size, True, old.buf.label)
            self.queue.copy(old.buf, alloc, old.buf.size)
        node.store = Store(alloc, node.shape, node.dtype, bounds=old.bounds, lasting=True)

    async def to_host(self, store: Store, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
        if store.layout is not None:
            store = await self._dense(store, shape, dtype)
        n = prod(shape)
        words = np.dtype(np.uint32) if dtype is dt.bool_ else dtype.np
        with self.lock, translated():
            data = await self.queue.download(store.buf, n * words.itemsize)
        flat = np.frombuffer(data, words)
        return (flat != 0 if dtype is dt.bool_ else flat).reshape(shape)

    async def _dense(self, store: Store, shape: tuple[int, ...], dtype: DType) -> Store:
        """A view as memory without gaps."""
        source = leaf(store, shape, dtype, self)
        work = Work([Node(copy, (source,), None, (), shape, dtype, self)])
        plan = self._cached(work)
        if plan is None:
            plan = await self.compile(work.graph())
            self._remember(work.key, plan)
        return self.execute(plan, work.leaves, work.numbers)[0]

    async def wait(self) -> None:
        with translated():
            await self.queue.synchronize()

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with translated():
            return self.driver.run_sync(coroutine)

    # -- life -------------------------------------------------------------------------------------
    def memory(self) -> MemoryReport:
        return report(self.queue.memory.usage)

    def memory_cleanup(self) -> None:
        with self.lock, translated():
            self.queue.memory.cleanup()

    def nbytes(self, shape: tuple[int, ...], dtype: DType) -> int:
        return device_bytes(shape, dtype)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with translated():
                self.queue.close()
                self.driver.close()


# -- finding and opening --------------------------------------------------------------------------


async def enumerate_async() -> list[DeviceInfo]:
    """The adapters of this platform's WebGPU; without any, one entry with the reason."""
    return [_info(a) for a in await drivers.enumerate_adapters()]


def enumerate_sync() -> list[DeviceInfo]:
    with translated():
        return drivers.run_sync(enumerate_async())


def _hardware(infos: list[DeviceInfo]) -> int | None:
    for info in infos:
        if info.available and info.adapter_type.lower() != "cpu":
            return info.index
    return None


async def best_index_async() -> int | None:
    """The first adapter that is hardware, or None."""
    return _hardware(await enumerate_async())


def best_index() -> int | None:
    return _hardware(enumerate_sync())


async def open_async(opened: dict[Any, Backend], index: int, power: str, limits: str) -> Backend:
    """The backend for these arguments, opened at the first call."""
    if limits not in ("adapter", "default"):
        raise er.ValueRangeError(f"limits {limits!r}: use 'adapter' or 'default'")
    key = ("wgpu", index, power, limits)
    backend = opened.get(key)
    if backend is None or backend.closed or _is_lost(backend):
        with translated():
            driver = await drivers.open_driver(index, power, limits)
        suffix = "" if limits == "adapter" else "/default-limits"
        backend = opened[key] = WgpuBackend(driver, f"wgpu:{index}{suffix}")
    return backend


def _is_lost(backend: Backend) -> bool:
    return isinstance(backend, WgpuBackend) and bool(backend.driver.lost)


def open_sync(opened: dict[Any, Backend], index: int, power: str, limits: str) -> Backend:
    with translated():
        return drivers.run_sync(open_async(opened, index, power, limits))
