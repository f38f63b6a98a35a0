"""The driver for native GPUs (Vulkan, Metal, D3D12, OpenGL) on wgpu's C handles.

Owns: the handles of one device, encoding and submitting, host copies, errors of all these, a bound
on work in flight. Must not know: tensors, launch lists, pooling.

Two facts of wgpu-native shape this module. A call that fails reports to the device's error callback
and hands out a broken object, and submitting that aborts the process: so every batch of calls ends
with a look at the sink, and nothing is submitted that did not finish cleanly. And a submit that
meets a destroyed buffer aborts too: so buffers are only ever released, after the bind groups that
name them, and a stale handle fails a look-up on the host.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from wgpu.backends.wgpu_native import ffi, lib

from ..driver import (
    COPY_DST,
    COPY_SRC,
    MAP_READ,
    STORAGE,
    UNIFORM,
    AdapterInfo,
    DriverStats,
    ProgramSource,
)
from ..errors import DeviceLostError, DriverError, OutOfMemoryError, ProgramError
from ..rules import (
    check_binding,
    check_buffer,
    check_commands,
    check_grid,
    check_layout,
    check_params_offset,
    check_range,
    check_workgroup,
)
from .device import Adapter, open_device, text_of
from .programs import Compiler

T = TypeVar("T")
HostData = memoryview | bytes | bytearray

#: Submits the host may be ahead of the GPU. Older ones are waited for, so that a loop which never
#: reads holds a bounded number of command and staging buffers.
MAX_IN_FLIGHT = 16
#: Written bytes that may wait for a submit before the driver makes one itself.
MAX_PENDING_WRITES = 64 << 20
#: Reads go through staging buffers of at most this size; the small ones are kept.
READ_PIECE = 64 << 20
KEPT_STAGING = 1 << 20


class _Buffer:
    __slots__ = ("groups", "pointer", "size", "usage")

    def __init__(self, pointer: Any, size: int, usage: int) -> None:
        self.pointer = pointer
        self.size = size
        self.usage = usage
        self.groups: set[int] = set()  # bind groups that name it


class _Group:
    __slots__ = ("access", "buffers", "params", "params_bytes")

    def __init__(self, access: str, params_bytes: int, params: int, buffers: set[int]) -> None:
        self.access = access
        self.params_bytes = params_bytes
        self.params = params
        self.buffers = buffers


def _on_mapped(status: int, message: Any, number: Any, _unused: Any) -> None:
    _mapped[int(ffi.cast("uintptr_t", number))] = (int(status), text_of(message))


_mapped: dict[int, tuple[int, str]] = {}
_C_ON_MAPPED: Final = ffi.callback(
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", _on_mapped
)


class NativeDriver:
    """A device of wgpu-native. Async methods block inside and never suspend."""

    def __init__(self, adapter: Adapter, limits: str = "default") -> None:
        self._device, self._queue, self._sink, self._info = open_device(adapter, limits)
        self._adapter = adapter  # keeps wgpu's object alive
        self._limits = self._info.limits
        self._max_grid = self._limits["maxComputeWorkgroupsPerDimension"]
        self._closed = False
        self._next_handle = 1
        self._buffers: dict[int, _Buffer] = {}
        self._programs: dict[int, ProgramSource] = {}
        self._pipelines: dict[int, Any] = {}
        self._groups: dict[int, Any] = {}  # usable ones: handle -> pointer
        self._group_records: dict[int, _Group] = {}  # those and the ones that lost a buffer
        self._compiler = Compiler(self._device, self._sink, self._limits)
        self._staging: dict[int, list[Any]] = {}
        self._in_flight: deque[int] = deque()
        self._pending_writes = 0
        # Bytes of all buffers alive, those that reads go through included.
        self._bytes = self._peak = self._submits = self._dispatches = 0
        self._writes = self._reads = 0
        # Scratch structs: wgpu copies what they say during the call.
        self._c_offsets = ffi.new("uint32_t[1]")
        self._c_commands = ffi.new("WGPUCommandBuffer[1]")
        self._c_index = ffi.new("WGPUSubmissionIndex *")

    # -- state ------------------------------------------------------------------------------------
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
            bind_groups_alive=len(self._group_records),
            submits=self._submits,
            dispatches=self._dispatches,
            writes=self._writes,
            reads=self._reads,
        )

    @property
    def lost(self) -> str:
        return "closed" if self._closed else self._sink.lost

    def _check_alive(self) -> None:
        if self._closed or self._sink.lost:
            raise DeviceLostError(
                f"{self._info.name}: the device is gone ({self.lost}); open a new one"
            )

    def _check_sink(self, what: str) -> None:
        if self._sink.errors:
            error = self._sink.take(what)
            if error is not None:
                raise error

    def _new_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle - 1

    def _buffer(self, handle: int, usage: int, what: str) -> _Buffer:
        record = self._buffers.get(handle)
        if record is None:
            raise DriverError(f"{what}: no buffer {handle}, or it was destroyed")
        if not record.usage & usage:
            raise DriverError(f"{what}: buffer {handle} was made without usage {usage:#x}")
        return record

    # -- memory -----------------------------------------------------------------------------------
    def create_buffer(self, size: int, usage: int) -> int:
        self._check_alive()
        check_buffer(size, usage, self._limits)
        try:
            pointer = self._create_buffer(size, usage)
        except OutOfMemoryError:
            # Memory of dropped buffers comes back only when the GPU is done with them.
            self._block()
            pointer = self._create_buffer(size, usage)
        handle = self._new_handle()
        self._buffers[handle] = _Buffer(pointer, size, usage)
        return handle

    def _create_buffer(self, size: int, usage: int) -> Any:
        struct = ffi.new("WGPUBufferDescriptor *")
        struct.size = size
        struct.usage = usage
        pointer = lib.wgpuDeviceCreateBuffer(self._device, struct)
        error = self._sink.take(f"buffer of {size} bytes") if self._sink.errors else None
        if error is not None:
            lib.wgpuBufferRelease(pointer)
            raise error
        self._bytes += size
        self._peak = max(self._peak, self._bytes)
        return pointer

    def destroy_buffer(self, buffer: int) -> None:
        if self._closed:
            return
        record = self._buffers.pop(buffer, None)
        if record is None:
            raise DriverError(f"destroy_buffer: no buffer {buffer}")
        for group in record.groups:
            pointer = self._groups.pop(group, None)
            if pointer is not None:
                lib.wgpuBindGroupRelease(pointer)
        lib.wgpuBufferRelease(record.pointer)
        self._bytes -= record.size

    def write_buffer(self, buffer: int, offset: int, data: HostData) -> None:
        self._check_alive()
        record = self._buffer(buffer, COPY_DST, "write")
        source = ffi.from_buffer(data)
        check_range(f"write to buffer {buffer}", offset, len(source), record.size)
        self._write(record, offset, source)
        if self._pending_writes > MAX_PENDING_WRITES:
            self._flush()

    def _write(self, record: _Buffer, offset: int, source: Any) -> None:
        size = len(source)
        lib.wgpuQueueWriteBuffer(self._queue, record.pointer, offset, source, size)
        self._check_sink("write")
        self._writes += 1
        self._pending_writes += size

    async def read_buffer(self, buffer: int, offset: int, size: int) -> bytearray:
        self._check_alive()
        record = self._buffer(buffer, COPY_SRC, "read")
        check_range(f"read of buffer {buffer}", offset, size, record.size)
        result = bytearray(size)
        for start in range(0, size, READ_PIECE):
            length = min(READ_PIECE, size - start)
            self._read(record, offset + start, memoryview(result)[start : start + length])
        self._reads += 1
        return result

    def _read(self, record: _Buffer, offset: int, target: memoryview) -> None:
        size = target.nbytes
        capacity = max(256, 1 << (size - 1).bit_length()) if size <= KEPT_STAGING else size
        kept = self._staging.setdefault(capacity, [])
        staging = kept.pop() if kept else self._create_buffer(capacity, MAP_READ | COPY_DST)
        mapped = False
        try:
            self._copy(record.pointer, offset, staging, 0, size, "read")
            number = self._new_handle()
            request = ffi.new("WGPUBufferMapCallbackInfo *")
            request.mode = lib.WGPUCallbackMode_AllowProcessEvents
            request.callback = _C_ON_MAPPED
            request.userdata1 = ffi.cast("void *", number)
            lib.wgpuBufferMapAsync(staging, lib.WGPUMapMode_Read, 0, size, request[0])
            self._block()
            status, message = _mapped.pop(number, (0, "no answer"))
            self._check_sink("read")
            if status != lib.WGPUMapAsyncStatus_Success:
                self._check_alive()
                raise DriverError(f"read: the staging buffer could not be mapped: {message}")
            mapped = True
            pointer = lib.wgpuBufferGetConstMappedRange(staging, 0, size)
            target[:] = ffi.buffer(pointer, size)
        finally:
            if mapped:
                lib.wgpuBufferUnmap(staging)
            if mapped and capacity <= KEPT_STAGING:
                kept.append(staging)
            else:
                lib.wgpuBufferRelease(staging)
                self._bytes -= capacity

    def copy_buffer(self, src: int, src_offset: int, dst: int, dst_offset: int, size: int) -> None:
        self._check_alive()
        what = f"copy of {size} bytes from buffer {src} to buffer {dst}"
        if src == dst:
            raise DriverError(f"{what}: source and target must be different buffers")
        source = self._buffer(src, COPY_SRC, what)
        target = self._buffer(dst, COPY_DST, what)
        check_range(f"{what} (source)", src_offset, size, source.size)
        check_range(f"{what} (target)", dst_offset, size, target.size)
        self._copy(source.pointer, src_offset, target.pointer, dst_offset, size, what)

    def _copy(
        self, src: Any, src_offset: int, dst: Any, dst_offset: int, size: int, what: str
    ) -> None:
        def encode(encoder: Any) -> None:
            lib.wgpuCommandEncoderCopyBufferToBuffer(
                encoder, src, src_offset, dst, dst_offset, size
            )

        with self._finished(encode, what):
            self._submit()

    # -- programs ---------------------------------------------------------------------------------
    async def create_pipelines(self, programs: Sequence[ProgramSource]) -> list[int]:
        self._check_alive()
        for program in programs:
            what = f"program {program.name!r}"
            check_layout(what, program.access, program.params_bytes, self._limits)
            check_workgroup(program, self._limits)
            missing = program.features - self._info.features
            if missing:
                names = ", ".join(sorted(missing))
                raise ProgramError(f"{what}: {self._info.name} lacks {names}")
            self._compiler.layout(program.access, program.params_bytes)
        made: list[Any] = []
        failure: BaseException | None = None
        for result in self._compiler.compile_all(programs):
            if isinstance(result, BaseException):
                failure = failure or result
            else:
                made.append(result)
        if failure is not None:
            for pointer in made:
                lib.wgpuComputePipelineRelease(pointer)
            raise failure
        handles = [self._new_handle() for _ in programs]
        self._pipelines.update(zip(handles, made, strict=True))
        self._programs.update(zip(handles, programs, strict=True))
        return handles

    def destroy_pipeline(self, pipeline: int) -> None:
        if self._closed:
            return
        pointer = self._pipelines.pop(pipeline, None)
        if pointer is None:
            raise DriverError(f"destroy_pipeline: no pipeline {pipeline}")
        del self._programs[pipeline]
        lib.wgpuComputePipelineRelease(pointer)

    def create_bind_group(
        self, access: str, params_bytes: int, storage: Sequence[tuple[int, int, int]], params: int
    ) -> int:
        self._check_alive()
        layout = self._compiler.layout(access, params_bytes)
        if len(storage) != len(access):
            raise DriverError(f"bind group: {len(storage)} buffers for access {access!r}")
        used: set[int] = set()
        buffers, limits, row = self._buffers, self._limits, layout.rows
        for index, (buffer, offset, size) in enumerate(storage):
            record = buffers.get(buffer)
            if record is None or not record.usage & STORAGE:
                record = self._buffer(buffer, STORAGE, f"binding {index}")
            check_binding(index, buffer, offset, size, record.size, limits)
            entry = row[index]
            entry.buffer = record.pointer
            entry.offset = offset
            entry.size = size
            used.add(buffer)
        if params_bytes:
            record = self._buffer(params, UNIFORM, "parameter binding")
            check_params_offset("bind group", 0, params_bytes, record.size)
            row[-1].buffer = record.pointer
            used.add(params)
        pointer = lib.wgpuDeviceCreateBindGroup(self._device, layout.descriptor)
        error = self._sink.take("bind group") if self._sink.errors else None
        if error is not None:
            lib.wgpuBindGroupRelease(pointer)
            raise error
        handle = self._new_handle()
        self._groups[handle] = pointer
        self._group_records[handle] = _Group(access, params_bytes, params, used)
        for buffer in used:
            buffers[buffer].groups.add(handle)
        return handle

    def destroy_bind_group(self, bind_group: int) -> None:
        if self._closed:
            return
        record = self._group_records.pop(bind_group, None)
        if record is None:
            raise DriverError(f"destroy_bind_group: no bind group {bind_group}")
        for buffer in record.buffers:
            owner = self._buffers.get(buffer)
            if owner is not None:
                owner.groups.discard(bind_group)
        pointer = self._groups.pop(bind_group, None)
        if pointer is not None:
            lib.wgpuBindGroupRelease(pointer)

    # -- work -------------------------------------------------------------------------------------
    def submit(
        self,
        commands: NDArray[np.uint32],
        params: tuple[int, int, HostData] | None = None,
    ) -> None:
        self._check_alive()
        check_commands(commands)
        if params is not None:
            target = self._buffer(params[0], COPY_DST, "parameters")
            source = ffi.from_buffer(params[2])
            check_range("parameters", params[1], len(source), target.size)
        if len(commands) and int(commands[:, 3:].max()) > self._max_grid:
            self._explain(commands)
        rows = commands.tolist()
        try:
            with self._finished(functools.partial(self._encode, rows=rows), "submit"):
                if params is not None and len(source):
                    self._write(target, params[1], source)
                self._submit()
        except (DeviceLostError, OutOfMemoryError):
            raise
        except (DriverError, KeyError) as error:
            self._explain(commands)
            raise DriverError(f"submit of {len(rows)} dispatches: {error}") from error
        self._dispatches += len(rows)

    def _encode(self, encoder: Any, rows: list[list[int]]) -> None:
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_group = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        pipelines, groups, records = self._pipelines, self._groups, self._group_records
        offsets = self._c_offsets
        run = lib.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL)
        last = 0
        try:
            for pipeline, group, offset, x, y, z in rows:
                if pipeline != last:
                    set_pipeline(run, pipelines[pipeline])
                    last = pipeline
                if records[group].params_bytes:
                    offsets[0] = offset
                    set_group(run, 0, groups[group], 1, offsets)
                else:
                    set_group(run, 0, groups[group], 0, ffi.NULL)
                dispatch(run, x, y, z)
        finally:
            lib.wgpuComputePassEncoderEnd(run)
            lib.wgpuComputePassEncoderRelease(run)

    @contextlib.contextmanager
    def _finished(self, encode: Callable[[Any], None], what: str) -> Iterator[None]:
        """Encode; if nothing failed, leave the command buffer in `_c_commands` for `_submit`."""
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, ffi.NULL)
        commands = ffi.NULL
        try:
            encode(encoder)
            commands = lib.wgpuCommandEncoderFinish(encoder, ffi.NULL)
            self._check_sink(what)
            self._c_commands[0] = commands
            yield
        finally:
            if commands != ffi.NULL:
                lib.wgpuCommandBufferRelease(commands)
            lib.wgpuCommandEncoderRelease(encoder)

    def _flush(self) -> None:
        """Hand pending writes over without commands. The empty encoder is a probe: it fails on a
        lost device, where a bare submit would abort."""
        with self._finished(lambda encoder: None, "write"):
            self._submit()

    def _submit(self) -> None:
        """Hand over the finished commands and every pending write; wait if too far ahead."""
        index = lib.wgpuQueueSubmitForIndex(self._queue, 1, self._c_commands)
        self._submits += 1
        self._pending_writes = 0
        in_flight = self._in_flight
        in_flight.append(index)
        if len(in_flight) > MAX_IN_FLIGHT:
            self._c_index[0] = in_flight.popleft()
            lib.wgpuDevicePoll(self._device, True, self._c_index)
        self._check_sink("submit")

    def _explain(self, commands: NDArray[np.uint32]) -> None:
        """Raise the error of the first row that is wrong by itself, naming its program."""
        for row, (pipeline, group, offset, *grid) in enumerate(commands.tolist()):
            program = self._programs.get(pipeline)
            if program is None:
                raise DriverError(f"dispatch {row}: no pipeline {pipeline}")
            what = f"dispatch {row}, program {program.name!r}"
            record = self._group_records.get(group)
            if record is None:
                raise DriverError(f"{what}: no bind group {group}")
            gone = [buffer for buffer in record.buffers if buffer not in self._buffers]
            if gone:
                raise DriverError(f"{what}: buffer {gone[0]} was destroyed")
            if (record.access, record.params_bytes) != (program.access, program.params_bytes):
                raise DriverError(
                    f"{what}: needs access={program.access!r} params_bytes={program.params_bytes}, "
                    f"its bind group has access={record.access!r} "
                    f"params_bytes={record.params_bytes}"
                )
            check_grid(program.name, grid, self._limits)
            capacity = self._buffers[record.params].size if record.params_bytes else 0
            check_params_offset(program.name, offset, record.params_bytes, capacity)
            one = commands[row : row + 1].tolist()
            try:
                with self._finished(functools.partial(self._encode, rows=one), ""):
                    pass
            except DriverError as error:
                raise DriverError(f"{what}: {error}") from error

    async def wait(self) -> None:
        self._check_alive()
        if self._pending_writes:
            self._flush()
        self._block()
        self._check_sink("wait")

    def _block(self) -> None:
        lib.wgpuDevicePoll(self._device, True, ffi.NULL)
        self._in_flight.clear()

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        coroutine.close()
        raise DriverError("a coroutine of a native driver waited for something else; await it")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._sink.lost:
            self._block()
        for pointer in self._groups.values():
            lib.wgpuBindGroupRelease(pointer)
        for pointer in self._pipelines.values():
            lib.wgpuComputePipelineRelease(pointer)
        self._compiler.close()
        for record in self._buffers.values():
            lib.wgpuBufferRelease(record.pointer)
        for kept in self._staging.values():
            for pointer in kept:
                lib.wgpuBufferRelease(pointer)
        for table in (self._groups, self._group_records, self._pipelines, self._programs):
            table.clear()
        self._buffers.clear()
        self._staging.clear()
        self._bytes = 0
        lib.wgpuQueueRelease(self._queue)
        lib.wgpuDeviceDestroy(self._device)
        lib.wgpuDeviceRelease(self._device)

    def __del__(self) -> None:
        if not sys.is_finalizing() and not getattr(self, "_closed", True):
            self.close()
