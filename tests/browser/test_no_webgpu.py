"""A browser without an adapter, or without navigator.gpu: stated causes, nothing hangs."""

from __future__ import annotations

import pytest

import wgburn as wb
from wgburn_runtime import browser
from wgburn_runtime.errors import AdapterUnavailableError


@pytest.mark.browser(webgpu="no-adapter")
async def test_no_adapter():
    (entry,) = await browser.enumerate_browser()
    assert not entry.available and "no adapter" in entry.reason
    with pytest.raises(AdapterUnavailableError, match="no adapter"):
        await browser.open_browser()


@pytest.mark.browser(webgpu="no-adapter")
def test_wgburn_without_an_adapter():
    cpu, wgpu = wb.Device.enumerate()
    assert cpu.available and not wgpu.available and "no adapter" in wgpu.reason
    assert wb.Device.best() == wb.Device.cpu()
    with pytest.raises(wb.DeviceError, match="no adapter"):
        wb.Device.wgpu()
    assert wb.ones(3, device=wb.Device.best()).sum().item() == 3


@pytest.mark.browser(webgpu="no-adapter")
async def test_browser_without_webgpu():
    from pyodide.code import run_js

    hide = "() => Object.defineProperty(navigator, 'gpu', {value: undefined, configurable: true})"
    run_js(hide)()
    try:
        (entry,) = await browser.enumerate_browser()
        assert not entry.available and "navigator.gpu is missing" in entry.reason
        with pytest.raises(AdapterUnavailableError, match="is missing"):
            await browser.open_browser()
    finally:
        run_js("() => delete navigator.gpu")()  # the real one is on the prototype


@pytest.mark.browser(webgpu="insecure")
async def test_insecure_page():
    (entry,) = await browser.enumerate_browser()
    assert not entry.available and "https or localhost" in entry.reason
