"""Kernels that are made from expressions: elementwise groups, row kernels, epilogues.

Owns: the loops around emitted expressions, how reductions are spread over threads and workgroups.
Must not know: which nodes go together (group.py), heavy kernels' texts (templates.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from ..core.dtype import DType
from .affine import Form, Num
from .emit import WGSL_TYPE, Emitter, Param
from .program import (
    STORAGE_TYPE,
    Binding,
    Loops,
    Step,
    assemble,
    collapse,
    fill_forms,
    load_function,
    loaded,
    stored,
)

LANES = 64
#: Loop trips of one invocation; some software Vulkan leaves loops at 65,536 without a word.
MAX_TRIPS = 32768
#: Reductions up to this many elements are one thread's work, so that many rows leave no lanes idle.
SHORT = 64
#: Up to so many rows idle lanes cost nothing: each is a workgroup's work whatever its length, a
#: batch of 4 or of 400 (one text, and a few steps of a tree instead of 64 in a row); but for the
#: shortest.
FEW_ROWS = 256
SHORTEST = 3
#: Threads that keep a GPU busy.
BUSY = 16384
#: The same for an adapter that runs on a CPU: threads with a row each, threads of whole workgroups.
BUSY_SOFTWARE = (64, 1024)

#: An offset that is the same for all elements.
_SAME = re.compile(r"0u|P[.]\w+")

DtypeOf = Callable[[int], DType]


class Output(NamedTuple):
    """A value a kernel stores, and where (a dense buffer; `form` where not at the loop's own
    index)."""

    buffer: int
    dtype: DType
    value: str
    form: Form | None = None


def bind(
    emitter: Emitter, outputs: Sequence[Output], dtype_of: DtypeOf, prefix: str = "ld"
) -> tuple[list[Binding], list[str], dict[int, int]]:
    """Bindings (reads, then writes), load functions, binding numbers by buffer."""
    written = {o.buffer for o in outputs}
    bindings = [Binding(b, dtype_of(b), b in written) for b in emitter.loads]
    functions = [load_function(k, k, b.dtype, prefix) for k, b in enumerate(bindings)]
    for o in outputs:
        if o.buffer not in [b.buffer for b in bindings]:
            bindings.append(Binding(o.buffer, o.dtype, True))
    return bindings, functions, {b.buffer: k for k, b in enumerate(bindings)}


def elementwise(
    name: str,
    emitter: Emitter,
    shape: tuple[int, ...],
    outputs: Sequence[Output],
    dtype_of: DtypeOf,
    why: str,
    ops: tuple[str, ...],
) -> Step:
    """One thread an element (four elements of 8 bits: they share a word) of `shape`."""
    n = prod(shape)
    dims = collapse(shape, range(len(shape)), emitter.forms)
    loops = Loops()
    decode = loops.decode("i", dims, "c")
    bindings, functions, number = bind(emitter, outputs, dtype_of)
    body = [*decode, *emitter.lines]
    if n % 4 == 0 and len(dims) == 1 and not any(o.dtype.bits == 8 for o in outputs):
        text = fill_forms("\n".join(emitter.lines), emitter.forms, loops, emitter.variables)
        fours = _fours(text, bindings, functions, outputs, number)
        if fours is not None:
            params = [Param("n", "u32", n), *loops.params, *emitter.params]
            program = assemble(name, fours[0], params, *fours[1:], (LANES, 1, 1), emitter.draft)
            buffers = tuple(b.buffer for b in bindings)
            return Step(program, tuple(params), buffers, -(-n // (4 * LANES)), ops, why)
        loops.params.clear()
    if any(o.dtype.bits == 8 for o in outputs):
        (out,) = outputs
        main = [
            "let w = (wid.x + wid.y * nwg.x) * 64u + lid;",
            "if (w >= (P.n + 3u) / 4u) { return; }",
            "var word = 0u;",
            "for (var lane = 0u; lane < 4u; lane++) {",
            "let i = w * 4u + lane;",
            "if (i >= P.n) { break; }",
            *body,
            f"word |= (u32({out.value}) & 255u) << (lane * 8u);",
            "}",
            f"b{number[out.buffer]}[w] = word;",
        ]
        threads = -(-n // 4)
    else:
        stores = [f"b{number[o.buffer]}[i] = {stored(o.dtype, o.value)};" for o in outputs]
        main = [
            f"let i = (wid.x + wid.y * nwg.x) * {LANES}u + lid;",
            "if (i >= P.n) { return; }",
            *body,
            *stores,
        ]
        threads = n
    text = fill_forms("\n".join(main), emitter.forms, loops, emitter.variables)
    params = [Param("n", "u32", n), *loops.params, *emitter.params]
    program = assemble(
        name, bindings, params, "\n".join(functions), text, (LANES, 1, 1), emitter.draft
    )
    buffers = tuple(b.buffer for b in bindings)
    return Step(program, tuple(params), buffers, -(-threads // LANES), ops, why)


def _fours(
    text: str,
    bindings: list[Binding],
    functions: list[str],
    outputs: Sequence[Output],
    number: dict[int, int],
) -> tuple[list[Binding], str, str] | None:
    """(bindings, functions, main) of a flat loop that takes four neighbours a thread: one access of
    memory for each four. None where something is read at any place but the loop's own, or the same
    for all elements."""
    loads = [(int(k), at) for k, at in re.findall(r"\bld(\d+)[(]([^()]*)[)]", text)]
    own = {k for k, at in loads if at == "i"}
    if len(re.findall(r"\bld\d+[(]", text)) > len(loads) or any(
        b.dtype.bits == 8 for b in bindings
    ):
        return None
    if any(at != "i" and (k in own or not _SAME.fullmatch(at)) for k, at in loads):
        return None
    written = {number[o.buffer] for o in outputs}
    if not own or any(k in written for k, at in loads if at != "i"):
        return None
    wide = own | written
    vectors = [b._replace(vector=k in wide) for k, b in enumerate(bindings)]
    text = re.sub(r"\bld(\d+)[(]i[)]", r"x_\1", text)
    reads = sorted(own)
    types = [WGSL_TYPE[bindings[k].dtype.kind] for k in reads]
    arguments = "".join(f", x_{k}: {t}" for k, t in zip(reads, types, strict=True))
    elements = [STORAGE_TYPE[o.dtype.name] for o in outputs]
    fields = ", ".join(f"y{j}: {t}" for j, t in enumerate(elements))
    values = ", ".join(stored(o.dtype, o.value) for o in outputs)
    parts = [f for k, f in enumerate(functions) if k not in own]
    parts.append(f"struct Stored {{ {fields} }}")
    parts.append(f"fn one(i: u32{arguments}) -> Stored {{\n{text}\nreturn Stored({values});\n}}")
    main = [
        f"let w = (wid.x + wid.y * nwg.x) * {LANES}u + lid;",
        "if (w >= P.n / 4u) { return; }",
        *[f"let r{k} = b{k}[w];" for k in reads],
    ]
    for j, lane in enumerate("xyzw"):
        taken = "".join(f", {loaded(bindings[k].dtype, f'r{k}.{lane}')}" for k in reads)
        main.append(f"let e{j} = one(w * 4u + {j}u{taken});")
    for j, (o, t) in enumerate(zip(outputs, elements, strict=True)):
        four = ", ".join(f"e{lane}.y{j}" for lane in range(4))
        main.append(f"b{number[o.buffer]}[w] = vec4<{t}>({four});")
    return vectors, "\n".join(parts), "\n".join(main)


class Segment(NamedTuple):
    """One of several elementwise loops that share a kernel."""

    emitter: Emitter
    shape: tuple[int, ...]
    outputs: Sequence[Output]


class Inside(NamedTuple):
    """A value in a buffer that a kernel binds for several: where in it, in elements."""

    buffer: int
    base: Num


def segments(
    name: str,
    parts: Sequence[Segment],
    dtype_of: DtypeOf,
    why: str,
    ops: tuple[str, ...],
    windows: Mapping[int, Inside],
) -> Step:
    """Elementwise loops side by side: each takes the next workgroups. (No outputs of 8 bits.)

    `windows`: buffers that are not bound themselves but lie inside one that is.
    """
    outer = {b: inside.buffer for b, inside in windows.items()}
    written = {outer.get(o.buffer, o.buffer): o.dtype for p in parts for o in p.outputs}
    reads = dict.fromkeys(outer.get(b, b) for p in parts for b in p.emitter.loads)
    bindings = [Binding(b, dtype_of(b), b in written) for b in reads]
    bindings += [Binding(b, d, True) for b, d in written.items() if b not in reads]
    bound = {b.buffer: k for k, b in enumerate(bindings)}
    number = bound | {b: bound[window] for b, window in outer.items()}
    bases = {b: f"P.base{k}" for k, b in enumerate(windows)}
    functions: list[str] = []
    params = [Param(f"base{k}", "u32", inside.base) for k, inside in enumerate(windows.values())]
    main = ["var g = wid.x + wid.y * nwg.x;"]
    groups = 0
    for k, p in enumerate(parts):
        own, load = f"p{k}_", f"ld{k}_"
        loops = Loops()
        decode = loops.decode("i", collapse(p.shape, range(len(p.shape)), p.emitter.forms), "c")
        functions += [
            load_function(j, number[b], dtype_of(b), load, base=bases.get(b, ""))
            for j, b in enumerate(p.emitter.loads)
        ]
        at = {b: f"{base} + i" for b, base in bases.items()}
        stores = [
            f"b{number[o.buffer]}[{at.get(o.buffer, 'i')}] = {stored(o.dtype, o.value)};"
            for o in p.outputs
        ]
        body = fill_forms(
            "\n".join(["if (i >= P.n) { return; }", *decode, *p.emitter.lines, *stores]),
            p.emitter.forms,
            loops,
            p.emitter.variables,
            load,
        )
        body = re.sub(r"\bP[.](?!base\d)", f"P.{own}", body)
        functions.append(f"fn part{k}(i: u32) {{\n{body}\n}}")
        n = prod(p.shape)
        mine = [Param("n", "u32", n), Param("groups", "u32", -(-n // LANES))]
        for q in (*mine, *loops.params, *p.emitter.params):
            params.append(replace(q, name=own + q.name))
        main.append(f"if (g < P.{own}groups) {{ part{k}(g * {LANES}u + lid); return; }}")
        main.append(f"g -= P.{own}groups;")
        groups += -(-n // LANES)
    text = "\n".join(main)
    program = assemble(name, bindings, params, "\n".join(functions), text, (LANES, 1, 1))
    return Step(program, tuple(params), tuple(b.buffer for b in bindings), groups, ops, why)


class ReducePlan(NamedTuple):
    """How `length` elements for each of `rows` results are spread."""

    lanes: int  # 1: a thread a row; else a workgroup of so many lanes
    splits: int


def plan_rows(
    rows: int, length: int, kept_contiguous: bool, splittable: bool, software: bool
) -> ReducePlan:
    """Threads for short or many rows (neighbouring threads read neighbouring memory when the kept
    dimension is contiguous), workgroups for long ones, several workgroups a row when rows are
    few. Workgroups stay small on software adapters: SwiftShader's compiler takes 0.45 ms for each
    element of workgroup memory, which it sets to zero one by one."""
    busy, busy_groups = BUSY_SOFTWARE if software else (BUSY, BUSY)
    short = length <= (SHORTEST if rows <= FEW_ROWS else SHORT)
    walk = short or (kept_contiguous and rows >= LANES and (splittable or length <= 1024))
    if walk:
        splits = 1
        if splittable and length > SHORT and rows < busy:
            splits = min(-(-length // SHORT), max(1, busy // rows))
        return ReducePlan(1, max(splits, -(-length // MAX_TRIPS)))
    lanes = 64 if length <= 2048 or software else 256
    splits = 1
    if splittable and rows * lanes < busy_groups and length > 8192:
        splits = min(-(-length // 4096), max(1, busy_groups // (rows * lanes)))
    return ReducePlan(lanes, max(splits, -(-length // (MAX_TRIPS * lanes))))


@dataclass
class Accum:
    """One reduction of a pass: what is added up, how, and the variable that gets the result."""

    combine: Any  # ops.reduce.Combine
    acc: DType
    value: str
    result: str


@dataclass
class Pass:
    """Reductions that one walk over the rows computes."""

    accums: list[Accum]
    lines: list[str]


@dataclass
class Rows:
    """A kernel over rows: passes of reductions, then results a row, then full-size results."""

    rows_shape: tuple[int, ...]
    axes_shape: tuple[int, ...]
    passes: list[Pass]
    row_lines: list[str]
    row_outputs: list[Output]
    full_lines: list[str]
    full_outputs: list[Output]


def _pass_text(
    p: Pass, number: int, plan: ReducePlan, decode: list[str]
) -> tuple[list[str], list[str]]:
    """(workgroup variables, statements) of one pass."""
    lanes = plan.lanes
    start, stride = ("first", "1u") if lanes == 1 else ("first + lid", f"{lanes}u")
    out: list[str] = []
    shared: list[str] = []
    names = [f"{number}_{k}" for k in range(len(p.accums))]
    for a, n in zip(p.accums, names, strict=True):
        out.append(f"var acc{n} = {a.combine.init[a.acc.kind]};")
        if a.combine.position:
            out.append(f"var at{n} = 0xffffffffu;")
    if any(a.combine.position for a in p.accums):
        (a,), (n,) = p.accums, names
        beats = a.combine.combine[a.acc.kind].format(a=f"acc{n}", b=a.value)
        take = f"if (at{n} == 0xffffffffu || {beats}) {{ acc{n} = {a.value}; at{n} = r; }}"
        out += [f"for (var r = {start}; r < last; r += {stride}) {{", *decode, *p.lines, take, "}"]
    else:
        # Blocks keep float32 sums accurate: errors grow with the depth of the tree, not the length.
        block = 64 * lanes
        out.append(f"for (var block = {start}; block < last; block += {block}u) {{")
        out += [
            f"var part{n} = {a.combine.init[a.acc.kind]};"
            for a, n in zip(p.accums, names, strict=True)
        ]
        out.append(f"let stop = min(block + {block}u, last);")
        out += [f"for (var r = block; r < stop; r += {stride}) {{", *decode, *p.lines]
        for a, n in zip(p.accums, names, strict=True):
            out.append(
                f"part{n} = {a.combine.combine[a.acc.kind].format(a=f'part{n}', b=a.value)};"
            )
        out.append("}")
        for a, n in zip(p.accums, names, strict=True):
            joined = a.combine.combine[a.acc.kind].format(a=f"acc{n}", b=f"part{n}")
            out.append(f"acc{n} = {joined};")
        out.append("}")
    if lanes == 1:
        for a, n in zip(p.accums, names, strict=True):
            out.append(f"let {a.result} = {f'i32(at{n})' if a.combine.position else f'acc{n}'};")
        return [], out
    merges: list[str] = []
    results: list[str] = []
    for k, (a, n) in enumerate(zip(p.accums, names, strict=True)):
        kind = a.acc.kind
        t = "u32" if kind == "b" else WGSL_TYPE[kind]
        sh = f"sh{k}_{t}"
        shared.append(f"var<workgroup> {sh}: array<{t}, {lanes}>;")
        to, frm = ("select(0u, 1u, {})", "({} != 0u)") if kind == "b" else ("{}", "{}")
        out.append(f"{sh}[lid] = {to.format(f'acc{n}')};")
        mine, other = frm.format(f"{sh}[lid]"), frm.format(f"{sh}[lid + s]")
        combine = a.combine.combine[kind]
        if a.combine.position:
            shared.append(f"var<workgroup> sp: array<u32, {lanes}>;")
            out.append(f"sp[lid] = at{n};")
            wins, loses = combine.format(a=mine, b=other), combine.format(a=other, b=mine)
            merges.append(
                f"if (sp[lid + s] != 0xffffffffu && (sp[lid] == 0xffffffffu || {wins} || "
                f"(!{loses} && sp[lid + s] < sp[lid]))) "
                f"{{ {sh}[lid] = {other}; sp[lid] = sp[lid + s]; }}"
            )
            results.append(f"let {a.result} = i32(sp[0]);")
        else:
            merges.append(f"{sh}[lid] = {to.format(combine.format(a=mine, b=other))};")
            results.append(f"let {a.result} = {frm.format(f'{sh}[0]')};")
    out += [
        "workgroupBarrier();",
        f"for (var s = {lanes // 2}u; s > 0u; s = s >> 1u) {{",
        "if (lid < s) {",
        *merges,
        "}",
        "workgroupBarrier();",
        "}",
        *results,
        "workgroupBarrier();",
    ]
    return shared, out


def rows(
    name: str,
    emitter: Emitter,
    r: Rows,
    plan: ReducePlan,
    dtype_of: DtypeOf,
    why: str,
    ops: tuple[str, ...],
) -> Step:
    """A row kernel. With splits each part of a row writes its partial result to [splits, *rows]."""
    k = len(r.rows_shape)
    # Where results go counts too, before dimensions are joined.
    places = [emitter.form(o.form) for o in r.full_outputs if o.form is not None]
    kept = collapse(r.rows_shape, range(k), emitter.forms)
    reduced = collapse(r.axes_shape, range(k, k + len(r.axes_shape)), emitter.forms)
    loops = Loops()
    decode_kept = loops.decode("row", kept, "c")
    decode_reduced = loops.decode("r", reduced, "d")
    outputs = [*r.row_outputs, *r.full_outputs]
    bindings, functions, number = bind(emitter, outputs, dtype_of)
    length, count = prod(r.axes_shape), prod(r.rows_shape)
    params = [Param("rows", "u32", count), Param("length", "u32", length)]
    total = "P.rows"
    if plan.splits > 1:
        params += [
            Param("splits", "u32", plan.splits),
            Param("chunk", "u32", -(-length // plan.splits)),
        ]
        total = "P.rows * P.splits"
        bounds = [
            "let row = o % P.rows;",
            "let first = (o / P.rows) * P.chunk;",
            "let last = min(first + P.chunk, P.length);",
        ]
    else:
        bounds = ["let row = o;", "let first = 0u;", "let last = P.length;"]
    index = "(wid.x + wid.y * nwg.x) * 64u + lid" if plan.lanes == 1 else "wid.x + wid.y * nwg.x"
    main = [f"let o = {index};", f"if (o >= {total}) {{ return; }}", *bounds, *decode_kept]
    shared: dict[str, None] = {}
    for n, p in enumerate(r.passes):
        declared, text = _pass_text(p, n, plan, decode_reduced)
        shared.update(dict.fromkeys(declared))
        main += text
    if r.row_outputs:
        stores = [f"b{number[o.buffer]}[o] = {stored(o.dtype, o.value)};" for o in r.row_outputs]
        inner = [*r.row_lines, *stores]
        main += inner if plan.lanes == 1 else ["if (lid == 0u) {", *inner, "}"]
    if r.full_outputs:
        start, stride = ("0u", "1u") if plan.lanes == 1 else ("lid", f"{plan.lanes}u")
        main += [
            f"for (var r = {start}; r < P.length; r += {stride}) {{",
            *decode_reduced,
            *r.full_lines,
        ]
        for o, place in zip(r.full_outputs, places, strict=True):
            main.append(f"b{number[o.buffer]}[{place}] = {stored(o.dtype, o.value)};")
        main.append("}")
    body = fill_forms("\n".join(main), emitter.forms, loops, emitter.variables)
    params += [*loops.params, *emitter.params]
    lanes = LANES if plan.lanes == 1 else plan.lanes
    functions += shared
    program = assemble(
        name, bindings, params, "\n".join(functions), body, (lanes, 1, 1), emitter.draft
    )
    threads = count * plan.splits
    groups = -(-threads // LANES) if plan.lanes == 1 else threads
    return Step(program, tuple(params), tuple(b.buffer for b in bindings), groups, ops, why)
