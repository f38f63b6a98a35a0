"""Compiles programs and makes layouts for the native driver.

Owns: shader modules, compute pipelines and layouts of one device, and the words of a program that
does not compile. Must not know: buffers, submits, handles given to callers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from wgpu.backends.wgpu_native import ffi, lib

from ..driver import ProgramSource
from ..errors import DeviceLostError, OutOfMemoryError, ProgramError
from ..rules import check_layout
from .device import ErrorSink, set_text

_ENABLE = re.compile(r"\benable\s+([\w\s,]+);")
_POSITION = re.compile(r"wgsl:(\d+):(\d+)")


def _without_subgroups(directive: re.Match[str]) -> str:
    """wgpu refuses the enable that the standard asks for, and needs none. Columns stay put."""
    names = [name.strip() for name in directive[1].split(",")]
    if "subgroups" not in names:
        return directive[0]
    rest = ", ".join(name for name in names if name and name != "subgroups")
    text = f"enable {rest};" if rest else ""
    return text + " " * (len(directive[0]) - len(text))


class Layout:
    """The layouts of one (access, params_bytes), and a bind group descriptor with a row for each
    binding, filled in again for every bind group: making structs costs more than the call."""

    __slots__ = ("_entries", "descriptor", "group", "pipeline", "rows")

    def __init__(self, group: Any, pipeline: Any, access: str, params_bytes: int) -> None:
        self.group = group
        self.pipeline = pipeline
        count = len(access) + bool(params_bytes)
        self._entries = ffi.new("WGPUBindGroupEntry[]", max(count, 1))
        self.rows = [self._entries[index] for index in range(count)]
        for index, row in enumerate(self.rows):
            row.binding = index
        if params_bytes:
            self.rows[-1].size = params_bytes
        self.descriptor = ffi.new("WGPUBindGroupDescriptor *")
        self.descriptor.layout = group
        self.descriptor.entryCount = count
        self.descriptor.entries = self._entries


class Compiler:
    """Compiles for one device; layouts are made once per (access, params_bytes)."""

    def __init__(self, device: Any, sink: ErrorSink, limits: Mapping[str, int]) -> None:
        self._device = device
        self._sink = sink
        self._limits = limits
        self._layouts: dict[tuple[str, int], Layout] = {}

    def compile_all(self, programs: Sequence[ProgramSource]) -> list[Any]:
        """A pipeline, or the exception, per program."""

        def attempt(program: ProgramSource) -> Any:
            try:
                return self._compile(program)
            except BaseException as error:
                return error

        workers = min(len(programs), os.cpu_count() or 1, 8)
        if workers < 2:
            return [attempt(program) for program in programs]
        with ThreadPoolExecutor(workers) as pool:  # wgpu compiles without holding Python's lock
            return list(pool.map(attempt, programs))

    def _compile(self, program: ProgramSource) -> Any:
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        keep = [set_text(source.code, _ENABLE.sub(_without_subgroups, program.wgsl))]
        struct = ffi.new("WGPUShaderModuleDescriptor *")
        struct.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        keep.append(set_text(struct.label, program.name))
        # Bounds checks stay on. The counter that ends a loop after 2^64 rounds is off: it takes two
        # registers and a branch in every inner loop, against a hang that is the kernel's bug.
        # (No difference was measurable on lavapipe, where memory and bounds checks dominate.)
        checks = lib.WGPUShaderRuntimeChecks_BoundsChecks
        module = lib.wgpuDeviceCreateShaderModuleTrusted(self._device, struct, checks)
        try:
            self._check_program(program)
            stage = ffi.new("WGPUComputePipelineDescriptor *")
            keep.append(set_text(stage.label, program.name))
            stage.layout = self._layouts[program.access, program.params_bytes].pipeline
            stage.compute.module = module
            keep.append(set_text(stage.compute.entryPoint, "main"))
            pipeline = lib.wgpuDeviceCreateComputePipeline(self._device, stage)
            try:
                self._check_program(program)
            except BaseException:
                lib.wgpuComputePipelineRelease(pipeline)
                raise
            return pipeline
        finally:
            lib.wgpuShaderModuleRelease(module)

    def _check_program(self, program: ProgramSource) -> None:
        error = self._sink.take("") if self._sink.errors else None
        if error is None:
            return
        if isinstance(error, (DeviceLostError, OutOfMemoryError)):
            raise error
        message = str(error)
        where = ""
        found = _POSITION.search(message)
        if found:
            number = int(found[1])
            lines = program.wgsl.splitlines()
            line = lines[number - 1].strip() if number <= len(lines) else ""
            where = f" at line {number}: `{line}`"
        raise ProgramError(f"program {program.name!r} does not compile{where}\n{message}")

    def layout(self, access: str, params_bytes: int) -> Layout:
        """What programs and bind groups of this shape share."""
        known = self._layouts.get((access, params_bytes))
        if known is not None:
            return known
        check_layout("bind group", access, params_bytes, self._limits)
        count = len(access) + bool(params_bytes)
        entries = ffi.new("WGPUBindGroupLayoutEntry[]", max(count, 1))
        for index in range(count):
            entry = entries[index]
            entry.binding = index
            entry.visibility = 4  # compute
            if index == len(access):
                entry.buffer.type = lib.WGPUBufferBindingType_Uniform
                entry.buffer.hasDynamicOffset = True
                entry.buffer.minBindingSize = params_bytes
            elif access[index] == "r":
                entry.buffer.type = lib.WGPUBufferBindingType_ReadOnlyStorage
            else:
                entry.buffer.type = lib.WGPUBufferBindingType_Storage
        struct = ffi.new("WGPUBindGroupLayoutDescriptor *")
        struct.entryCount = count
        struct.entries = entries
        group = lib.wgpuDeviceCreateBindGroupLayout(self._device, struct)
        groups = ffi.new("WGPUBindGroupLayout[]", [group])
        outer = ffi.new("WGPUPipelineLayoutDescriptor *")
        outer.bindGroupLayoutCount = 1
        outer.bindGroupLayouts = groups
        pipeline = lib.wgpuDeviceCreatePipelineLayout(self._device, outer)
        error = self._sink.take("layout") if self._sink.errors else None
        if error is not None:
            lib.wgpuPipelineLayoutRelease(pipeline)
            lib.wgpuBindGroupLayoutRelease(group)
            raise error
        layout = Layout(group, pipeline, access, params_bytes)
        self._layouts[access, params_bytes] = layout
        return layout

    def close(self) -> None:
        """Release the layouts; compiled pipelines belong to who asked for them."""
        for layout in self._layouts.values():
            lib.wgpuPipelineLayoutRelease(layout.pipeline)
            lib.wgpuBindGroupLayoutRelease(layout.group)
        self._layouts.clear()
