"""Devices and tiny programs for the runtime's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from wgburn_runtime.adapters import open_native
from wgburn_runtime.driver import Driver, ProgramSource
from wgburn_runtime.fake import FakeDriver, MirrorDriver, drive

_HEADER = """
struct Params { n: u32, scale: f32, pad0: u32, pad1: u32 };
"""

#: Operands are bound read_write: values share pages, and a page has one mode in a dispatch.
ADD = ProgramSource(
    name="add",
    wgsl=_HEADER
    + """
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < p.n) { c[id.x] = a[id.x] + p.scale * b[id.x]; }
}
""",
    access="www",
    params_bytes=16,
    workgroup=(64, 1, 1),
)

#: x = x * scale + 1, in place: the order of dispatches and their parameters show in the result.
STEP = ProgramSource(
    name="step",
    wgsl=_HEADER
    + """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < p.n) { x[id.x] = x[id.x] * p.scale + 1.0; }
}
""",
    access="w",
    params_bytes=16,
    workgroup=(64, 1, 1),
)

#: No parameters: x += 1.
INCREMENT = ProgramSource(
    name="increment",
    wgsl="""
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] += 1u; }
""",
    access="w",
    params_bytes=0,
    workgroup=(64, 1, 1),
)


def open_device(limits: str = "default") -> Driver:
    return drive(open_native(0, limits=limits))


@pytest.fixture
def native() -> Iterator[Driver]:
    driver = open_device()
    yield driver
    driver.close()


@pytest.fixture
def fake() -> FakeDriver:
    return FakeDriver()


@pytest.fixture(params=["fake", "mirror"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A browser's rules alone, and the same rules in front of a GPU."""
    made: Driver = FakeDriver() if request.param == "fake" else MirrorDriver(open_device())
    yield made
    made.close()


@pytest.fixture
def mirror() -> Iterator[MirrorDriver]:
    made = MirrorDriver(open_device())
    yield made
    made.close()


@pytest.fixture
def programs() -> dict[str, ProgramSource]:
    return {"add": ADD, "step": STEP, "increment": INCREMENT}


@pytest.fixture
def reopen() -> Callable[..., Driver]:
    return open_device
