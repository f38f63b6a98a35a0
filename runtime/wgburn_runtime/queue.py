"""Turns launch lists into submits, with everything that can be prepared once prepared once.

Owns: launch lists, the pipeline cache, bind groups, parameter blocks, ready-made command tables,
host copies. Must not know: tensors, graphs, how a list came about, which driver runs it.

The steady state of a training loop (a list executed again on allocations seen before) does no work
per launch here: the command table is found by where they lie, its parameter column is shifted by
one numpy call, and the driver gets it. A Queue serves one thread at a time; callers bring their own
lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .driver import (
    COMMAND_COLUMNS,
    COPY_DST,
    COPY_SRC,
    PARAMS_ALIGN,
    PARAMS_USAGE,
    Driver,
    ProgramSource,
)
from .errors import DriverError
from .memory import DeviceMemory, Rehearsal, Request
from .pages import Allocation
from .rules import ADVICE, check_grid, over_limit
from .scratch import Spot

HostData = memoryview | bytes | bytearray

#: Bind groups kept alive over all tables; the least recently executed tables go first.
MAX_BIND_GROUPS = 1 << 14
#: First size of the uniform buffer that parameter blocks go through.
FIRST_RING_BYTES = 1 << 18
#: Uploads go in pieces of this size, so that staging memory stays bounded.
UPLOAD_PIECE = 64 << 20

_PIPELINE, _GROUP, _OFFSET = (
    COMMAND_COLUMNS.index(name) for name in ("pipeline", "bind_group", "params_offset")
)


class Launch(NamedTuple):
    """One dispatch of a list."""

    program: int  # index into LaunchList.programs
    slots: tuple[int, ...]  # which allocation each storage binding takes; -1 - k: region k
    grid: tuple[int, int, int]
    params_offset: int  # of its block in the list's parameter bytes: a multiple of 256; 0 if none


class Window(NamedTuple):
    """The whole page that the allocation of a slot lies in, for launches that find several values
    in it at offsets of their own."""

    slot: int


@dataclass(frozen=True)
class LaunchList:
    """A straight list of dispatches over numbered slots.

    Allocations share pages, so a launch that writes anything binds all of them read_write, but for
    those of weights in launches that write no weight.
    """

    programs: tuple[ProgramSource, ...]
    launches: tuple[Launch, ...]
    params_bytes: int  # all 256-aligned parameter blocks together
    label: str
    regions: tuple[Spot | Window, ...] = ()  # spots live only while the list runs
    pages: tuple[int, ...] = ()  # bytes of each scratch page


def ring_size(nbytes: int) -> int:
    """Bytes of the ring of parameter blocks for lists of up to `nbytes` of them."""
    return max(FIRST_RING_BYTES, 1 << (nbytes - 1).bit_length())


class QueueCounters(NamedTuple):
    """Counters since the queue was made."""

    launches: int
    executions: int
    pipelines_created: int
    bind_groups_created: int
    hits: int  # executions that found a ready-made table
    misses: int


_Places = tuple[int, ...]  # where a list's allocations lie: see pages.Allocation.place
_Range = tuple[int, int, int]  # buffer, offset, size
_GroupKey = tuple[str, int, tuple[_Range, ...]]


class _Group:
    """A bind group and how many tables use it."""

    __slots__ = ("handle", "users")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.users = 0


class _Table:
    """The commands of one list on allocations at one set of places."""

    __slots__ = ("base", "buffers", "commands", "groups", "number", "owner", "places")

    def __init__(
        self,
        number: int,
        places: _Places,
        commands: NDArray[np.uint32],
        groups: tuple[_GroupKey, ...],
        owner: dict[_Places, _Table],
    ) -> None:
        self.number = number
        self.places = places
        self.buffers = frozenset(r[0] for key in groups for r in key[2])
        self.commands = commands
        self.groups = groups
        self.owner = owner
        self.base = 0  # what the parameter column is shifted by at the moment


class Prepared:
    """A launch list with its pipelines; made by `Queue.prepare`, run by `Queue.execute`."""

    __slots__ = ("_dead", "commands", "has_params", "list", "scratch", "slots", "tables")

    def __init__(
        self,
        list_: LaunchList,
        commands: NDArray[np.uint32],
        has_params: NDArray[np.uint32],
        dead: deque[dict[_Places, _Table]],
    ) -> None:
        self.list = list_
        self.commands = commands  # the bind group column is still 0
        self.has_params = has_params  # 1 for launches with a parameter block, else 0
        slots = [slot for launch in list_.launches for slot in launch.slots]
        slots += [region.slot for region in list_.regions if isinstance(region, Window)]
        self.slots = 1 + max(slots, default=-1)
        self.scratch = sum(list_.pages)
        self.tables: dict[_Places, _Table] = {}
        self._dead = dead

    def __del__(self) -> None:
        # Only a note for the queue: this may run anywhere, even in the middle of the queue's code.
        self._dead.append(self.tables)


class Queue:
    """Allocates, copies, prepares and executes on one driver."""

    def __init__(
        self,
        driver: Driver,
        *,
        max_bind_groups: int = MAX_BIND_GROUPS,
        budget: int | None = None,
    ) -> None:
        """`budget`: bytes of memory that are never exceeded."""
        self.driver = driver
        self.memory = DeviceMemory(driver, budget)
        self.memory.on_destroy(self._forget_buffer)
        self._limits = driver.info.limits
        self._max_groups = max_bind_groups
        self._pipelines: dict[ProgramSource, int] = {}
        self._groups: dict[_GroupKey, _Group] = {}
        self._recent: OrderedDict[int, _Table] = OrderedDict()  # least recently executed first
        self._dead: deque[dict[_Places, _Table]] = deque()
        self._next_table = 0
        self._ring = self._ring_bytes = self._ring_next = 0
        self._closed = False
        self._launches = self._executions = self._hits = self._misses = 0
        self._pipelines_created = self._groups_created = 0

    # -- memory -----------------------------------------------------------------------------------
    def alloc(self, nbytes: int, lasting: bool = False, label: str = "") -> Allocation:
        """At least `nbytes` bytes, contents undefined; `lasting` for weights."""
        return self.memory.alloc(nbytes, lasting, label)

    def alloc_all(self, requests: Sequence[Request]) -> list[Allocation]:
        """Memory for several values at once."""
        return self.memory.alloc_all(requests)

    def upload(self, alloc: Allocation, data: HostData) -> None:
        """Copy contiguous host bytes to the start of an allocation, before every later execution.

        A tail that is no multiple of 4 is padded with zeros; the padding belongs to the allocation.
        """
        view = memoryview(data)
        if not view.nbytes:
            return
        if not view.c_contiguous:
            raise DriverError("upload of data that is not C-contiguous")
        if view.nbytes > alloc.capacity:
            raise DriverError(f"upload of {view.nbytes} bytes into {alloc!r}")
        view = view.cast("B")
        whole = view.nbytes & ~3
        for start in range(0, whole, UPLOAD_PIECE):
            piece = view[start : min(start + UPLOAD_PIECE, whole)]
            self.driver.write_buffer(alloc.buffer, alloc.offset + start, piece)
        if whole < view.nbytes:
            tail = bytes(view[whole:]).ljust(4, b"\0")
            self.driver.write_buffer(alloc.buffer, alloc.offset + whole, tail)

    async def download(self, alloc: Allocation, nbytes: int) -> bytearray:
        """The first `nbytes` of an allocation after everything executed so far."""
        if not 0 <= nbytes <= alloc.capacity:
            raise DriverError(f"download of {nbytes} bytes from {alloc!r}")
        if not nbytes:
            return bytearray()
        data = await self.driver.read_buffer(alloc.buffer, alloc.offset, (nbytes + 3) & ~3)
        del data[nbytes:]
        return data

    def copy(self, source: Allocation, target: Allocation, nbytes: int) -> None:
        """Copy on the device, in order with executions; rounded up to 4 bytes."""
        if not nbytes or source is target:
            return
        size = (nbytes + 3) & ~3
        if source.buffer != target.buffer:
            self.driver.copy_buffer(
                source.buffer, source.offset, target.buffer, target.offset, size
            )
            return
        # WebGPU copies only between different buffers.
        between = self.memory.buffer(size, COPY_SRC | COPY_DST)
        try:
            self.driver.copy_buffer(source.buffer, source.offset, between, 0, size)
            self.driver.copy_buffer(between, 0, target.buffer, target.offset, size)
        finally:
            self.driver.destroy_buffer(between)

    def rehearsal(self) -> Rehearsal:
        """The memory on paper, to find out what lists would need."""
        return Rehearsal(self.memory, self.driver.stats.bytes_alive, self._ring_bytes, ring_size)

    # -- programs ---------------------------------------------------------------------------------
    async def prepare(self, list_: LaunchList) -> Prepared:
        """Check a list and compile what it needs, all missing programs in one call.

        Raises LimitError for a grid the device can't run, ProgramError for what doesn't compile.
        """
        self._check_list(list_)
        missing = [
            program for program in dict.fromkeys(list_.programs) if program not in self._pipelines
        ]
        if missing:
            handles = await self.driver.create_pipelines(missing)
            for program, handle in zip(missing, handles, strict=True):
                if program in self._pipelines:  # another task compiled it while this one waited
                    self.driver.destroy_pipeline(handle)
                else:
                    self._pipelines[program] = handle
                    self._pipelines_created += 1
        self._sweep()
        programs = [list_.programs[launch.program] for launch in list_.launches]
        commands = np.zeros((len(programs), len(COMMAND_COLUMNS)), np.uint32)
        for row, (launch, program) in enumerate(zip(list_.launches, programs, strict=True)):
            commands[row] = (self._pipelines[program], 0, launch.params_offset, *launch.grid)
        has_params = np.array([bool(p.params_bytes) for p in programs], np.uint32)
        return Prepared(list_, commands, has_params, self._dead)

    def _check_list(self, list_: LaunchList) -> None:
        if list_.params_bytes % 4:
            raise DriverError(f"list {list_.label!r}: params_bytes {list_.params_bytes}")
        for launch in list_.launches:
            program = list_.programs[launch.program]
            what = f"list {list_.label!r}, program {program.name!r}"
            check_grid(program.name, launch.grid, self._limits)
            if len(launch.slots) != len(program.access):
                raise DriverError(
                    f"{what}: {len(launch.slots)} slots for access {program.access!r}"
                )
            if min(launch.slots, default=0) < -len(list_.regions):
                raise DriverError(f"{what}: {launch.slots} names no region of the list")
            end = launch.params_offset + program.params_bytes
            wrong = launch.params_offset % PARAMS_ALIGN or end > list_.params_bytes
            if wrong if program.params_bytes else launch.params_offset:
                raise DriverError(
                    f"{what}: parameters of {program.params_bytes} bytes at {launch.params_offset} "
                    f"of {list_.params_bytes}; offsets are multiples of {PARAMS_ALIGN}"
                )

    # -- work -------------------------------------------------------------------------------------
    def execute(
        self, prepared: Prepared, allocations: Sequence[Allocation], params: HostData = b""
    ) -> None:
        """Run a prepared list on `allocations` (by slot) with its parameter bytes: one submit.

        The caller may drop the allocations right after: only later work reuses their buffers.
        """
        list_ = prepared.list
        need = list_.params_bytes
        given = memoryview(params).nbytes
        if given != need:
            raise DriverError(f"list {list_.label!r}: {given} parameter bytes, not {need}")
        if need > self._ring_bytes:
            self._grow_ring(need)
        table = prepared.tables.get(tuple([allocation.place for allocation in allocations]))
        if table is None:
            table = self._build(prepared, allocations)
            self._misses += 1
        else:
            self._recent.move_to_end(table.number)
            self._hits += 1
            self.memory.needed(prepared.scratch)
        if need:
            base = self._place(need)
            if base != table.base:
                column = table.commands[:, _OFFSET]
                np.multiply(prepared.has_params, np.uint32(base), out=column)
                np.add(column, prepared.commands[:, _OFFSET], out=column)
                table.base = base
            self.driver.submit(table.commands, (self._ring, base, params))
        else:
            self.driver.submit(table.commands)
        self._executions += 1
        self._launches += len(table.commands)

    async def synchronize(self) -> None:
        """Return when everything executed so far has run."""
        await self.driver.wait()

    @property
    def counters(self) -> QueueCounters:
        return QueueCounters(
            launches=self._launches,
            executions=self._executions,
            pipelines_created=self._pipelines_created,
            bind_groups_created=self._groups_created,
            hits=self._hits,
            misses=self._misses,
        )

    def close(self) -> None:
        """Give everything back to the driver, which stays open. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        for table in list(self._recent.values()):
            self._drop(table)
        self._sweep()
        for pipeline in self._pipelines.values():
            self.driver.destroy_pipeline(pipeline)
        self._pipelines.clear()
        if self._ring:
            self.driver.destroy_buffer(self._ring)
            self._ring = self._ring_bytes = 0
        self.memory.close()

    # -- parameter blocks -------------------------------------------------------------------------
    def _place(self, nbytes: int) -> int:
        """Where an execution's blocks go. An execution is a submit of its own, and drivers order
        writes with submits, so going round the ring never overwrites what is still to be read."""
        base = self._ring_next
        if base + nbytes > self._ring_bytes:
            base = 0
        self._ring_next = -(-(base + nbytes) // PARAMS_ALIGN) * PARAMS_ALIGN
        return base

    def _grow_ring(self, nbytes: int) -> None:
        size = ring_size(nbytes)
        maximum = self._limits["maxBufferSize"]
        if size > maximum:
            raise over_limit("parameters of one list", "maxBufferSize", nbytes, maximum, ADVICE)
        ring = self.memory.buffer(size, PARAMS_USAGE)
        if self._ring:
            for table in list(self._recent.values()):  # their bind groups name the old ring
                self._drop(table)
            self.driver.destroy_buffer(self._ring)
        self._ring, self._ring_bytes, self._ring_next = ring, size, 0

    # -- tables -----------------------------------------------------------------------------------
    def _build(self, prepared: Prepared, allocations: Sequence[Allocation]) -> _Table:
        if self._closed:
            raise DriverError("execution on a closed queue")
        list_ = prepared.list
        if len(allocations) < prepared.slots:
            raise DriverError(
                f"list {list_.label!r}: {len(allocations)} allocations for {prepared.slots} slots"
            )
        self._sweep()
        # May move allocations to make room, so places are asked for afterwards.
        pages = self.memory.require(list_.pages)
        places = tuple([allocation.place for allocation in allocations])
        ranges = [(a.buffer, a.offset, a.capacity) for a in allocations]
        regions = [
            (pages[r.page], r.offset, r.size)
            if isinstance(r, Spot)
            else (allocations[r.slot].buffer, 0, allocations[r.slot].page.size)
            for r in list_.regions
        ]
        keys: dict[_GroupKey, _Group] = {}
        commands = prepared.commands.copy()
        column: list[int] = []
        try:
            for launch in list_.launches:
                program = list_.programs[launch.program]
                key = (
                    program.access,
                    program.params_bytes,
                    tuple([ranges[k] if k >= 0 else regions[-1 - k] for k in launch.slots]),
                )
                group = keys.get(key)
                if group is None:
                    group = self._acquire(key)
                    keys[key] = group
                column.append(group.handle)
        except BaseException:
            self._release(keys)
            raise
        commands[:, _GROUP] = column
        self._next_table += 1
        table = _Table(self._next_table, places, commands, tuple(keys), prepared.tables)
        prepared.tables[places] = table
        self._recent[table.number] = table
        while len(self._groups) > self._max_groups and len(self._recent) > 1:
            self._drop(next(iter(self._recent.values())))
        return table

    def _acquire(self, key: _GroupKey) -> _Group:
        group = self._groups.get(key)
        if group is None:
            ring = self._ring if key[1] else 0
            group = _Group(self.driver.create_bind_group(*key, ring))
            self._groups[key] = group
            self._groups_created += 1
        group.users += 1
        return group

    def _release(self, keys: Sequence[_GroupKey] | dict[_GroupKey, _Group]) -> None:
        for key in keys:
            group = self._groups[key]
            group.users -= 1
            if not group.users:
                del self._groups[key]
                self.driver.destroy_bind_group(group.handle)

    def _drop(self, table: _Table) -> None:
        del self._recent[table.number]
        table.owner.pop(table.places, None)
        self._release(table.groups)

    def _sweep(self) -> None:
        """Drop the tables of lists that nobody holds any more."""
        while self._dead:
            for table in list(self._dead.popleft().values()):
                if table.number in self._recent:
                    self._drop(table)

    def _forget_buffer(self, buffer: int) -> None:
        for table in list(self._recent.values()):
            if buffer in table.buffers:
                self._drop(table)
