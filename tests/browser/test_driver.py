"""The driver contract on navigator.gpu, in a module worker. Runs inside Pyodide."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager

import numpy as np
import pytest

from wgburn_runtime import browser
from wgburn_runtime.driver import PARAMS_ALIGN, PARAMS_USAGE, TENSOR_USAGE, ProgramSource
from wgburn_runtime.errors import (
    DeviceLostError,
    DriverError,
    LimitError,
    ProgramError,
    SyncUnavailableError,
)

pytestmark = pytest.mark.browser

ADD = ProgramSource(
    "add",
    """
struct Params { n: u32, a: u32, b: u32, c: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < p.n) { z[id.x] = x[id.x] + y[id.x]; }
}
""",
    "rrw",
    16,
    (64, 1, 1),
)
#: z[k] = z[k - 1] + step, with k and step from the parameter block: order and offsets both show.
CHAIN = ProgramSource(
    "chain",
    """
struct Params { k: u32, step: u32, b: u32, c: u32 }
@group(0) @binding(0) var<storage, read_write> z: array<u32>;
@group(0) @binding(1) var<uniform> p: Params;
@compute @workgroup_size(1)
fn main() { z[p.k] = z[p.k - 1u] + p.step; }
""",
    "w",
    16,
    (1, 1, 1),
)


@asynccontextmanager
async def opened(**options):
    driver = await browser.open_browser(**options)
    try:
        yield driver
    finally:
        driver.close()


@contextmanager
def refused(kind, *words):
    with pytest.raises(kind) as caught:
        yield caught
    for word in words:
        assert word in str(caught.value)


def command(*row):
    return np.array([row], np.uint32)


def make(driver, data):
    data = np.ascontiguousarray(data)
    buffer = driver.create_buffer(data.nbytes, TENSOR_USAGE)
    driver.write_buffer(buffer, 0, memoryview(data))
    return buffer


async def read(driver, buffer, dtype, count):
    return np.frombuffer(await driver.read_buffer(buffer, 0, 4 * count), dtype)


async def add_setup(driver, n=1000):
    x, y = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)
    buffers = [make(driver, x), make(driver, y), driver.create_buffer(4 * n, TENSOR_USAGE)]
    params = driver.create_buffer(256, PARAMS_USAGE)
    group = driver.create_bind_group("rrw", 16, [(b, 0, 4 * n) for b in buffers], params)
    (pipeline,) = await driver.create_pipelines([ADD])
    block = np.array([n, 0, 0, 0], np.uint32)
    commands = command(pipeline, group, 0, -(-n // 64), 1, 1)
    return buffers, params, commands, block, x + y


async def test_enumerate_describes_the_adapter():
    (adapter, *_) = await browser.enumerate_browser()
    assert adapter.available and adapter.kind == "browser" and adapter.backend == "WebGPU"
    assert adapter.is_software  # the rig runs SwiftShader
    assert adapter.limits["maxStorageBuffersPerShaderStage"] >= 8


async def test_device_limits_follow_the_request():
    async with opened(limits="default") as small, opened(limits="adapter") as large:
        assert small.info.limits["maxStorageBufferBindingSize"] == 128 << 20
        assert small.info.limits["maxStorageBuffersPerShaderStage"] == 8
        assert large.info.limits["maxStorageBuffersPerShaderStage"] > 8


@pytest.mark.parametrize("size", [4, 4096, 65536, 65540, 3 << 20])
async def test_buffer_round_trip(size):
    data = np.random.default_rng(size).integers(0, 255, size, dtype=np.uint8)
    async with opened() as driver:
        buffer = make(driver, data)
        assert bytes(await driver.read_buffer(buffer, 0, size)) == data.tobytes()
        driver.write_buffer(buffer, size - 4, b"abcd")
        assert bytes(await driver.read_buffer(buffer, size - 4, 4)) == b"abcd"


async def test_buffers_start_as_zeros_and_copies_keep_their_order():
    async with opened() as driver:
        a, b = driver.create_buffer(64, TENSOR_USAGE), driver.create_buffer(64, TENSOR_USAGE)
        driver.write_buffer(a, 0, b"1111")
        driver.copy_buffer(a, 0, b, 8, 4)
        driver.write_buffer(a, 0, b"2222")
        driver.copy_buffer(a, 0, b, 12, 4)
        assert bytes(await driver.read_buffer(b, 0, 16)) == b"\0" * 8 + b"11112222"


async def test_vector_add():
    async with opened() as driver:
        (_, _, out), params, commands, block, expected = await add_setup(driver)
        driver.submit(commands, (params, 0, memoryview(block)))
        np.testing.assert_array_equal(await read(driver, out, np.float32, 1000), expected)


async def test_thousand_dispatches_in_one_submit_in_order():
    n = 1000
    async with opened() as driver:
        z = make(driver, np.full(n + 1, 7, np.uint32))
        params = driver.create_buffer(n * PARAMS_ALIGN, PARAMS_USAGE)
        group = driver.create_bind_group("w", 16, [(z, 0, 4 * (n + 1))], params)
        (pipeline,) = await driver.create_pipelines([CHAIN])
        blocks = np.zeros((n, PARAMS_ALIGN // 4), np.uint32)
        steps = np.random.default_rng(0).integers(1, 100, n).astype(np.uint32)
        blocks[:, 0] = np.arange(1, n + 1)
        blocks[:, 1] = steps
        commands = np.ones((n, 6), np.uint32)
        commands[:, 0], commands[:, 1] = pipeline, group
        commands[:, 2] = np.arange(n) * PARAMS_ALIGN
        await driver.wait()
        before = driver.crossings
        driver.submit(commands, (params, 0, memoryview(blocks)))
        assert driver.crossings - before == 1  # writes of parameters and all launches together
        expected = 7 + np.concatenate([[0], np.cumsum(steps)])
        np.testing.assert_array_equal(await read(driver, z, np.uint32, n + 1), expected)
        assert driver.stats.dispatches == n and driver.stats.submits == 1


async def test_many_bind_groups():
    async with opened() as driver:
        buffers, params, commands, block, expected = await add_setup(driver)
        bindings = [(buffer, 0, 4000) for buffer in buffers]
        for _ in range(3):
            groups = [driver.create_bind_group("rrw", 16, bindings, params) for _ in range(200)]
            plan = np.repeat(commands, len(groups), axis=0)
            plan[:, 1] = groups
            driver.submit(plan, (params, 0, memoryview(block)))
            result = await read(driver, buffers[2], np.float32, 1000)
            np.testing.assert_array_equal(result, expected)
            for group in groups:
                driver.destroy_bind_group(group)
        assert driver.stats.bind_groups_alive == driver.bridge_counts()["groups"] == 1


async def test_everything_queued_crosses_with_the_submit():
    async with opened() as driver:
        (_, _, out), params, commands, block, expected = await add_setup(driver)
        before = driver.crossings
        spare = make(driver, np.zeros(64, np.float32))
        driver.copy_buffer(out, 0, spare, 0, 256)
        driver.destroy_buffer(spare)
        assert driver.crossings == before
        driver.submit(commands, (params, 0, memoryview(block)))
        assert driver.crossings == before + 1
        np.testing.assert_array_equal(await read(driver, out, np.float32, 1000), expected)
        assert driver.crossings == before + 2


async def test_wgsl_error_names_program_and_line():
    bad = ADD._replace(name="broken_add", wgsl=ADD.wgsl.replace("y[id.x]", "nothing[id.x]"))
    async with opened() as driver:
        with refused(ProgramError, "broken_add", "line 9", "nothing"):
            await driver.create_pipelines([CHAIN, bad, ADD])
        assert driver.stats.pipelines == 0
        assert len(await driver.create_pipelines([CHAIN, ADD])) == 2  # the next call works


async def test_program_that_does_not_fit_its_layout_is_refused():
    async with opened() as driver:
        with refused(ProgramError, "'add'"):
            await driver.create_pipelines([ADD._replace(access="www")])
        with refused(ProgramError, "shader-f16"):
            await driver.create_pipelines([ADD._replace(features=frozenset({"shader-f16"}))])


async def test_limits_are_errors_that_name_the_limit():
    async with opened(limits="default") as driver:
        size = driver.info.limits["maxBufferSize"] + 4
        with refused(LimitError, "maxBufferSize", str(size)):
            driver.create_buffer(size, TENSOR_USAGE)
        binding = driver.info.limits["maxStorageBufferBindingSize"]
        big = driver.create_buffer(binding + 256, TENSOR_USAGE)
        with refused(LimitError, "maxStorageBufferBindingSize"):
            driver.create_bind_group("w", 0, [(big, 0, binding + 256)], 0)
        driver.destroy_buffer(big)
        _, _, commands, _, _ = await add_setup(driver)
        commands[0, 3] = 70000
        with refused(LimitError, "'add'", "70000", "maxComputeWorkgroupsPerDimension"):
            driver.submit(commands)
        assert driver.stats.submits == 0


async def test_faults_of_a_plan_are_found_before_it_is_sent():
    async with opened() as driver:
        buffers, params, commands, block, expected = await add_setup(driver)
        (chain,) = await driver.create_pipelines([CHAIN])
        plan = np.concatenate([commands, commands])
        for column, value, words in (
            (0, 99, ("launch 1", "pipeline 99")),
            (0, 0xFFFFFFFF, ("launch 1", "pipeline 4294967295")),
            (1, 0xFFFFFFFF, ("launch 1", "bind group 4294967295")),
            (1, 99, ("launch 1", "'add'", "bind group 99")),
            (0, chain, ("launch 1", "'chain'", "'rrw'")),
            (2, 128, ("'add'", "params_offset 128")),
            (2, 256, ("'add'", "256..272")),
        ):
            faulty = plan.copy()
            faulty[1, column] = value
            with refused(DriverError, *words):
                driver.submit(faulty, (params, 0, memoryview(block)))
        with refused(DriverError, "aliasing"):
            driver.create_bind_group("ww", 0, [(buffers[0], 0, 512), (buffers[0], 256, 512)], 0)
        driver.submit(plan, (params, 0, memoryview(block)))
        result = await read(driver, buffers[2], np.float32, 1000)
        np.testing.assert_array_equal(result, expected)
        driver.destroy_buffer(buffers[1])
        with refused(DriverError, "'add'", "was destroyed"):
            driver.submit(plan)


async def test_what_only_the_browser_finds_out_names_the_program():
    """A binding smaller than the program's array type: legal until the dispatch is encoded."""
    wide = ADD._replace(name="wide", wgsl=ADD.wgsl.replace("array<f32>", "array<f32, 512>"))
    async with opened() as driver:
        (pipeline,) = await driver.create_pipelines([wide])
        buffers = [driver.create_buffer(256, TENSOR_USAGE) for _ in range(3)]
        params = driver.create_buffer(256, PARAMS_USAGE)
        group = driver.create_bind_group("rrw", 16, [(b, 0, 256) for b in buffers], params)
        driver.submit(command(pipeline, group, 0, 1, 1, 1))
        with refused(DriverError, "'wide'", "launch 0"):
            await driver.wait()
        await driver.wait()  # told once; the driver goes on
        assert len(await driver.read_buffer(buffers[2], 0, 256)) == 256


async def test_destroyed_device_is_reported_and_does_not_hang():
    async with opened() as driver:
        _, params, commands, block, _ = await add_setup(driver)
        driver.submit(commands, (params, 0, memoryview(block)))
        driver._bridge.device.destroy()
        with refused(DeviceLostError, "destroyed", "open a new device"):
            await driver.wait()
        assert "destroyed" in driver.lost
        with refused(DeviceLostError, "lost"):
            driver.submit(commands)
    async with opened() as again:
        assert len(await again.read_buffer(again.create_buffer(16, TENSOR_USAGE), 0, 16)) == 16


async def test_read_under_way_when_the_device_goes_raises():
    import asyncio

    async with opened() as driver:
        buffer = driver.create_buffer(1 << 20, TENSOR_USAGE)
        reading = asyncio.ensure_future(driver.read_buffer(buffer, 0, 1 << 20))
        await asyncio.sleep(0)
        driver._bridge.device.destroy()
        with refused(DeviceLostError, "destroyed"):
            await asyncio.wait_for(reading, 10)


async def test_two_devices_at_once():
    async with opened() as one, opened() as two:
        first, second = make(one, np.full(4, 1, np.int32)), make(two, np.full(4, 2, np.int32))
        assert (await read(one, first, np.int32, 4)).tolist() == [1] * 4
        one.close()
        assert (await read(two, second, np.int32, 4)).tolist() == [2] * 4
        with refused(DeviceLostError, "closed"):
            one.create_buffer(4, TENSOR_USAGE)
        one.close()  # twice is harmless


def test_sync_calls_work_under_stack_switching():
    driver = browser.run_sync(browser.open_browser())
    try:
        buffer = make(driver, np.arange(8, dtype=np.int32))
        data = driver.run_sync(driver.read_buffer(buffer, 0, 32))
        assert np.frombuffer(data, np.int32).tolist() == list(range(8))
    finally:
        driver.close()


async def test_sync_call_in_a_callback_names_the_async_one():
    from pyodide.code import run_js

    async with opened() as driver:
        buffer = make(driver, np.arange(8, dtype=np.int32))

        def callback():
            with refused(SyncUnavailableError, "wgpu_async()", "numpy_async()", "eval_async("):
                driver.run_sync(driver.read_buffer(buffer, 0, 32))

        run_js("(f) => f()")(callback)  # JavaScript in the middle of the stack
        assert len(driver.run_sync(driver.read_buffer(buffer, 0, 32))) == 32


async def test_destroyed_things_are_gone_on_both_sides():
    async with opened() as driver:
        buffers, params, commands, block, _ = await add_setup(driver)
        for _ in range(30):
            driver.submit(commands, (params, 0, memoryview(block)))
            await driver.read_buffer(buffers[2], 0, 4000)
        counts = driver.bridge_counts()
        assert counts["buffers"] == driver.stats.buffers_alive == 4
        assert counts["staging"] <= 2 and counts["pending"] <= 3
        driver.destroy_bind_group(int(commands[0, 1]))
        driver.destroy_pipeline(int(commands[0, 0]))
        for buffer in (*buffers, params):
            driver.destroy_buffer(buffer)
        counts = driver.bridge_counts()
        assert (counts["buffers"], counts["groups"], counts["pipelines"]) == (0, 0, 0)
        # Only what reads go through is left, 4 KiB a buffer.
        assert driver.stats.bytes_alive == counts["staging"] << 12
