"""The driver for navigator.gpu: Python's side of the bridge in bridge.mjs.

Owns: handles, counters, checks that need no GPU, and the frames of integers in which everything
crosses to JavaScript. Must not know: tensors, or what a program computes. `js` and `pyodide` are
imported only when an adapter is looked for or a device is opened.

Every call but a large write is queued and crosses with the next submit, read or wait: one crossing
carries buffers made and freed, bind groups, writes, copies and the whole plan. WebGPU validates
asynchronously in browsers. What `rules` can check raises at once; what only the browser finds out
(no memory, an internal error) raises at the next call of the same driver, at the latest at the next
read or wait, and names the program.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import rules
from .driver import (
    COPY_DST,
    COPY_SRC,
    PARAMS_ALIGN,
    STORAGE,
    UNIFORM,
    AdapterInfo,
    DriverStats,
    ProgramSource,
)
from .errors import (
    AdapterUnavailableError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    ProgramError,
    SyncUnavailableError,
)

T = TypeVar("T")

# Operation codes of a frame; bridge.mjs has the same table.
_CREATE_BUFFER, _DESTROY_BUFFER, _WRITE, _COPY = 1, 2, 3, 4
_CREATE_GROUP, _DESTROY_GROUP, _DESTROY_PIPELINE, _SUBMIT = 5, 6, 7, 8

#: Writes up to this size wait for the next frame; larger ones cross at once, without a copy.
QUEUED_WRITE: Final = 1 << 16
#: A frame is sent when it holds this many payload bytes, or frees this many bytes on the GPU.
FRAME_BYTES: Final = 1 << 20
FREED_BYTES: Final = 8 << 20

SYNC_UNAVAILABLE: Final = (
    "blocking needs WebAssembly stack switching, which is impossible here (in a callback from "
    "JavaScript, or in a browser without it): use the async call instead, "
    "`await wb.Device.wgpu_async()`, `await t.numpy_async()` or `await wb.eval_async(...)`"
)

#: Smallest buffer that a read goes through, as in the bridge.
STAGING_MIN = 1 << 12

_NO_PIPELINE, _NO_GROUP, _STALE_GROUP = -1, -2, -3

_bridge_module: Any = None


class _Buffer(NamedTuple):
    size: int
    usage: int


class _Group(NamedTuple):
    access: str
    params_bytes: int
    storage: tuple[tuple[int, int, int], ...]
    params: int


class _Handles:
    """Positive integers, the smallest free one first, so that tables stay short."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 1

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def give(self, handle: int) -> None:
        self._free.append(handle)


class _Column:
    """An int64 per handle, for checking a whole plan with a few numpy calls."""

    def __init__(self, absent: int) -> None:
        self._absent = absent
        self.values: NDArray[np.int64] = np.full(64, absent, np.int64)

    def set(self, handle: int, value: int) -> None:
        while handle >= len(self.values):
            more = np.full(len(self.values), self._absent, np.int64)
            self.values = np.concatenate([self.values, more])
        self.values[handle] = value

    def clear(self, handle: int) -> None:
        self.values[handle] = self._absent


async def _bridge() -> Any:
    """The JavaScript module, imported once from this package's own file."""
    global _bridge_module
    if _bridge_module is None:
        try:
            import js
            from pyodide.code import run_js
            from pyodide.ffi import to_js
        except ImportError as error:
            raise AdapterUnavailableError(
                "the browser driver runs only in Pyodide; natively use wb.Device.wgpu()"
            ) from error
        source = Path(__file__).with_name("bridge.mjs").read_text(encoding="utf-8")
        kind = to_js({"type": "text/javascript"}, dict_converter=js.Object.fromEntries)
        url = js.URL.createObjectURL(js.Blob.new(to_js([source]), kind))
        try:
            _bridge_module = await run_js("(url) => import(url)")(url)
        finally:
            js.URL.revokeObjectURL(url)
    return _bridge_module


def _adapter_info(data: dict[str, Any]) -> AdapterInfo:
    # A browser says whether an adapter is software, but not whether a GPU is discrete.
    return AdapterInfo(
        kind="browser",
        index=int(data["index"]),
        name=str(data["name"]),
        backend="WebGPU",
        adapter_type="CPU" if data["software"] else "unknown",
        vendor=str(data["vendor"]),
        driver=str(data["browser"]),
        features=frozenset(data["features"]),
        limits={name: int(value) for name, value in data["limits"].items()},
    )


async def enumerate_browser() -> list[AdapterInfo]:
    """Adapters of navigator.gpu; without any, one entry that is not available and says why."""
    module = await _bridge()
    found = json.loads(await module.enumerate())
    if "reason" in found:
        reason = str(found["reason"])
        return [AdapterInfo("browser", 0, "WebGPU", "WebGPU", available=False, reason=reason)]
    return [_adapter_info(adapter) for adapter in found["adapters"]]


async def open_browser(
    power: str = "high-performance", limits: str = "adapter", index: int = 0
) -> BrowserDriver:
    """Open a device. `index` counts as `enumerate_browser` does; browsers choose by `power` alone.

    `limits`: "adapter" for all the adapter offers, "default" for the spec's. Raises
    AdapterUnavailableError with the cause.
    """
    if power not in ("high-performance", "low-power"):
        raise AdapterUnavailableError(f'power={power!r}: use "high-performance" or "low-power"')
    if limits not in ("adapter", "default"):
        raise AdapterUnavailableError(f'limits={limits!r}: use "adapter" or "default"')
    if index:
        found = [adapter for adapter in await enumerate_browser() if adapter.available]
        if not 0 <= index < len(found):
            raise AdapterUnavailableError(
                f"no adapter {index}; this browser offers {len(found)}, counted from 0"
            )
        power = "low-power"  # the second and last entry
    module = await _bridge()
    try:
        bridge = await module.open(power, limits)
    except Exception as error:
        raise AdapterUnavailableError(f"no WebGPU device: {_message(error)}") from error
    return BrowserDriver(bridge)


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Wait for a coroutine by stack switching, where the browser and the caller allow it."""
    from pyodide.ffi import can_run_sync
    from pyodide.ffi import run_sync as switch

    if not can_run_sync():
        coroutine.close()
        raise SyncUnavailableError(SYNC_UNAVAILABLE)
    result: T = switch(coroutine)
    return result


def _message(error: BaseException) -> str:
    """What a JavaScript exception says, without its class name and stack."""
    return str(getattr(error, "message", "") or error)


class BrowserDriver:
    """One device of navigator.gpu; `driver.Driver` says what each method promises."""

    def __init__(self, bridge: Any) -> None:
        from pyodide.ffi import create_proxy

        self._bridge = bridge
        self._info = _adapter_info(json.loads(bridge.info))
        self._limits = {**rules.SPEC_LIMITS, **self._info.limits}
        self._lost = ""
        self._errors: list[str] = []
        self._callbacks = (create_proxy(self._errors.append), create_proxy(self._on_lost))
        bridge.onError, bridge.onLost = self._callbacks
        self._buffers: dict[int, _Buffer] = {}
        self._programs: dict[int, ProgramSource] = {}
        self._groups: dict[int, _Group] = {}
        self._groups_of: dict[int, set[int]] = {}  # buffer -> bind groups that bind it
        self._buffer_ids, self._program_ids, self._group_ids = _Handles(), _Handles(), _Handles()
        self._layouts: dict[tuple[str, int], int] = {}
        self._pipeline_layout = _Column(_NO_PIPELINE)
        self._group_layout = _Column(_NO_GROUP)
        self._params_last = _Column(0)  # the largest params_offset that a bind group allows
        self._ops: list[int] = []
        self._payload = bytearray()
        self._freed = 0
        self._bytes = self._peak = self._staging = 0  # staging: buffers that reads go through
        self._submits = self._dispatches = self._writes = self._reads = 0
        self._crossings = 0

    # -- state ------------------------------------------------------------------------------------
    @property
    def info(self) -> AdapterInfo:
        return self._info

    @property
    def stats(self) -> DriverStats:
        return DriverStats(
            buffers_alive=len(self._buffers),
            bytes_alive=self._bytes + self._staging,
            peak_bytes=self._peak,
            pipelines=len(self._programs),
            bind_groups_alive=len(self._groups),
            submits=self._submits,
            dispatches=self._dispatches,
            writes=self._writes,
            reads=self._reads,
        )

    @property
    def crossings(self) -> int:
        """Calls from Python to JavaScript since the device was opened."""
        return self._crossings

    @property
    def lost(self) -> str:
        return self._lost

    def bridge_counts(self) -> dict[str, int]:
        """What is alive on the JavaScript side once everything queued here has crossed."""
        self._flush()
        self._crossings += 1
        counts: dict[str, int] = json.loads(self._bridge.counts())
        return counts

    def _on_lost(self, reason: str) -> None:
        self._lost = self._lost or reason

    def _check(self) -> None:
        """Raise what the browser reported since the last call."""
        if self._lost:
            self._errors.clear()
            raise DeviceLostError(
                f"device {self._info.name!r} is lost ({self._lost}); open a new device and load "
                "the last checkpoint"
            )
        if self._errors:
            text = "\n".join(dict.fromkeys(self._errors))
            self._errors.clear()
            kind = OutOfMemoryError if text.startswith("out-of-memory") else DriverError
            raise kind(f"device {self._info.name!r}, an earlier call: {text}")

    # -- crossing ---------------------------------------------------------------------------------
    def _frame(self, commands: NDArray[np.uint32] | None = None) -> bytes | None:
        """Everything queued, as one block of bytes, or None. The queue is empty afterwards."""
        if not self._ops:
            return None
        words = 0 if commands is None else commands.size
        header = array("I", (len(self._ops), words, len(self._payload), 0))
        header.extend(self._ops)
        rows = b"" if commands is None else commands.data
        frame = b"".join((header, rows, self._payload))
        self._ops.clear()
        self._payload.clear()
        self._freed = 0
        return frame

    def _flush(self, commands: NDArray[np.uint32] | None = None) -> None:
        frame = self._frame(commands)
        if frame is None:
            return
        self._crossings += 1
        try:
            self._bridge.run(frame)
        except Exception as error:  # a JsException: the bridge itself failed
            raise DriverError(f"device {self._info.name!r}: {_message(error)}") from error

    async def _await(self, promise: Any) -> Any:
        """Wait for a promise of the bridge; then raise whatever was reported meanwhile."""
        self._crossings += 1
        try:
            result = await promise
        except Exception as error:
            self._check()
            raise DriverError(f"device {self._info.name!r}: {_message(error)}") from error
        self._check()
        return result

    # -- memory -----------------------------------------------------------------------------------
    def create_buffer(self, size: int, usage: int) -> int:
        self._check()
        rules.check_buffer(size, usage, self._limits)
        buffer = self._buffer_ids.take()
        self._buffers[buffer] = _Buffer(size, usage)
        self._bytes += size
        self._peak = max(self._peak, self._bytes + self._staging)
        self._ops += (_CREATE_BUFFER, buffer, size, usage)
        return buffer

    def destroy_buffer(self, buffer: int) -> None:
        if self._lost:
            return
        size = self._buffer(buffer, "destroy_buffer").size
        del self._buffers[buffer]
        for group in self._groups_of.pop(buffer, ()):
            self._group_layout.set(group, _STALE_GROUP)
        self._buffer_ids.give(buffer)
        self._bytes -= size
        self._ops += (_DESTROY_BUFFER, buffer)
        self._freed += size
        if self._freed >= FREED_BYTES:
            self._flush()

    def write_buffer(self, buffer: int, offset: int, data: memoryview | bytes | bytearray) -> None:
        self._check()
        view = memoryview(data).cast("B")
        self._check_copy("write_buffer", buffer, offset, len(view), COPY_DST)
        self._writes += 1
        if len(view) <= QUEUED_WRITE:
            self._queue_write(buffer, offset, view)
            if len(self._payload) >= FRAME_BYTES:
                self._flush()
            return
        frame = self._frame()
        self._crossings += 1
        try:
            self._bridge.write(frame, buffer, offset, view)
        except Exception as error:
            raise DriverError(f"device {self._info.name!r}: {_message(error)}") from error

    def _queue_write(self, buffer: int, offset: int, view: memoryview) -> None:
        if len(view):
            self._ops += (_WRITE, buffer, offset, len(self._payload), len(view))
            self._payload += view

    async def read_buffer(self, buffer: int, offset: int, size: int) -> bytearray:
        self._check()
        self._check_copy("read_buffer", buffer, offset, size, COPY_SRC)
        self._reads += 1
        target = bytearray(size)
        if size:
            read = self._bridge.read(self._frame(), buffer, offset, size, target)
            kept = int(await self._await(read))
            # The read's own buffer (a power of two) is now kept or gone.
            staging = max(STAGING_MIN, 1 << (size - 1).bit_length())
            self._peak = max(self._peak, self._bytes + max(kept, staging))
            self._staging = kept
        return target

    def copy_buffer(self, src: int, src_offset: int, dst: int, dst_offset: int, size: int) -> None:
        self._check()
        self._check_copy("copy_buffer source", src, src_offset, size, COPY_SRC)
        self._check_copy("copy_buffer destination", dst, dst_offset, size, COPY_DST)
        if src == dst:
            raise DriverError(f"copy_buffer: source and destination are both buffer {src}")
        if size:
            self._ops += (_COPY, src, src_offset, dst, dst_offset, size)

    def _buffer(self, buffer: int, what: str) -> _Buffer:
        try:
            return self._buffers[buffer]
        except KeyError:
            raise DriverError(f"{what}: buffer {buffer} does not exist (destroyed?)") from None

    def _check_copy(self, what: str, buffer: int, offset: int, size: int, usage: int) -> None:
        known = self._buffer(buffer, what)
        rules.check_range(f"{what}: buffer {buffer}", offset, size, known.size)
        if not known.usage & usage:
            name = "COPY_SRC" if usage == COPY_SRC else "COPY_DST"
            raise DriverError(f"{what}: buffer {buffer} was made without {name}")

    # -- programs ---------------------------------------------------------------------------------
    async def create_pipelines(self, programs: Sequence[ProgramSource]) -> list[int]:
        self._check()
        for program in programs:
            missing = program.features - self._info.features
            if missing:
                raise ProgramError(
                    f"program {program.name!r} needs {', '.join(sorted(missing))}, which device "
                    f"{self._info.name!r} does not have"
                )
            what = f"program {program.name!r}"
            rules.check_layout(what, program.access, program.params_bytes, self._limits)
            rules.check_workgroup(program, self._limits)
        if not programs:
            return []
        handles = [self._program_ids.take() for _ in programs]
        request = [
            {
                "id": handle,
                "name": program.name,
                "wgsl": program.wgsl,
                "access": program.access,
                "params": program.params_bytes,
            }
            for handle, program in zip(handles, programs, strict=True)
        ]
        try:
            errors = await self._await(self._bridge.compile(self._frame(), json.dumps(request)))
            if errors:
                raise ProgramError(str(errors))
        except BaseException:
            for handle in handles:
                self._program_ids.give(handle)
            raise
        for handle, program in zip(handles, programs, strict=True):
            self._programs[handle] = program
            layout = self._layout(program.access, program.params_bytes)
            self._pipeline_layout.set(handle, layout)
        return handles

    def destroy_pipeline(self, pipeline: int) -> None:
        if self._lost:
            return
        if self._programs.pop(pipeline, None) is None:
            raise DriverError(f"destroy_pipeline: pipeline {pipeline} does not exist")
        self._pipeline_layout.clear(pipeline)
        self._program_ids.give(pipeline)
        self._ops += (_DESTROY_PIPELINE, pipeline)

    def _layout(self, access: str, params_bytes: int) -> int:
        return self._layouts.setdefault((access, params_bytes), len(self._layouts))

    def create_bind_group(
        self, access: str, params_bytes: int, storage: Sequence[tuple[int, int, int]], params: int
    ) -> int:
        self._check()
        entry = _Group(access, params_bytes, tuple(storage), params)
        self._check_group(entry)
        group = self._group_ids.take()
        self._groups[group] = entry
        bound = {buffer for buffer, _, _ in storage}
        if params_bytes:
            bound.add(params)
        for buffer in bound:
            self._groups_of.setdefault(buffer, set()).add(group)
        self._group_layout.set(group, self._layout(access, params_bytes))
        last = self._buffers[params].size - params_bytes if params_bytes else 0
        self._params_last.set(group, last)
        read_mask = sum(1 << index for index, letter in enumerate(access) if letter == "r")
        self._ops += (_CREATE_GROUP, group, read_mask, len(access), params_bytes, params)
        for binding in storage:
            self._ops += binding
        return group

    def _check_group(self, group: _Group) -> None:
        what = f"bind group {group.access!r}"
        rules.check_layout(what, group.access, group.params_bytes, self._limits)
        if len(group.storage) != len(group.access) or len(group.access) > 32:
            raise DriverError(f"{what}: {len(group.storage)} storage bindings given")
        bounds = []
        for index, (buffer, offset, size) in enumerate(group.storage):
            known = self._buffer(buffer, what)
            if not known.usage & STORAGE:
                raise DriverError(f"{what}: buffer {buffer} was made without STORAGE")
            rules.check_binding(index, buffer, offset, size, known.size, self._limits)
            bounds.append(rules.Bound(index, buffer, offset, size, group.access[index]))
        if group.params_bytes:
            known = self._buffer(group.params, what)
            if not known.usage & UNIFORM:
                raise DriverError(f"{what}: buffer {group.params} was made without UNIFORM")
            size = group.params_bytes
            bounds.append(rules.Bound(len(bounds), group.params, 0, size, "u"))
        fault = rules.aliasing_fault(bounds)
        if fault:
            raise DriverError(f"{what}: {fault}")

    def destroy_bind_group(self, bind_group: int) -> None:
        if self._lost:
            return
        entry = self._groups.pop(bind_group, None)
        if entry is None:
            raise DriverError(f"destroy_bind_group: bind group {bind_group} does not exist")
        for buffer in (*(buffer for buffer, _, _ in entry.storage), entry.params):
            users = self._groups_of.get(buffer)
            if users is not None:
                users.discard(bind_group)
        self._group_layout.clear(bind_group)
        self._group_ids.give(bind_group)
        self._ops += (_DESTROY_GROUP, bind_group)

    # -- work -------------------------------------------------------------------------------------
    def submit(
        self,
        commands: NDArray[np.uint32],
        params: tuple[int, int, memoryview | bytes | bytearray] | None = None,
    ) -> None:
        self._check()
        rules.check_commands(commands)
        self._check_plan(commands)
        if params is not None:
            buffer, offset, data = params
            view = memoryview(data).cast("B")
            self._check_copy("submit params", buffer, offset, len(view), COPY_DST)
            self._queue_write(buffer, offset, view)
        if len(commands):
            self._ops.append(_SUBMIT)
            self._submits += 1
            self._dispatches += len(commands)
        self._flush(commands)

    def _check_plan(self, commands: NDArray[np.uint32]) -> None:
        """All rows at once; only a plan with a fault is looked at row by row."""
        if not len(commands):
            return
        # A column's values or'ed together bound every one of them: one pass for six questions. The
        # tables' lengths are powers of two, so handles that all lie inside are inside or'ed, too.
        pipeline, group, offset, *grid = np.bitwise_or.reduce(commands, axis=0).tolist()
        pipelines, groups = commands[:, 0], commands[:, 1]
        limit = self._limits["maxComputeWorkgroupsPerDimension"]
        good = (
            pipeline < len(self._pipeline_layout.values)
            and group < len(self._group_layout.values)
            and self._same_layouts(pipelines, groups)
            and not offset % PARAMS_ALIGN
            and bool((commands[:, 2] <= self._params_last.values[groups]).all())
            and (max(grid) <= limit or int(commands[:, 3:].max()) <= limit)
        )
        if not good:
            self._raise_plan_fault(commands)

    def _same_layouts(self, pipelines: NDArray[np.uint32], groups: NDArray[np.uint32]) -> bool:
        wanted = self._pipeline_layout.values[pipelines]
        return bool((wanted == self._group_layout.values[groups]).all())

    def _raise_plan_fault(self, commands: NDArray[np.uint32]) -> None:
        for row, (pipeline, group, offset, *grid) in enumerate(commands.tolist()):
            program = self._programs.get(pipeline)
            if program is None:
                raise DriverError(f"launch {row}: pipeline {pipeline} does not exist (destroyed?)")
            entry = self._groups.get(group)
            where = f"launch {row}, program {program.name!r}"
            if entry is None:
                raise DriverError(f"{where}: bind group {group} does not exist (destroyed?)")
            if (entry.access, entry.params_bytes) != (program.access, program.params_bytes):
                raise DriverError(
                    f"{where}: it binds {program.access!r} and {program.params_bytes} parameter "
                    f"bytes, bind group {group} has {entry.access!r} and {entry.params_bytes}"
                )
            if int(self._group_layout.values[group]) == _STALE_GROUP:
                raise DriverError(f"{where}: a buffer of bind group {group} was destroyed")
            rules.check_grid(program.name, grid, self._limits)
            capacity = self._buffers[entry.params].size if entry.params_bytes else 0
            rules.check_params_offset(program.name, offset, entry.params_bytes, capacity)

    async def wait(self) -> None:
        self._check()
        await self._await(self._bridge.wait(self._frame()))

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run_sync(coroutine)

    def close(self) -> None:
        if self._bridge is None:
            return
        bridge, self._bridge = self._bridge, None
        self._lost = self._lost or "closed by the program"
        self._crossings += 1
        bridge.close()
        for callback in self._callbacks:
            callback.destroy()
        self._buffers.clear()
        self._programs.clear()
        self._groups.clear()
        self._groups_of.clear()
        self._ops.clear()
        self._payload.clear()
        self._errors.clear()
        self._bytes = self._staging = 0
