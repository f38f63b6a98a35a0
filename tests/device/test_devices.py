"""Devices: names, equality, what they say of themselves, the default, closing and opening again."""

import asyncio
import os
import subprocess
import sys

import pytest

import wgburn as wb
from wgburn.device.cpu import CpuBackend

pytestmark = pytest.mark.quick


def python(code, **variables):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
    )


@pytest.fixture
def spare():
    """A WebGPU device of its own, for tests that close it."""
    return wb.Device.wgpu(power="low-power", limits="default")


def test_the_same_arguments_give_the_same_device(wgpu, cpu):
    assert wb.Device.wgpu(limits="default") == wgpu
    assert wb.Device.wgpu(limits="default").backend is wgpu.backend
    assert wb.Device.wgpu() != wgpu
    assert wb.Device.cpu() == cpu != wgpu
    assert asyncio.run(wb.Device.wgpu_async(limits="default")) == wgpu
    assert cpu != "cpu"


def test_autodiff_is_a_property_of_the_handle(device):
    ad = device.autodiff()
    assert ad == device
    assert hash(ad) == hash(device)
    assert ad.is_autodiff and not device.is_autodiff
    assert not ad.inner().is_autodiff
    assert ad.autodiff().is_autodiff
    assert str(ad) == f"{device}+autodiff"
    assert wb.ones(1, device=ad).device.is_autodiff
    assert wb.rand(1, device=ad).device.is_autodiff
    assert (wb.ones(1, device=ad) * 2)[0].device.is_autodiff


def test_parse(cpu, wgpu):
    assert wb.Device.parse("cpu") == cpu
    assert wb.Device.parse(" cpu+autodiff ").is_autodiff
    assert wb.Device.parse("wgpu") == wb.Device.parse("wgpu:0") == wb.Device.wgpu(0)
    assert wb.Device.parse(str(wgpu)) == wgpu
    assert wb.Device.parse("wgpu:0+autodiff").is_autodiff
    best = wb.Device.parse("best")
    assert best == wb.Device.best()
    software = all(
        i.adapter_type.lower() == "cpu" or not i.available for i in wb.Device.enumerate()[1:]
    )
    assert best.kind == ("cpu" if software else "wgpu")


@pytest.mark.parametrize(
    "text", ["gpu", "", "cpu:1", "wgpu:x", "wgpu:-1", "cpu+grad", "wgpu:0/large", "cpu/x", "a\nb"]
)
def test_parse_refuses(text):
    with pytest.raises(wb.ValueRangeError, match="device"):
        wb.Device.parse(text)


def test_adapters_that_are_not_there():
    with pytest.raises(wb.DeviceError, match="no native adapter has index 99; those found are 0: "):
        wb.Device.parse("wgpu:99")
    with pytest.raises(wb.ValueRangeError, match="'adapter' or 'default'"):
        wb.Device.wgpu(limits="most")
    with pytest.raises(wb.DeviceError, match="low-power"):
        wb.Device.wgpu(power="solar")


def test_enumerate(wgpu):
    cpu, *adapters = wb.Device.enumerate()
    assert (cpu.kind, cpu.available) == ("cpu", True)
    assert adapters
    for info in adapters:
        assert info.kind == "wgpu"
        assert info.available or info.reason
        assert not info.available or (info.name and info.limits and info.fingerprint)
    first, *_ = asyncio.run(wb.Device.enumerate_async())
    assert first.kind == "cpu"


def test_what_a_device_says(device):
    info = device.info
    assert info.kind == device.kind
    assert info.available
    assert info.fingerprint
    assert isinstance(info.features, frozenset)
    if device.kind == "wgpu":
        assert info.limits["maxStorageBuffersPerShaderStage"] == 8
        assert info.limits["maxStorageBufferBindingSize"] == 128 << 20


def test_memory_report(device):
    device.synchronize()
    before = device.memory()
    t = wb.ones(1000, 1000, device=device) * 2
    wb.eval(t)
    after = device.memory()
    assert after.in_use - before.in_use == pytest.approx(t.nbytes, abs=1 << 12)
    assert after.peak_in_use >= after.in_use
    assert after.reserved >= after.in_use
    assert after.pools
    del t
    assert device.memory().in_use == pytest.approx(before.in_use, abs=1 << 12)
    device.memory_cleanup()
    assert device.memory().reserved <= after.reserved


def test_the_default_device(cpu, wgpu):
    assert wb.default_device() == cpu
    with wb.use_device(wgpu.autodiff()) as dev:
        assert wb.default_device() == dev == wgpu
        assert wb.default_device().is_autodiff
        with wb.use_device("cpu"):
            assert wb.zeros(1).device == cpu
        assert wb.zeros(1).device == wgpu
    assert wb.default_device() == cpu
    with pytest.raises(KeyError), wb.use_device(wgpu):
        raise KeyError
    assert wb.default_device() == cpu
    try:
        wb.set_default_device(wgpu)
        assert wb.zeros(1).device == wgpu
        with wb.use_device(cpu):
            assert wb.zeros(1).device == cpu
        wb.set_default_device("cpu+autodiff")
        assert wb.zeros(1).device.is_autodiff
    finally:
        wb.set_default_device(None)
    assert wb.default_device() == cpu
    with pytest.raises(wb.DeviceError, match="not a device"):
        wb.zeros(1, device=7)


def test_the_variable_names_the_default(monkeypatch):
    try:
        for name, ad in (("cpu+autodiff", True), ("wgpu:0", False), ("", False)):
            wb.set_default_device(None)
            monkeypatch.setenv("WGBURN_DEVICE", name)
            wb.config.reload()
            assert str(wb.default_device()) == (name or "cpu")
            assert wb.zeros(1).device.is_autodiff is ad
        wb.set_default_device(None)
        monkeypatch.setenv("WGBURN_DEVICE", "toaster")
        with pytest.raises(wb.ValueRangeError, match="toaster"):
            wb.config.reload()
    finally:
        monkeypatch.delenv("WGBURN_DEVICE")
        wb.config.reload()
        wb.set_default_device(None)


def test_without_an_adapter():
    """A machine without any driver: the cpu works, the error says what to install."""
    nothing = os.devnull
    code = (
        "import wgburn as wb\n"
        "print(wb.Device.best(), wb.ones(2).sum().item())\n"
        "info = wb.Device.enumerate()[1]\n"
        "print(info.available, info.reason)\n"
        "try: wb.Device.wgpu()\n"
        "except wb.DeviceError as error: print(error)"
    )
    out = python(
        code,
        VK_DRIVER_FILES=nothing,
        VK_ICD_FILENAMES=nothing,
        WGPU_BACKEND_TYPE="Vulkan",
        __EGL_VENDOR_LIBRARY_FILENAMES=nothing,
        WGBURN_DEVICE="",
    )
    assert out.returncode == 0, out.stderr
    best, info, error = out.stdout.splitlines()
    assert best == "cpu 2.0"
    assert info.startswith("False no WebGPU adapter was found")
    assert "no WebGPU adapter was found" in error
    assert "install" in error


def test_closing_a_device(spare, wgpu):
    t = wb.ones(3, device=spare)
    pending = t * 2
    wb.eval(t)
    spare.close()
    after = t + 1
    for read in (t.numpy, t.tolist, pending.numpy, after.numpy, t[0].item):
        with pytest.raises(wb.DeviceError, match=r"closed.*open it again"):
            read()
    with pytest.raises(wb.DeviceError, match="closed"):
        wb.zeros(2, device=spare)
    with pytest.raises(wb.DeviceError, match="closed"):
        wb.tensor([1.0], device=spare)
    with pytest.raises(wb.DeviceError, match="closed"):
        wb.rand(2, device=spare)
    spare.close()
    again = wb.Device.wgpu(power="low-power", limits="default")
    assert again != spare
    assert wb.ones(2, device=again).tolist() == [1, 1]
    assert wb.ones(2, device=wgpu).tolist() == [1, 1]
    del t, pending, after
    again.close()


def test_closing_the_cpu():
    own = wb.Device(CpuBackend())
    t = wb.ones(2, device=own)
    assert t.tolist() == [1, 1]
    own.close()
    with pytest.raises(wb.DeviceError, match="cpu is closed; open it again"):
        t.numpy()
    assert wb.ones(1, device=wb.Device.cpu()).item() == 1


def test_tensors_of_a_closed_device_move_nowhere(spare):
    t = wb.ones(3, device=spare)
    wb.eval(t)
    spare.close()
    with pytest.raises(wb.DeviceError, match="closed"):
        t.to(wb.Device.cpu())


def test_closing_frees_its_memory():
    dev = wb.Device.wgpu(power="low-power", limits="default")
    t = wb.ones(1 << 20, device=dev) + 1
    wb.eval(t)
    driver = dev.backend.driver
    dev.close()
    assert driver.stats.buffers_alive == 0
    del t
    dev.backend.memory()


def test_a_lost_device_says_so():
    dev = wb.Device.wgpu(power="low-power", limits="default")
    t = wb.ones(4, device=dev)
    wb.eval(t)
    dev.backend.driver.close()
    with pytest.raises(wb.DeviceError):
        t.numpy()
    again = wb.Device.wgpu(power="low-power", limits="default")
    assert (wb.ones(4, device=again) * 2).tolist() == [2] * 4
    again.close()
