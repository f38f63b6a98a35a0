"""What a dispatch, a bind group and a submit cost on the host.

python benchmarks/launch.py [--device fake|native] [--dispatches 1000] [--repeats 20] [--json]

Times are the best of several repeats, because other work on the machine only ever adds. The kernel
is one tiny workgroup, and the GPU is waited for outside the timed part, so that the figures are
the host's alone; on a software adapter its threads still compete for the cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from wgburn_runtime.adapters import open_native
from wgburn_runtime.driver import TENSOR_USAGE, Driver, ProgramSource
from wgburn_runtime.fake import FakeDriver, drive
from wgburn_runtime.queue import Launch, LaunchList, Queue

KERNEL = ProgramSource(
    name="nothing",
    wgsl="""
struct Params { n: u32, a: u32, b: u32, c: u32 };
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;
@compute @workgroup_size(1)
fn main() { if (p.n > 0u) { y[0] = x[0]; } }
""",
    access="ww",
    params_bytes=16,
    workgroup=(1, 1, 1),
)


def best(repeats: int, driver: Driver, work: Callable[[], object]) -> float:
    """Microseconds of the fastest run."""
    times = []
    for _ in range(repeats):
        drive(driver.wait())
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def measure(driver: Driver, count: int, repeats: int) -> dict[str, float]:
    queue = Queue(driver)
    slots = [queue.alloc(1024) for _ in range(64)]
    launches = tuple(Launch(0, (i % 63, i % 63 + 1), (1, 1, 1), 256 * i) for i in range(count))
    many = drive(queue.prepare(LaunchList((KERNEL,), launches, 256 * count, "many")))
    one = drive(queue.prepare(LaunchList((KERNEL,), launches[:1], 256, "one")))
    params, block = bytes(256 * count), bytes(256)
    queue.execute(many, slots, params)
    queue.execute(one, slots, block)
    driver_only = many.tables[tuple(slot.place for slot in slots)].commands
    uniform = driver.create_buffer(256, 0x48)
    buffers = [driver.create_buffer(256, TENSOR_USAGE) for _ in range(2)]
    storage = [(buffer, 0, 256) for buffer in buffers]

    def bind_groups() -> None:
        for _ in range(100):
            driver.destroy_bind_group(driver.create_bind_group("ww", 16, storage, uniform))

    execute_many = best(repeats, driver, lambda: queue.execute(many, slots, params))
    execute_one = best(repeats * 5, driver, lambda: queue.execute(one, slots, block))
    submit = best(repeats, driver, lambda: driver.submit(driver_only))
    empty = best(repeats * 5, driver, lambda: driver.submit(np.zeros((0, 6), np.uint32)))
    return {
        "execute_us": execute_many,
        "execute_us_per_dispatch": execute_many / count,
        "execute_one_us": execute_one,
        "submit_us": submit,
        "submit_us_per_dispatch": (submit - empty) / count,
        "empty_submit_us": empty,
        "bind_group_us": best(repeats, driver, bind_groups) / 100,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["fake", "native", "both"], default="both")
    parser.add_argument("--dispatches", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for kind in ("fake", "native"):
        if options.device not in (kind, "both"):
            continue
        driver: Driver = FakeDriver() if kind == "fake" else drive(open_native())
        results[f"{kind}: {driver.info.name}"] = measure(
            driver, options.dispatches, options.repeats
        )
        driver.close()
    if options.json:
        print(json.dumps(results, indent=1))
        return 0
    for name, figures in results.items():
        print(f"{name}, {options.dispatches} dispatches a submit")
        for figure, value in figures.items():
            print(f"  {figure:28} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
