"""Lowering: a graph to a plan of WGSL launches.

Owns: which nodes get memory of their own, how views are resolved, the order of launches, 8-bit
packing. Must not know: how a kernel's text is written (kernels.py, templates.py), buffers, drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..core import dtype as dt
from ..core.dtype import DType
from ..core.errors import DTypeError
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
    view_coords,
)
from .graph import GNode, Graph
from .group import Group, Grouping
from .memory import TooMany
from .plan import OutputSlot, Plan, Weights, build
from .recompute import recompute
from .rows import RowLowering
from .simplify import index_in_place, simplify
from .units import FEW_AGAIN, Units

#: Elementwise groups of different shapes that one kernel holds at most.
MOST_SEGMENTS = 8


class Lowering(RowLowering):
    """One graph on its way to a plan."""

    # -- groups -----------------------------------------------------------------------------------
    def run(self) -> Plan:
        units = Units(self.graph, self.fuse, _most_reads(self.limits), FEW_AGAIN)
        self.grouping = Grouping(
            self.graph, units, self.fuse, self.trial, self._adopt, segments=MOST_SEGMENTS
        )
        for group in self.grouping.ordered(self.donations):
            self.lower_group(group, self.grouping.stored(group))
            self.done.add(id(group))
        outputs = [self.output(o) for o in self.graph.outputs]
        most = self.limits["maxComputeWorkgroupsPerDimension"]
        label = ",".join(dict.fromkeys(o for s in self.steps for o in s.ops))[:80]
        weights = Weights(frozenset(self.pages), self.windows, tuple(self.bases))
        return build(self.steps, self.sizes, self.graph.leaves, outputs, most, label, weights)

    def _adopt(self, grouping: Grouping) -> None:
        """Rehearsals during grouping see the groups there are so far."""
        self.grouping = grouping

    def trial(self, group: Group, stored: dict[int, bool]) -> str:
        """Why a group cannot be one kernel, or "": its text is written as if all it reads were
        there."""
        sources = dict(self.sources)
        for u in self._inputs(group):
            sources.setdefault(u, Source(-1 - u, self.graph.nodes[u].dtype))
        rehearsal = _Rehearsal(self, sources)
        try:
            rehearsal.lower_group(group, stored)
        except (Misplaced, NeedsBuffer, TooMany) as reason:
            return str(reason) if isinstance(reason, TooMany) else "read at another place"
        group.bindings = len(rehearsal.steps[-1].buffers) if rehearsal.steps else 0
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
            # A kernel that is written again takes along what was made for it: copies are steps too.
            mark, sources = len(self.steps), dict(self.sources)
            try:
                self._lower_group(group, stored, domain)
                return
            except NeedsSplit as need:
                del self.steps[mark:]
                self.sources = sources
                domain.refine(need.variable, need.inner)
            except NeedsBuffer as need:
                del self.steps[mark:]
                self.sources = sources
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
        elif group.kind == "segments":
            self._segments(group, stored)
        elif group.kind == "rows":
            self._rows(group, stored, domain, None)
        elif group.kind == "kernel":
            self._kernel(group, stored, domain, None)
        else:
            self._elementwise(group, stored, domain)

    def _check_dtype(self, n: GNode) -> None:
        if n.dtype is dt.float16 and "shader-f16" not in self.features:
            raise DTypeError("float16: this device has no shader-f16; use float32")

    # -- elementwise ------------------------------------------------------------------------------
    def _evaluated(
        self, group: Group, stored: dict[int, bool], domain: Domain
    ) -> tuple[Emitter, dict[int, kernels.Output]]:
        """The members' values as text, and what is to be stored of them."""
        e = self.emitter(domain.extent)
        made: dict[int, kernels.Output] = {}
        for m in group.members:
            if stored[m]:
                made[m] = self._output(m, e.emit(m, self._same_place(m, domain)))
        return e, made

    def _segments(self, group: Group, stored: dict[int, bool]) -> None:
        """Parts of different shapes, each walked by workgroups of its own."""
        written: list[tuple[Emitter, dict[int, kernels.Output], Domain]] = []
        for part in group.parts:
            domain = Domain(part.shape)
            while True:
                try:
                    written.append((*self._evaluated(part, stored, domain), domain))
                    break
                except NeedsSplit as need:
                    domain.refine(need.variable, need.inner)
        parts = []
        results: dict[int, kernels.Output] = {}
        for e, made, domain in written:
            others = {b for x, _, _ in written if x is not e for b, _ in x.places}
            index = linear(domain.coords(), dense_strides(domain.shape))
            outputs = self._placed(made, e, index, others)
            parts.append(kernels.Segment(e, domain.sizes(), outputs))
            results.update(made)
        name, ops = self._names(group, [k for e, _, _ in written for k in e.nodes])
        why = group.why or "an output"
        windows = self._windows(parts, results)
        self._finish(kernels.segments(name, parts, self._dtype, why, ops, windows), results)

    def _windows(
        self, parts: list[kernels.Segment], results: dict[int, kernels.Output]
    ) -> dict[int, kernels.Inside]:
        """Weights of a kernel that lie in one page, found in it by offsets: one binding for all.

        Only where their elements have one type, and where no result goes to memory of its own,
        which might be in the same page and be bound twice.
        """
        outputs = self.grouping.units.outputs
        if any(o.buffer >= self.graph.leaves and m in outputs for m, o in results.items()):
            return {}
        bound = {b for p in parts for b in p.emitter.loads}
        bound |= {o.buffer for o in results.values()}
        by_page: dict[int, list[int]] = {}
        for b in sorted(bound & self.pages.keys()):
            by_page.setdefault(self.pages[b], []).append(b)
        found = {}
        for page, inside in by_page.items():
            types = {self.dtypes[b] for b in inside}
            if len(inside) > 1 and len(types) == 1 and self.dtypes[page].bits == 32:
                window = self.window(page, self.dtypes[page], inside)
                found.update({b: kernels.Inside(window, self.base(b)) for b in inside})
        return found

    def _elementwise(self, group: Group, stored: dict[int, bool], domain: Domain) -> None:
        e, made = self._evaluated(group, stored, domain)
        name, ops = self._names(group, e.nodes)
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
        return self._taken_apart(i, place, domain.extent)

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
            loops = domain.sizes()
            self._second_stage(
                group, stored, wide, i, sum_.wgsl, part.buffer, acc, launched.splits, loops
            )
            return
        e = self.emitter(domain.extent)
        e.specials[i] = (linear(domain.coords(), dense_strides(n.shape)), "v")
        made: dict[int, kernels.Output] = {}
        for m in group.members:
            if stored[m]:
                value = e.emit(m, self._same_place(m, domain))
                made[m] = self._output(m, value, wide if m == i else None)
        _, ops = self._names(group, e.nodes)
        outputs = self._placed(made, e, linear(domain.coords(), dense_strides(n.shape)))
        if any(o.buffer in [x.buffer for x in operands] for o in outputs):
            raise TooMany("an update of what the kernel reads")
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
        self.pages = real.pages
        self.windows = {}
        self.bases = {}
        self.labels = {}
        self.next_buffer = 1 << 20


def _most_reads(limits: Mapping[str, int]) -> int:
    """Buffers that a kernel can read beside one that it writes."""
    return limits["maxStorageBuffersPerShaderStage"] - 1


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
    if fuse:
        graph = index_in_place(graph)
        graph = recompute(graph, _most_reads(limits))
    try:
        return Lowering(graph, limits, features, fuse, software).run()
    except TooMany:
        # An update could not take its old value's place after all: without, every kernel fits.
        graph.donations.clear()
        return Lowering(graph, limits, features, fuse, software).run()
