"""Runs one kernel body with plain wgpu-py.

Owns the bindings, parameter block and operand access that lowering supplies in the product, written
as simply as can be. Used by the kernel tests and by benchmarks/kernels.py.
"""

from __future__ import annotations

import os
import statistics
import struct
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgburn_shaders.kernels import KernelBody

os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
WGSL_TYPE = {"f": "f32", "i": "i32", "u": "u32"}
MAX_GROUPS = 65535


@lru_cache(maxsize=1)
def device() -> Any:
    """A device with the limits of the WebGPU specification, as a browser would give it."""
    import wgpu

    return wgpu.gpu.request_adapter_sync().request_device_sync()


def program(
    body: KernelBody, inputs: Sequence[NDArray[Any]], out: NDArray[Any], vec: bool = False
) -> str:
    lines = ["struct Params {"]
    lines += [f"  {name}: {kind}," for name, kind in body.params] + ["}"]
    arrays = [(f"in{i}", "read", WGSL_TYPE[a.dtype.kind]) for i, a in enumerate(inputs)]
    arrays.append(("out0", "read_write", WGSL_TYPE[out.dtype.kind]))
    for i, (name, access, kind) in enumerate(arrays):
        lines.append(f"@group(0) @binding({i}) var<storage, {access}> {name}: array<{kind}>;")
    lines.append(f"@group(0) @binding({len(arrays)}) var<uniform> P: Params;")
    for i, (name, _, kind) in enumerate(arrays[:-1]):
        lines.append(f"fn ld{i}(off: u32) -> {kind} {{ return {name}[off]; }}")
    lines.append(f"fn st0(off: u32, v: {arrays[-1][2]}) {{ out0[off] = v; }}")
    return "\n".join(lines) + "\n" + body.wgsl


class Launch:
    """A compiled kernel with its buffers; `run` dispatches it, `result` reads the output."""

    def __init__(
        self,
        body: KernelBody,
        inputs: Sequence[NDArray[Any]],
        out: NDArray[Any],
        values: Mapping[str, int],
        groups: int,
    ) -> None:
        import wgpu

        dev = device()
        storage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        assert set(values) == {name for name, _ in body.params}, set(values) ^ {
            name for name, _ in body.params
        }
        packed = b"".join(
            struct.pack({"u32": "<I", "i32": "<i", "f32": "<f"}[kind], values[name])
            for name, kind in body.params
        )
        packed += b"\0" * (-len(packed) % 16)
        self._shape, self._dtype = out.shape, out.dtype
        module = dev.create_shader_module(code=program(body, inputs, out))
        self._pipeline = dev.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        self._buffers = [
            dev.create_buffer_with_data(data=np.ascontiguousarray(a), usage=storage)
            for a in (*inputs, out)
        ]
        uniform = dev.create_buffer_with_data(data=packed, usage=wgpu.BufferUsage.UNIFORM)
        entries = [
            {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
            for i, b in enumerate([*self._buffers, uniform])
        ]
        self._bind_group = dev.create_bind_group(
            layout=self._pipeline.get_bind_group_layout(0), entries=entries
        )
        self._grid = (min(groups, MAX_GROUPS), -(-groups // MAX_GROUPS), 1)

    def fold(self, width: int) -> Launch:
        """Make the grid two-dimensional with a padded tail, as lowering does for big grids."""
        self._grid = (width, -(-self._grid[0] // width) + 1, 1)
        return self

    def run(self) -> None:
        dev = device()
        encoder = dev.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(self._pipeline)
        compute.set_bind_group(0, self._bind_group)
        compute.dispatch_workgroups(*self._grid)
        compute.end()
        dev.queue.submit([encoder.finish()])

    def result(self) -> NDArray[Any]:
        data = device().queue.read_buffer(self._buffers[-1])
        return np.frombuffer(data, self._dtype).reshape(self._shape)

    def median_ms(self, times: int = 5) -> float:
        """Median wall time of a run, waiting for it with a tiny read."""
        spans = []
        for _ in range(times + 1):
            start = time.perf_counter()
            self.run()
            device().queue.read_buffer(self._buffers[-1], 0, 4)
            spans.append((time.perf_counter() - start) * 1e3)
        return statistics.median(spans[1:])


def run(
    body: KernelBody,
    inputs: Sequence[NDArray[Any]],
    out_shape: Sequence[int],
    dtype: Any,
    launch: tuple[Mapping[str, int], int],
) -> NDArray[Any]:
    """Run a kernel once over an output prefilled with a pattern that no kernel writes by chance."""
    out = np.full(out_shape, 77, dtype)
    one = Launch(body, inputs, out, *launch).fold(3)
    one.run()
    return one.result()
