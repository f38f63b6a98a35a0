"""What a browser refuses, the fake driver refuses, and says why."""

from __future__ import annotations

import numpy as np
import pytest

from wgburn_runtime.driver import (
    COPY_DST,
    COPY_SRC,
    PARAMS_USAGE,
    STORAGE,
    TENSOR_USAGE,
    ProgramSource,
)
from wgburn_runtime.errors import (
    DeviceLostError,
    DriverError,
    LimitError,
    OutOfMemoryError,
    ProgramError,
)
from wgburn_runtime.fake import FakeDriver

pytestmark = pytest.mark.quick
COMMAND = np.zeros((1, 6), np.uint32)


def compiled(fake: FakeDriver, program: ProgramSource) -> int:
    return fake.run_sync(fake.create_pipelines([program]))[0]


def command(pipeline: int, group: int, offset: int = 0, grid: tuple[int, ...] = (1, 1, 1)):
    return np.array([[pipeline, group, offset, *grid]], np.uint32)


def test_bytes_round_trip_and_unwritten_memory_is_zero(fake: FakeDriver) -> None:
    a, b = (fake.create_buffer(64, TENSOR_USAGE) for _ in range(2))
    assert fake.run_sync(fake.read_buffer(a, 0, 64)) == bytes(64)
    fake.write_buffer(a, 8, b"abcdefgh")
    fake.copy_buffer(a, 8, b, 4, 8)
    assert fake.run_sync(fake.read_buffer(b, 0, 16)) == bytes(4) + b"abcdefgh" + bytes(4)


@pytest.mark.parametrize("size", [0, 3, 10])
def test_buffer_size_is_a_positive_multiple_of_four(fake: FakeDriver, size: int) -> None:
    with pytest.raises(DriverError, match="multiple of 4"):
        fake.create_buffer(size, TENSOR_USAGE)


def test_limits_name_value_maximum_and_way_out(fake: FakeDriver) -> None:
    with pytest.raises(LimitError, match=r"maxBufferSize of 268435456.*limits=\"adapter\""):
        fake.create_buffer((256 << 20) + 4, TENSOR_USAGE)
    big = fake.create_buffer(256 << 20, TENSOR_USAGE)
    with pytest.raises(LimitError, match="maxStorageBufferBindingSize of 134217728"):
        fake.create_bind_group("r", 0, [(big, 0, 256 << 20)], 0)
    small = fake.create_buffer(256, TENSOR_USAGE)
    with pytest.raises(LimitError, match="9 is over the device's maxStorageBuffersPerShaderStage"):
        fake.create_bind_group("r" * 9, 0, [(small, 0, 256)] * 9, 0)


def test_memory_runs_out_when_asked_to() -> None:
    fake = FakeDriver(memory=1000)
    held = fake.create_buffer(600, TENSOR_USAGE)
    with pytest.raises(OutOfMemoryError, match="600 of 1000"):
        fake.create_buffer(600, TENSOR_USAGE)
    fake.destroy_buffer(held)
    fake.create_buffer(600, TENSOR_USAGE)


@pytest.mark.parametrize("offset, length", [(1, 4), (0, 3), (252, 8)])
def test_copies_are_aligned_and_inside(fake: FakeDriver, offset: int, length: int) -> None:
    a, b = (fake.create_buffer(256, TENSOR_USAGE) for _ in range(2))
    with pytest.raises(DriverError, match="write to buffer"):
        fake.write_buffer(a, offset, bytes(length))
    with pytest.raises(DriverError, match="read of buffer"):
        fake.run_sync(fake.read_buffer(a, offset, length))
    with pytest.raises(DriverError, match="copy of"):
        fake.copy_buffer(a, offset, b, 0, length)


def test_usage_is_checked(fake: FakeDriver) -> None:
    storage = fake.create_buffer(256, STORAGE)
    with pytest.raises(DriverError, match="COPY_DST"):
        fake.write_buffer(storage, 0, bytes(4))
    with pytest.raises(DriverError, match="COPY_SRC"):
        fake.run_sync(fake.read_buffer(storage, 0, 4))
    copies = fake.create_buffer(256, COPY_SRC | COPY_DST)
    with pytest.raises(DriverError, match="STORAGE"):
        fake.create_bind_group("r", 0, [(copies, 0, 256)], 0)
    with pytest.raises(DriverError, match="UNIFORM"):
        fake.create_bind_group("r", 16, [(storage, 0, 256)], copies)
    with pytest.raises(DriverError, match="different buffers"):
        fake.copy_buffer(copies, 0, copies, 128, 4)


def test_destroyed_buffers_are_unusable(
    fake: FakeDriver, programs: dict[str, ProgramSource]
) -> None:
    pipeline = compiled(fake, programs["increment"])
    buffer = fake.create_buffer(256, TENSOR_USAGE)
    group = fake.create_bind_group("w", 0, [(buffer, 0, 256)], 0)
    fake.submit(command(pipeline, group))
    fake.destroy_buffer(buffer)
    with pytest.raises(DriverError, match=r"'increment': buffer 2 was destroyed"):
        fake.submit(command(pipeline, group))
    with pytest.raises(DriverError, match="no buffer"):
        fake.destroy_buffer(buffer)
    assert fake.stats.submits == 1


ALIASING = [
    # access, offset and size of each binding, part of the complaint ("" = allowed)
    ("rw", [(0, 256), (0, 256)], "read-only at binding 0 and read_write at binding 1"),
    ("rw", [(0, 256), (512, 256)], "read-only"),
    ("ww", [(0, 512), (0, 512)], "writable storage buffer binding aliasing"),
    ("ww", [(0, 512), (256, 512)], "overlapping from byte 256"),
    ("ww", [(256, 256), (0, 256)], ""),
    ("rr", [(0, 512), (0, 512)], ""),
    ("rr", [(0, 512), (256, 256)], ""),
]


@pytest.mark.parametrize("access, ranges, complaint", ALIASING)
def test_aliasing(
    fake: FakeDriver, access: str, ranges: list[tuple[int, int]], complaint: str
) -> None:
    modes = {"r": "read", "w": "read_write"}
    wgsl = "".join(
        f"@group(0) @binding({i}) var<storage, {modes[letter]}> v{i}: array<u32>;\n"
        for i, letter in enumerate(access)
    )
    wgsl += "@compute @workgroup_size(1) fn main() {}"
    pipeline = compiled(fake, ProgramSource("two", wgsl, access, 0, (1, 1, 1)))
    buffer = fake.create_buffer(1024, TENSOR_USAGE)
    group = fake.create_bind_group(access, 0, [(buffer, o, s) for o, s in ranges], 0)
    if not complaint:
        fake.submit(command(pipeline, group))
        return
    with pytest.raises(DriverError, match=complaint):
        fake.submit(command(pipeline, group))


def test_binding_ranges_and_alignment(fake: FakeDriver) -> None:
    buffer = fake.create_buffer(1024, TENSOR_USAGE)
    for binding, complaint in [
        ((buffer, 128, 256), "multiple of 256"),
        ((buffer, 0, 0), "positive multiple of 4"),
        ((buffer, 256, 1024), "only 1024 bytes"),
    ]:
        with pytest.raises(DriverError, match=complaint):
            fake.create_bind_group("r", 0, [binding], 0)


def test_dispatch_rules(fake: FakeDriver, programs: dict[str, ProgramSource]) -> None:
    step, increment = compiled(fake, programs["step"]), compiled(fake, programs["increment"])
    buffer = fake.create_buffer(256, TENSOR_USAGE)
    params = fake.create_buffer(1024, PARAMS_USAGE)
    group = fake.create_bind_group("w", 16, [(buffer, 0, 256)], params)
    plain = fake.create_bind_group("w", 0, [(buffer, 0, 256)], 0)
    fake.submit(command(step, group, 768, (65535, 1, 1)), (params, 0, bytes(1024)))
    before = fake.stats
    for commands, error, complaint in [
        (command(step, group, 0, (65536, 1, 1)), LimitError, "65536 is over .*PerDimension"),
        (command(step, group, 128), DriverError, "multiple of 256"),
        (command(step, group, 1024), DriverError, "uniform buffer of 1024 bytes"),
        (command(step, plain), DriverError, "'step': needs access"),
        (command(increment, plain, 256), DriverError, "no parameters but params_offset 256"),
        (command(99, group), DriverError, "no pipeline 99"),
        (command(step, 99), DriverError, "'step': no bind group 99"),
        (command(step, group).astype(np.int64), DriverError, "uint32"),
        (np.zeros((6, 1), np.uint32), DriverError, r"\[n, 6\]"),
    ]:
        with pytest.raises(error, match=complaint):
            fake.submit(commands)
    assert fake.stats == before
    # A bad row after good ones: found, named, and nothing of the submit happens.
    rows = np.concatenate([command(step, group)] * 5 + [command(step, group, 0, (1, 70000, 1))])
    with pytest.raises(LimitError, match="'step'"):
        fake.submit(rows, (params, 0, bytes(range(16))))
    assert fake.run_sync(fake.read_buffer(buffer, 0, 4)) == bytes(4)
    assert fake.stats.submits == before.submits


def test_parameters_may_not_also_be_written(
    fake: FakeDriver, programs: dict[str, ProgramSource]
) -> None:
    step = compiled(fake, programs["step"])
    both = fake.create_buffer(256, TENSOR_USAGE | PARAMS_USAGE)
    group = fake.create_bind_group("w", 16, [(both, 0, 256)], both)
    with pytest.raises(DriverError, match="read-only at binding 1"):
        fake.submit(command(step, group))


STORAGE_0 = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n"
MAIN = "@compute @workgroup_size(64) fn main() {}"
BAD_TEXTS = [
    (MAIN, "declares bindings"),
    (STORAGE_0.replace("_write", "") + MAIN, r"declares bindings \[0: read\]"),
    (STORAGE_0 + STORAGE_0.replace("x", "y") + MAIN, "declared twice"),
    (STORAGE_0.replace("group(0)", "group(1)") + MAIN, "not in @group"),
    (STORAGE_0 + MAIN.replace("main", "other"), "no '@compute ... fn main'"),
    (STORAGE_0 + MAIN.replace("64", "8, 8"), "workgroup="),
    (STORAGE_0 + "const W: u32 = 32u;\n" + MAIN.replace("64", "W"), "workgroup="),
    (STORAGE_0 + "enable f16;" + MAIN, "'shader-f16' is not in its features"),
    (STORAGE_0 + MAIN.replace("{}", "{ let y = subgroupAdd(x[0]); }"), "enable subgroups"),
    (STORAGE_0 + "var<private> h: vec2<f16>;" + MAIN, "enable f16"),
    (STORAGE_0 + "/* " + MAIN + " */", "no '@compute ... fn main'"),
]


@pytest.mark.parametrize("wgsl, complaint", BAD_TEXTS)
def test_text_and_claims_must_agree(fake: FakeDriver, wgsl: str, complaint: str) -> None:
    with pytest.raises(ProgramError, match=complaint):
        compiled(fake, ProgramSource("bad", wgsl, "w", 0, (64, 1, 1)))
    assert fake.stats.pipelines == 0


def test_text_with_constants_comments_and_shared_memory(fake: FakeDriver) -> None:
    wgsl = (
        "const N = 16u; // @binding(7) in a comment is nothing\n"
        + STORAGE_0
        + "var<workgroup> tile: array<vec4<f32>, N>;\n"
        + "@compute @workgroup_size(N, 4) fn main() { tile[0] = vec4f(); }"
    )
    compiled(fake, ProgramSource("good", wgsl, "w", 0, (16, 4, 1)))
    wide = wgsl.replace("const N = 16u", "const M = 2048u; const N = 16u").replace(
        "32>, N", "32>, M"
    )
    with pytest.raises(LimitError, match="32768 is over the device's maxComputeWorkgroupStorage"):
        compiled(fake, ProgramSource("wide", wide, "w", 0, (16, 4, 1)))


def test_workgroup_limits_and_features() -> None:
    fake = FakeDriver(features=["shader-f16"])
    for workgroup, limit in [((512, 1, 1), "SizeX"), ((1, 1, 65), "SizeZ"), ((32, 16, 1), "Invoc")]:
        with pytest.raises(LimitError, match=limit):
            compiled(fake, ProgramSource("big", STORAGE_0 + MAIN, "w", 0, workgroup))
    half = ProgramSource(
        "half", "enable f16;\n" + STORAGE_0 + MAIN, "w", 0, (64, 1, 1), frozenset({"shader-f16"})
    )
    compiled(fake, half)
    with pytest.raises(ProgramError, match="lacks subgroups"):
        compiled(fake, half._replace(features=frozenset({"shader-f16", "subgroups"})))


def test_lost_and_closed_devices_say_so(fake: FakeDriver) -> None:
    buffer = fake.create_buffer(256, TENSOR_USAGE)
    fake.lose("unplugged")
    assert fake.lost == "unplugged"
    for call in (
        lambda: fake.write_buffer(buffer, 0, bytes(4)),
        lambda: fake.create_buffer(256, TENSOR_USAGE),
        lambda: fake.submit(COMMAND),
        lambda: fake.run_sync(fake.wait()),
    ):
        with pytest.raises(DeviceLostError, match="unplugged"):
            call()
    fake.close()
    fake.close()
