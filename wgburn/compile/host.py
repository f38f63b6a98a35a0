"""Plans for the host: groups become blocks of numpy calls that stay in cache.

Owns: `HostPlan`'s steps, the block axis of a group and how it passes through ops and views. Must
not know: WGSL, devices, threads (device/cpu.py runs the steps).

A group is walked along one dimension that every op in it keeps. Inside a block the numpy rules of
the ops run on slices; only what another group reads is written to memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

from ..core.errors import DTypeError
from ..ops.record import Call, Unsupported
from .graph import GNode, Graph
from .group import Group, Grouping
from .lanes import cost, in_lanes, lives, reads_of
from .parts import ONE, Cut, Threads, cut_of
from .simplify import simplify
from .units import Units, base_of

#: Bytes of one value in a block: a few of them fit a second-level cache.
BLOCK_BYTES = 1 << 19
#: Values smaller than this are computed whole.
SMALL = 1 << 16
#: Estimated microseconds from which the blocks of a group are shared with helper threads.
SHARE = 2000.0


@dataclass(frozen=True)
class Inner:
    """One op inside a block."""

    node: int
    name: str
    elementwise: bool
    rule: Any
    attrs: Any
    shape: tuple[int, ...]  # of the whole value
    dtype: Any
    axis: int | None  # the block axis in it; None: the same in every block
    srcs: tuple[int, ...]
    dyn: tuple[int, int]
    view: str  # the name of a view, else ""
    call: Call  # for the whole value, without its numbers
    at: int = -1  # where a block's value is in the room of its step; -1: not there

    def sized(self, size: int) -> tuple[int, ...]:
        """The value's shape within a block of `size`."""
        if self.axis is None:
            return self.shape
        return (*self.shape[: self.axis], size, *self.shape[self.axis + 1 :])

    def on(self, size: int) -> Call:
        """The call for a block of `size`."""
        shape = self.sized(size)
        # The attributes of these views are the shape that they give.
        attrs = shape if self.view in ("reshape", "expand") else self.attrs
        return Call(attrs, (), shape, self.dtype)


class Entry(NamedTuple):
    """What a block computes for one op, with everything that is known before it runs."""

    node: int
    rule: Any
    call: Call
    srcs: tuple[int, ...]
    elementwise: bool
    place: int  # where the value goes: an offset in the room, or one of the two below
    dtype: Any
    axis: int | None


#: Places of values: memory of the plan (a group's output), or whatever the op's rule returns.
STORED, MADE = -1, -2


@dataclass(frozen=True)
class HostStep:
    """A group (several `inner` ops walked in blocks) or a single op run whole (blocks == 1)."""

    inner: tuple[Inner, ...]
    inputs: tuple[tuple[int, int | None], ...]  # value, its block axis
    outputs: tuple[int, ...]
    extent: int  # length of the block axis
    block: int  # elements of it per block
    dead: tuple[int, ...]  # values not needed after the step
    room: int = 0  # bytes for the values that stay inside a block
    cut: Cut | None = None  # pieces of a single op that run on all cores
    shared: bool = False  # a group whose blocks run on all cores
    beside: bool = False  # may run on a helper thread until it is joined
    joins: tuple[int, ...] = ()  # numbers of such steps that must have run first
    #: What to compute in a block, by its size: the last block may be smaller than the others.
    calls: dict[int, tuple[Entry, ...]] = field(default_factory=dict)
    reads: tuple[str, ...] = ()  # "float32[256, 64]" each, for people


@dataclass(frozen=True)
class HostPlan:
    size: int
    leaves: tuple[tuple[int, int], ...]  # (value, leaf slot)
    outputs: tuple[int, ...]
    shapes: tuple[tuple[tuple[int, ...], Any], ...]
    steps: tuple[HostStep, ...]


class _NoAxis(Exception):
    """The block axis does not pass through a node."""


def _through_reshape(old: tuple[int, ...], new: tuple[int, ...], axis: int) -> int:
    before = prod(old[:axis])
    for a in range(len(new)):
        if new[a] == old[axis] and prod(new[:a]) == before and old[axis] != 1:
            return a
    raise _NoAxis


def axes_above(n: GNode, shapes: list[tuple[int, ...]], axis: int | None) -> list[int | None]:
    """The block axis of each input of a node that is walked along `axis` (None: the same value in
    every block). Raises _NoAxis where the walk does not pass through."""
    if n.ndyn:
        raise _NoAxis  # a block's calls are made once, and numbers change
    if axis is None:
        return [None] * len(shapes)
    kind, name = n.op.kind, n.op.name
    if kind == "elementwise":
        found: list[int | None] = []
        for shape in shapes:
            at = axis - (len(n.shape) - len(shape))
            found.append(at if at >= 0 and shape[at] != 1 else None)
        return found
    if not shapes:
        return []
    if len(shapes) > 1:
        raise _NoAxis
    (shape,) = shapes
    if kind == "reduce":
        if getattr(n.op.wgsl, "position", False):
            raise _NoAxis
        kept = [d for d in range(len(shape)) if n.attrs.keepdim or d not in n.attrs.axes]
        at = kept[axis]
        if at in n.attrs.axes:
            raise _NoAxis
        return [at]
    if name == "reshape":
        return [_through_reshape(n.shape, shape, axis)]
    if name == "permute":
        return [int(n.attrs[axis])]
    if name == "expand":
        at = axis - (len(n.shape) - len(shape))
        return [at if at >= 0 and shape[at] != 1 else None]
    raise _NoAxis


class Blocking:
    """Finds how a group is walked: the axis of its domain, and of every node in it."""

    def __init__(self, graph: Graph, group: Group) -> None:
        self.graph = graph
        self.group = group
        self.members = set(group.members)
        self.order = self._order()
        inside = set(self.order)
        self.inputs = list(
            dict.fromkeys(s for i in self.order for s in graph.nodes[i].srcs if s not in inside)
        )

    def _order(self) -> list[int]:
        """Nodes computed in the group, in order: members, and work without memory between them."""
        seen: set[int] = set()
        stack = list(self.group.members)
        deps = self.group.deps
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            n = self.graph.nodes[i]
            if n.op is None or (i in deps and i not in self.members):
                continue
            if i not in self.members and not self._follows(i):
                continue
            seen.add(i)
            stack.extend(n.srcs)
        return sorted(seen)

    def _follows(self, i: int) -> bool:
        """Whether a node between members is computed inside: not a view of something outside."""
        n = self.graph.nodes[i]
        if n.op.kind == "view":
            b = base_of(self.graph, i)
            base = self.graph.nodes[b]
            return (
                base.op is not None
                and b not in self.group.deps
                and (b in self.members or bool(base.op.kind == "elementwise"))
            )
        return bool(n.op.kind == "elementwise")

    def try_axis(self, d: int) -> dict[int, int | None] | None:
        """Block axes of all nodes and inputs when the domain is walked along d, or None."""
        nodes = self.graph.nodes
        axes: dict[int, int | None] = {}
        try:
            for m in self.group.members:
                axes[m] = self._member_axis(m, d)
            for i in reversed(self.order):
                n = nodes[i]
                above = axes_above(n, [nodes[s].shape for s in n.srcs], axes[i])
                for s, a in zip(n.srcs, above, strict=True):
                    if axes.setdefault(s, a) != a:
                        raise _NoAxis
        except _NoAxis:
            return None
        return axes

    def _member_axis(self, m: int, d: int) -> int:
        """Where the domain's axis d is in a member's result."""
        n, group = self.graph.nodes[m], self.group
        if n.shape == group.shape and n.op.kind != "reduce":
            return d
        kept = [k for k in range(len(group.shape)) if k not in group.axes]
        if len(n.shape) == len(group.shape):
            at = d
        elif len(n.shape) == len(kept):
            at = kept.index(d)
        else:
            raise _NoAxis
        if n.shape[at] != group.shape[d]:
            raise _NoAxis
        return at

    def find(self) -> tuple[int, dict[int, int | None]] | None:
        """(block axis of the domain, block axes), the outermost that works."""
        for d, n in enumerate(self.group.shape):
            if n > 1 and d not in self.group.axes:
                axes = self.try_axis(d)
                if axes is not None:
                    return d, axes
        return None


def plan_host(graph: Graph, fuse: bool, threads: Threads = ONE) -> HostPlan:
    """The plan of a graph on the host, with work for all its threads."""
    graph = simplify(graph)
    shapes = [n.shape for n in graph.nodes]
    for n in graph.nodes:
        if n.op is not None and isinstance(n.op.numpy, Unsupported):
            raise DTypeError(f"{n.op.name} on cpu: {n.op.numpy.why}")
    steps: list[HostStep] = []
    have = {i for i, n in enumerate(graph.nodes) if n.op is None}

    def whole(i: int) -> None:
        """Run node i on whole arrays, after what it reads."""
        stack = [i]
        while stack:
            k = stack[-1]
            if k in have:
                stack.pop()
                continue
            todo = [s for s in graph.nodes[k].srcs if s not in have]
            if todo:
                stack.extend(reversed(todo))
                continue
            stack.pop()
            have.add(k)
            n = graph.nodes[k]
            cut = cut_of(n.op.name, n.shape, [shapes[s] for s in n.srcs], threads)
            steps.append(HostStep((_inner(n, k, None),), (), (k,), 1, 1, (), cut=cut))

    if fuse:

        def trial(group: Group, stored: dict[int, bool]) -> str:
            if group.kind == "kernel":
                return "a heavy kernel has no epilogue on the host"
            if prod(group.shape) * 4 < SMALL:
                return "small"
            return "" if Blocking(graph, group).find() else "no common axis"

        grouping = Grouping(graph, Units(graph, True), True, trial)
        for group in grouping.ordered():
            kind = graph.nodes[group.members[0]].op.kind
            blocking = Blocking(graph, group)
            found = None
            if kind not in ("kernel", "source", "pad", "cat") and prod(group.shape) * 4 >= SMALL:
                found = blocking.find()
            if found is None or any(
                graph.nodes[m].op.kind in ("source", "pad", "cat") for m in group.members
            ):
                for m in sorted(group.members):
                    whole(m)
                continue
            d, axes = found
            for i in blocking.inputs:
                whole(i)
            stored = grouping.stored(group)
            outputs = tuple(m for m in group.members if stored[m])
            inner = tuple(_inner(graph.nodes[i], i, axes[i]) for i in blocking.order)
            extent = group.shape[d]
            row = max(prod(group.shape) // extent * 4, 1)
            block = min(max(1, BLOCK_BYTES // row), extent)
            inputs = tuple((i, axes[i]) for i in blocking.inputs)
            placed, room = _rooms(inner, outputs, block)
            sizes = {block, extent % block or block}
            calls = {s: tuple(_entry(n, s, outputs) for n in placed) for s in sizes}
            step = HostStep(placed, inputs, outputs, extent, block, (), room, calls=calls)
            share = threads.number > 1 and block < extent and cost(step, shapes) >= SHARE
            steps.append(replace(step, shared=share))
            have.update(outputs)
    for o in graph.outputs:
        whole(o)
    return _with_lives(graph, in_lanes(steps, shapes, threads))


def _inner(n: GNode, i: int, axis: int | None) -> Inner:
    view = n.op.name if n.op.kind == "view" else ""
    return Inner(
        i,
        n.op.name,
        n.op.kind == "elementwise",
        n.op.numpy,
        n.attrs,
        n.shape,
        n.dtype.np,
        axis,
        n.srcs,
        (n.dyn, n.dyn + n.ndyn),
        view,
        Call(n.attrs, (), n.shape, n.dtype.np),
    )


def _entry(n: Inner, size: int, outputs: tuple[int, ...]) -> Entry:
    place = n.at if n.at >= 0 else STORED if n.node in outputs else MADE
    return Entry(n.node, n.rule, n.on(size), n.srcs, n.elementwise, place, n.dtype, n.axis)


def _rooms(
    inner: tuple[Inner, ...], outputs: tuple[int, ...], block: int
) -> tuple[tuple[Inner, ...], int]:
    """Place the values that stay inside a block: memory is used again as soon as its last reader
    has run, so that a long chain stays in cache. (the ops with their places, bytes)"""
    base: dict[int, int] = {}  # views read the memory of what they show
    last: dict[int, int] = {}
    for k, n in enumerate(inner):
        base[n.node] = base.get(n.srcs[0], n.srcs[0]) if n.view else n.node
        for s in n.srcs:
            last[base.get(s, s)] = k
    free: dict[int, list[int]] = {}
    ends: dict[int, list[tuple[int, int]]] = {}
    found = []
    total = 0
    for k, n in enumerate(inner):
        if n.elementwise and n.node not in outputs:
            size = -(-prod(n.sized(block)) * n.dtype.itemsize // 64) * 64
            unused = free.get(size)
            at = unused.pop() if unused else total
            total = max(total, at + size)
            # What is the same in every block is computed in the first one only.
            if n.axis is not None:
                ends.setdefault(last[n.node], []).append((size, at))
            n = replace(n, at=at)
        for size, at in ends.pop(k, ()):
            free.setdefault(size, []).append(at)
        found.append(n)
    return tuple(found), total


def _labels(graph: Graph, s: HostStep) -> tuple[str, ...]:
    """What a step reads, for people."""
    nodes = [graph.nodes[i] for i in dict.fromkeys(reads_of(s))]
    return tuple(f"{n.dtype.name}{list(n.shape)}" for n in nodes)


def _with_lives(graph: Graph, steps: list[HostStep]) -> HostPlan:
    """Say after which step each value is dead."""
    dead = lives(steps, set(graph.outputs))
    done = tuple(
        replace(s, dead=dead.get(k, ()), reads=_labels(graph, s)) for k, s in enumerate(steps)
    )
    leaves = tuple((i, n.leaf) for i, n in enumerate(graph.nodes) if n.op is None)
    shapes = tuple((graph.nodes[o].shape, graph.nodes[o].dtype) for o in graph.outputs)
    return HostPlan(len(graph.nodes), leaves, graph.outputs, shapes, done)
