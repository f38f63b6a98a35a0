"""WebGPU's own rules as plain functions: limits, alignments, ranges, grids, aliasing.

Owns: the spec's default limits and every check that needs no GPU; drivers share it, so they refuse
the same things with the same words. Must not know: which driver calls, tensors, WGSL text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .driver import (
    COMMAND_COLUMNS,
    COPY_DST,
    COPY_SRC,
    MAP_READ,
    MAP_WRITE,
    PARAMS_ALIGN,
    ProgramSource,
)
from .errors import DriverError, LimitError

#: What every WebGPU device offers at least, under WebGPU's names (only what compute needs).
SPEC_LIMITS: Final[Mapping[str, int]] = {
    "maxBindGroups": 4,
    "maxBindingsPerBindGroup": 1000,
    "maxBufferSize": 256 << 20,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupStorageSize": 16 << 10,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxDynamicUniformBuffersPerPipelineLayout": 8,
    "maxStorageBufferBindingSize": 128 << 20,
    "maxStorageBuffersPerShaderStage": 8,
    "maxUniformBufferBindingSize": 64 << 10,
    "maxUniformBuffersPerShaderStage": 12,
    "minStorageBufferOffsetAlignment": 256,
    "minUniformBufferOffsetAlignment": 256,
}

_ALL_USAGES: Final = 0x3FF  # the ten bits of GPUBufferUsage

#: What to do about a limit that is too small for a request.
ADVICE: Final = 'open the device with limits="adapter" if it offers more, or split the tensor'


def over_limit(what: str, name: str, value: int, maximum: int, advice: str = "") -> LimitError:
    """The one wording of a broken limit: who, which limit, value, maximum, what to do."""
    hint = f"; {advice}" if advice else ""
    return LimitError(f"{what}: {value} is over the device's {name} of {maximum}{hint}")


def check_buffer(size: int, usage: int, limits: Mapping[str, int]) -> None:
    """A buffer holds a positive multiple of 4 bytes, at most maxBufferSize, and has known usages;
    mappable ones allow nothing but a copy."""
    if usage <= 0 or usage & ~_ALL_USAGES:
        raise DriverError(f"buffer of {size} bytes: {usage:#x} is no set of buffer usages")
    for mapping, partner in ((MAP_READ, COPY_DST), (MAP_WRITE, COPY_SRC)):
        if usage & mapping and usage & ~(mapping | partner):
            raise DriverError(f"buffer of {size} bytes: usage {usage:#x} can't also be mapped")
    if size <= 0 or size % 4:
        raise DriverError(f"buffer of {size} bytes: the size must be a positive multiple of 4")
    maximum = limits["maxBufferSize"]
    if size > maximum:
        raise over_limit(f"buffer of {size} bytes", "maxBufferSize", size, maximum, ADVICE)


def check_range(what: str, offset: int, length: int, size: int) -> None:
    """A host copy or a buffer copy: offset and length are multiples of 4 and stay inside."""
    if offset % 4 or length % 4 or offset < 0 or length < 0:
        raise DriverError(
            f"{what}: offset {offset} and length {length} must be non-negative multiples of 4"
        )
    if offset + length > size:
        raise DriverError(f"{what}: bytes {offset}..{offset + length} of a buffer of {size}")


def check_grid(program: str, grid: Sequence[int], limits: Mapping[str, int]) -> None:
    """No dimension of a dispatch over maxComputeWorkgroupsPerDimension."""
    maximum = limits["maxComputeWorkgroupsPerDimension"]
    if max(grid) > maximum:
        raise over_limit(
            f"program {program!r}, grid {tuple(int(g) for g in grid)}",
            "maxComputeWorkgroupsPerDimension",
            int(max(grid)),
            maximum,
            "fold the extra groups into another grid dimension",
        )
    if min(grid) < 0:
        raise DriverError(f"program {program!r}: negative grid {tuple(grid)}")


def check_workgroup(program: ProgramSource, limits: Mapping[str, int]) -> None:
    """Workgroup extents and their product against the device."""
    for axis, extent in zip("XYZ", program.workgroup, strict=True):
        name = f"maxComputeWorkgroupSize{axis}"
        if extent > limits[name]:
            raise over_limit(f"program {program.name!r}", name, extent, limits[name])
        if extent < 1:
            raise DriverError(f"program {program.name!r}: workgroup {program.workgroup}")
    x, y, z = program.workgroup
    name = "maxComputeInvocationsPerWorkgroup"
    if x * y * z > limits[name]:
        raise over_limit(f"program {program.name!r}", name, x * y * z, limits[name])


def check_layout(what: str, access: str, params_bytes: int, limits: Mapping[str, int]) -> None:
    """The shape of a bind group: letters, number of storage buffers, size of the uniform block."""
    if not set(access) <= {"r", "w"}:
        raise DriverError(f"{what}: access {access!r} has letters other than 'r' and 'w'")
    name = "maxStorageBuffersPerShaderStage"
    if len(access) > limits[name]:
        raise over_limit(f"{what}: storage buffers", name, len(access), limits[name])
    if params_bytes % 16 or params_bytes < 0:
        raise DriverError(f"{what}: params_bytes {params_bytes} must be a multiple of 16")
    name = "maxUniformBufferBindingSize"
    if params_bytes > limits[name]:
        raise over_limit(f"{what}: uniform block", name, params_bytes, limits[name])


def check_binding(
    index: int, buffer: int, offset: int, size: int, capacity: int, limits: Mapping[str, int]
) -> None:
    """One storage binding: alignment, size limit, range."""
    align = limits["minStorageBufferOffsetAlignment"]
    maximum = limits["maxStorageBufferBindingSize"]
    aligned = offset >= 0 and not offset % align and not size % 4
    if aligned and 0 < size <= maximum and offset + size <= capacity:
        return  # the words below cost more than the call that a bind group is for
    what = f"binding {index} (buffer {buffer}, offset {offset}, size {size})"
    if offset % align or offset < 0:
        raise DriverError(f"{what}: the offset must be a multiple of {align}")
    if size <= 0 or size % 4:
        raise DriverError(f"{what}: the size must be a positive multiple of 4")
    if offset + size > capacity:
        raise DriverError(f"{what}: the buffer has only {capacity} bytes")
    raise over_limit(what, "maxStorageBufferBindingSize", size, maximum, ADVICE)


class Bound(NamedTuple):
    """One buffer range as a dispatch sees it. `access`: "r", "w", or "u" for the uniform block."""

    binding: int
    buffer: int
    offset: int
    size: int
    access: str


def aliasing_fault(bindings: Iterable[Bound]) -> str:
    """Why a dispatch may not bind these together, or "".

    Two rules of the spec: within one dispatch a buffer is either only read_write or only read
    (usage scope), and no range that is written may overlap another range (writable aliasing).
    """
    by_buffer: dict[int, list[Bound]] = {}
    for bound in bindings:
        by_buffer.setdefault(bound.buffer, []).append(bound)
    for buffer, uses in by_buffer.items():
        if len(uses) == 1:
            continue
        writers = [use for use in uses if use.access == "w"]
        if not writers:
            continue
        if len(writers) != len(uses):
            reader = next(use for use in uses if use.access != "w")
            return (
                f"buffer {buffer} is bound read-only at binding {reader.binding} and read_write at "
                f"binding {writers[0].binding} of one dispatch"
            )
        ordered = sorted(writers, key=lambda use: use.offset)
        for left, right in pairwise(ordered):
            if left.offset + left.size > right.offset:
                return (
                    f"writable storage buffer binding aliasing: buffer {buffer} at bindings "
                    f"{left.binding} and {right.binding}, overlapping from byte {right.offset}"
                )
    return ""


def check_commands(commands: NDArray[np.uint32]) -> None:
    """`submit` takes a C-contiguous [n, 6] array of uint32; anything else is read wrongly."""
    columns = len(COMMAND_COLUMNS)
    if commands.dtype != np.uint32 or commands.ndim != 2 or commands.shape[1] != columns:
        raise DriverError(
            f"commands must be uint32 [n, {columns}], got {commands.dtype} {commands.shape}"
        )
    if not commands.flags.c_contiguous:
        raise DriverError("commands must be C-contiguous")


def check_params_offset(program: str, offset: int, params_bytes: int, capacity: int) -> None:
    """The dynamic offset of a dispatch: aligned, and the whole block inside the buffer."""
    if not params_bytes:
        if offset:
            raise DriverError(f"program {program!r} has no parameters but params_offset {offset}")
        return
    if offset % PARAMS_ALIGN:
        raise DriverError(
            f"program {program!r}: params_offset {offset} must be a multiple of {PARAMS_ALIGN}"
        )
    if offset + params_bytes > capacity:
        raise DriverError(
            f"program {program!r}: parameters at {offset}..{offset + params_bytes} of a uniform "
            f"buffer of {capacity} bytes"
        )
