"""Fixtures of every test: the devices.

Without a WebGPU adapter the tests that need one fail; WGBURN_TEST_NO_GPU=1 leaves them out instead.
"""

import gc
import os

import pytest

NO_GPU = os.environ.get("WGBURN_TEST_NO_GPU", "0") not in ("", "0")


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="1,000 random graphs instead of 150")


def pytest_collection_finish():
    """Tests that collect garbage walk what they made, not the suite and its libraries."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def settings_of_the_tests():
    """Tests see default settings, not those of the developer's wgburn.toml or variables."""
    kept = {
        name: os.environ.pop(name)
        for name in list(os.environ)
        if name.startswith("WGBURN_") and not name.startswith("WGBURN_TEST_")
    }
    # Drivers complain on stderr without it.
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
    yield
    os.environ.update(kept)


@pytest.fixture(scope="session")
def cpu():
    """The numpy device."""
    import wgburn as wb

    return wb.Device.cpu()


@pytest.fixture(scope="session")
def wgpu():
    """A WebGPU device, software ones too, with the limits that a browser gives."""
    if NO_GPU:
        pytest.skip("WGBURN_TEST_NO_GPU is set")
    import wgburn as wb

    return wb.Device.wgpu(limits="default")


@pytest.fixture(params=["cpu", "wgpu"])
def device(request):
    """Each device in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def fresh(wgpu):
    """A WebGPU device of its own, whose peaks are those of the test."""
    import wgburn as wb

    device = wb.Device.wgpu(power="low-power", limits="default")
    yield device
    gc.collect()
    device.close()


@pytest.fixture
def rules():
    """A WebGPU device on which nothing runs."""
    from wgburn.device.device import Device
    from wgburn.device.wgpu import WgpuBackend
    from wgburn_runtime.fake import FakeDriver

    device = Device(WgpuBackend(FakeDriver(), "rules"))
    yield device
    gc.collect()
    device.close()


def pytest_terminal_summary(terminalreporter):
    """One line a device on what the op-table test ran, in browsers too."""
    found = [
        value
        for group in terminalreporter.stats.values()
        for report in group
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == "optable"
    ]
    if found:
        from optable.runner import summary

        for line in summary(found):
            terminalreporter.write_line(line)
