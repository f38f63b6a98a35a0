"""The part of benchmarks/in_browser.py that runs in Pyodide. Owns: what is timed."""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Any

import numpy as np

from wgburn_runtime import browser
from wgburn_runtime.driver import PARAMS_ALIGN, PARAMS_USAGE, TENSOR_USAGE, ProgramSource

LAUNCHES = 1000
MEGABYTES = 16
BATCH = 64
STEPS = 7
STEP = """
struct Params {{ k: u32, step: u32, b: u32, c: u32 }}
@group(0) @binding(0) var<storage, read_write> z: array<u32>;
@group(0) @binding(1) var<uniform> p: Params;
@compute @workgroup_size(1)
fn main() {{ z[p.k] = p.step * {factor}u; }}
"""


def now() -> float:
    return time.perf_counter() * 1000


async def dispatches(driver: browser.BrowserDriver) -> dict[str, float]:
    """Issuing a plan of 1,000 launches: 10 programs and 10 bind groups, taking turns."""
    z = driver.create_buffer(4 * LAUNCHES, TENSOR_USAGE)
    params = driver.create_buffer(LAUNCHES * PARAMS_ALIGN, PARAMS_USAGE)
    programs = [
        ProgramSource(f"step{i}", STEP.format(factor=i + 1), "w", 16, (1, 1, 1)) for i in range(10)
    ]
    started = now()
    pipelines = await driver.create_pipelines(programs)
    compiled = now() - started
    binding = [(z, 0, 4 * LAUNCHES)]
    groups = [driver.create_bind_group("w", 16, binding, params) for _ in range(10)]
    commands = np.ones((LAUNCHES, 6), np.uint32)
    turn = np.arange(LAUNCHES) % 10
    commands[:, 0], commands[:, 1] = np.array(pipelines)[turn], np.array(groups)[turn]
    commands[:, 2] = np.arange(LAUNCHES) * PARAMS_ALIGN
    blocks = np.zeros((LAUNCHES, PARAMS_ALIGN // 4), np.uint32)
    blocks[:, 0] = np.arange(LAUNCHES)
    blocks[:, 1] = 7
    issue, done = [], []
    for turn_number in range(60):
        started = now()
        driver.submit(commands, (params, 0, memoryview(blocks)))
        issue.append(now() - started)
        await driver.wait()
        done.append(now() - started)
        if turn_number == 20:  # the JavaScript engine has compiled the loop by now
            issue.clear()
            done.clear()
    result = np.frombuffer(await driver.read_buffer(z, 0, 4 * LAUNCHES), np.uint32)
    assert (result == 7 * (turn + 1)).all()
    return {
        "ten programs compiled, ms": compiled,
        "issue a launch in a plan of 1,000, us": 1000 * median(issue) / LAUNCHES,
        "issue a launch, slowest of 39 plans, us": 1000 * max(issue) / LAUNCHES,
        "run a launch in a plan of 1,000, us": 1000 * median(done) / LAUNCHES,
    }


async def transfers(driver: browser.BrowserDriver) -> dict[str, float]:
    size = MEGABYTES << 20
    data = np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8)
    buffer = driver.create_buffer(size, TENSOR_USAGE)
    up, down, small = [], [], []
    for _ in range(7):
        started = now()
        driver.write_buffer(buffer, 0, memoryview(data))
        await driver.wait()
        up.append(now() - started)
        started = now()
        back = await driver.read_buffer(buffer, 0, size)
        down.append(now() - started)
        started = now()
        await driver.read_buffer(buffer, 0, 4)
        small.append(now() - started)
    assert back == data.tobytes()
    return {
        f"upload {MEGABYTES} MB, ms": median(up),
        f"download {MEGABYTES} MB, ms": median(down),
        "read 4 bytes, ms": median(small),
    }


async def runtime() -> str:
    """Everything that needs no tensor, as JSON."""
    started = now()
    driver = await browser.open_browser()
    figures: dict[str, Any] = {"another device, ms": now() - started}
    try:
        figures |= await dispatches(driver)
        figures |= await transfers(driver)
    finally:
        driver.close()
    return json.dumps(figures)


async def training() -> str:
    """Import, first device, and the seed CNN at batch 64, as JSON. Run before `runtime`."""
    started = now()
    import wgburn as wb

    figures: dict[str, Any] = {"import wgburn, ms": now() - started}
    started = now()
    device = await wb.Device.wgpu_async(limits="default")
    figures["first device, ms"] = now() - started
    from browser import seed_training

    trainer = seed_training.Trainer(device, 1e-3)
    driver = device.backend.driver
    batches = seed_training.batches(BATCH)
    steps, crossings = [], []
    for _ in range(STEPS):
        started, before = now(), driver.crossings
        data = next(batches)
        await trainer.step(*data)
        steps.append(now() - started)
        crossings.append(driver.crossings - before)
    figures["first training step, with compiling, s"] = steps[0] / 1000
    figures["second training step, with compiling, s"] = steps[1] / 1000
    figures["training step, s"] = median(steps[2:]) / 1000
    figures["digits a second"] = 1000 * BATCH / median(steps[2:])
    figures["crossings of a training step that reads the loss"] = max(crossings[2:])
    figures["programs"] = driver.stats.pipelines
    device.close()
    return json.dumps(figures)
