"""Device: the user's face of a backend, plain or autodiff, and how devices are found and opened.

Owns: `Device`, the default device, the registry of opened backends. Must not know: tensors,
kernels.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from ..core.config import config
from ..core.errors import DeviceError, ValueRangeError
from .backend import Backend, DeviceInfo, MemoryReport
from .cpu import CpuBackend

_lock = threading.Lock()
_opened: dict[Any, Backend] = {}


class Device:
    """Where tensors live. `==` compares the hardware; autodiff is a property of the handle."""

    __slots__ = ("backend", "is_autodiff")

    def __init__(self, backend: Backend, is_autodiff: bool = False) -> None:
        self.backend = backend
        self.is_autodiff = is_autodiff

    # -- opening ----------------------------------------------------------------------------------
    @staticmethod
    def cpu() -> Device:
        """numpy on the host."""
        with _lock:
            backend = _opened.get("cpu")
            if backend is None or backend.closed:
                backend = _opened["cpu"] = CpuBackend()
        return Device(backend)

    @staticmethod
    def wgpu(index: int = 0, power: str = "high-performance", limits: str = "adapter") -> Device:
        """A WebGPU adapter, software ones too; the same arguments give the same device.

        limits: "adapter" opens with all the adapter offers, "default" with the WebGPU spec's
        defaults (what a browser gives). Raises DeviceError naming what was looked for; in a browser
        without stack switching SyncUnavailableError: `await wb.Device.wgpu_async()` instead.
        """
        from . import wgpu

        return Device(wgpu.open_sync(_opened, index, power, limits))

    @staticmethod
    async def wgpu_async(
        index: int = 0, power: str = "high-performance", limits: str = "adapter"
    ) -> Device:
        """`wgpu` where opening must not block. Works natively too."""
        from . import wgpu

        return Device(await wgpu.open_async(_opened, index, power, limits))

    @staticmethod
    def best() -> Device:
        """A hardware WebGPU adapter if there is one, else the cpu."""
        from . import wgpu

        found = wgpu.best_index()
        return Device.cpu() if found is None else Device.wgpu(found)

    @staticmethod
    async def best_async() -> Device:
        """`best` where opening must not block."""
        from . import wgpu

        found = await wgpu.best_index_async()
        return Device.cpu() if found is None else await Device.wgpu_async(found)

    @staticmethod
    def parse(text: str) -> Device:
        """A device by name: "cpu", "wgpu", "wgpu:1", "best"; "+autodiff" may follow.

        "wgpu:0/default-limits", a device's own name, opens it as `wgpu(0, limits="default")` does.
        """
        name, plus, rest = text.strip().partition("+")
        if plus and rest != "autodiff":
            raise ValueRangeError(f"device {text!r}: only '+autodiff' may follow a device name")
        name, slash, opened = name.partition("/")
        base, _, index = name.partition(":")
        if slash and (base != "wgpu" or opened != "default-limits"):
            base = ""
        if index and (base != "wgpu" or not index.isdigit()):
            base = ""
        if base == "cpu":
            dev = Device.cpu()
        elif base == "best":
            dev = Device.best()
        elif base == "wgpu":
            dev = Device.wgpu(int(index or 0), limits="default" if slash else "adapter")
        else:
            raise ValueRangeError(
                f"device {text!r} is not known; use cpu, wgpu, wgpu:INDEX or best"
            )
        return dev.autodiff() if plus else dev

    @staticmethod
    def enumerate() -> list[DeviceInfo]:
        """Every device there is, and what is not available with the reason."""
        from . import wgpu

        return [Device.cpu().info, *wgpu.enumerate_sync()]

    @staticmethod
    async def enumerate_async() -> list[DeviceInfo]:
        """`enumerate` where asking must not block."""
        from . import wgpu

        return [Device.cpu().info, *await wgpu.enumerate_async()]

    # -- autodiff ---------------------------------------------------------------------------------
    def autodiff(self) -> Device:
        """The same hardware, recording gradients for what is created on it."""
        return Device(self.backend, True)

    def inner(self) -> Device:
        """The same hardware without autodiff."""
        return Device(self.backend, False)

    # -- use --------------------------------------------------------------------------------------
    @property
    def info(self) -> DeviceInfo:
        return self.backend.info

    @property
    def kind(self) -> str:
        return self.backend.kind

    def memory(self) -> MemoryReport:
        """What the device holds now and held at most, in bytes; str() of it is a table."""
        return self.backend.memory()

    def memory_cleanup(self) -> None:
        """Give unused memory back to the system, and move values together so that more of it is
        unused. Tensors keep their values; the next plans bind anew."""
        self.backend.memory_cleanup()

    def seed(self, n: int) -> None:
        """Restart the device's random stream: the same seed gives the same numbers on every
        device."""
        self.backend.stream.seed = int(n) & 0xFFFFFFFFFFFFFFFF
        self.backend.stream.offset = 0

    def synchronize(self) -> None:
        """Compute everything pending and wait until it has run."""
        self.backend.realise(())
        self.backend.run_sync(self.backend.wait())

    async def synchronize_async(self) -> None:
        """`synchronize` for programs that must not block."""
        await self.backend.realise_async(())
        await self.backend.wait()

    def close(self) -> None:
        """Free the device. Its tensors cannot be read afterwards; opening it again gives a new
        one."""
        self.backend.close()
        with _lock:
            for key in [k for k, b in _opened.items() if b is self.backend]:
                del _opened[key]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.backend is self.backend

    def __hash__(self) -> int:
        return id(self.backend)

    def __str__(self) -> str:
        return self.backend.name + ("+autodiff" if self.is_autodiff else "")

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"


_default: Device | None = None
_using: ContextVar[Device | None] = ContextVar("wgburn_device", default=None)


def default_device() -> Device:
    """Where tensors are created without `device=`: use_device, set_default_device, WGBURN_DEVICE,
    or cpu."""
    dev = _using.get() or _default
    if dev is not None:
        return dev
    name = config.device
    if name:
        set_default_device(Device.parse(name))
        assert _default is not None
        return _default
    return Device.cpu()


def set_default_device(device: Device | str | None) -> None:
    """Set the default for the whole process; None goes back to WGBURN_DEVICE or cpu."""
    global _default
    _default = None if device is None else as_device(device)


@contextlib.contextmanager
def use_device(device: Device | str) -> Iterator[Device]:
    """The default device within a `with` block (and the tasks started in it)."""
    dev = as_device(device)
    token = _using.set(dev)
    try:
        yield dev
    finally:
        _using.reset(token)


def as_device(device: Any) -> Device:
    """A Device from a Device, a name, or None (the default)."""
    if device is None:
        return default_device()
    if isinstance(device, Device):
        return device
    if isinstance(device, str):
        return Device.parse(device)
    raise DeviceError(
        f"{device!r} is not a device; use wb.Device.cpu(), wb.Device.wgpu() or a name"
    )
