"""Lowering: a graph to a plan of WGSL launches.

Owns: which nodes get memory of their own, how views are resolved, the order of launches, 8-bit packing.
Must not know: how a kernel's text is written (kernels.py, templates.py), buffers, drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..core import dtype as dt
from ..core.dtype import DType
from ..core.errors import DeviceError, DTypeError
from ..core.shape import dense_strides
from . import kernels, templates
from .affine import Coords, Form, Num, linear, loop_coords, split
from .emit import Emitter, NeedsBuffer, Source, cast_text, view_coords
from .graph import GNode, Graph
from .plan import OutputSlot, Plan, build
from .program import Step

#: Elements that a 32-bit index reaches.
MAX_ELEMENTS = 1 << 32


def device_bytes(shape: tuple[int, ...], dtype: DType) -> int:
    """Bytes of a dense value in device memory: booleans are a word each, 8-bit integers share words."""
    n = prod(shape)
    size = 4 * n if dtype.bits in (1, 32) else 2 * n if dtype.bits == 16 else n
    return max(-(-size // 4) * 4, 4)


class Lowering:
    """One graph on its way to a plan."""

    def __init__(self, graph: Graph, limits: Mapping[str, int], features: frozenset[str]) -> None:
        self.graph = graph
        self.limits = limits
        self.features = features
        self.steps: list[Step] = []
        self.sources: dict[int, Source] = {}
        self.sizes: dict[int, int] = {}
        self.dtypes: dict[int, DType] = {}
        self.next_buffer = graph.leaves
        for i, n in enumerate(graph.nodes):
            if n.op is None:
                offset = Num(0, ((n.offset_slot, 1),)) if n.offset_slot >= 0 else Num()
                self.sources[i] = Source(n.alias, n.dtype, n.strides, offset)
                self.dtypes[n.alias] = n.dtype

    # -- buffers ----------------------------------------------------------------------------------
    def new_buffer(self, shape: tuple[int, ...], dtype: DType, what: str) -> int:
        nbytes = device_bytes(shape, dtype)
        most = self.limits["maxStorageBufferBindingSize"]
        if nbytes > most:
            raise DeviceError(
                f"{what}: a result of shape {shape} needs {nbytes} bytes, maxStorageBufferBindingSize of this device is "
                f"{most}; open it with limits='adapter' or split the tensor"
            )
        number = self.next_buffer
        self.next_buffer += 1
        self.sizes[number] = nbytes
        self.dtypes[number] = dtype
        return number

    # -- nodes ------------------------------------------------------------------------------------
    def run(self) -> Plan:
        for i, n in enumerate(self.graph.nodes):
            if n.op is not None and self.wants_memory(i, n):
                self.materialise(i)
        outputs = [self.output(o) for o in self.graph.outputs]
        most = self.limits["maxComputeWorkgroupsPerDimension"]
        label = ",".join(dict.fromkeys(o for s in self.steps for o in s.ops))[:80]
        return build(self.steps, self.sizes, self.graph.leaves, outputs, most, label)

    def wants_memory(self, i: int, n: GNode) -> bool:
        """One kernel an op: all but views and constants, which cost their readers nothing."""
        return n.op.kind != "view" and n.op.name != "const" and i not in self.sources

    def materialise(self, i: int) -> None:
        """Give a node dense memory; whatever it needs in memory first comes before it."""
        while True:
            try:
                self._lower(i)
                return
            except NeedsBuffer as need:
                if need.node == i:
                    raise
                self.materialise(need.node)

    def _lower(self, i: int) -> None:
        n = self.graph.nodes[i]
        self._check_dtype(n)
        kind = "leaf" if n.op is None else n.op.kind
        wide = dt.int32 if n.dtype is dt.int8 else dt.uint32
        if n.dtype.bits == 8 and kind in ("reduce", "kernel"):
            # Neighbours share a word: compute in words, then pack.
            source = Source(self._heavy(i, n, wide, kind), wide)
            self.sources[i] = source
            self._elementwise(i, n)
        elif kind in ("reduce", "kernel"):
            self.sources[i] = Source(self._heavy(i, n, n.dtype, kind), n.dtype)
        else:
            self._elementwise(i, n)

    def _check_dtype(self, n: GNode) -> None:
        if n.dtype is dt.float16 and "shader-f16" not in self.features:
            raise DTypeError("float16: this device has no shader-f16; use float32")

    def emitter(self, extent: dict[int, int]) -> Emitter:
        return Emitter(self.graph, self.sources, extent)

    def _elementwise(self, i: int, n: GNode) -> None:
        e = self.emitter(dict(enumerate(n.shape)))
        value = e.emit(i, loop_coords(n.shape))
        name = "copy" if n.op is None else n.op.name
        if len(e.loads) + 1 > self.limits["maxStorageBuffersPerShaderStage"]:
            raise DeviceError(
                f"{name}: {len(e.loads)} inputs and a result are more storage buffers than the device binds"
            )
        out = kernels.Output(self.new_buffer(n.shape, n.dtype, name), n.dtype)
        ops = tuple(self.graph.nodes[k].op.name for k in e.nodes) or (name,)
        step = kernels.elementwise(
            name, e, n.shape, [value], [out], self.dtypes.__getitem__, "one kernel an op", ops
        )
        self.steps.append(step)
        self.sources[i] = Source(out.buffer, n.dtype)

    def _heavy(self, i: int, n: GNode, dtype: DType, kind: str) -> int:
        return self._reduce(n, dtype) if kind == "reduce" else self._kernel(n, dtype)

    # -- reductions -------------------------------------------------------------------------------
    def _reduce(self, n: GNode, dtype: DType) -> int:
        src = n.srcs[0]
        inner = self.graph.nodes[src]
        axes = n.attrs.axes
        kept = tuple(s for d, s in enumerate(inner.shape) if d not in axes)
        reduced = tuple(inner.shape[d] for d in axes)
        e = self.emitter(dict(enumerate((*kept, *reduced))))
        value = e.emit(src, kernels.reduce_coords(len(inner.shape), axes))
        combine = n.op.wgsl
        acc = inner.dtype if combine.position else dt.float32 if dtype.is_float else dtype
        if not combine.position:
            value = cast_text(value, inner.dtype, acc)
        if n.op.name in ("any", "all"):
            acc = dt.bool_
        red = kernels.Reduction(combine, acc, kept, reduced)
        rows, length = prod(kept), prod(reduced)
        contiguous = bool(kept) and any((len(kept) - 1, 1) in f.terms for f in e.forms)
        plan = kernels.plan_reduce(max(rows, 1), length, contiguous, combine.position)
        ops = (*(self.graph.nodes[k].op.name for k in e.nodes), n.op.name)
        if plan.splits == 1:
            out = kernels.Output(self.new_buffer(n.shape, dtype, n.op.name), dtype)
            self.steps.append(
                kernels.reduction(
                    n.op.name, e, red, plan, value, out, self.dtypes.__getitem__, "reduction", ops
                )
            )
            return out.buffer
        if combine.position:
            raise DeviceError(
                f"{n.op.name} over {length} elements is more than one workgroup can walk; reduce in two steps"
            )
        part = kernels.Output(self.new_buffer((plan.splits, rows), acc, n.op.name), acc)
        self.steps.append(
            kernels.reduction(
                n.op.name,
                e,
                red,
                plan,
                value,
                part,
                self.dtypes.__getitem__,
                "split reduction",
                ops,
            )
        )
        return self._second_stage(n, combine, part.buffer, acc, plan.splits, rows, dtype)

    def _second_stage(
        self, n: GNode, combine: Any, part: int, acc: DType, splits: int, rows: int, dtype: DType
    ) -> int:
        """Add up [splits, rows] partial results."""
        e = self.emitter({0: rows, 1: splits})
        value = e._load(Source(part, acc), Form(((0, 1), (1, rows))))
        red = kernels.Reduction(combine, acc, (rows,), (splits,))
        plan = kernels.ReducePlan(1, 1)
        out = kernels.Output(self.new_buffer(n.shape, dtype, n.op.name), dtype)
        self.steps.append(
            kernels.reduction(
                f"{n.op.name}_second_stage",
                e,
                red,
                plan,
                value,
                out,
                self.dtypes.__getitem__,
                "second stage",
                (n.op.name,),
            )
        )
        return out.buffer

    # -- heavy kernels ----------------------------------------------------------------------------
    def _kernel(self, n: GNode, dtype: DType) -> int:
        if prod(n.shape) == 0:
            return self.new_buffer(n.shape, dtype, n.op.name)
        family = templates.family_of(self.graph, n)
        order = family.order or tuple(range(len(n.srcs)))
        operands = [self.operand(n.srcs[k], family.strided[k]) for k in order]
        launched = family.launch(n, operands)
        if launched.splits > 1:
            from ..ops.reduce import sum_

            acc = dt.float32 if dtype.is_float else dtype
            rows = prod(n.shape)
            part = self.new_buffer((launched.splits, rows), acc, n.op.name)
            self.steps.append(templates.step(n, launched, operands, part, acc))
            return self._second_stage(n, sum_.wgsl, part, acc, launched.splits, rows, dtype)
        out = self.new_buffer(n.shape, dtype, n.op.name)
        self.steps.append(templates.step(n, launched, operands, out, dtype))
        return out

    def operand(self, i: int, strided: bool) -> templates.Operand:
        """A node as memory with strides; made dense where the kernel needs that."""
        n = self.graph.nodes[i]
        found = self.resolve(i)
        if found is not None:
            o = templates.Operand(found[0].buffer, n.dtype, n.shape, found[1], found[2])
            if strided or templates.dense(o):
                return o
        raise_if = self.sources.get(i)
        if raise_if is not None and raise_if.strides is None:
            raise NeedsBuffer(i)
        self.materialise(i)
        s = self.sources[i]
        return templates.Operand(s.buffer, n.dtype, n.shape, dense_strides(n.shape), s.offset)

    def resolve(self, i: int) -> tuple[Source, tuple[int, ...], Num] | None:
        """A node that is a strided view of memory: (memory, strides, offset)."""
        shape = self.graph.nodes[i].shape
        found = self._walk(i, loop_coords(shape), dict(enumerate(shape)))
        if found is None:
            return None
        source, form = found
        coefs = dict(form.terms)
        return source, tuple(coefs.get(d, 0) for d in range(len(shape))), form.offset

    def _walk(self, i: int, coords: Coords, extent: dict[int, int]) -> tuple[Source, Form] | None:
        source = self.sources.get(i)
        n = self.graph.nodes[i]
        if source is not None:
            return source, linear(coords, source.strides or dense_strides(n.shape), source.offset)
        if n.op.kind != "view":
            return None
        if n.op.name != "reshape":
            return self._walk(
                n.srcs[0], view_coords(n, self.graph.nodes[n.srcs[0]].shape, coords), extent
            )
        position = linear(coords, dense_strides(n.shape))
        src = n.srcs[0]
        while True:
            inner, source = self.graph.nodes[src], self.sources.get(src)
            if source is not None and source.strides is None:
                return source, position.shifted(source.offset)
            if source is not None or inner.op is None or inner.op.name != "reshape":
                break
            src = inner.srcs[0]
        new = split(position, inner.shape, extent)
        return None if new is None else self._walk(src, new, extent)

    # -- outputs ----------------------------------------------------------------------------------
    def output(self, i: int) -> OutputSlot:
        """Where an output lies: its own memory, or a view of memory that stays."""
        n = self.graph.nodes[i]
        if i not in self.sources:
            found = self.resolve(i)
            if found is None:
                self.materialise(i)
        found = self.resolve(i)
        assert found is not None
        source, strides, offset = found
        o = templates.Operand(source.buffer, n.dtype, n.shape, strides, offset)
        if templates.dense(o):
            return OutputSlot(source.buffer, n.shape, n.dtype)
        return OutputSlot(source.buffer, n.shape, n.dtype, strides, offset)


def lower(graph: Graph, limits: Mapping[str, int], features: frozenset[str]) -> Plan:
    """The plan of a graph on a device with these limits and features.

    Raises DeviceError naming a limit that a result breaks, DTypeError for a dtype the device lacks.
    """
    return Lowering(graph, limits, features).run()
