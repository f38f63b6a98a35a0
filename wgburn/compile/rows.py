"""Groups of rows on their way to launches: passes of reductions, results, split reductions.

Owns: `RowLowering`. Must not know: how a row kernel's text looks (kernels.py), other groups.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..core import dtype as dt
from ..core.dtype import DType
from ..core.errors import DeviceError
from ..core.shape import dense_strides
from . import kernels
from .affine import Coords, Domain, Form, linear, loop_coords
from .emit import Emitter, Source, cast_text
from .group import Group
from .memory import Memory, TooMany


class RowLowering(Memory):
    """Writes the kernels of groups that reduce."""

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
        plan = kernels.plan_rows(max(count, 1), length, contiguous, single, self.software)
        if plan.splits > 1 and not single:
            if self._rehearsing or len(group.members) > 1:
                raise TooMany(f"rows of {length} elements are more than one workgroup walks")
            raise DeviceError(
                f"{nodes[reductions[0]].op.name} over {length} elements is more than one workgroup "
                "can walk; reduce in two steps"
            )
        name, ops = self._names(group, e.nodes)
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
        _, ops = self._names(group, e.nodes)
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
                # Names are the kernel's own: the same kernel elsewhere in a graph is the same text.
                accums.append(kernels.Accum(combine, acc, value, f"red{reductions.index(m)}"))
            passes.append(kernels.Pass(accums, lines))
            for m in these:
                e.specials[m] = (row, f"red{reductions.index(m)}")
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
                value = e.emit(m, self._taken_apart(m, row, dict(enumerate(kept))))
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
        passes = [kernels.Pass([kernels.Accum(combine, acc, value, "red0")], lines)]
        e.specials[anchor] = (row, "red0")
        made: dict[int, kernels.Output] = {}
        row_lines, row_outputs = self._row_results(group, stored, wide, [], e, kept, row, made)
        name, ops = self._names(group, e.nodes)
        r = kernels.Rows(kept, (splits,), passes, row_lines, row_outputs, [], [])
        step = kernels.rows(
            f"{name}_second_stage", e, r, kernels.ReducePlan(1, 1), self._dtype, "second stage", ops
        )
        self._finish(step, made)
