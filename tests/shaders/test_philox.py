"""Philox: the published vectors, and the host and device streams bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import wgpu

from wgburn_shaders import library, philox

pytestmark = pytest.mark.quick

# Known answers of Philox4x32-10 (counter, key, result) from the generator's reference test file.
VECTORS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

# (offset, seed): small, beyond 32 bits, all ones.
STREAMS = [(0, 0), (1, 42), (0x1_0000_0003, 0xDEADBEEF_12345678), (2**64 - 1, 2**64 - 1)]


@pytest.fixture(scope="module")
def device() -> wgpu.GPUDevice:
    adapters = wgpu.gpu.enumerate_adapters_sync()
    vulkan = [a for a in adapters if a.info["backend_type"] == "Vulkan"] or adapters
    if not vulkan:
        pytest.skip("no WebGPU adapter on this machine")
    return vulkan[0].request_device_sync()


def run(device: wgpu.GPUDevice, expression: str, count: int, *inputs: np.ndarray) -> np.ndarray:
    """A u32 expression over the index i and the inputs a, b (u32)."""
    usage = wgpu.BufferUsage
    wgsl = library.link(expression)
    for slot in range(len(inputs)):
        wgsl += f"@group(0) @binding({slot}) var<storage, read> {'ab'[slot]}: array<u32>;\n"
    wgsl += (
        f"@group(0) @binding({len(inputs)}) var<storage, read_write> result: array<u32>;\n"
        "@compute @workgroup_size(64)\n"
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        "    let i = id.x;\n    if (i >= arrayLength(&result)) { return; }\n"
        f"    result[i] = {expression};\n}}\n"
    )
    pipeline = device.create_compute_pipeline(
        layout="auto",
        compute={"module": device.create_shader_module(code=wgsl), "entry_point": "main"},
    )
    buffers = [device.create_buffer_with_data(data=a, usage=usage.STORAGE) for a in inputs]
    buffers.append(device.create_buffer(size=4 * count, usage=usage.STORAGE | usage.COPY_SRC))
    group = device.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[
            {"binding": slot, "resource": {"buffer": b, "offset": 0, "size": b.size}}
            for slot, b in enumerate(buffers)
        ],
    )
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(-(-count // 64))
    compute.end()
    device.queue.submit([encoder.finish()])
    return np.frombuffer(device.queue.read_buffer(buffers[-1]), np.uint32)


def halves(value: int) -> tuple[str, str]:
    return f"{value & 0xFFFFFFFF}u", f"{value >> 32}u"


@pytest.mark.parametrize("counter, key, want", VECTORS)
def test_known_answers(
    device: wgpu.GPUDevice, counter: tuple[int, ...], key: tuple[int, ...], want: tuple[int, ...]
) -> None:
    assert tuple(philox.philox(counter, key)) == want
    c = ", ".join(f"{v}u" for v in counter)
    k = ", ".join(f"{v}u" for v in key)
    got = run(device, f"wb_philox(vec4<u32>({c}), vec2<u32>({k}))[i]", 4)
    assert tuple(got) == want


@pytest.mark.parametrize("offset, seed", STREAMS)
def test_host_and_device_streams_are_equal(device: wgpu.GPUDevice, offset: int, seed: int) -> None:
    count = 4 * 8192 * 3 + 5  # over several chunks of the host, and not whole blocks
    arguments = ", ".join(("i", *halves(offset), *halves(seed)))
    got = run(device, f"wb_random_bits({arguments})", count)
    host = philox.random_bits(count, offset, seed)
    assert host.dtype == np.uint32
    assert np.array_equal(got, host)
    uniform = run(device, f"bitcast<u32>(wb_uniform(wb_random_bits({arguments})))", count)
    assert np.array_equal(uniform, philox.uniform(host).view(np.uint32))


def test_in_place_rounds_equal_the_plain_ones() -> None:
    offset, seed = 0x7_0000_0009, 0x5_0000_0006
    counters = np.zeros((20000, 4), np.uint32)
    counters[:, 0] = np.arange(20000)
    counters[:, 2:] = (9, 7)
    plain = philox.philox(counters, (6, 5)).reshape(-1)
    assert np.array_equal(plain[:-3], philox.random_bits(79997, offset, seed))
    assert philox.random_bits(0, 0, 0).size == 0
    with pytest.raises(ValueError, match="at most"):
        philox.random_bits(-1, 0, 0)


def test_uniform_stays_below_one() -> None:
    edges = philox.uniform(np.array([0, 255, 256, 0xFFFFFFFF], np.uint32))
    assert edges.tolist() == [0.0, 0.0, 2.0**-24, 1.0 - 2.0**-24]


def test_normal_is_close_to_float64(device: wgpu.GPUDevice) -> None:
    a = philox.random_bits(100000, 1, 9)
    b = philox.random_bits(100000, 2, 9)
    a[:4] = (0, 255, 0xFFFFFFFF, 0xFFFFFF00)
    b[4:8] = (0, 0x40000000, 0x80000000, 0xC0000000)
    got = run(device, "bitcast<u32>(wb_normal(a[i], b[i]))", a.size, a, b).view(np.float32)
    u1 = ((a >> 8).astype(np.float64) + 1) * 2.0**-24
    u2 = (b >> 8).astype(np.float64) * 2.0**-24
    want = np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2)
    error = np.abs(got - want) / np.maximum(np.abs(want), 1.0)
    print(f"wb_normal: max error {error.max():.2e}")
    assert error.max() < 1e-6
    assert np.abs(philox.normal(a, b) - want).max() < 5e-7
    assert abs(got.mean()) < 0.02
    assert abs(got.std() - 1) < 0.02
