"""Drivers for tests: one that only enforces WebGPU's rules, and one that watches a real driver.

Owns: `FakeDriver` (runs nothing, refuses what a browser would refuse, keeps buffer bytes) and
`MirrorDriver` (every call goes to the fake first, then to the real driver).
Must not know: wgpu, browsers, tensors.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .driver import (
    COPY_DST,
    COPY_SRC,
    STORAGE,
    UNIFORM,
    AdapterInfo,
    Driver,
    DriverStats,
    ProgramSource,
)
from .errors import DeviceLostError, DriverError, OutOfMemoryError
from .rules import (
    SPEC_LIMITS,
    Bound,
    aliasing_fault,
    check_binding,
    check_buffer,
    check_commands,
    check_grid,
    check_layout,
    check_params_offset,
    check_range,
    check_workgroup,
)
from .wgsl_check import check_program

T = TypeVar("T")
HostData = memoryview | bytes | bytearray


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, inside or outside an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise DriverError("a coroutine of a blocking driver waited for something else; await it")


@dataclass(slots=True)
class _Buffer:
    size: int
    usage: int
    data: bytearray | None = None  # None reads as zeros, so a large untouched buffer costs nothing

    def bytes(self) -> bytearray:
        if self.data is None:
            self.data = bytearray(self.size)
        return self.data


@dataclass(slots=True, frozen=True)
class _BindGroup:
    access: str
    params_bytes: int
    params: int
    buffers: tuple[int, ...]
    fault: str  # the aliasing rule a dispatch with it breaks, or ""


class FakeDriver:
    """A device without a GPU that enforces WebGPU's rules. Launches change no buffer."""

    def __init__(
        self,
        limits: Mapping[str, int] | None = None,
        features: Iterable[str] = (),
        *,
        memory: int | None = None,
    ) -> None:
        """`limits` override the spec's defaults; `memory` bytes make OutOfMemoryError testable."""
        self._info = AdapterInfo(
            kind="fake",
            index=0,
            name="fake",
            backend="none",
            adapter_type="CPU",
            features=frozenset(features),
            limits={**SPEC_LIMITS, **(limits or {})},
        )
        self._memory = memory
        self._lost = ""
        self._next_handle = 1
        self._buffers: dict[int, _Buffer] = {}
        self._pipelines: dict[int, ProgramSource] = {}
        self._bind_groups: dict[int, _BindGroup] = {}
        self._bytes = self._peak = self._submits = self._dispatches = 0
        self._writes = self._reads = 0

    @property
    def info(self) -> AdapterInfo:
        return self._info

    @property
    def stats(self) -> DriverStats:
        return DriverStats(
            buffers_alive=len(self._buffers),
            bytes_alive=self._bytes,
            peak_bytes=self._peak,
            pipelines=len(self._pipelines),
            bind_groups_alive=len(self._bind_groups),
            submits=self._submits,
            dispatches=self._dispatches,
            writes=self._writes,
            reads=self._reads,
        )

    @property
    def lost(self) -> str:
        return self._lost

    def lose(self, reason: str) -> None:
        """Behave as a device that was lost: every later call raises DeviceLostError."""
        self._lost = reason

    # -- memory -----------------------------------------------------------------------------------
    def create_buffer(self, size: int, usage: int) -> int:
        self._check_alive()
        check_buffer(size, usage, self._info.limits)
        if self._memory is not None and self._bytes + size > self._memory:
            raise OutOfMemoryError(
                f"no room for a buffer of {size} bytes: {self._bytes} of {self._memory} in use"
            )
        handle = self._new_handle()
        self._buffers[handle] = _Buffer(size, usage)
        self._bytes += size
        self._peak = max(self._peak, self._bytes)
        return handle

    def destroy_buffer(self, buffer: int) -> None:
        if self._lost:
            return
        record = self._buffer(buffer, "destroy_buffer")
        del self._buffers[buffer]
        self._bytes -= record.size

    def write_buffer(self, buffer: int, offset: int, data: HostData) -> None:
        self._check_alive()
        view = memoryview(data).cast("B")
        record = self._check_write(buffer, offset, view.nbytes)
        record.bytes()[offset : offset + view.nbytes] = view
        self._writes += 1

    async def read_buffer(self, buffer: int, offset: int, size: int) -> bytearray:
        self._check_alive()
        what = f"read of buffer {buffer}"
        record = self._buffer(buffer, what)
        _need(record, COPY_SRC, what, "COPY_SRC")
        check_range(what, offset, size, record.size)
        self._reads += 1
        if record.data is None:
            return bytearray(size)
        return record.data[offset : offset + size]

    def copy_buffer(self, src: int, src_offset: int, dst: int, dst_offset: int, size: int) -> None:
        self._check_alive()
        what = f"copy of {size} bytes from buffer {src} to buffer {dst}"
        source, target = self._buffer(src, what), self._buffer(dst, what)
        if src == dst:
            raise DriverError(f"{what}: source and target must be different buffers")
        _need(source, COPY_SRC, what, "COPY_SRC")
        _need(target, COPY_DST, what, "COPY_DST")
        check_range(f"{what} (source)", src_offset, size, source.size)
        check_range(f"{what} (target)", dst_offset, size, target.size)
        if source.data is None and target.data is None:
            return
        target.bytes()[dst_offset : dst_offset + size] = source.bytes()[
            src_offset : src_offset + size
        ]

    # -- programs ---------------------------------------------------------------------------------
    async def create_pipelines(self, programs: Sequence[ProgramSource]) -> list[int]:
        self._check_alive()
        for program in programs:
            what = f"program {program.name!r}"
            check_layout(what, program.access, program.params_bytes, self._info.limits)
            check_workgroup(program, self._info.limits)
            check_program(program, self._info.limits, self._info.features)
        handles = [self._new_handle() for _ in programs]
        self._pipelines.update(zip(handles, programs, strict=True))
        return handles

    def destroy_pipeline(self, pipeline: int) -> None:
        if self._lost:
            return
        if self._pipelines.pop(pipeline, None) is None:
            raise DriverError(f"destroy_pipeline: no pipeline {pipeline}")

    def create_bind_group(
        self, access: str, params_bytes: int, storage: Sequence[tuple[int, int, int]], params: int
    ) -> int:
        self._check_alive()
        limits = self._info.limits
        check_layout("bind group", access, params_bytes, limits)
        if len(storage) != len(access):
            raise DriverError(f"bind group: {len(storage)} buffers for access {access!r}")
        bound: list[Bound] = []
        for index, (buffer, offset, size) in enumerate(storage):
            what = f"binding {index}"
            record = self._buffer(buffer, what)
            _need(record, STORAGE, what, "STORAGE")
            check_binding(index, buffer, offset, size, record.size, limits)
            bound.append(Bound(index, buffer, offset, size, access[index]))
        if params_bytes:
            record = self._buffer(params, "parameter binding")
            _need(record, UNIFORM, "parameter binding", "UNIFORM")
            check_params_offset("bind group", 0, params_bytes, record.size)
            bound.append(Bound(len(access), params, 0, record.size, "u"))
        elif params:
            raise DriverError(f"bind group: params_bytes is 0 but params is buffer {params}")
        handle = self._new_handle()
        buffers = tuple(use.buffer for use in bound)
        self._bind_groups[handle] = _BindGroup(
            access, params_bytes, params, buffers, aliasing_fault(bound)
        )
        return handle

    def destroy_bind_group(self, bind_group: int) -> None:
        if self._lost:
            return
        if self._bind_groups.pop(bind_group, None) is None:
            raise DriverError(f"destroy_bind_group: no bind group {bind_group}")

    # -- work -------------------------------------------------------------------------------------
    def submit(
        self,
        commands: NDArray[np.uint32],
        params: tuple[int, int, HostData] | None = None,
    ) -> None:
        self._check_alive()
        check_commands(commands)
        view = memoryview(b"")
        if params is not None:
            view = memoryview(params[2]).cast("B")
            self._check_write(params[0], params[1], view.nbytes)
        if len(commands):
            self._check_dispatches(commands)
        if params is not None:
            self.write_buffer(params[0], params[1], view)
        self._submits += 1
        self._dispatches += len(commands)

    def _check_dispatches(self, commands: NDArray[np.uint32]) -> None:
        # Vectorised over the rows: what depends on handles is checked once per distinct pair.
        pairs = commands[:, 0].astype(np.uint64) << np.uint64(32) | commands[:, 1]
        _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        offsets = commands[:, 2]
        highest = np.zeros(len(first), np.uint32)
        np.maximum.at(highest, inverse, offsets)
        unaligned = offsets % 256
        for group_index, row in enumerate(first.tolist()):
            pipeline, bind_group = int(commands[row, 0]), int(commands[row, 1])
            program = self._pipelines.get(pipeline)
            if program is None:
                raise DriverError(f"dispatch {row}: no pipeline {pipeline}")
            group = self._bind_groups.get(bind_group)
            if group is None:
                raise DriverError(
                    f"dispatch {row}, program {program.name!r}: no bind group {bind_group}"
                )
            self._check_pair(row, program, group)
            capacity = self._buffers[group.params].size if group.params_bytes else 0
            check_params_offset(
                program.name, int(highest[group_index]), program.params_bytes, capacity
            )
        for mask, check in (
            (unaligned != 0, "offset"),
            (
                (commands[:, 3:] > self._info.limits["maxComputeWorkgroupsPerDimension"]).any(1),
                "grid",
            ),
        ):
            if not mask.any():
                continue
            bad = commands[int(np.argmax(mask))]
            name = self._pipelines[int(bad[0])].name
            if check == "grid":
                check_grid(name, bad[3:].tolist(), self._info.limits)
            check_params_offset(name, int(bad[2]), 1, 1 << 32)

    def _check_pair(self, row: int, program: ProgramSource, group: _BindGroup) -> None:
        what = f"dispatch {row}, program {program.name!r}"
        if (group.access, group.params_bytes) != (program.access, program.params_bytes):
            raise DriverError(
                f"{what}: needs access={program.access!r} params_bytes={program.params_bytes}, its "
                f"bind group has access={group.access!r} params_bytes={group.params_bytes}"
            )
        for buffer in group.buffers:
            if buffer not in self._buffers:
                raise DriverError(f"{what}: buffer {buffer} was destroyed")
        if group.fault:
            raise DriverError(f"{what}: {group.fault}")

    async def wait(self) -> None:
        self._check_alive()

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return drive(coroutine)

    def close(self) -> None:
        if not self._lost:
            self._lost = "closed"
        self._buffers.clear()
        self._pipelines.clear()
        self._bind_groups.clear()
        self._bytes = 0

    # -- inside -----------------------------------------------------------------------------------
    def _check_alive(self) -> None:
        if self._lost:
            raise DeviceLostError(f"the fake device was lost: {self._lost}")

    def _new_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle - 1

    def _buffer(self, handle: int, what: str) -> _Buffer:
        record = self._buffers.get(handle)
        if record is None:
            raise DriverError(f"{what}: no buffer {handle}, or it was destroyed")
        return record

    def _check_write(self, buffer: int, offset: int, length: int) -> _Buffer:
        what = f"write to buffer {buffer}"
        record = self._buffer(buffer, what)
        _need(record, COPY_DST, what, "COPY_DST")
        check_range(what, offset, length, record.size)
        return record


def _need(record: _Buffer, usage: int, what: str, name: str) -> None:
    if not record.usage & usage:
        raise DriverError(f"{what}: the buffer was made without usage {name}")


class _Handles:
    """Fake handle -> real handle, as a table numpy can index with a column of commands."""

    def __init__(self) -> None:
        self.table: NDArray[np.uint32] = np.zeros(64, np.uint32)

    def put(self, fake: int, real: int) -> None:
        while fake >= len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        self.table[fake] = real

    def get(self, fake: int) -> int:
        return int(self.table[fake])


class MirrorDriver:
    """Asks a fake first and a real driver second, so what a browser refuses fails natively too.

    Handles seen from outside are the fake's. Results come from the real driver.
    """

    def __init__(self, real: Driver, fake: FakeDriver | None = None) -> None:
        self._real = real
        self._fake = fake or FakeDriver(real.info.limits, real.info.features)
        self._buffers, self._pipelines, self._groups = _Handles(), _Handles(), _Handles()

    @property
    def real(self) -> Driver:
        return self._real

    @property
    def fake(self) -> FakeDriver:
        return self._fake

    @property
    def info(self) -> AdapterInfo:
        """The real adapter, with the limits and features that the fake holds callers to."""
        fake = self._fake.info
        return replace(
            self._real.info,
            limits=fake.limits,
            features=self._real.info.features & fake.features,
        )

    @property
    def stats(self) -> DriverStats:
        return self._real.stats

    @property
    def lost(self) -> str:
        return self._real.lost or self._fake.lost

    def create_buffer(self, size: int, usage: int) -> int:
        handle = self._fake.create_buffer(size, usage)
        try:
            real = self._real.create_buffer(size, usage)
        except BaseException:
            self._fake.destroy_buffer(handle)
            raise
        self._buffers.put(handle, real)
        return handle

    def destroy_buffer(self, buffer: int) -> None:
        self._fake.destroy_buffer(buffer)
        self._real.destroy_buffer(self._buffers.get(buffer))

    def write_buffer(self, buffer: int, offset: int, data: HostData) -> None:
        self._fake.write_buffer(buffer, offset, data)
        self._real.write_buffer(self._buffers.get(buffer), offset, data)

    async def read_buffer(self, buffer: int, offset: int, size: int) -> bytearray:
        await self._fake.read_buffer(buffer, offset, size)
        return await self._real.read_buffer(self._buffers.get(buffer), offset, size)

    def copy_buffer(self, src: int, src_offset: int, dst: int, dst_offset: int, size: int) -> None:
        self._fake.copy_buffer(src, src_offset, dst, dst_offset, size)
        get = self._buffers.get
        self._real.copy_buffer(get(src), src_offset, get(dst), dst_offset, size)

    async def create_pipelines(self, programs: Sequence[ProgramSource]) -> list[int]:
        handles = await self._fake.create_pipelines(programs)
        try:
            real = await self._real.create_pipelines(programs)
        except BaseException:
            for handle in handles:
                self._fake.destroy_pipeline(handle)
            raise
        for handle, other in zip(handles, real, strict=True):
            self._pipelines.put(handle, other)
        return handles

    def destroy_pipeline(self, pipeline: int) -> None:
        self._fake.destroy_pipeline(pipeline)
        self._real.destroy_pipeline(self._pipelines.get(pipeline))

    def create_bind_group(
        self, access: str, params_bytes: int, storage: Sequence[tuple[int, int, int]], params: int
    ) -> int:
        handle = self._fake.create_bind_group(access, params_bytes, storage, params)
        get = self._buffers.get
        try:
            real = self._real.create_bind_group(
                access,
                params_bytes,
                [(get(buffer), offset, size) for buffer, offset, size in storage],
                get(params) if params_bytes else 0,
            )
        except BaseException:
            self._fake.destroy_bind_group(handle)
            raise
        self._groups.put(handle, real)
        return handle

    def destroy_bind_group(self, bind_group: int) -> None:
        self._fake.destroy_bind_group(bind_group)
        self._real.destroy_bind_group(self._groups.get(bind_group))

    def submit(
        self,
        commands: NDArray[np.uint32],
        params: tuple[int, int, HostData] | None = None,
    ) -> None:
        self._fake.submit(commands, params)
        real = commands.copy()
        real[:, 0] = self._pipelines.table[commands[:, 0]]
        real[:, 1] = self._groups.table[commands[:, 1]]
        if params is not None:
            params = (self._buffers.get(params[0]), params[1], params[2])
        self._real.submit(real, params)

    async def wait(self) -> None:
        await self._fake.wait()
        await self._real.wait()

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._real.run_sync(coroutine)

    def close(self) -> None:
        self._fake.close()
        self._real.close()
