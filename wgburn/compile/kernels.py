"""Kernels that are made from expressions: elementwise groups and reductions.

Owns: the loops around emitted expressions, how a reduction is spread over threads and workgroups. Must
not know: which nodes get a buffer (lower.py decides), heavy kernels (templates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from ..core.dtype import DType
from .affine import Coords, Form
from .emit import WGSL_TYPE, Emitter, Param
from .program import Binding, Loops, Step, assemble, collapse, fill_forms, load_function, stored

LANES = 64
#: Loop trips of one invocation; some software Vulkan leaves loops at 65,536 without a word.
MAX_TRIPS = 32768
#: Reductions up to this many elements are one thread's work.
SHORT = 64
#: Threads that keep a GPU busy.
BUSY = 16384


class Output(NamedTuple):
    buffer: int
    dtype: DType


def _linear_id(lanes: int) -> str:
    return f"let i = (wid.x + wid.y * nwg.x) * {lanes}u + lid;"


def _bindings(
    emitter: Emitter, outputs: Sequence[Output], dtype_of: Callable[[int], DType]
) -> tuple[list[Binding], str]:
    """Bindings in order (reads, then writes) and the load functions."""
    written = {o.buffer for o in outputs}
    bindings = [Binding(b, dtype_of(b), b in written) for b in emitter.loads]
    functions = [load_function(k, k, b.dtype) for k, b in enumerate(bindings)]
    have = {b.buffer for b in bindings}
    bindings += [Binding(o.buffer, o.dtype, True) for o in outputs if o.buffer not in have]
    return bindings, "\n".join(functions)


def elementwise(
    name: str,
    emitter: Emitter,
    shape: tuple[int, ...],
    values: Sequence[str],
    outputs: Sequence[Output],
    dtype_of: Callable[[int], DType],
    why: str,
    ops: tuple[str, ...],
) -> Step:
    """One thread an element (four elements of 8 bits: they share a word) of `shape`; every output is dense."""
    n = prod(shape)
    dims = collapse(shape, range(len(shape)), emitter.forms)
    loops = Loops()
    decode = loops.decode("i", dims, "c")
    bindings, functions = _bindings(emitter, outputs, dtype_of)
    number = {b.buffer: k for k, b in enumerate(bindings)}
    packed = any(o.dtype.bits == 8 for o in outputs)
    body = [*decode, *emitter.lines]
    if packed:
        (out,) = outputs
        main = [
            "let w = (wid.x + wid.y * nwg.x) * 64u + lid;",
            "if (w >= (P.n + 3u) / 4u) { return; }",
            "var word = 0u;",
            "for (var lane = 0u; lane < 4u; lane++) {",
            "let i = w * 4u + lane;",
            "if (i >= P.n) { break; }",
            *body,
            f"word |= (u32({values[0]}) & 255u) << (lane * 8u);",
            "}",
            f"b{number[out.buffer]}[w] = word;",
        ]
        threads = -(-n // 4)
    else:
        stores = [
            f"b{number[o.buffer]}[i] = {stored(o.dtype, v)};"
            for o, v in zip(outputs, values, strict=True)
        ]
        main = [_linear_id(LANES), "if (i >= P.n) { return; }", *body, *stores]
        threads = n
    text = fill_forms("\n".join(main), emitter.forms, loops, emitter.variables)
    params = [Param("n", "u32", n), *loops.params, *emitter.params]
    program = assemble(name, bindings, params, functions, text, (LANES, 1, 1))
    return Step(
        program, tuple(params), tuple(b.buffer for b in bindings), -(-threads // LANES), ops, why
    )


class ReducePlan(NamedTuple):
    """How a reduction of `length` elements for each of `rows` results is spread."""

    lanes: int  # 1: a thread a result; else a workgroup of so many lanes
    splits: int


def plan_reduce(rows: int, length: int, kept_contiguous: bool, position: bool) -> ReducePlan:
    """Threads for short or many reductions (neighbouring threads read neighbouring memory when the kept
    dimension is contiguous), workgroups for long ones, several workgroups a result when results are few."""
    if length <= SHORT or (kept_contiguous and rows >= LANES):
        splits = 1
        if not position and length > SHORT and rows < BUSY:
            splits = min(-(-length // SHORT), max(1, BUSY // rows))
        splits = max(splits, -(-length // MAX_TRIPS))
        return ReducePlan(1, splits)
    lanes = 64 if length <= 2048 else 256
    splits = 1
    if not position and rows * lanes < BUSY and length > 8192:
        splits = min(-(-length // 4096), max(1, BUSY // (rows * lanes)))
    splits = max(splits, -(-length // (MAX_TRIPS * lanes)))
    return ReducePlan(lanes, splits)


class Reduction(NamedTuple):
    """What a reduction kernel computes, apart from where its input comes from."""

    combine: Any  # ops.reduce.Combine
    acc: DType  # the accumulator's dtype
    rows_shape: tuple[int, ...]
    axes_shape: tuple[int, ...]


def reduce_body(
    red: Reduction,
    plan: ReducePlan,
    value: str,
    lines: Sequence[str],
    decode_kept: list[str],
    decode_reduced: list[str],
    store: Callable[[str, str], str],
) -> tuple[str, str]:
    """(declarations, main body). `store(index, value)` writes a result."""
    kind = red.acc.kind
    t = WGSL_TYPE[kind]
    init, combine = red.combine.init[kind], red.combine.combine[kind]
    position = red.combine.position
    step = [*decode_reduced, *lines]
    if position:
        beats = combine.format(a="acc", b=value)
        inner = [*step, f"if (at == 0xffffffffu || {beats}) {{ acc = {value}; at = r; }}"]
    else:
        inner = [*step, f"part = {combine.format(a='part', b=value)};"]
    head = [f"var acc = {init};"] + (["var at = 0xffffffffu;"] if position else [])
    rows = (
        ["let part_id = o / P.rows;", "let row = o % P.rows;"]
        if plan.splits > 1
        else ["let row = o;"]
    )
    bounds = (
        ["let first = part_id * P.chunk;", "let last = min(first + P.chunk, P.length);"]
        if plan.splits > 1
        else ["let first = 0u;", "let last = P.length;"]
    )
    total = "P.rows * P.splits" if plan.splits > 1 else "P.rows"
    start, stride = ("first", "1u") if plan.lanes == 1 else ("first + lid", f"{plan.lanes}u")
    if position:
        loop = [f"for (var r = {start}; r < last; r += {stride}) {{", *inner, "}"]
    else:
        # Blocks keep float32 sums accurate: errors grow with the square root of the depth, not the length.
        block = 64 * (1 if plan.lanes == 1 else plan.lanes)
        loop = [
            f"for (var block = {start}; block < last; block += {block}u) {{",
            f"var part = {init};",
            f"let stop = min(block + {block}u, last);",
            f"for (var r = block; r < stop; r += {stride}) {{",
            *inner,
            "}",
            f"acc = {combine.format(a='acc', b='part')};",
            "}",
        ]
    if plan.lanes == 1:
        result = "i32(at)" if position else "acc"
        body = [
            "let o = (wid.x + wid.y * nwg.x) * 64u + lid;",
            f"if (o >= {total}) {{ return; }}",
            *rows,
            *decode_kept,
            *bounds,
            *head,
            *loop,
            store("o", result),
        ]
        return "", "\n".join(body)
    shared = "u32" if kind == "b" else t
    to, frm = ("select(0u, 1u, {})", "({} != 0u)") if kind == "b" else ("{}", "{}")
    declare = f"var<workgroup> sh: array<{shared}, {plan.lanes}>;"
    if position:
        declare += f"\nvar<workgroup> sp: array<u32, {plan.lanes}>;"
        a, b = "sh[lid]", "sh[lid + s]"
        wins, loses = combine.format(a=a, b=b), combine.format(a=b, b=a)
        merge = [
            f"if (sp[lid + s] != 0xffffffffu && (sp[lid] == 0xffffffffu || {wins} || "
            f"(!{loses} && sp[lid + s] < sp[lid]))) {{ sh[lid] = {b}; sp[lid] = sp[lid + s]; }}"
        ]
        keep = ["sh[lid] = acc;", "sp[lid] = at;"]
        result = "i32(sp[0])"
    else:
        joined = combine.format(a=frm.format("sh[lid]"), b=frm.format("sh[lid + s]"))
        merge = [f"sh[lid] = {to.format(joined)};"]
        keep = [f"sh[lid] = {to.format('acc')};"]
        result = frm.format("sh[0]")
    body = [
        "let o = wid.x + wid.y * nwg.x;",
        f"if (o >= {total}) {{ return; }}",
        *rows,
        *decode_kept,
        *bounds,
        *head,
        *loop,
        *keep,
        "workgroupBarrier();",
        f"for (var s = {plan.lanes // 2}u; s > 0u; s = s >> 1u) {{",
        "if (lid < s) {",
        *merge,
        "}",
        "workgroupBarrier();",
        "}",
        "if (lid == 0u) {",
        store("o", result),
        "}",
    ]
    return declare, "\n".join(body)


def reduction(
    name: str,
    emitter: Emitter,
    red: Reduction,
    plan: ReducePlan,
    value: str,
    output: Output,
    dtype_of: Callable[[int], DType],
    why: str,
    ops: tuple[str, ...],
) -> Step:
    """A reduction kernel; with splits it writes [splits, *rows] partial results."""
    k = len(red.rows_shape)
    kept = collapse(red.rows_shape, range(k), emitter.forms)
    reduced = collapse(red.axes_shape, range(k, k + len(red.axes_shape)), emitter.forms)
    loops = Loops()
    decode_kept = loops.decode("row", kept, "c")
    decode_reduced = loops.decode("r", reduced, "d")
    bindings, functions = _bindings(emitter, [output], dtype_of)
    number = {b.buffer: n for n, b in enumerate(bindings)}[output.buffer]

    def store(index: str, text: str) -> str:
        return f"b{number}[{index}] = {stored(output.dtype, text)};"

    declare, main = reduce_body(red, plan, value, emitter.lines, decode_kept, decode_reduced, store)
    main = fill_forms(main, emitter.forms, loops, emitter.variables)
    rows, length = prod(red.rows_shape), prod(red.axes_shape)
    params = [Param("rows", "u32", rows), Param("length", "u32", length)]
    if plan.splits > 1:
        params += [
            Param("splits", "u32", plan.splits),
            Param("chunk", "u32", -(-length // plan.splits)),
        ]
    params += [*loops.params, *emitter.params]
    lanes = LANES if plan.lanes == 1 else plan.lanes
    program = assemble(name, bindings, params, f"{functions}\n{declare}", main, (lanes, 1, 1))
    threads = rows * plan.splits
    groups = -(-threads // LANES) if plan.lanes == 1 else threads
    return Step(program, tuple(params), tuple(b.buffer for b in bindings), groups, ops, why)


def reduce_coords(ndim: int, axes: tuple[int, ...]) -> Coords:
    """Coordinates of a reduction's input: kept dimensions are variables 0.., reduced ones follow."""
    kept = [d for d in range(ndim) if d not in axes]
    variable = {d: v for v, d in enumerate([*kept, *axes])}
    return tuple(Form(((variable[d], 1),)) for d in range(ndim))
