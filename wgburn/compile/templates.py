"""Heavy kernels: from a graph node to a kernel family of `shaders/`.

Owns: one function a family that turns shapes, attributes and operand layouts into a spec and launch
values, and wraps the family's text into a program. Must not know: expressions, fusion, slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from wgburn_shaders.kernels import conv as kconv
from wgburn_shaders.kernels import index as kindex
from wgburn_shaders.kernels import matmul as kmatmul
from wgburn_shaders.kernels import pool as kpool
from wgburn_shaders.kernels import scan as kscan
from wgburn_shaders.kernels import sort as ksort
from wgburn_shaders.kernels.body import KernelBody

from ..core.dtype import DType
from ..core.shape import dense_strides
from .affine import Num
from .emit import WGSL_TYPE, Emitter, Param
from .graph import GNode, Graph
from .kernels import Output
from .program import (
    Binding,
    Loops,
    Step,
    assemble,
    collapse,
    fill_forms,
    load_function,
    stored,
)


class Operand(NamedTuple):
    """An input in memory: strides and offset in elements."""

    buffer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: Num


@dataclass
class Launched:
    """A kernel's text and values; `splits` > 1: the output is [splits, *shape] partial sums."""

    body: KernelBody
    values: dict[str, Any]
    groups: int
    splits: int = 1


class Target(NamedTuple):
    """What a family should know of where and for what it is launched."""

    software: bool  # a software adapter
    epilogue: bool  # more is done with a result than storing it


class Family(NamedTuple):
    """How an op uses a kernel family;  strided: which inputs may have any strides (others are made
    dense)."""

    launch: Callable[[GNode, Sequence[Operand], Target], Launched]
    strided: tuple[bool, ...]
    order: tuple[int, ...] | None = None  # kernel input k is op input order[k]


def _acc(node: GNode) -> str:
    return "u32" if node.dtype.kind == "b" else WGSL_TYPE[node.dtype.kind]


def _offsets(values: dict[str, Any], **offsets: Num) -> dict[str, Any]:
    return values | dict(offsets)


def _rolled(spec: kmatmul.MatmulSpec | kconv.ConvSpec, splits: int, target: Target) -> bool:
    """Whether the text stores a tile's outputs in one place. An epilogue is long, and so is every
    store for a CPU, where each lane has its own (measured for 16 x 16: compiled in 0.5 s instead of
    1.6 s on lavapipe, 1.0 instead of 2.3 in SwiftShader)."""
    long = target.software or (target.epilogue and splits == 1)
    return long and spec.tm * spec.tn > 4


def _matmul(node: GNode, ops: Sequence[Operand], target: Target) -> Launched:
    a, b = ops
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = node.shape[:-2]

    def strides(o: Operand) -> list[int]:
        lead = len(batch) - (len(o.shape) - 2)
        own = [0] * lead + [
            0 if s == 1 else st for s, st in zip(o.shape[:-2], o.strides[:-2], strict=True)
        ]
        return [*own, *o.strides[-2:]]

    sa, sb = strides(a), strides(b)
    sizes = list(batch)
    # Adjacent batch dimensions that both operands walk as one are one.
    d = 0
    while d + 1 < len(sizes):
        if all(s[d] == s[d + 1] * sizes[d + 1] for s in (sa, sb)):
            for s in (sa, sb):
                del s[d]
            sizes[d : d + 2] = [sizes[d] * sizes[d + 1]]
        else:
            d += 1
    # A batch against one matrix with rows in sequence is one tall product.
    if len(sizes) == 1 and sb[0] == 0 and sa[0] == sa[1] * m:
        m *= sizes.pop()
        del sa[0], sb[0]
    # Two tiles where something follows would be two texts for each layer as a batch grows.
    two = target.software and not target.epilogue
    spec, splits = kmatmul.choose(_acc(node), sizes, m, n, k, software=two)
    values, groups = kmatmul.launch(spec, sizes, m, n, k, sa, sb, 0, 0, splits)
    spec = spec._replace(rolled=_rolled(spec, splits, target))
    return Launched(
        kmatmul.build(spec), _offsets(values, a_off=a.offset, b_off=b.offset), groups, splits
    )


def _conv(kind: str) -> Callable[[GNode, Sequence[Operand], Target], Launched]:
    def launch(node: GNode, ops: Sequence[Operand], target: Target) -> Launched:
        a, b = ops
        attrs = node.attrs
        if kind == kconv.FORWARD:
            sizes = kconv.ConvSizes(
                a.shape[0],
                a.shape[1],
                b.shape[0],
                a.shape[2:],
                node.shape[2:],
                attrs.padding,
                attrs.groups,
            )
            kernel = b.shape[2:]
            names = ("src_off", "w_off")
        elif kind == kconv.INPUT_GRAD:
            sizes = kconv.ConvSizes(
                a.shape[0],
                node.shape[1],
                a.shape[1],
                node.shape[2:],
                a.shape[2:],
                attrs.padding,
                attrs.groups,
            )
            kernel = b.shape[2:]
            names = ("src_off", "w_off")
        else:
            sizes = kconv.ConvSizes(
                a.shape[0],
                b.shape[1],
                a.shape[1],
                b.shape[2:],
                a.shape[2:],
                attrs.padding,
                attrs.groups,
            )
            kernel = node.shape[2:]
            names = ("g_off", "x_off")
        structure = (kind, _acc(node), kernel, attrs.stride, attrs.dilation, sizes)
        spec, splits = kconv.choose(*structure, software=target.software)
        values, groups = kconv.launch(spec, sizes, a.strides, b.strides, 0, 0, splits)
        spec = spec._replace(rolled=_rolled(spec, splits, target))
        return Launched(
            kconv.build(spec), values | {names[0]: a.offset, names[1]: b.offset}, groups, splits
        )

    return launch


def _pool(what: str) -> Callable[[GNode, Sequence[Operand], Target], Launched]:
    def launch(node: GNode, ops: Sequence[Operand], target: Target) -> Launched:
        a = node.attrs
        planes = node.shape[0] * node.shape[1]
        acc = WGSL_TYPE[ops[0].dtype.kind]
        spec = kpool.PoolSpec(what, acc, a.kernel, a.stride, a.dilation, a.count_pad)
        size = a.size or ops[0].shape[2:]
        values, groups = kpool.launch(spec, planes, size, a.out, a.padding)
        return Launched(kpool.build(spec), values, groups)

    return launch


def _around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _index(what: str, has_base: bool) -> Callable[[GNode, Sequence[Operand], Target], Launched]:
    writes = what in kindex.WRITES

    def launch(node: GNode, ops: Sequence[Operand], target: Target) -> Launched:
        along = node.shape if writes else ops[0].shape
        _, length, _ = _around(along, node.attrs)
        outer, count, inner = _around(ops[0].shape if writes else node.shape, node.attrs)
        spec = kindex.choose(what, _acc(node), outer, inner, has_base)
        values, groups = kindex.launch(spec, outer, length, inner, count)
        return Launched(kindex.build(spec), values, groups)

    return launch


def _scan(what: str) -> Callable[[GNode, Sequence[Operand], Target], Launched]:
    def launch(node: GNode, ops: Sequence[Operand], target: Target) -> Launched:
        outer, length, inner = _around(node.shape, node.attrs)
        acc = WGSL_TYPE[ops[0].dtype.kind]
        spec = kscan.choose(what, acc, outer, length, inner, software=target.software)
        values, groups = kscan.launch(spec, outer, length, inner)
        return Launched(kscan.build(spec), values, groups)

    return launch


def _sort(what: str) -> Callable[[GNode, Sequence[Operand], Target], Launched]:
    def launch(node: GNode, ops: Sequence[Operand], target: Target) -> Launched:
        rows, length, _ = _around(node.shape, len(node.shape) - 1)
        acc = "u32" if ops[0].dtype.kind == "b" else WGSL_TYPE[ops[0].dtype.kind]
        run = node.attrs.run
        spec = ksort.choose(what, acc, length, node.attrs.descending, run)
        values, groups = ksort.launch(spec, rows, length, run)
        return Launched(ksort.build(spec), values, groups)

    return launch


def _overwrites(what: str) -> Family:
    return Family(_index(what, True), (False, False, False), (2, 1, 0))


FAMILIES: dict[str, Family] = {
    "matmul": Family(_matmul, (True, True)),
    "conv": Family(_conv(kconv.FORWARD), (True, True)),
    "conv_input_grad": Family(_conv(kconv.INPUT_GRAD), (True, True)),
    "conv_weight_grad": Family(_conv(kconv.WEIGHT_GRAD), (True, True)),
    "max_pool": Family(_pool(kpool.MAX), (False,)),
    "max_pool_index": Family(_pool(kpool.ARGMAX), (False,)),
    "max_pool_grad": Family(_pool(kpool.MAX_GRAD), (False, False)),
    "avg_pool": Family(_pool(kpool.AVG), (False,)),
    "avg_pool_grad": Family(_pool(kpool.AVG_GRAD), (False,)),
    "gather": Family(_index(kindex.GATHER, False), (False, False)),
    "index_select": Family(_index(kindex.INDEX_SELECT, False), (False, False)),
    "scatter_add": Family(_index(kindex.SCATTER_ADD, True), (False, False, False), (2, 1, 0)),
    "index_add": Family(_index(kindex.INDEX_ADD, True), (False, False, False), (2, 1, 0)),
    # The sums of a gradient start from zeros: the kernel needs no memory full of them.
    "scatter_add/zeros": Family(_index(kindex.SCATTER_ADD, False), (False, False, False), (2, 1)),
    "index_add/zeros": Family(_index(kindex.INDEX_ADD, False), (False, False, False), (2, 1)),
    "scatter": _overwrites(kindex.SCATTER_SET),
    "scatter_prod": _overwrites(kindex.SCATTER_PROD),
    "scatter_amax": _overwrites(kindex.SCATTER_AMAX),
    "scatter_amin": _overwrites(kindex.SCATTER_AMIN),
    "index_copy": _overwrites(kindex.INDEX_SET),
    "cumsum": Family(_scan(kscan.SUM), (False,)),
    "cumprod": Family(_scan(kscan.PROD), (False,)),
    "linear_scan": Family(_scan(kscan.LINEAR), (False, False)),
    "cummax_index": Family(_scan(kscan.MAX_AT), (False,)),
    "cummin_index": Family(_scan(kscan.MIN_AT), (False,)),
    "sort_blocks": Family(_sort(ksort.BLOCKS), (False,)),
    "sort_merge": Family(_sort(ksort.MERGE), (False, False)),
}


def family_of(graph: Graph, node: GNode) -> Family:
    """The family of a node's template, where adding to zeros is a kind of its own."""
    name = node.op.wgsl.name
    if name in ("scatter_add", "index_add") and graph.is_zero(node.srcs[0]):
        name += "/zeros"
    return FAMILIES[name]


def dense(o: Operand) -> bool:
    """Whether an operand is row-major without gaps."""
    want = dense_strides(o.shape)
    return o.offset == Num() and all(
        s == 1 or a == b for s, a, b in zip(o.shape, o.strides, want, strict=True)
    )


class Epilogue(NamedTuple):
    """Elementwise work on a kernel's result, done where it is stored. The statements see the result
    as `v` and its dense position as `o`."""

    emitter: Emitter
    lines: list[str]
    outputs: list[Output]
    loops: tuple[int, ...]  # sizes of the loops that the emitter's variables walk


def step(
    node: GNode,
    launched: Launched,
    operands: Sequence[Operand],
    epilogue: Epilogue,
    dtype_of: Callable[[int], DType],
    why: str,
    ops: tuple[str, ...],
) -> Step:
    """The launch of a kernel: bindings, load and store functions, parameters."""
    order: list[int] = []
    for b in [*(o.buffer for o in operands), *epilogue.emitter.loads]:
        if b not in order:
            order.append(b)
    written = {o.buffer for o in epilogue.outputs}
    bindings = [Binding(b, dtype_of(b), b in written) for b in order]
    # Booleans travel through index kernels as the u32 they are stored as.
    functions = [
        load_function(k, order.index(o.buffer), o.dtype, raw=True) for k, o in enumerate(operands)
    ]
    functions += [
        load_function(k, order.index(b), dtype_of(b), "eld")
        for k, b in enumerate(epilogue.emitter.loads)
    ]
    for o in epilogue.outputs:
        if o.buffer not in order:
            order.append(o.buffer)
            bindings.append(Binding(o.buffer, o.dtype, True))
    e = epilogue.emitter
    loops = Loops()
    decode = loops.decode("o", collapse(epilogue.loops, range(len(epilogue.loops)), e.forms), "c")
    raw = node.dtype.kind == "b"
    stores = [
        f"b{order.index(x.buffer)}[o] = {x.value if raw else stored(x.dtype, x.value)};"
        for x in epilogue.outputs
    ]
    body = fill_forms(
        "\n".join([*decode, *epilogue.lines, *stores]), e.forms, loops, e.variables, "eld"
    )
    t = "u32" if raw else WGSL_TYPE[node.dtype.kind]
    functions.append(f"fn st0(o: u32, v: {t}) {{\n{body}\n}}")
    params = [Param(name, type_, launched.values[name]) for name, type_ in launched.body.params]
    params += [*loops.params, *e.params]
    program = assemble(
        node.op.name,
        bindings,
        params,
        "\n".join(functions),
        launched.body.wgsl,
        launched.body.workgroup,
        e.draft,
    )
    return Step(
        program, tuple(params), tuple(b.buffer for b in bindings), launched.groups, ops, why
    )
