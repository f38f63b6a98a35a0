"""Finds native adapters and opens devices on them through wgpu's C handles.

Owns: the wgpu instance, adapter descriptions, the device request with its limits and features, and
the callbacks that report errors and the loss of a device. Must not know: buffers, programs, work.

The device is requested here, not through wgpu's Python class, because that class only logs a lost
device, and because errors of plain handle calls must reach the driver that made them. Only this
package imports wgpu, and it is imported when a native device is looked for, never before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import wgpu
from wgpu.backends.wgpu_native import ffi, lib
from wgpu.backends.wgpu_native._helpers import get_wgpu_instance

from ..driver import AdapterInfo
from ..errors import AdapterUnavailableError, DeviceLostError, DriverError, OutOfMemoryError
from ..rules import SPEC_LIMITS

#: Optional features that kernels or the profiler can use: WebGPU name -> wgpu's number.
_FEATURES: Final[Mapping[str, int]] = {
    "shader-f16": lib.WGPUFeatureName_ShaderF16,
    "subgroups": lib.WGPUNativeFeature_Subgroup,
    "timestamp-query": lib.WGPUFeatureName_TimestampQuery,
}
_BACKEND_NAMES = {"D3D11": "D3D11", "D3D12": "D3D12", "OpenGLES": "OpenGL"}


class Adapter(NamedTuple):
    """An adapter of wgpu with its description. `vendor_id` and `device_id` tell cards apart."""

    object: Any
    info: AdapterInfo
    vendor_id: int
    device_id: int


class ErrorSink:
    """Where the callbacks of one device leave what went wrong."""

    def __init__(self) -> None:
        self.errors: dict[int, list[tuple[int, str]]] = {}  # thread -> (WGPUErrorType, message)
        self.lost = ""
        self.number = next(_numbers)
        _sinks[self.number] = self

    def take(self, what: str) -> DriverError | None:
        """The first error this thread caused since the last call, as an exception, or None.

        Errors arrive on the thread whose call caused them, so threads that compile at the same
        time each get their own.
        """
        mine = self.errors.pop(threading.get_ident(), None)
        if not mine:
            return None
        kind, message = mine[0]
        text = f"{what}: {message}" if what else message
        if "device is lost" in message:  # wgpu does not always call back, but refuses everything
            self.lost = self.lost or "lost"
        if self.lost:
            return DeviceLostError(f"{text} (device lost: {self.lost})")
        if kind == lib.WGPUErrorType_OutOfMemory:
            return OutOfMemoryError(text)
        return DriverError(text)


_numbers = itertools.count(1)
_sinks: weakref.WeakValueDictionary[int, ErrorSink] = weakref.WeakValueDictionary()


def text_of(view: Any) -> str:
    """A Python string from a WGPUStringView."""
    if view.data == ffi.NULL or view.length == 0:
        return ""
    if view.length == lib.WGPU_STRLEN:
        raw = ffi.string(view.data)
    else:
        raw = ffi.unpack(view.data, view.length)
    return str(raw.decode(errors="replace"))


def set_text(view: Any, text: str) -> Any:
    """Point a WGPUStringView at `text`; keep what is returned until the call is over."""
    raw = text.encode()
    data = ffi.new("char[]", raw)
    view.data = data
    view.length = len(raw)
    return data


def _tidy(message: str) -> str:
    """wgpu's report without its fixed preamble."""
    lines = [line.rstrip() for line in message.strip().splitlines()]
    kept = [line for line in lines if line and line not in ("Validation Error", "Caused by:")]
    return "\n".join(kept).strip()


def _on_error(_device: Any, kind: int, message: Any, number: Any, _unused: Any) -> None:
    sink = _sinks.get(int(ffi.cast("uintptr_t", number)))
    if sink is not None:
        errors = sink.errors.setdefault(threading.get_ident(), [])
        errors.append((int(kind), _tidy(text_of(message))))


def _on_lost(_device: Any, reason: int, message: Any, number: Any, _unused: Any) -> None:
    sink = _sinks.get(int(ffi.cast("uintptr_t", number)))
    if sink is not None and not sink.lost:
        name = "destroyed" if reason == lib.WGPUDeviceLostReason_Destroyed else "lost"
        sink.lost = " ".join([name, *text_of(message).split()])


# They live as long as the module: a device may report after its driver is gone.
_C_ON_ERROR: Final = ffi.callback(
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)", _on_error
)
_C_ON_LOST: Final = ffi.callback(
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)", _on_lost
)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Give the OpenGL loader the variable it complains about, only for as long as it looks."""
    name = "XDG_RUNTIME_DIR"
    if not sys.platform.startswith("linux") or os.environ.get(name):
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = tempfile.gettempdir()
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def list_adapters() -> list[Adapter]:
    """Every adapter of every backend, as wgpu lists them; `index` is not decided here."""
    with _quiet():
        found = wgpu.gpu.enumerate_adapters_sync()
    return [_describe(adapter) for adapter in found]


def _describe(adapter: Any) -> Adapter:
    info = adapter.info
    handle = adapter._internal
    backend = str(info["backend_type"])
    described = AdapterInfo(
        kind="native",
        index=0,
        name=str(info["device"] or info["description"] or "unknown"),
        backend=_BACKEND_NAMES.get(backend, backend),
        adapter_type=str(info["adapter_type"]),
        vendor=str(info["vendor"] or f"0x{info['vendor_id']:04x}"),
        driver=str(info["description"]),
        features=_features(lambda number: lib.wgpuAdapterHasFeature(handle, number)),
        limits=_read_limits(lambda struct: lib.wgpuAdapterGetLimits(handle, struct)),
    )
    return Adapter(adapter, described, int(info["vendor_id"]), int(info["device_id"]))


def _features(has: Any) -> frozenset[str]:
    return frozenset(name for name, number in _FEATURES.items() if has(number))


def _read_limits(fill: Any) -> dict[str, int]:
    struct = ffi.new("WGPULimits *")
    if fill(struct) != lib.WGPUStatus_Success:
        raise DriverError("wgpu does not tell the limits")
    return {name: int(getattr(struct, name)) for name in dir(struct) if name != "nextInChain"}


def _wanted_limits(limits: str, offered: Mapping[str, int]) -> dict[str, int]:
    """What to ask for: everything, or the spec's defaults where the adapter reaches them."""
    wanted = dict(offered)
    if limits == "default":
        for name, value in SPEC_LIMITS.items():
            pick = max if name.startswith("min") else min
            wanted[name] = pick(value, offered[name])
    elif limits != "adapter":
        raise DriverError(f'limits={limits!r}: use "default" or "adapter"')
    return wanted


def _on_device(status: int, device: Any, message: Any, number: Any, _unused: Any) -> None:
    _answers[int(ffi.cast("uintptr_t", number))] = (int(status), device, text_of(message))


_answers: dict[int, tuple[int, Any, str]] = {}
_C_ON_DEVICE: Final = ffi.callback(
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)", _on_device
)


def open_device(adapter: Adapter, limits: str) -> tuple[Any, Any, ErrorSink, AdapterInfo]:
    """(device, queue, sink, info of the opened device)."""
    info = adapter.info
    sink = ErrorSink()
    number = ffi.cast("void *", sink.number)
    wanted = ffi.new("WGPULimits *")
    for name, value in _wanted_limits(limits, info.limits).items():
        setattr(wanted, name, value)
    features = ffi.new("WGPUFeatureName[]", [_FEATURES[name] for name in sorted(info.features)])
    struct = ffi.new("WGPUDeviceDescriptor *")
    label = set_text(struct.label, "wgburn")
    struct.requiredFeatureCount = len(info.features)
    struct.requiredFeatures = features
    struct.requiredLimits = wanted
    struct.deviceLostCallbackInfo.mode = lib.WGPUCallbackMode_AllowSpontaneous
    struct.deviceLostCallbackInfo.callback = _C_ON_LOST
    struct.deviceLostCallbackInfo.userdata1 = number
    struct.uncapturedErrorCallbackInfo.callback = _C_ON_ERROR
    struct.uncapturedErrorCallbackInfo.userdata1 = number
    request = ffi.new("WGPURequestDeviceCallbackInfo *")
    request.mode = lib.WGPUCallbackMode_AllowProcessEvents
    request.callback = _C_ON_DEVICE
    request.userdata1 = number
    with _quiet():
        lib.wgpuAdapterRequestDevice(adapter.object._internal, struct, request[0])
        lib.wgpuInstanceProcessEvents(get_wgpu_instance())
    del label
    status, device, message = _answers.pop(sink.number, (0, ffi.NULL, "no answer"))
    if status != lib.WGPURequestDeviceStatus_Success:
        raise AdapterUnavailableError(
            f"{info.name} ({info.backend}) refused to open a device: {_tidy(message)}"
        )
    opened = AdapterInfo(
        kind=info.kind,
        index=info.index,
        name=info.name,
        backend=info.backend,
        adapter_type=info.adapter_type,
        vendor=info.vendor,
        driver=info.driver,
        features=_features(lambda number: lib.wgpuDeviceHasFeature(device, number)),
        limits=_read_limits(lambda struct: lib.wgpuDeviceGetLimits(device, struct)),
    )
    return device, lib.wgpuDeviceGetQueue(device), sink, opened
