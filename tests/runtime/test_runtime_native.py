"""The native driver: results, and every kind of error raises instead of ending the process."""

from __future__ import annotations

import asyncio
import gc
import resource
import struct
import threading
from collections.abc import Callable

import numpy as np
import pytest

from wgburn_runtime.driver import (
    MAP_READ,
    PARAMS_USAGE,
    STORAGE,
    TENSOR_USAGE,
    Driver,
    ProgramSource,
)
from wgburn_runtime.errors import (
    DeviceLostError,
    DriverError,
    LimitError,
    OutOfMemoryError,
    ProgramError,
)
from wgburn_runtime.native import driver as native_driver
from wgburn_runtime.native.driver import MAX_IN_FLIGHT, MAX_PENDING_WRITES, READ_PIECE

N = 1000


def block(n: int, scale: float) -> bytes:
    return struct.pack("<IfII", n, scale, 0, 0).ljust(256, b"\0")


def compiled(driver: Driver, program: ProgramSource) -> int:
    return driver.run_sync(driver.create_pipelines([program]))[0]


def rows(*items: tuple[int, int, int, int]) -> np.ndarray:
    return np.array([(*item, 1, 1) for item in items], np.uint32)


class Step:
    """x = x * scale + 1 on 1000 floats, ready to run."""

    def __init__(self, driver: Driver, program: ProgramSource, blocks: int = 4) -> None:
        self.driver = driver
        self.pipeline = compiled(driver, program)
        self.x = driver.create_buffer(N * 4, TENSOR_USAGE)
        self.params = driver.create_buffer(blocks * 256, PARAMS_USAGE)
        self.group = driver.create_bind_group("w", 16, [(self.x, 0, N * 4)], self.params)

    def run(self, offset: int = 0, grid: int = 16, **params: object) -> None:
        self.driver.submit(rows((self.pipeline, self.group, offset, grid)), **params)

    def read(self) -> np.ndarray:
        return np.frombuffer(self.driver.run_sync(self.driver.read_buffer(self.x, 0, N * 4)), "f4")


@pytest.fixture
def step(native: Driver, programs: dict[str, ProgramSource]) -> Step:
    return Step(native, programs["step"])


def test_vector_add(native: Driver, programs: dict[str, ProgramSource]) -> None:
    a, b = np.arange(N, dtype="f4"), np.linspace(-1, 1, N, dtype="f4")
    buffers = [native.create_buffer(N * 4, TENSOR_USAGE) for _ in range(3)]
    params = native.create_buffer(256, PARAMS_USAGE)
    native.write_buffer(buffers[0], 0, a.data)
    native.write_buffer(buffers[1], 0, b.tobytes())
    group = native.create_bind_group(
        programs["add"].access, 16, [(x, 0, N * 4) for x in buffers], params
    )
    pipeline = compiled(native, programs["add"])
    native.submit(rows((pipeline, group, 0, 16)), (params, 0, block(N, 3.0)))
    out = np.frombuffer(native.run_sync(native.read_buffer(buffers[2], 0, N * 4)), "f4")
    np.testing.assert_array_equal(out, a + np.float32(3) * b)


def test_a_thousand_dispatches_in_order_each_with_its_parameters(step: Step) -> None:
    step.driver.destroy_bind_group(step.group)
    params = step.driver.create_buffer(1000 * 256, PARAMS_USAGE)
    group = step.driver.create_bind_group("w", 16, [(step.x, 0, N * 4)], params)
    scales = [np.float32(0.5 + (i % 7) / 8) for i in range(1000)]
    commands = rows(*[(step.pipeline, group, i * 256, 16) for i in range(1000)])
    step.driver.submit(commands, (params, 0, b"".join(block(N, s) for s in scales)))
    expected = np.float32(0)
    for scale in scales:
        expected = expected * scale + np.float32(1)
    np.testing.assert_allclose(step.read(), np.full(N, expected), rtol=1e-6)
    assert step.driver.stats.dispatches == 1000


def test_writes_between_submits_keep_their_order(step: Step) -> None:
    for scale in (1.0, 10.0, 100.0):
        step.run(params=(step.params, 0, block(N, scale)))
    np.testing.assert_array_equal(step.read(), np.full(N, 1 * 10 * 100 + 100 + 1, "f4"))


def test_copies_zero_fill_and_partial_reads(native: Driver) -> None:
    a, b = (native.create_buffer(1024, TENSOR_USAGE) for _ in range(2))
    native.write_buffer(a, 512, bytes(range(16)))
    native.copy_buffer(a, 512, b, 4, 16)
    assert native.run_sync(native.read_buffer(b, 0, 24)) == bytes(4) + bytes(range(16)) + bytes(4)
    assert native.run_sync(native.read_buffer(b, 1020, 4)) == bytes(4)
    assert native.run_sync(native.read_buffer(b, 0, 0)) == b""


def test_a_read_larger_than_one_piece(native: Driver) -> None:
    size = READ_PIECE + 4096
    buffer = native.create_buffer(size, TENSOR_USAGE)
    data = np.arange(size // 4, dtype="u4")
    native.write_buffer(buffer, 0, data.data.cast("B"))
    back = np.frombuffer(native.run_sync(native.read_buffer(buffer, 0, size)), "u4")
    assert np.array_equal(back, data)


def test_no_commands_only_writes(step: Step) -> None:
    step.driver.submit(np.zeros((0, 6), np.uint32), (step.params, 0, block(N, 2.0)))
    step.run()
    np.testing.assert_array_equal(step.read(), np.ones(N, "f4"))


# -- every kind of error: raised, named, nothing submitted, the device still works ---


def assert_usable(step: Step) -> None:
    before = step.driver.stats.submits
    step.run(params=(step.params, 0, block(N, 0.0)))
    np.testing.assert_array_equal(step.read(), np.ones(N, "f4"))
    assert step.driver.stats.submits == before + 2  # the dispatch and the read


@pytest.mark.parametrize(
    "offset, grid, error, complaint",
    [
        (0, 65536, LimitError, "'step', grid .* 65536 is over .*WorkgroupsPerDimension of 65535"),
        (16, 1, DriverError, "'step': params_offset 16 must be a multiple of 256"),
        (1024, 1, DriverError, "'step': parameters at 1024..1040 of a uniform buffer of 1024"),
    ],
)
def test_bad_dispatches(
    step: Step, offset: int, grid: int, error: type[Exception], complaint: str
) -> None:
    good = (step.pipeline, step.group, 0, 16)
    with pytest.raises(error, match=complaint):
        step.driver.submit(rows(good, (step.pipeline, step.group, offset, grid), good))
    assert step.driver.stats.submits == 0
    assert_usable(step)


def test_unknown_and_foreign_handles(step: Step, programs: dict[str, ProgramSource]) -> None:
    driver = step.driver
    plain = driver.create_bind_group("w", 0, [(step.x, 0, N * 4)], 0)
    for item, complaint in [
        ((999, step.group, 0, 1), "no pipeline 999"),
        ((step.pipeline, 999, 0, 1), "'step': no bind group 999"),
        ((step.pipeline, plain, 0, 1), "'step': needs access='w' params_bytes=16"),
    ]:
        with pytest.raises(DriverError, match=complaint):
            driver.submit(rows(item))
    with pytest.raises(DriverError, match="no buffer 999"):
        driver.create_bind_group("w", 0, [(999, 0, 4)], 0)
    with pytest.raises(DriverError, match="no buffer 999"):
        driver.write_buffer(999, 0, bytes(4))
    with pytest.raises(DriverError, match="no buffer 999"):
        driver.submit(rows((step.pipeline, step.group, 0, 1)), (999, 0, bytes(256)))
    for destroy in (driver.destroy_buffer, driver.destroy_pipeline, driver.destroy_bind_group):
        with pytest.raises(DriverError, match="999"):
            destroy(999)
    assert_usable(step)


def test_what_only_wgpu_itself_finds_names_the_program(step: Step) -> None:
    """One buffer read and written in a dispatch: no host check, so wgpu's encoder has to tell."""
    driver = step.driver
    wgsl = """
    @group(0) @binding(0) var<storage, read> a: array<f32>;
    @group(0) @binding(1) var<storage, read_write> b: array<f32>;
    @compute @workgroup_size(1) fn main() { b[0] = a[0]; }
    """
    pipeline = compiled(driver, ProgramSource("conflicted", wgsl, "rw", 0, (1, 1, 1)))
    group = driver.create_bind_group("rw", 0, [(step.x, 0, 256), (step.x, 256, 256)], 0)
    good = (step.pipeline, step.group, 0, 16)
    with pytest.raises(DriverError, match=r"(?s)dispatch 1, program 'conflicted'.*usage"):
        driver.submit(rows(good, (pipeline, group, 0, 1)))
    assert driver.stats.submits == 0
    assert_usable(step)


def test_destroyed_buffers_never_reach_a_submit(step: Step) -> None:
    driver = step.driver
    other = driver.create_buffer(N * 4, TENSOR_USAGE)
    group = driver.create_bind_group("w", 16, [(other, 0, N * 4)], step.params)
    driver.write_buffer(other, 0, bytes(64))  # still waiting for a submit when its target goes
    driver.destroy_buffer(other)
    with pytest.raises(DriverError, match=r"'step': buffer .* was destroyed"):
        driver.submit(rows((step.pipeline, group, 0, 1)))
    with pytest.raises(DriverError, match="no buffer"):
        driver.run_sync(driver.read_buffer(other, 0, 4))
    driver.destroy_bind_group(group)
    assert_usable(step)


def test_a_buffer_destroyed_while_the_gpu_may_still_use_it(step: Step) -> None:
    driver = step.driver
    for _ in range(5):
        other = driver.create_buffer(N * 4, TENSOR_USAGE)
        group = driver.create_bind_group("w", 16, [(other, 0, N * 4)], step.params)
        driver.submit(rows((step.pipeline, group, 0, 16)), (step.params, 0, block(N, 1.0)))
        driver.copy_buffer(other, 0, step.x, 0, N * 4)
        driver.destroy_buffer(other)
        driver.destroy_bind_group(group)
    np.testing.assert_array_equal(step.read(), np.ones(N, "f4"))
    assert driver.stats.buffers_alive == 2


def test_bad_buffers_and_copies(native: Driver) -> None:
    with pytest.raises(LimitError, match="maxBufferSize of 268435456"):
        native.create_buffer((256 << 20) + 4, TENSOR_USAGE)
    with pytest.raises(DriverError, match="multiple of 4"):
        native.create_buffer(6, TENSOR_USAGE)
    with pytest.raises(DriverError, match="no set of buffer usages"):
        native.create_buffer(256, 1 << 30)  # wgpu-native would abort
    with pytest.raises(DriverError, match="can't also be mapped"):
        native.create_buffer(256, TENSOR_USAGE | MAP_READ)
    big = native.create_buffer(256 << 20, TENSOR_USAGE)
    with pytest.raises(LimitError, match="maxStorageBufferBindingSize of 134217728"):
        native.create_bind_group("r", 0, [(big, 0, 256 << 20)], 0)
    native.destroy_buffer(big)
    a = native.create_buffer(256, TENSOR_USAGE)
    write_only = native.create_buffer(256, STORAGE)
    for call in (
        lambda: native.write_buffer(a, 2, bytes(4)),
        lambda: native.write_buffer(a, 252, bytes(8)),
        lambda: native.write_buffer(write_only, 0, bytes(4)),
        lambda: native.copy_buffer(a, 0, a, 128, 4),
        lambda: native.copy_buffer(a, 0, write_only, 0, 4),
        lambda: native.run_sync(native.read_buffer(a, 0, 260)),
        lambda: native.run_sync(native.read_buffer(write_only, 0, 4)),
        lambda: native.create_bind_group("r", 0, [(a, 128, 64)], 0),
        lambda: native.create_bind_group("rr", 0, [(a, 0, 256)], 0),
        lambda: native.create_bind_group("x", 0, [(a, 0, 256)], 0),
        lambda: native.create_bind_group("r", 16, [(a, 0, 256)], a),
    ):
        with pytest.raises(DriverError):
            call()
    with pytest.raises(LimitError, match="maxStorageBuffersPerShaderStage of 8"):
        native.create_bind_group("r" * 9, 0, [(a, 0, 256)] * 9, 0)
    native.write_buffer(a, 0, b"fine")
    assert native.run_sync(native.read_buffer(a, 0, 4)) == b"fine"


def test_program_errors_name_program_message_and_line(
    native: Driver, programs: dict[str, ProgramSource]
) -> None:
    good = programs["step"]
    bad = good._replace(name="typo", wgsl=good.wgsl.replace("p.scale", "p.scael"))
    with pytest.raises(ProgramError) as caught:
        native.run_sync(native.create_pipelines([good, bad, good._replace(name="again")]))
    text = str(caught.value)
    assert "'typo'" in text and "scael" in text
    assert "line 8: `if (id.x < p.n) { x[id.x] = x[id.x] * p.scael + 1.0; }`" in text
    assert native.stats.pipelines == 0
    small = good._replace(name="claims", params_bytes=0)
    with pytest.raises(ProgramError, match="claims"):
        native.run_sync(native.create_pipelines([small]))
    nowhere = good._replace(name="nowhere", wgsl=good.wgsl.replace("main", "other"))
    with pytest.raises(ProgramError, match="nowhere"):
        native.run_sync(native.create_pipelines([nowhere]))
    with pytest.raises(LimitError, match="maxComputeInvocationsPerWorkgroup of 256"):
        native.run_sync(native.create_pipelines([good._replace(workgroup=(32, 32, 1))]))
    assert len(native.run_sync(native.create_pipelines([good] * 3))) == 3


def test_standard_subgroup_and_f16_texts_compile(native: Driver) -> None:
    wanted = {"subgroups", "shader-f16"}
    if not wanted <= native.info.features:
        pytest.skip(f"{native.info.name} has only {sorted(native.info.features)}")
    wgsl = """enable f16, subgroups;
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        x[id.x] = subgroupAdd(f32(f16(x[id.x]))); }"""
    for text in (wgsl, wgsl.replace("f16, subgroups;", "subgroups; enable f16;")):
        compiled(native, ProgramSource("both", text, "w", 0, (8, 1, 1), frozenset(wanted)))


# -- life of a device ---


def test_three_thousand_submits_without_a_read_hold_memory(step: Step) -> None:
    blocks = block(N, 1.0)

    def submit(times: int) -> None:
        for _ in range(times):
            step.run(params=(step.params, 0, blocks))

    submit(200)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    submit(2800)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(step.driver._in_flight) <= MAX_IN_FLIGHT
    assert grown < 16 << 10, f"{grown} KiB more after 2800 submits"
    np.testing.assert_array_equal(step.read(), np.full(N, 3000, "f4"))


def test_writes_without_a_submit_hold_memory(native: Driver) -> None:
    buffer = native.create_buffer(16 << 20, TENSOR_USAGE)
    data = bytes(16 << 20)
    for _ in range(MAX_PENDING_WRITES // len(data) + 2):
        native.write_buffer(buffer, 0, data)
    assert native.stats.submits == 1


def test_a_submit_whose_parameters_pass_the_bound_on_writes(step: Step) -> None:
    driver = step.driver
    buffer = driver.create_buffer(MAX_PENDING_WRITES, TENSOR_USAGE)
    driver.write_buffer(buffer, 0, bytes(MAX_PENDING_WRITES))
    assert driver.stats.submits == 0
    step.run(params=(step.params, 0, block(N, 1.0)))
    np.testing.assert_array_equal(step.read(), np.ones(N, "f4"))


def test_wait_and_async_face(step: Step) -> None:
    async def work() -> bytearray:
        handles = await step.driver.create_pipelines([])
        assert handles == []
        step.run(params=(step.params, 0, block(N, 1.0)))
        await step.driver.wait()
        # Inside a running loop the blocking face works as well: nothing here ever suspends.
        step.driver.run_sync(step.driver.wait())
        return await step.driver.read_buffer(step.x, 0, 4)

    assert asyncio.run(work()) == struct.pack("<f", 1.0)

    async def suspends() -> None:
        await asyncio.sleep(0)

    with pytest.raises(DriverError, match="waited for something else"):
        step.driver.run_sync(suspends())


def test_close_twice_and_use_after(reopen: Callable[..., Driver]) -> None:
    driver = reopen()
    buffer = driver.create_buffer(256, TENSOR_USAGE)
    group = driver.create_bind_group("w", 0, [(buffer, 0, 256)], 0)
    driver.write_buffer(buffer, 0, bytes(4))
    driver.close()
    driver.close()
    assert driver.lost == "closed"
    driver.destroy_bind_group(group)  # late destructors are harmless
    driver.destroy_buffer(buffer)
    for call in (
        lambda: driver.create_buffer(256, TENSOR_USAGE),
        lambda: driver.write_buffer(buffer, 0, bytes(4)),
        lambda: driver.run_sync(driver.wait()),
        lambda: driver.submit(np.zeros((0, 6), np.uint32)),
    ):
        with pytest.raises(DeviceLostError, match="closed"):
            call()


class OutOfMemoryFor:
    """wgpu's library with a device that has no room for the first few buffers."""

    def __init__(self, driver: Driver, failures: int) -> None:
        self.failures = failures
        self.driver = driver
        self.real = native_driver.lib

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def wgpuDeviceCreateBuffer(self, device: object, struct: object) -> object:
        pointer = self.real.wgpuDeviceCreateBuffer(device, struct)
        if self.failures:
            self.failures -= 1
            report = (self.real.WGPUErrorType_OutOfMemory, "Not enough memory left.")
            self.driver._sink.errors[threading.get_ident()] = [report]
        return pointer


@pytest.mark.parametrize("failures", [1, 2])
def test_out_of_memory_is_tried_again_and_then_named(
    native: Driver, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(native_driver, "lib", OutOfMemoryFor(native, failures))
    if failures == 2:
        with pytest.raises(OutOfMemoryError, match="buffer of 1024 bytes: Not enough memory"):
            native.create_buffer(1024, TENSOR_USAGE)
        assert native.stats.bytes_alive == 0
    assert native.create_buffer(1024, TENSOR_USAGE)
    assert native.stats.bytes_alive == 1024


@pytest.mark.parametrize("first", ["submit", "write", "read", "flush", "create", "compile"])
def test_a_lost_device_is_reported_not_fatal(
    step: Step, programs: dict[str, ProgramSource], first: str
) -> None:
    from wgpu.backends.wgpu_native import lib

    driver = step.driver
    driver.write_buffer(step.x, 0, bytes(4))
    lib.wgpuDeviceDestroy(driver._device)  # the nearest thing to pulling the card
    calls: dict[str, Callable[[], object]] = {
        "submit": step.run,
        "write": lambda: driver.write_buffer(step.x, 0, bytes(4)),
        "read": step.read,
        "flush": lambda: driver.run_sync(driver.wait()),
        "create": lambda: driver.create_buffer(256, TENSOR_USAGE),
        "compile": lambda: compiled(driver, programs["add"]),
    }
    with pytest.raises(DeviceLostError, match="lost"):
        calls[first]()
    assert driver.lost
    with pytest.raises(DeviceLostError, match="open a new one"):
        step.run()


def test_dropped_drivers_close_themselves(reopen: Callable[..., Driver]) -> None:
    for _ in range(3):
        reopen().create_buffer(1024, TENSOR_USAGE)
    gc.collect()


def test_limits_asked_for(reopen: Callable[..., Driver]) -> None:
    spec, all_of_it = reopen(), reopen("adapter")
    assert spec.info.limits["maxStorageBuffersPerShaderStage"] == 8
    assert spec.info.limits["minStorageBufferOffsetAlignment"] == 256
    assert spec.info.limits["maxBufferSize"] == 256 << 20
    for name, value in all_of_it.info.limits.items():
        assert (
            value <= spec.info.limits[name]
            if name.startswith("min")
            else (value >= spec.info.limits[name])
        )
    assert spec.info.features == all_of_it.info.features
    with pytest.raises(DriverError, match='use "default" or "adapter"'):
        reopen("everything")
    spec.close()
    all_of_it.close()
