"""wgburn on navigator.gpu: opening, waiting, limits, loss, closing. Runs inside Pyodide."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import pytest

import wgburn as wb

pytestmark = pytest.mark.browser


def from_javascript(function):
    """Call with JavaScript in the middle of the stack, where nothing can block."""
    from pyodide.code import run_js

    return run_js("(f) => f()")(function)


def array(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


async def test_open_compute_and_read_async():
    device = await wb.Device.wgpu_async()
    assert device.info.kind == "wgpu" and device.info.backend == "WebGPU"
    a, b = array(5, 7), array(7, 3)
    y = (wb.tensor(a, device=device) @ wb.tensor(b, device=device)).relu()
    np.testing.assert_allclose(await y.numpy_async(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)
    assert await wb.Device.wgpu_async() == device  # the same arguments, the same device


def test_open_compute_and_read_blocking():
    device = wb.Device.wgpu()
    a = array(64)
    assert np.isclose(wb.tensor(a, device=device).square().sum().item(), (a * a).sum(), rtol=1e-5)


def test_best_is_cpu_and_enumerate_lists_the_software_adapter():
    assert wb.Device.best() == wb.Device.cpu()  # SwiftShader is no hardware
    infos = wb.Device.enumerate()
    assert [(i.kind, i.available) for i in infos] == [("cpu", True), ("wgpu", True)]


async def test_blocking_read_in_a_callback_names_the_async_call():
    device = await wb.Device.wgpu_async()
    t = wb.tensor(array(4), device=device) + 1

    def callback():
        for blocked in (t.numpy, t.sum().item, lambda: wb.Device.wgpu(power="low-power")):
            with pytest.raises(wb.SyncUnavailableError) as caught:
                blocked()
            text = str(caught.value)
            assert "await t.numpy_async()" in text and "await wb.Device.wgpu_async()" in text
            assert "await wb.eval_async(...)" in text

    from_javascript(callback)
    np.testing.assert_allclose(await t.numpy_async(), array(4) + 1)  # the next call works


async def test_async_program_runs_where_blocking_is_impossible():
    """Started by a promise that JavaScript made: no stack switching anywhere."""
    device = await wb.Device.wgpu_async()
    result = []

    async def program():
        t = wb.tensor(array(16), device=device)
        loss = (t * t).mean()
        await wb.eval_async(loss)
        result.append(float(await loss.numpy_async()))
        await device.synchronize_async()

    def start():
        result.append(asyncio.ensure_future(program()))

    from_javascript(start)
    await result.pop()
    assert np.isclose(result[0], (array(16) ** 2).mean(), rtol=1e-5)


async def test_tensor_over_the_binding_limit():
    device = await wb.Device.wgpu_async(limits="default")
    with pytest.raises(wb.WgburnError, match=r"max(StorageBufferBinding|Buffer)Size"):
        await (wb.zeros(1 << 26, device=device) + 1).numpy_async()
    assert (await wb.ones(3, device=device).numpy_async()).tolist() == [1, 1, 1]


async def test_destroyed_in_mid_run():
    device = await wb.Device.wgpu_async(limits="default")
    t = wb.tensor(array(32), device=device)
    await (t + 1).numpy_async()
    device.backend.driver._bridge.device.destroy()
    with pytest.raises(wb.DeviceLostError, match="destroyed"):
        await (t * 2).numpy_async()
    with pytest.raises(wb.DeviceLostError):
        await (t * 3).numpy_async()
    again = await wb.Device.wgpu_async(limits="default")
    assert (await wb.ones(2, device=again).numpy_async()).tolist() == [1, 1]
    again.close()


async def test_two_devices_at_once():
    one = await wb.Device.wgpu_async(limits="default")
    two = await wb.Device.wgpu_async(limits="adapter")
    assert one != two
    a, b = wb.ones(4, device=one), wb.full((4,), 2.0, device=two)
    with pytest.raises(wb.DeviceError, match="wgpu"):
        a + b
    assert (await a.numpy_async()).sum() + (await b.numpy_async()).sum() == 12


async def test_closing_a_device_and_dropping_tensors_free_buffers():
    device = await wb.Device.wgpu_async(limits="default")
    driver = device.backend.driver
    t = wb.tensor(array(1 << 18), device=device)
    await wb.eval_async(t + 1)
    assert device.memory().in_use >= 1 << 20
    del t
    gc.collect()
    device.memory_cleanup()
    assert device.memory().in_use == 0
    left = driver.bridge_counts()
    assert left["buffers"] == driver.stats.buffers_alive and driver.stats.bytes_alive < 1 << 20
    bridge = driver._bridge
    device.close()
    import json

    assert json.loads(bridge.counts())["buffers"] == 0
    with pytest.raises(wb.WgburnError):
        wb.ones(2, device=device).numpy()
