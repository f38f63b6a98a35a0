"""The one interface between wgburn and a WebGPU implementation.

Owns: the contract every driver (native, browser, fake) fulfils, and the data that crosses it.
Must not know: tensors, dtypes, graphs, or which driver is in use.

Handles are plain positive integers, chosen by the driver, never reused while alive. Whatever WebGPU
makes asynchronous is a coroutine here; `run_sync` is the one way to wait for a coroutine from
synchronous code, so every caller above has both faces without writing anything twice.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

# WebGPU's own buffer usage bits (GPUBufferUsage), so that drivers pass them through.
MAP_READ = 0x0001
MAP_WRITE = 0x0002
COPY_SRC = 0x0004
COPY_DST = 0x0008
UNIFORM = 0x0040
STORAGE = 0x0080
#: What every tensor buffer is created with.
TENSOR_USAGE = STORAGE | COPY_SRC | COPY_DST
#: What the ring of parameter blocks is created with.
PARAMS_USAGE = UNIFORM | COPY_DST

#: Alignment in bytes of parameter blocks (the spec's largest minUniformBufferOffsetAlignment).
PARAMS_ALIGN = 256

#: Columns of one row of `Driver.submit`'s commands.
COMMAND_COLUMNS = ("pipeline", "bind_group", "params_offset", "grid_x", "grid_y", "grid_z")


class ProgramSource(NamedTuple):
    """One WGSL program, hashable, complete: equal sources are the same pipeline.

    Bind group 0 holds the storage buffers at bindings 0..len(access)-1 and, when `params_bytes` is
    not 0, one uniform buffer at binding len(access) with a dynamic offset. The entry point is
    `main`.
    """

    name: str  # shown in errors and profiles
    wgsl: str
    access: str  # one letter a storage binding: "r" = storage, read; "w" = storage, read_write
    params_bytes: int  # size of the uniform struct (a multiple of 16), or 0
    workgroup: tuple[int, int, int]
    features: frozenset[str] = frozenset()  # WebGPU features the text needs, e.g. "shader-f16"


@dataclass(frozen=True)
class AdapterInfo:
    """What an adapter says of itself. `available` False carries the cause in `reason`."""

    kind: str  # "native" | "browser" | "fake"
    index: int
    name: str
    backend: str = ""  # "Vulkan", "Metal", "D3D12", "OpenGL", "WebGPU", ...
    adapter_type: str = ""  # "DiscreteGPU", "IntegratedGPU", "CPU", "unknown"
    vendor: str = ""
    driver: str = ""  # driver or browser version where known
    features: frozenset[str] = (
        frozenset()
    )  # WebGPU standard names: "shader-f16", "subgroups", "timestamp-query"
    limits: Mapping[str, int] = field(default_factory=dict)  # WebGPU names in camelCase
    available: bool = True
    reason: str = ""

    @property
    def is_software(self) -> bool:
        return self.adapter_type.lower() == "cpu"


class DriverStats(NamedTuple):
    """Counters since the driver was opened; `*_alive` are current values."""

    buffers_alive: int
    bytes_alive: int
    peak_bytes: int
    pipelines: int
    bind_groups_alive: int
    submits: int
    dispatches: int
    writes: int
    reads: int


class Driver(Protocol):
    """A device opened on one adapter."""

    @property
    def info(self) -> AdapterInfo: ...  # features and limits are those of the opened DEVICE
    @property
    def stats(self) -> DriverStats: ...
    @property
    def lost(self) -> str:
        """The reason the device was lost, or "" while it works."""

    # -- memory -----------------------------------------------------------------------------------
    def create_buffer(self, size: int, usage: int) -> int:
        """Make a zero-filled buffer of `size` bytes, a multiple of 4.

        Raises LimitError, OutOfMemoryError.
        """

    def destroy_buffer(self, buffer: int) -> None: ...
    def write_buffer(self, buffer: int, offset: int, data: memoryview | bytes | bytearray) -> None:
        """Copy host bytes in, before every later submit. Offset and length: multiples of 4."""

    async def read_buffer(self, buffer: int, offset: int, size: int) -> bytearray:
        """Bytes of a buffer after everything submitted so far. Offset and size: multiples of 4."""

    def copy_buffer(
        self, src: int, src_offset: int, dst: int, dst_offset: int, size: int
    ) -> None: ...

    # -- programs ---------------------------------------------------------------------------------
    async def create_pipelines(self, programs: Sequence[ProgramSource]) -> list[int]:
        """Compile programs (together where the implementation can). Raises ProgramError naming the
        program, with the compiler's message and the WGSL line it points at; then none is kept."""

    def destroy_pipeline(self, pipeline: int) -> None: ...

    def create_bind_group(
        self, access: str, params_bytes: int, storage: Sequence[tuple[int, int, int]], params: int
    ) -> int:
        """Bind `storage` = (buffer, offset, size) per binding and, if `params_bytes`, the uniform
        buffer `params` (dynamic offset, window of params_bytes). Works with every program of equal
        `access` and `params_bytes`."""

    def destroy_bind_group(self, bind_group: int) -> None: ...

    # -- work -------------------------------------------------------------------------------------
    def submit(
        self,
        commands: NDArray[np.uint32],
        params: tuple[int, int, memoryview | bytes | bytearray] | None = None,
    ) -> None:
        """Run rows of COMMAND_COLUMNS ([n, 6], C order) in order: one encoder, pass and submit.

        `params` = (uniform buffer, offset, bytes) is written first. Errors raise DriverError (or
        LimitError) here, name the program, submit nothing, and leave the driver usable."""

    async def wait(self) -> None:
        """Return when everything submitted so far has run."""

    def run_sync(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Drive a coroutine of this driver to its end from synchronous code. Raises
        SyncUnavailableError in a browser without stack switching; the message names the async call
        to use."""

    def close(self) -> None:
        """Destroy the device and everything on it. Closing twice is harmless."""
