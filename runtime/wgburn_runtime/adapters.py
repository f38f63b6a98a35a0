"""Which native adapters there are, and opening one.

Owns: one entry per physical adapter, the order of adapters, the words when there is none.
Must not know: wgpu itself; the modules that do are imported when somebody asks for adapters.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .driver import AdapterInfo
from .errors import AdapterUnavailableError

if TYPE_CHECKING:
    from .native import NativeDriver
    from .native.device import Adapter

_TYPE_ORDER = ("discretegpu", "integratedgpu", "virtualgpu", "unknown", "cpu")
_BACKEND_ORDER = ("Metal", "Vulkan", "D3D12", "D3D11", "OpenGL")


def enumerate_native() -> list[AdapterInfo]:
    """Native adapters, the fastest kind first; if there is none, one entry that says why."""
    try:
        found = _adapters("high-performance")
    except AdapterUnavailableError as error:
        return [AdapterInfo("native", 0, "none", available=False, reason=str(error))]
    return [adapter.info for adapter in found]


async def open_native(
    index: int = 0, power: str = "high-performance", limits: str = "default"
) -> NativeDriver:
    """Open a device. `index` counts as `enumerate_native` does, or, for power="low-power", with
    integrated GPUs first. Raises AdapterUnavailableError."""
    if power not in ("high-performance", "low-power"):
        raise AdapterUnavailableError(f'power={power!r}: use "high-performance" or "low-power"')
    found = _adapters(power)
    if not 0 <= index < len(found):
        names = ", ".join(f"{a.info.index}: {a.info.name} ({a.info.backend})" for a in found)
        raise AdapterUnavailableError(
            f"no native adapter has index {index}; those found are {names}"
        )
    from .native import NativeDriver

    return NativeDriver(found[index], limits)


def _adapters(power: str) -> list[Adapter]:
    try:
        from .native.device import list_adapters
    except (ImportError, OSError, RuntimeError) as error:
        raise AdapterUnavailableError(
            f"wgpu cannot be loaded ({error}): pip install 'wgpu>=0.32,<0.33'"
        ) from error
    found = _one_per_card(list_adapters())
    if not found:
        raise AdapterUnavailableError(_advice())
    order = list(_TYPE_ORDER)
    if power == "low-power":
        order.insert(0, order.pop(order.index("integratedgpu")))

    def rank(adapter: Adapter) -> int:
        kind = adapter.info.adapter_type.lower()
        return order.index(kind) if kind in order else order.index("unknown")

    found = sorted(found, key=rank)
    return [
        adapter._replace(info=replace(adapter.info, index=index))
        for index, adapter in enumerate(found)
    ]


def _one_per_card(adapters: Sequence[Adapter]) -> list[Adapter]:
    """A card that several backends offer is taken from the best of them.

    OpenGL knows no device numbers, so there the vendor decides.
    """

    def backend(adapter: Adapter) -> int:
        name = adapter.info.backend
        return _BACKEND_ORDER.index(name) if name in _BACKEND_ORDER else len(_BACKEND_ORDER)

    kept: list[Adapter] = []
    for adapter in sorted(adapters, key=backend):
        is_gl = adapter.info.backend == "OpenGL"
        if not any(
            other.info.backend != adapter.info.backend
            and other.vendor_id == adapter.vendor_id
            and (is_gl or other.device_id == adapter.device_id)
            for other in kept
        ):
            kept.append(adapter)
    return kept


def _advice() -> str:
    what = "no WebGPU adapter was found: "
    if sys.platform.startswith("linux"):
        return what + "install a Vulkan driver of your GPU, or mesa-vulkan-drivers for a CPU one"
    if sys.platform == "darwin":
        return what + "Metal is needed (macOS 10.15 or later)"
    return what + "update the graphics driver (D3D12 or Vulkan is needed)"
