"""The WebGPU of the platform we run on: wgpu natively, navigator.gpu in a browser.

Owns: the one place that asks which platform this is. Must not know: tensors, either implementation;
their modules are imported when somebody asks for an adapter.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from .driver import AdapterInfo, Driver
from .errors import DriverError

T = TypeVar("T")

IN_BROWSER = sys.platform == "emscripten"


async def enumerate_adapters() -> list[AdapterInfo]:
    """Adapters, the best one first; without any, one entry that is not available and says why."""
    if IN_BROWSER:
        from .browser import enumerate_browser

        return await enumerate_browser()
    from .adapters import enumerate_native

    return enumerate_native()


async def open_driver(
    index: int = 0, power: str = "high-performance", limits: str = "adapter"
) -> Driver:
    """Open a device. `index` counts as `enumerate_adapters` does. May raise
    AdapterUnavailableError."""
    if IN_BROWSER:
        from .browser import open_browser

        return await open_browser(power, limits, index)
    from .adapters import open_native

    return await open_native(index, power, limits)


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Wait for one of the coroutines above; in a browser this may raise SyncUnavailableError."""
    if IN_BROWSER:
        from . import browser

        return browser.run_sync(coroutine)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise DriverError("a native coroutine waited for something else; await it")
