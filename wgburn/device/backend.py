"""The backend interface and the engine that realises pending work on any backend.

Owns: pending work, plan cache, random streams, what happens when a realisation fails. Must not
know: which backend it is, tensors, gradients.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from ..compile.graph import Graph, Work
from ..core import dtype as dt
from ..core.config import config
from ..core.dtype import DType
from ..core.errors import DeviceError, DTypeError, SyncUnavailableError
from ..core.node import Node, Pending, Store, Unread

T = TypeVar("T")

#: Recorded nodes after which everything held is realised, so that a loop without reads stays
#: bounded.
RECORD_LIMIT = 8192
#: Plans kept a backend; the least recently used go first.
PLAN_LIMIT = 512


@dataclass(frozen=True)
class DeviceInfo:
    """What a device says of itself; `available` False carries the cause in `reason`."""

    kind: str  # "cpu" | "wgpu"
    index: int
    name: str
    backend: str = ""
    adapter_type: str = ""
    features: frozenset[str] = frozenset()
    limits: dict[str, int] = field(default_factory=dict)
    fingerprint: str = ""
    available: bool = True
    reason: str = ""


@dataclass(frozen=True)
class MemoryReport:
    """Bytes on a device: `in_use` by values, `padding` lost to alignment, `reserved` from the
    system, all of it counted. `peak_in_use` includes what computing needed for itself.

    `pools` has a dict for each kind of memory: on WebGPU "tiny" (small values), "values", "weights"
    (parameters and optimizer state), "scratch" (intermediates of plans) and "driver" (parameter
    blocks and staging). str() is a table.
    """

    in_use: int
    reserved: int
    padding: int
    peak_in_use: int
    peak_reserved: int
    pools: list[dict[str, Any]]

    @classmethod
    def of(cls, usage: Any, pools: list[dict[str, Any]]) -> MemoryReport:
        """From figures of the same names."""
        return cls(
            usage.in_use,
            usage.reserved,
            usage.padding,
            usage.peak_in_use,
            usage.peak_reserved,
            pools,
        )

    def __str__(self) -> str:
        columns = ("in_use", "padding", "reserved", "peak_in_use", "peak_reserved")
        rows = [("memory", *(c.replace("_", " ") for c in columns), "pages", "values")]
        for pool in self.pools:
            sizes = [_size(pool.get(c, 0)) for c in columns]
            counts = [str(pool.get(c, "")) for c in ("pages", "allocations")]
            rows.append((pool["kind"], *sizes, *counts))
        rows.append(("all", *(_size(getattr(self, c)) for c in columns), "", ""))
        widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
        lines = [
            "  ".join(
                v.ljust(w) if not c else v.rjust(w)
                for c, (v, w) in enumerate(zip(r, widths, strict=True))
            )
            for r in rows
        ]
        lines.insert(1, "  ".join("-" * w for w in widths))
        return "\n".join(line.rstrip() for line in lines)


def _size(nbytes: int) -> str:
    """Bytes for people: KiB below a MiB."""
    if nbytes < 1 << 20:
        return f"{nbytes / 1024:.1f} KiB" if nbytes else "0"
    return f"{nbytes / (1 << 20):,.1f} MiB"


class Stream:
    """A device's random numbers: every op takes the next offset of the seed's sequence."""

    __slots__ = ("offset", "seed")

    def __init__(self) -> None:
        self.seed = int(
            np.random.SeedSequence().generate_state(2, np.uint32) @ np.array([1, 1 << 32], object)
        )
        self.offset = 0

    def take(self) -> tuple[int, int, int, int]:
        """The slots (offset low, offset high, seed low, seed high) of one random op."""
        o, s = self.offset, self.seed
        self.offset = o + 1
        return o & 0xFFFFFFFF, o >> 32 & 0xFFFFFFFF, s & 0xFFFFFFFF, s >> 32 & 0xFFFFFFFF


class Backend:
    """One opened device. Subclasses say how plans are made and run and how bytes move."""

    kind = ""
    dtypes: frozenset[DType] = frozenset()
    #: Every backend of the process that has not gone.
    alive: ClassVar[WeakSet[Backend]] = WeakSet()

    def __init__(self, name: str, info: DeviceInfo) -> None:
        Backend.alive.add(self)
        self.name = name
        self.info = info
        self.pending = Pending()
        self.recorded = 0
        self.record_limit = RECORD_LIMIT
        self.stream = Stream()
        self.plans: OrderedDict[Any, Any] = OrderedDict()
        self.plan_hits = 0
        self.plan_misses = 0
        self.closed = False
        #: Held while work is computed or rehearsed: one thread at a time uses a device.
        self.lock = threading.RLock()
        self.rehearsal: Any = None  # see capture.rehearsal: plans are noted, nothing runs
        self._failed = False

    # -- what a subclass provides -----------------------------------------------------------------
    async def compile(self, graph: Graph) -> Any:
        """A plan for the graph."""
        raise NotImplementedError

    def outline(self, graph: Graph) -> Any:
        """A plan that is only looked at: no program is compiled."""
        raise NotImplementedError

    def rehearse(self) -> Any:
        """The device's memory on paper, for `pretend`; its `free(buf)` gives a real buffer back."""
        raise NotImplementedError

    def pretend(self, plan: Any, work: Work, lasting: Sequence[bool], paper: Any) -> list[Store]:
        """`execute` on paper: memory is counted, nothing runs; stores hold `Unread` buffers."""
        raise NotImplementedError

    def rehearsed(self, paper: Any) -> MemoryReport:
        """What a rehearsal found; the device lays out its next memory accordingly."""
        raise NotImplementedError

    def describe(self, plan: Any, make: Any) -> list[Any]:
        """The launches of a plan, each as make(name, ops, reads, writes, bytes, groups, why,
        source)."""
        raise NotImplementedError

    def plan_for(self, nodes: Sequence[Node]) -> Any:
        """The plan that realising nodes (and all that is held) would run; None where nothing
        would."""
        wanted = self._collect(nodes, alone=False)
        return self.outline(Work(wanted).graph()) if wanted else None

    def execute(
        self,
        plan: Any,
        leaves: list[Store],
        numbers: list[Any],
        lasting: Sequence[bool] = (),
    ) -> list[Store]:
        """Run a plan; one store an output. `lasting` says which are weights (none if empty)."""
        raise NotImplementedError

    def from_host(self, array: NDArray[Any], dtype: DType, lasting: bool = False) -> Store:
        """A store with a copy of a C-contiguous host array (of dtype.np); `lasting` for weights."""
        raise NotImplementedError

    def keep(self, node: Node) -> None:
        """Take note that a value is a weight: it stays, and is read more often than written.
        Backends may give such values memory of their own kind."""
        node.lasting = True

    async def to_host(self, store: Store, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
        """A fresh host array."""
        raise NotImplementedError

    async def wait(self) -> None:
        """Return when everything submitted has run."""

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Drive a coroutine from synchronous code; one that never suspends needs no event loop."""
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        coroutine.close()
        raise DeviceError(f"{self.name}: an asynchronous step waited outside an event loop")

    def memory(self) -> MemoryReport:
        raise NotImplementedError

    def memory_cleanup(self) -> None:
        """Give cached, unused memory back."""

    def close(self) -> None:
        """Drop plans and pending work; tensors of the device cannot be read afterwards."""
        self.closed = True
        self.plans.clear()
        self.pending.refs.clear()

    @property
    def layout(self) -> int:
        """A number that changes when weights are moved in memory: what was learnt about their
        places before is no longer true."""
        return 0

    # -- checks -----------------------------------------------------------------------------------
    def check_read(self, store: Store) -> None:
        """Raise where a value is read that a rehearsal only pretended to compute."""
        if type(store.buf) is Unread:
            raise DeviceError(
                "a value is read inside wb.explain or wb.dry_run, where nothing is computed; move "
                "the read (item(), numpy(), print, if) out of the function"
            )

    def check_open(self) -> None:
        if self.closed:
            raise DeviceError(f"{self.name} is closed; open it again with wb.Device")

    def check_dtype(self, dtype: DType, what: str) -> None:
        """Raise DTypeError when the device does not have a dtype."""
        if dtype not in self.dtypes:
            have = ", ".join(d.name for d in dt.ALL if d in self.dtypes)
            raise DTypeError(f"{what}: {self.name} has no {dtype.name}; it has {have}")

    # -- the engine -------------------------------------------------------------------------------
    def flush(self) -> None:
        """Realise everything held. An op that fails keeps its error for whoever reads it.

        Where nothing can block and a plan is still to be compiled, the next awaited read does it.
        """
        try:
            self.realise(())
        except SyncUnavailableError:
            return
        except Exception:
            if not self._failed:
                raise

    def realise(
        self,
        wanted: Sequence[Node],
        updates: Sequence[tuple[Node, Node]] = (),
        alone: bool = False,
    ) -> None:
        """Compute everything held and `wanted`. Raises what a wanted node's computation raised.

        `updates`: (old, new) values of one parameter or state; where nobody else holds the old
        value the new one may take its memory. `alone`: what else is held stays pending.
        """
        with self.lock:
            self._realise(wanted, updates, alone)

    def _realise(
        self, wanted: Sequence[Node], updates: Sequence[tuple[Node, Node]], alone: bool
    ) -> None:
        nodes = self._collect(wanted, alone)
        if not nodes:
            return
        self.check_open()
        try:
            work = Work(nodes, updates)
            plan = self._cached(work)
            if self.rehearsal is not None:
                plan = plan or self.outline(work.graph())
                self.rehearsal.realise(nodes, plan, work, self._lasting(nodes, work, updates))
                return
            if plan is None:
                plan = self.run_sync(self.compile(work.graph()))
                self._remember(work.key, plan)
            self._run(plan, work, nodes, updates)
        except SyncUnavailableError:
            raise  # nothing is wrong with the work: awaited, it succeeds
        except Exception as error:
            if self.rehearsal is not None:
                raise
            self._check_leaves(nodes, error)
            try:
                self.run_sync(self._recover(nodes, wanted, error))
            except SyncUnavailableError:
                raise error from None

    async def realise_async(
        self,
        wanted: Sequence[Node],
        updates: Sequence[tuple[Node, Node]] = (),
        alone: bool = False,
    ) -> None:
        """`realise` for platforms that cannot block while a plan's programs compile."""
        nodes = self._collect(wanted, alone)
        if not nodes:
            return
        self.check_open()
        try:
            while True:
                work, layout = Work(nodes, updates), self.layout
                plan = self._cached(work)
                if plan is None:
                    plan = await self.compile(work.graph())
                    self._remember(work.key, plan)
                if layout == self.layout:  # no weight was moved while this waited
                    break
            self._run(plan, work, nodes, updates)
        except Exception as error:
            await self._recover(nodes, wanted, error)

    def _check_leaves(self, nodes: Sequence[Node], error: Exception) -> None:
        """Raise DeviceError where work failed since it reads what only a rehearsal made."""
        leaves = Work([n for n in nodes if n.store is None]).leaves
        if any(type(s.buf) is Unread for s in leaves):
            raise DeviceError(
                "a tensor that was made inside wb.explain or wb.dry_run is used after it; nothing "
                "was computed there: make it anew"
            ) from error

    def _collect(self, wanted: Sequence[Node], alone: bool) -> list[Node]:
        if alone:
            nodes = []
        else:
            nodes = self.pending.nodes()
            self.recorded = 0
        if wanted:
            seen = {id(n) for n in nodes}
            nodes += [n for n in wanted if n.store is None and id(n) not in seen]
        if self._failed:
            bad = _failed_nodes(nodes)
            for n in wanted:
                if id(n) in bad:
                    raise bad[id(n)]
            nodes = [n for n in nodes if id(n) not in bad]
            self._failed = alone or bool(bad)
        return nodes

    def _cached(self, work: Work) -> Any:
        work.key = (config.fuse, *work.key)
        plan = self.plans.get(work.key)
        if plan is None:
            self.plan_misses += 1
            return None
        self.plan_hits += 1
        self.plans.move_to_end(work.key)
        return plan

    def _remember(self, key: Any, plan: Any) -> None:
        self.plans[key] = plan
        while len(self.plans) > PLAN_LIMIT:
            self.plans.popitem(last=False)

    def _run(
        self,
        plan: Any,
        work: Work,
        nodes: list[Node],
        updates: Sequence[tuple[Node, Node]] = (),
    ) -> None:
        lasting = self._lasting(nodes, work, updates)
        stores = self.execute(plan, work.leaves, work.numbers, lasting)
        for node, store in zip(nodes, stores, strict=True):
            node.realised(store)

    def _lasting(
        self, nodes: list[Node], work: Work, updates: Sequence[tuple[Node, Node]]
    ) -> Sequence[bool]:
        """Which nodes are weights."""
        if len(work.donations) < len(updates):
            for old, new in updates:
                new.lasting = old.lasting or (old.store is not None and old.store.lasting)
        return [n.lasting for n in nodes]

    async def _recover(self, nodes: list[Node], wanted: Sequence[Node], error: Exception) -> None:
        """One bad op must not take the rest along: realise outputs one by one, keep each failure on
        its node, and raise the failure of what was asked for."""
        if self.closed:
            raise error
        raised: Exception | None = None
        asked = {id(n) for n in wanted}
        for node in nodes:
            if node.store is not None:
                continue
            try:
                work = Work([node])
                plan = self._cached(work)
                if plan is None:
                    plan = await self.compile(work.graph())
                    self._remember(work.key, plan)
                self._run(plan, work, [node])
            except Exception as one:
                self._fail(node, one)
                # What nobody asked for keeps its error for whoever does; nothing asked: all was.
                if raised is None and (id(node) in asked or not asked):
                    raised = one
        if raised is not None:
            raise raised

    def _fail(self, node: Node, error: Exception) -> None:
        node.error = error
        self._failed = True

    def nbytes(self, shape: tuple[int, ...], dtype: DType) -> int:
        """Bytes a dense value takes on this device."""
        return prod(shape) * dtype.itemsize


def _failed_nodes(outputs: list[Node]) -> dict[int, BaseException]:
    """Outputs that cannot be computed because they, or something they read, failed before."""
    state: dict[int, BaseException | None] = {}
    stack = list(outputs)
    while stack:
        node = stack[-1]
        if id(node) in state:
            stack.pop()
            continue
        if node.error is not None:
            state[id(node)] = node.error
            continue
        todo = [s for s in node.srcs if id(s) not in state]
        if todo:
            stack.extend(todo)
            continue
        state[id(node)] = next((e for s in node.srcs if (e := state[id(s)]) is not None), None)
    return {id(n): e for n in outputs if (e := state[id(n)]) is not None}
