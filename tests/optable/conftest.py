"""Devices of the op-table test.

The wgpu device stands behind the runtime's MirrorDriver, so that what WebGPU's rules refuse fails
here as it would in a browser.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import wgburn as wb


@pytest.fixture(scope="session")
def mirrored(request: pytest.FixtureRequest) -> Iterator[wb.Device]:
    """A WebGPU device with default limits whose every call is checked against the specification."""
    if sys.platform == "emscripten":
        yield request.getfixturevalue("wgpu")
        return
    import conftest

    if conftest.NO_GPU:
        pytest.skip("WGBURN_TEST_NO_GPU is set")
    from wgburn.device.wgpu import WgpuBackend
    from wgburn_runtime.drivers import open_driver, run_sync
    from wgburn_runtime.fake import FakeDriver, MirrorDriver

    real = run_sync(open_driver(limits="default"))
    driver = MirrorDriver(real, FakeDriver(real.info.limits, real.info.features))
    device = wb.Device(WgpuBackend(driver, "wgpu:test"))
    yield device
    device.close()


@pytest.fixture
def op_device(request: pytest.FixtureRequest) -> wb.Device:
    """The device named by the test's parameter."""
    return request.getfixturevalue("cpu" if request.param == "cpu" else "mirrored")
