"""Assembles whole WGSL programs: bindings, the parameter struct, load and store functions, loop
indices.

Owns: `Step` (one launch of a plan before slots are known), `assemble`, collapsing of loop
dimensions. Must not know: ops, graphs, which kernel it assembles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wgburn_runtime.driver import ProgramSource
from wgburn_shaders.library import link

from ..core.dtype import DType
from .affine import Form, Num
from .emit import WGSL_TYPE, Param

#: Element type of a storage binding, by dtype name.
STORAGE_TYPE = {
    "float32": "f32",
    "float16": "f16",
    "int32": "i32",
    "uint32": "u32",
    "bool_": "u32",
    "int8": "u32",
    "uint8": "u32",
}


class Binding(NamedTuple):
    """One buffer of a program. Reads and writes of one buffer share the binding."""

    buffer: int
    dtype: DType
    written: bool
    vector: bool = False  # four elements at once


@dataclass(frozen=True)
class Step:
    """One launch: its program, parameters, buffers (the plan's numbers) and workgroups in all."""

    program: ProgramSource
    params: tuple[Param, ...]
    buffers: tuple[int, ...]
    groups: int
    ops: tuple[str, ...]  # names of the ops in it, for people
    why: str  # why the kernel ends where it does
    reads: tuple[str, ...] = ()  # "float32[256, 64]" each, for people
    writes: tuple[str, ...] = ()
    bytes: int = 0  # read and written


def collapse(
    sizes: Sequence[int], variables: Sequence[int], forms: Sequence[Form]
) -> list[tuple[int, int]]:
    """Loop dimensions joined where every form walks them as one: [(innermost variable, size)],
    outermost first; dimensions of size 1 vanish."""
    coefs = [dict(f.terms) for f in forms]
    out: list[tuple[int, int]] = []
    for v, n in zip(variables, sizes, strict=True):
        if n == 1:
            continue
        if out:
            last, size = out[-1]
            if all(c.get(last, 0) == c.get(v, 0) * n for c in coefs):
                out[-1] = (v, size * n)
                continue
        out.append((v, n))
    return out


class Loops:
    """How loop coordinates are spelled: variable -> WGSL name, and the statements that make
    them."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.params: list[Param] = []

    def decode(self, index: str, dims: list[tuple[int, int]], prefix: str) -> list[str]:
        """Statements that take a row-major index apart into one coordinate a dimension."""
        if not dims:
            return []
        if len(dims) == 1:
            self.names[dims[0][0]] = index
            return []
        lines = [f"var {prefix}r = {index};"]
        for k, (v, n) in reversed(list(enumerate(dims))):
            name = f"{prefix}{k}"
            self.names[v] = name
            if k == 0:
                lines.append(f"let {name} = {prefix}r;")
            else:
                size = f"{prefix}n{k}"
                self.params.append(Param(size, "u32", n))
                # One division: what is left over costs a product, where % would divide again.
                lines.append(f"let {prefix}q{k} = {prefix}r / P.{size};")
                lines.append(f"let {name} = {prefix}r - {prefix}q{k} * P.{size};")
                lines.append(f"{prefix}r = {prefix}q{k};")
        return lines

    def spell(self, number: int, form: Form, extra: dict[int, str]) -> str:
        """A form as WGSL over the coordinates; its coefficients and offset become parameters, but
        for 1 (the common contiguous walk) and 0, which are structure."""
        parts = []
        for v, c in form.terms:
            name = self.names.get(v) or extra.get(v)
            if name is None:
                continue  # a dimension joined into its inner neighbour, or of size 1
            if c == 1:
                parts.append(name)
            else:
                param = f"f{number}_{len(parts)}"
                self.params.append(Param(param, "u32", c))
                parts.append(f"{name} * P.{param}")
        if form.offset.const or form.offset.terms:
            param = f"f{number}_o"
            self.params.append(Param(param, "u32", form.offset))
            parts.append(f"P.{param}")
        return " + ".join(parts) or "0u"


def loaded(dtype: DType, element: str) -> str:
    """An element of memory (not the packed 8-bit ones) as its compute value."""
    if dtype.name == "bool_":
        return f"({element} != 0u)"
    return f"f32({element})" if dtype.name == "float16" else element


def load_function(
    k: int, binding: int, dtype: DType, prefix: str = "ld", raw: bool = False, base: str = ""
) -> str:
    """`ld<k>(offset)`: one element in its compute type; `raw`: booleans as stored, u32; `base`: the
    element of the binding that offsets count from (not for 8 bits)."""
    t = "u32" if raw and dtype.kind == "b" else WGSL_TYPE[dtype.kind]
    b = f"b{binding}"
    at = f"{base} + o" if base else "o"
    if raw and dtype.kind == "b":
        body = f"{b}[{at}]"
    elif dtype.name == "uint8":
        body = f"({b}[o >> 2u] >> ((o & 3u) * 8u)) & 255u"
    elif dtype.name == "int8":
        body = f"bitcast<i32>({b}[o >> 2u] << (24u - (o & 3u) * 8u)) >> 24u"
    else:
        body = loaded(dtype, f"{b}[{at}]")
    return f"fn {prefix}{k}(o: u32) -> {t} {{ return {body}; }}"


def stored(dtype: DType, value: str) -> str:
    """A compute value as the element that is written (not the packed 8-bit ones)."""
    if dtype.name == "bool_":
        return f"select(0u, 1u, {value})"
    return f"f16({value})" if dtype.name == "float16" else value


def fill_forms(
    text: str, forms: Sequence[Form], loops: Loops, extra: dict[int, str], prefix: str = "ld"
) -> str:
    """Replace the emitter's placeholders."""
    spelled: dict[int, str] = {}

    def one(match: re.Match[str]) -> str:
        n = int(match.group(1))
        if n not in spelled:
            spelled[n] = loops.spell(n, forms[n], extra)
        return spelled[n]

    return re.sub(r"<form:(\d+)>", one, text).replace("<load:", prefix).replace(">(", "(")


def assemble(
    name: str,
    bindings: Sequence[Binding],
    params: Sequence[Param],
    functions: str,
    main: str,
    workgroup: tuple[int, int, int],
    draft: bool = False,
) -> ProgramSource:
    """A program from its parts. `main` is the whole entry function, or a body (then wrapped with
    the builtins wid, nwg and lid). A draft, which is never run, goes without the library."""
    lines: list[str] = []
    f16 = any(b.dtype.name == "float16" for b in bindings) or "f16(" in main
    if f16:
        lines.append("enable f16;")
    if params:
        fields = ", ".join(f"{p.name}: {p.type}" for p in params)
        lines.append(f"struct Params {{ {fields} }}")
    access = ""
    for k, b in enumerate(bindings):
        mode = "read_write" if b.written else "read"
        element = STORAGE_TYPE[b.dtype.name]
        if b.vector:
            element = f"vec4<{element}>"
        lines.append(f"{_declared(k, mode)} array<{element}>;")
        access += "w" if b.written else "r"
    if params:
        lines.append(f"@group(0) @binding({len(bindings)}) var<uniform> P: Params;")
    if "fn main(" not in main:
        x, y, z = workgroup
        main = (
            f"@compute @workgroup_size({x}, {y}, {z})\n"
            "fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) "
            "nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {\n"
            f"{main}\n}}"
        )
    body = f"{functions}\n{main}\n"
    lines += [body] if draft else [link(body), body]
    size = -(-4 * len(params) // 16) * 16
    return ProgramSource(
        name,
        "\n".join(lines),
        access,
        size,
        workgroup,
        frozenset({"shader-f16"}) if f16 else frozenset(),
    )


def opened(program: ProgramSource, modes: Sequence[bool]) -> ProgramSource:
    """A program whose bindings are read_write where `modes` says so."""
    text = program.wgsl
    for k, (now, wanted) in enumerate(zip(program.access, modes, strict=True)):
        if wanted and now == "r":
            text = text.replace(_declared(k, "read"), _declared(k, "read_write"), 1)
    access = "".join(
        "w" if wanted else now for now, wanted in zip(program.access, modes, strict=True)
    )
    return program._replace(wgsl=text, access=access)


def _declared(binding: int, mode: str) -> str:
    """The declaration of a storage binding, up to its type."""
    return f"@group(0) @binding({binding}) var<storage, {mode}> b{binding}:"


def as_param(name: str, type_: str, value: int | Num) -> Param:
    """A parameter of the plan's own numbers."""
    return Param(name, type_, value)
