"""Lowering: a graph to a plan of WGSL launches.

Owns: which nodes get memory of their own, how views are resolved, the order of launches, 8-bit packing.
Must not know: how a kernel's text is written (kernels.py, templates.py), buffers, drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from ..core import dtype as dt
from ..core.dtype import DType
from ..core.errors import DeviceError, DTypeError
from ..core.shape import dense_strides
from ..ops.reduce import sum_
from . import kernels, templates
from .affine import Coords, Domain, Form, Num, linear, loop_coords, split
from .emit import (
    Emitter,
    Misplaced,
    NeedsBuffer,
    NeedsSplit,
    Source,
    cast_text,
    view_coords,
)
from .group import Group, Grouping
from .graph import GNode, Graph
from .plan import OutputSlot, Plan, build
from .program import Step
from .simplify import simplify

#: Elements that a 32-bit index reaches.
MAX_ELEMENTS = 1 << 32


def device_bytes(shape: tuple[int, ...], dtype: DType) -> int:
    """Bytes of a dense value in device memory: booleans are a word each, 8-bit integers share words."""
    n = prod(shape)
    size = 4 * n if dtype.bits in (1, 32) else 2 * n if dtype.bits == 16 else n
    return max(-(-size // 4) * 4, 4)


class Lowering:
    """One graph on its way to a plan."""

    _rehearsing = False

    def __init__(
        self,
        graph: Graph,
        limits: Mapping[str, int],
        features: frozenset[str],
        fuse: bool,
        software: bool,
    ) -> None:
        self.graph = graph
        self.software = software
        self.fuse = fuse
        self.limits = limits
        self.features = features
        self.steps: list[Step] = []
        self.sources: dict[int, Source] = {}
        self.sizes: dict[int, int] = {}
        self.dtypes: dict[int, DType] = {}
        self.labels: dict[int, tuple[str, int]] = {}
        self.next_buffer = graph.leaves
        self.done: set[int] = set()
        self.donations = {
            i: leaf for i, leaf in graph.donations.items() if self._same_size(i, leaf)
        }
        for i, n in enumerate(graph.nodes):
            if n.op is None:
                offset = Num(0, ((n.offset_slot, 1),)) if n.offset_slot >= 0 else Num()
                self.sources[i] = Source(n.alias, n.dtype, n.strides, offset)
                self.dtypes[n.alias] = n.dtype
                self.labels[n.alias] = (
                    f"{n.dtype.name}{list(n.shape)}",
                    device_bytes(n.shape, n.dtype),
                )

    def _same_size(self, i: int, leaf: int) -> bool:
        old = next(n for n in self.graph.nodes if n.leaf == leaf)
        new = self.graph.nodes[i]
        alone = sum(n.op is None and n.alias == old.alias for n in self.graph.nodes) == 1
        return alone and old.shape == new.shape and old.dtype is new.dtype and new.dtype.bits != 8

    def _dtype(self, buffer: int) -> DType:
        """The dtype of a buffer's elements (a negative number: of a node that a rehearsal supposes)."""
        return self.graph.nodes[-1 - buffer].dtype if buffer < 0 else self.dtypes[buffer]

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
        self.labels[number] = (f"{dtype.name}{list(shape)}", nbytes)
        return number

    # -- groups -----------------------------------------------------------------------------------
    def run(self) -> Plan:
        most = self.limits["maxStorageBuffersPerShaderStage"] - 1
        self.grouping = Grouping(self.graph, self.fuse, self.trial, self._adopt, most_reads=most)
        for group in self.grouping.ordered(set(self.donations)):
            self.lower_group(group, self.grouping.stored(group))
            self.done.add(id(group))
        outputs = [self.output(o) for o in self.graph.outputs]
        most = self.limits["maxComputeWorkgroupsPerDimension"]
        label = ",".join(dict.fromkeys(o for s in self.steps for o in s.ops))[:80]
        return build(self.steps, self.sizes, self.graph.leaves, outputs, most, label)

    def _adopt(self, grouping: Grouping) -> None:
        """Rehearsals during grouping see the groups there are so far."""
        self.grouping = grouping

    def trial(self, group: Group, stored: dict[int, bool]) -> str:
        """Why a group cannot be one kernel, or "": its text is written as if all it reads were there."""
        sources = dict(self.sources)
        for u in self._inputs(group):
            sources.setdefault(u, Source(-1 - u, self.graph.nodes[u].dtype))
        rehearsal = _Rehearsal(self, sources)
        try:
            rehearsal.lower_group(group, stored)
        except (Misplaced, NeedsBuffer, _TooMany) as reason:
            return str(reason) if isinstance(reason, _TooMany) else "read at another place"
        return ""

    def _inputs(self, group: Group) -> set[int]:
        inside = set(group.members)
        out: set[int] = set()
        seen: set[int] = set()
        stack = [s for m in group.members for s in self.graph.nodes[m].srcs]
        while stack:
            i = stack.pop()
            if i in seen or i in inside:
                continue
            seen.add(i)
            n = self.graph.nodes[i]
            if n.op is not None and (i in group.deps or n.op.kind in ("reduce", "kernel")):
                out.add(i)
            else:
                stack.extend(n.srcs)
        return out

    def lower_group(self, group: Group, stored: dict[int, bool]) -> None:
        """Steps of a group; what it needs in memory as a copy first comes before it."""
        domain = Domain(group.shape)
        if group.kind == "rows":
            kept = [d for d in range(len(group.shape)) if d not in group.axes]
            domain = Domain(group.shape, [*kept, *group.axes])
        while True:
            mark = len(self.steps)
            try:
                self._lower_group(group, stored, domain)
                return
            except NeedsSplit as need:
                del self.steps[mark:]
                domain.refine(need.variable, need.inner)
            except NeedsBuffer as need:
                del self.steps[mark:]
                if need.node in group.members or isinstance(self, _Rehearsal):
                    raise
                self.materialise(need.node)

    def materialise(self, i: int) -> None:
        """Give one node dense memory with a kernel of its own."""
        n = self.graph.nodes[i]
        kind = "leaf" if n.op is None else n.op.kind
        if kind == "reduce":
            shape = self.graph.nodes[n.srcs[0]].shape
            self.lower_group(Group("rows", [i], shape, n.attrs.axes), {i: True})
        else:
            group = Group("kernel" if kind == "kernel" else "elementwise", [i], n.shape)
            self.lower_group(group, {i: True})

    def _lower_group(self, group: Group, stored: dict[int, bool], domain: Domain) -> None:
        for m in group.members:
            self._check_dtype(self.graph.nodes[m])
        narrow = self.graph.nodes[group.members[0]].dtype
        if narrow.bits == 8 and group.kind != "elementwise":
            # Neighbours share a word: compute in words, then pack.
            (i,) = group.members
            wide = dt.int32 if narrow is dt.int8 else dt.uint32
            {"rows": self._rows, "kernel": self._kernel}[group.kind](group, stored, domain, wide)
            self.sources[i] = Source(self.sources[i].buffer, wide)
            shape = self.graph.nodes[i].shape
            packed = Group("elementwise", [i], shape, why=group.why)
            self._elementwise(packed, stored, Domain(shape))
        elif group.kind == "rows":
            self._rows(group, stored, domain, None)
        elif group.kind == "kernel":
            self._kernel(group, stored, domain, None)
        else:
            self._elementwise(group, stored, domain)

    def _check_dtype(self, n: GNode) -> None:
        if n.dtype is dt.float16 and "shader-f16" not in self.features:
            raise DTypeError("float16: this device has no shader-f16; use float32")

    def emitter(self, extent: dict[int, int]) -> Emitter:
        return Emitter(self.graph, self.sources, extent)

    def _output(
        self, i: int, value: str, dtype: DType | None = None, form: Form | None = None
    ) -> kernels.Output:
        """A value to store; `_placed` gives it its buffer once all that is read is known."""
        return kernels.Output(-1, dtype or self.graph.nodes[i].dtype, value, form)

    def _placed(
        self, made: dict[int, kernels.Output], e: Emitter, index: Form | None
    ) -> list[kernels.Output]:
        """Buffers for a kernel's results: that of the value an update replaces, where the kernel is the
        last to read it and reads it only at the place that it writes (`index`); else new ones."""
        for i, o in made.items():
            n = self.graph.nodes[i]
            old = self.donations.get(i, -1)
            own = index is not None and all(f == index for b, f in e.places if b == old)
            if old >= 0 and own and o.dtype is n.dtype and self._may_replace(i, old):
                buffer = old
            else:
                name = "copy" if n.op is None else n.op.name
                buffer = self.new_buffer(n.shape, o.dtype, name)
            made[i] = o._replace(buffer=buffer)
        return list(made.values())

    def _may_replace(self, i: int, old: int) -> bool:
        """Whether nothing that runs later reads the old value."""
        group = self.grouping.group_of.get(i)
        if group is None:
            return False
        return all(
            self._runs_before(self.grouping.group_of.get(u), group)
            for u in self.grouping.leaf_readers.get(old, ())
        )

    def _runs_before(self, other: Group | None, group: Group) -> bool:
        """During a rehearsal: can be made to run before; afterwards: has run."""
        if other is group or other is None:
            return True
        return not other.ancestors & group.mask if self._rehearsing else id(other) in self.done

    def _finish(self, step: Step, made: dict[int, kernels.Output]) -> None:
        """Keep a step, and where its results are."""
        if len(step.buffers) > self.limits["maxStorageBuffersPerShaderStage"]:
            most = self.limits["maxStorageBuffersPerShaderStage"]
            raise _TooMany(f"{len(step.buffers)} storage buffers, the device binds {most}")
        labels = [self.labels.get(b, ("", 0)) for b in step.buffers]
        pairs = list(zip(step.program.access, labels, strict=True))
        step = replace(
            step,
            reads=tuple(text for mode, (text, _) in pairs if mode == "r"),
            writes=tuple(text for mode, (text, _) in pairs if mode == "w"),
            bytes=sum(size for _, (_, size) in pairs),
        )
        self.steps.append(step)
        for i, out in made.items():
            self.sources[i] = Source(out.buffer, out.dtype)

    def _names(self, group: Group, emitter: Emitter) -> tuple[str, tuple[str, ...]]:
        """A kernel's name and the names of all ops in it."""
        nodes = self.graph.nodes
        units = ["copy" if nodes[m].op is None else nodes[m].op.name for m in group.members]
        inner = [nodes[k].op.name for k in dict.fromkeys(emitter.nodes) if k not in group.members]
        return "_".join(dict.fromkeys(units))[:60], (*inner, *units)

    # -- elementwise ------------------------------------------------------------------------------
    def _elementwise(self, group: Group, stored: dict[int, bool], domain: Domain) -> None:
        e = self.emitter(domain.extent)
        made: dict[int, kernels.Output] = {}
        for m in group.members:
            if stored[m]:
                made[m] = self._output(m, e.emit(m, self._same_place(m, domain)))
        name, ops = self._names(group, e)
        outputs = self._placed(made, e, linear(domain.coords(), dense_strides(domain.shape)))
        sizes = domain.sizes()
        self._finish(
            kernels.elementwise(
                name, e, sizes, outputs, self._dtype, group.why or "an output", ops
            ),
            made,
        )

    def _same_place(self, i: int, domain: Domain) -> Coords:
        """Coordinates of a node at the row-major place of a loop over the domain."""
        n = self.graph.nodes[i]
        if n.shape == domain.shape:
            return domain.coords()
        place = linear(domain.coords(), dense_strides(domain.shape))
        coords = split(place, n.shape, domain.extent)
        if coords is None:
            raise Misplaced(i)
        return coords

    # -- row kernels ------------------------------------------------------------------------------
    def _rows(
        self, group: Group, stored: dict[int, bool], domain: Domain, wide: DType | None
    ) -> None:
        nodes = self.graph.nodes
        shape, axes = group.shape, group.axes
        keep = [d for d in range(len(shape)) if d not in axes]
        kept, reduced = domain.sizes(keep), domain.sizes(axes)
        e = self.emitter(domain.extent)
        coords = domain.coords()
        row = linear(loop_coords(kept), dense_strides(kept))
        reductions = [m for m in group.members if nodes[m].op.kind == "reduce"]
        rest = [m for m in group.members if m not in reductions]
        passes = self._passes(reductions, e, coords, row)
        count, length = prod(kept), prod(reduced)
        contiguous = bool(kept) and any((len(kept) - 1, 1) in f.terms for f in e.forms)
        full = [
            m for m in rest if stored[m] and nodes[m].shape == shape and count * length != count
        ]
        single = len(reductions) == 1 and not full and not nodes[reductions[0]].op.wgsl.position
        plan = kernels.plan_rows(max(count, 1), length, contiguous, single)
        if plan.splits > 1 and not single:
            if self._rehearsing or len(group.members) > 1:
                raise _TooMany(f"rows of {length} elements are more than one workgroup walks")
            raise DeviceError(
                f"{nodes[reductions[0]].op.name} over {length} elements is more than one workgroup "
                "can walk; reduce in two steps"
            )
        name, ops = self._names(group, e)
        if plan.splits > 1:
            accum = passes[0].accums[0]
            part = kernels.Output(
                self.new_buffer((plan.splits, count), accum.acc, name), accum.acc, accum.result
            )
            r = kernels.Rows(kept, reduced, passes, [], [part], [], [])
            self._finish(kernels.rows(name, e, r, plan, self._dtype, "split reduction", ops), {})
            self._second_stage(
                group,
                stored,
                wide,
                reductions[0],
                accum.combine,
                part.buffer,
                accum.acc,
                plan.splits,
                kept,
            )
            return
        made: dict[int, kernels.Output] = {}
        row_lines, row_outputs = self._row_results(group, stored, wide, full, e, kept, row, made)
        full_lines = e.scope()
        full_outputs = []
        for m in full:
            form = linear(coords, dense_strides(shape))
            large = {m: self._output(m, e.emit(m, coords), None, form)}
            full_outputs += self._placed(large, e, None)
            made.update(large)
        _, ops = self._names(group, e)
        r = kernels.Rows(kept, reduced, passes, row_lines, row_outputs, full_lines, full_outputs)
        self._finish(
            kernels.rows(name, e, r, plan, self._dtype, group.why or "an output", ops), made
        )

    def _passes(
        self, reductions: list[int], e: Emitter, coords: Coords, row: Form
    ) -> list[kernels.Pass]:
        """Reductions in passes: one that reads another's result walks the rows after it."""
        nodes = self.graph.nodes
        inside = set(reductions)
        level: dict[int, int] = {}
        for m in reductions:
            found = [level[d] for d in self._reaches(m, inside)]
            level[m] = 1 + max(found, default=-1)
        passes = []
        for n in range(max(level.values()) + 1):
            lines = e.scope()
            accums = []
            these = [m for m in reductions if level[m] == n]
            for m in these:
                node = nodes[m]
                src = nodes[node.srcs[0]]
                value = e.emit(node.srcs[0], coords)
                combine = node.op.wgsl
                acc = (
                    src.dtype if combine.position or node.op.name in ("any", "all") else node.dtype
                )
                if acc.is_float:
                    acc = dt.float32
                elif acc.bits == 8:
                    acc = dt.int32 if acc.kind == "i" else dt.uint32
                if not combine.position:
                    value = cast_text(value, src.dtype, acc)
                accums.append(kernels.Accum(combine, acc, value, f"red{m}"))
            passes.append(kernels.Pass(accums, lines))
            for m in these:
                e.specials[m] = (row, f"red{m}")
        return passes

    def _reaches(self, m: int, inside: set[int]) -> set[int]:
        """Reductions of the group that one of them reads."""
        out: set[int] = set()
        seen: set[int] = set()
        stack = list(self.graph.nodes[m].srcs)
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            seen.add(i)
            if i in inside:
                out.add(i)
            elif i not in self.sources:
                stack.extend(self.graph.nodes[i].srcs)
        return out

    def _row_results(
        self,
        group: Group,
        stored: dict[int, bool],
        wide: DType | None,
        full: list[int],
        e: Emitter,
        kept: tuple[int, ...],
        row: Form,
        made: dict[int, kernels.Output],
    ) -> tuple[list[str], list[kernels.Output]]:
        """Statements and stores of the results that are one a row."""
        lines = e.scope()
        for m in group.members:
            if not stored[m] or m in full:
                continue
            n = self.graph.nodes[m]
            if n.op.kind == "reduce":
                value = e.specials[m][1]
            else:
                coords = split(row, n.shape, dict(enumerate(kept)))
                if coords is None:
                    raise Misplaced(m)
                value = e.emit(m, coords)
            made[m] = self._output(m, value, wide)
        outputs = self._placed(made, e, None if full else row)
        return lines, outputs

    def _second_stage(
        self,
        group: Group,
        stored: dict[int, bool],
        wide: DType | None,
        anchor: int,
        combine: Any,
        part: int,
        acc: DType,
        splits: int,
        kept: tuple[int, ...],
    ) -> None:
        """Add up [splits, *kept] partial results of `anchor`, and finish the group on the sums."""
        e = self.emitter(dict(enumerate((*kept, splits))))
        row = linear(loop_coords(kept), dense_strides(kept))
        lines = e.scope()
        place = row.plus(Form(((len(kept), prod(kept)),)))
        value = e._load(Source(part, acc), place)
        passes = [kernels.Pass([kernels.Accum(combine, acc, value, f"red{anchor}")], lines)]
        e.specials[anchor] = (row, f"red{anchor}")
        made: dict[int, kernels.Output] = {}
        row_lines, row_outputs = self._row_results(group, stored, wide, [], e, kept, row, made)
        name, ops = self._names(group, e)
        r = kernels.Rows(kept, (splits,), passes, row_lines, row_outputs, [], [])
        step = kernels.rows(
            f"{name}_second_stage", e, r, kernels.ReducePlan(1, 1), self._dtype, "second stage", ops
        )
        self._finish(step, made)

    # -- heavy kernels ----------------------------------------------------------------------------
    def _kernel(
        self, group: Group, stored: dict[int, bool], domain: Domain, wide: DType | None
    ) -> None:
        i = group.members[0]
        n = self.graph.nodes[i]
        if prod(n.shape) == 0:
            for m in group.members:
                d = self.graph.nodes[m].dtype
                self.sources[m] = Source(
                    self.new_buffer(self.graph.nodes[m].shape, d, n.op.name), d
                )
            return
        family = templates.family_of(self.graph, n)
        order = family.order or tuple(range(len(n.srcs)))
        operands = [self.operand(n.srcs[k], family.strided[k]) for k in order]
        launched = family.launch(
            n, operands, templates.Target(self.software, len(group.members) > 1)
        )
        if launched.splits > 1:
            acc = dt.float32 if n.dtype.is_float else n.dtype
            part = kernels.Output(
                self.new_buffer((launched.splits, *n.shape), acc, n.op.name), acc, "v"
            )
            e = self.emitter({})
            epilogue = templates.Epilogue(e, [], [part], (launched.splits * prod(n.shape),))
            step = templates.step(
                n, launched, operands, epilogue, self._dtype, "split", (n.op.name,)
            )
            self._finish(step, {})
            self._second_stage(
                group, stored, wide, i, sum_.wgsl, part.buffer, acc, launched.splits, n.shape
            )
            return
        e = self.emitter(domain.extent)
        e.specials[i] = (linear(domain.coords(), dense_strides(n.shape)), "v")
        made: dict[int, kernels.Output] = {}
        for m in group.members:
            if stored[m]:
                value = e.emit(m, self._same_place(m, domain))
                made[m] = self._output(m, value, wide if m == i else None)
        name, ops = self._names(group, e)
        outputs = self._placed(made, e, linear(domain.coords(), dense_strides(n.shape)))
        if any(o.buffer in [x.buffer for x in operands] for o in outputs):
            raise _TooMany("an update of what the kernel reads")
        epilogue = templates.Epilogue(e, e.lines, outputs, domain.sizes())
        step = templates.step(
            n, launched, operands, epilogue, self._dtype, group.why or "an output", ops
        )
        self._finish(step, made)

    def operand(self, i: int, strided: bool) -> templates.Operand:
        """A node as memory with strides; made dense where the kernel needs that."""
        n = self.graph.nodes[i]
        found = self.resolve(i)
        if found is not None:
            o = templates.Operand(found[0].buffer, n.dtype, n.shape, found[1], found[2])
            if strided or templates.dense(o):
                return o
        if self._rehearsing:
            return templates.Operand(-1 - i, n.dtype, n.shape, dense_strides(n.shape), Num())
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


class _TooMany(Exception):  # noqa: N818 - control flow
    """A kernel needs more than the device or one workgroup has."""


class _Rehearsal(Lowering):
    """Writes a group's kernel without keeping it, as if all it reads were in memory."""

    _rehearsing = True

    def __init__(self, real: Lowering, sources: dict[int, Source]) -> None:
        self.graph = real.graph
        self.software = real.software
        self.fuse = real.fuse
        self.limits = real.limits
        self.features = real.features
        self.steps = []
        self.sources = sources
        self.done = set()
        self.donations = real.donations
        self.grouping = real.grouping
        self.sizes = {}
        self.dtypes = dict(real.dtypes)
        self.labels = {}
        self.next_buffer = 1 << 20


def lower(
    graph: Graph,
    limits: Mapping[str, int],
    features: frozenset[str],
    fuse: bool = True,
    software: bool = False,
) -> Plan:
    """The plan of a graph on a device with these limits and features.

    Raises DeviceError naming a limit that a result breaks, DTypeError for a dtype the device lacks.
    """
    graph = simplify(graph)
    try:
        return Lowering(graph, limits, features, fuse, software).run()
    except _TooMany:
        # An update could not take its old value's place after all: without, every kernel fits.
        graph.donations.clear()
        return Lowering(graph, limits, features, fuse, software).run()
