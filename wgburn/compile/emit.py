"""From a node and the coordinates wanted of it to a WGSL expression over loads.

Owns: `Emitter` (one kernel's expression: loads, scalars, index variables, statements) and how
views, elementwise ops, sources, pads and joins become text. Must not know: loops, workgroups,
bindings' numbers.

Texts hold placeholders `<form:N>` for index forms: the kernel collapses its loop dimensions once
all forms are known, and only then can say what a form looks like.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core.dtype import DType
from ..core.shape import dense_strides
from .affine import NOWHERE, ZERO, Coords, Form, Num, linear, split, straddling
from .graph import GNode, Graph

#: Index variables from here on are not loops of the kernel.
FIRST_EXTRA = 1000
#: The type a kernel computes in, by dtype kind.
WGSL_TYPE = {"f": "f32", "i": "i32", "u": "u32", "b": "bool"}


class NeedsBuffer(Exception):
    """A node cannot be read through an index map here; it needs dense memory of its own."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.node = node


class NeedsSplit(Exception):
    """A reshape inside the kernel needs loop variable `variable` as two: (..., inner)."""

    def __init__(self, variable: int, inner: int) -> None:
        super().__init__(variable, inner)
        self.variable = variable
        self.inner = inner


class Misplaced(Exception):
    """A value computed inside the kernel is read at another place than where it is."""


@dataclass(frozen=True)
class Source:
    """Memory that holds a node's values: dense unless strides are given."""

    buffer: int  # the plan's number of the buffer
    dtype: DType
    strides: tuple[int, ...] | None = None
    offset: Num = ZERO


@dataclass
class Param:
    """A field of the uniform block: an integer of the plan, or a number slot."""

    name: str
    type: str  # "u32" | "i32" | "f32"
    value: Num | int | None = None  # integers
    slot: int = -1  # the number slot of a scalar, converted to `type`


@dataclass
class Emitter:
    graph: Graph
    sources: dict[int, Source]  # nodes that are in memory
    extent: dict[int, int]  # values that each index variable takes
    loads: list[int] = field(default_factory=list)  # buffers read, in order of first use
    places: list[tuple[int, Form]] = field(default_factory=list)  # what is read of them
    forms: list[Form] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    draft: bool = False  # the kernel is only tried: its text needs no library
    variables: dict[int, str] = field(default_factory=dict)  # index variables beyond the loop's
    nodes: list[int] = field(default_factory=list)  # nodes computed here
    #: Nodes whose value is a variable of the kernel: where it holds (a row-major position), its
    #: name.
    specials: dict[int, tuple[Form, str]] = field(default_factory=dict)
    _memo: dict[Any, str] = field(default_factory=dict)
    _scalars: dict[int, str] = field(default_factory=dict)
    _counter: int = 0

    # -- small parts ------------------------------------------------------------------------------
    def form(self, form: Form) -> str:
        """A placeholder for an index expression (u32)."""
        if form not in self.forms:
            self.forms.append(form)
        return f"<form:{self.forms.index(form)}>"

    def fresh(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def scalar(self, slot: int, type_: str) -> str:
        """A number slot as a uniform."""
        name = self._scalars.get(slot)
        if name is None:
            name = f"s{len(self._scalars)}"
            self._scalars[slot] = name
            # A uniform holds no bool.
            self.params.append(Param(name, "u32" if type_ == "bool" else type_, slot=slot))
        return f"(P.{name} != 0u)" if type_ == "bool" else f"P.{name}"

    def integer(self, value: Num | int, type_: str = "u32") -> str:
        """A size or start known to the plan, as a uniform."""
        name = f"z{sum(p.name.startswith('z') for p in self.params)}"
        self.params.append(Param(name, type_, value=value))
        return f"P.{name}"

    def buffer(self, number: int) -> int:
        """The kernel's own number of a buffer that it reads."""
        if number not in self.loads:
            self.loads.append(number)
        return self.loads.index(number)

    # -- nodes ------------------------------------------------------------------------------------
    def emit(self, i: int, coords: Coords) -> str:
        """An expression for node i at `coords` (one form a dimension of the node)."""
        key = (i, coords)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._emit(i, coords)
        return found

    def scope(self) -> list[str]:
        """Start a new WGSL scope: names of the old one are not visible. Returns its statements."""
        self.lines = []
        self._memo.clear()
        return self.lines

    def _emit(self, i: int, coords: Coords) -> str:
        special = self.specials.get(i)
        if special is not None:
            if linear(coords, dense_strides(self.graph.nodes[i].shape)) != special[0]:
                raise Misplaced(i)
            return special[1]
        source = self.sources.get(i)
        if source is not None:
            strides = source.strides or dense_strides(self.graph.nodes[i].shape)
            return self._load(source, linear(coords, strides, source.offset))
        node = self.graph.nodes[i]
        kind = node.op.kind
        if kind == "view":
            return self._view(i, node, coords)
        if kind == "elementwise":
            args = [self.emit(s, self._broadcast(s, coords)) for s in node.srcs]
            return self._let(
                i, node, expression(node, args, [self.graph.nodes[s].dtype for s in node.srcs])
            )
        if kind == "source":
            return self._source(i, node, coords)
        if kind == "pad":
            return self._pad(i, node, coords)
        if kind == "cat":
            return self._cat(i, node, coords)
        if kind == "indexed":
            return self._indexed(i, node, coords)
        raise NeedsBuffer(i)

    def _let(self, i: int, node: GNode, text: str) -> str:
        name = self.fresh("v")
        self.nodes.append(i)
        self.lines.append(f"let {name} = {wrapped(node.dtype, text)};")
        return name

    def _load(self, source: Source, form: Form) -> str:
        name = self.fresh("x")
        self.places.append((source.buffer, form))
        self.lines.append(f"let {name} = <load:{self.buffer(source.buffer)}>({self.form(form)});")
        return name

    def _broadcast(self, src: int, coords: Coords) -> Coords:
        shape = self.graph.nodes[src].shape
        lead = len(coords) - len(shape)
        return tuple(NOWHERE if s == 1 else coords[lead + d] for d, s in enumerate(shape))

    def _view(self, i: int, node: GNode, coords: Coords) -> str:
        src = node.srcs[0]
        name = node.op.name
        if name == "reshape":
            return self._reshape(src, node, coords)
        return self.emit(src, view_coords(node, self.graph.nodes[src].shape, coords))

    def _reshape(self, src: int, node: GNode, coords: Coords) -> str:
        return self._at(src, linear(coords, dense_strides(node.shape)))

    def _at(self, src: int, position: Form) -> str:
        """Node `src` at a row-major position (which passes through a chain of reshapes
        unchanged)."""
        inner = self.graph.nodes[src]
        special = self.specials.get(src)
        if special is not None:
            if position != special[0]:
                raise Misplaced(src)
            return special[1]
        source = self.sources.get(src)
        if source is not None and source.strides is None:
            return self._load(source, position.shifted(source.offset))
        if inner.op is not None and inner.op.name == "reshape" and source is None:
            return self._at(inner.srcs[0], position)
        new = split(position, inner.shape, self.extent)
        if new is None:
            finer = straddling(position, inner.shape, self.extent)
            if finer is not None and finer[0] < FIRST_EXTRA:
                raise NeedsSplit(*finer)
            raise NeedsBuffer(src)
        return self.emit(src, new)

    def _source(self, i: int, node: GNode, coords: Coords) -> str:
        op = node.op
        if op.name == "const":
            return self._const(node)
        index = self.form(linear(coords, dense_strides(node.shape)))
        types = {"u": "u32", "d": WGSL_TYPE[node.dtype.kind]}
        args = {f"d{k}": self.scalar(node.dyn + k, types[op.dyn[k]]) for k in range(node.ndyn)}
        return self._let(i, node, op.wgsl[node.dtype.kind].format(i=f"({index})", **args))

    def _const(self, node: GNode) -> str:
        kind = node.dtype.kind
        if node.attrs.value is None:
            return self.scalar(node.dyn, WGSL_TYPE[kind])
        value = node.attrs.value
        if kind == "b":
            return "true" if value else "false"
        if kind == "f":
            # Compilers of shaders take x * 0 for 0 and divide by 0 as they like (NaN, infinity): a
            # zero that they cannot see keeps IEEE arithmetic.
            return self._zero() if value == 0 else f"f32({float(value)})"
        return f"{value}u" if kind == "u" else f"i32({value})"

    def _zero(self) -> str:
        if all(p.name != "zero" for p in self.params):
            self.params.append(Param("zero", "f32", value=0))
        return "P.zero"

    def _place(self, form: Form, low: str, count: str, step: int) -> tuple[str, int]:
        """(condition, new index variable) of the input position whose place is `form`: (form - low)
        / step where that is whole and below count, else 0."""
        c, ok, x = self.fresh("q"), self.fresh("k"), self.fresh("p")
        self.lines.append(f"let {c} = i32({self.form(form)}) - {low};")
        inside = f"{c} >= 0 && {c} < {count} * {step}" + (
            f" && {c} % {step} == 0" if step > 1 else ""
        )
        self.lines.append(f"let {ok} = {inside};")
        self.lines.append(f"let {x} = u32(select(0, {c}{f' / {step}' if step > 1 else ''}, {ok}));")
        return ok, self._variable(x)

    def _variable(self, name: str) -> int:
        number = FIRST_EXTRA + len(self.variables)
        self.variables[number] = name
        return number

    def _pad(self, i: int, node: GNode, coords: Coords) -> str:
        src = node.srcs[0]
        inner = self.graph.nodes[src].shape
        if 0 in inner:
            return self.scalar(node.dyn + node.ndyn - 1, WGSL_TYPE[node.dtype.kind])
        tests, new = [], []
        for d, (size, step) in enumerate(zip(inner, node.attrs.steps, strict=True)):
            low = self.integer(Num(0, ((node.dyn + d, 1),)), "i32")
            ok, var = self._place(coords[d], low, self.integer(size, "i32"), step)
            self.extent[var] = size
            tests.append(ok)
            new.append(Form(((var, 1),)))
        value = self.emit(src, tuple(new))
        fill = self.scalar(node.dyn + node.ndyn - 1, WGSL_TYPE[node.dtype.kind])
        return self._let(i, node, f"select({fill}, {value}, {' && '.join(tests) or 'true'})")

    def _indexed(self, i: int, node: GNode, coords: Coords) -> str:
        """A read at a place that an index says, or (a scatter of one index onto zeros) the source
        where the index points here. Negative indices count from the end; none leaves the array."""
        axis = node.attrs
        source, index = node.srcs[0], node.srcs[1]
        size = self.integer(self.graph.nodes[source].shape[axis], "i32")
        along = coords
        if node.op.name == "index_select":
            along = (coords[axis],)
        elif node.op.name == "scatter_add":
            along = (*coords[:axis], NOWHERE, *coords[axis + 1 :])
        k, p = self.fresh("k"), self.fresh("p")
        self.lines.append(f"let {k} = i32({self.emit(index, along)});")
        self.lines.append(
            f"let {p} = u32(clamp(select({k}, {k} + {size}, {k} < 0), 0, {size} - 1));"
        )
        if node.op.name == "scatter_add":
            value = self.emit(node.srcs[2], along)
            zero = f"{WGSL_TYPE[node.dtype.kind]}(0)"
            here = self.form(coords[axis])
            return self._let(i, node, f"select({zero}, {value}, {p} == {here})")
        var = self._variable(p)
        self.extent[var] = self.graph.nodes[source].shape[axis]
        place = (*coords[:axis], Form(((var, 1),)), *coords[axis + 1 :])
        return self._let(i, node, self.emit(source, place))

    def _cat(self, i: int, node: GNode, coords: Coords) -> str:
        axis, start = node.attrs, 0
        text = ""
        for k, src in enumerate(node.srcs):
            size = self.graph.nodes[src].shape[axis]
            ok, var = self._place(
                coords[axis], self.integer(start, "i32"), self.integer(size, "i32"), 1
            )
            self.extent[var] = size
            new = tuple(Form(((var, 1),)) if d == axis else c for d, c in enumerate(coords))
            value = self.emit(src, new)
            text = value if k == 0 else f"select({text}, {value}, {ok})"
            start += size
        return self._let(i, node, text)


def view_coords(node: GNode, inner: tuple[int, ...], coords: Coords) -> Coords:
    """Coordinates in a view's input of coordinates in the view (all views but reshape)."""
    name = node.op.name
    if name == "permute":
        new: list[Any] = [NOWHERE] * len(inner)
        for to, frm in enumerate(node.attrs):
            new[frm] = coords[to]
        return tuple(new)
    if name == "expand":
        lead = len(coords) - len(inner)
        return tuple(NOWHERE if s == 1 else coords[lead + d] for d, s in enumerate(inner))
    if name == "slice":
        return tuple(
            c.times(step).shifted(Num(0, ((node.dyn + d, 1),)))
            for d, (c, step) in enumerate(zip(coords, node.attrs.steps, strict=True))
        )
    if name == "flip":
        return tuple(
            c.times(-1).shifted(Num(inner[d] - 1)) if d in node.attrs else c
            for d, c in enumerate(coords)
        )
    raise NotImplementedError(f"view {name}")


def expression(node: GNode, args: list[str], dtypes: list[DType]) -> str:
    """The WGSL of an elementwise op on operand texts."""
    rule: Any = node.op.wgsl
    if node.op.name == "sub" and args[0] == args[1] and dtypes[0].is_float:
        # Compilers of shaders take x - x for 0, of NaN and infinity too.
        return f"select(wb_nan(), 0.0, wb_isfinite({args[0]}))"
    if rule == "cast":
        return cast_text(args[0], dtypes[0], node.dtype)
    if isinstance(rule, dict):
        rule = rule[dtypes[0].kind]
    return rule.format(*args)  # type: ignore[no-any-return]


def cast_text(x: str, source: DType, target: DType) -> str:
    """Conversion between compute types: floats truncate and saturate, anything but 0 is true."""
    a, b = source.kind, target.kind
    if a == b:
        return f"f32(f16({x}))" if target.name == "float16" and source.name != "float16" else x
    if b == "b":
        return f"wb_ne({x}, 0.0)" if a == "f" else f"({x} != {WGSL_TYPE[a]}(0))"
    if a == "b":
        return f"select({WGSL_TYPE[b]}(0), {WGSL_TYPE[b]}(1), {x})"
    if a == "f":
        return f"wb_f32_to_{WGSL_TYPE[b]}({x})"
    return f"{WGSL_TYPE[b]}({x})"


def wrapped(dtype: DType, text: str) -> str:
    """Narrow integers wrap after every op, as they do in memory."""
    if dtype.name == "int8":
        return f"((({text}) << 24u) >> 24u)"
    return f"(({text}) & 255u)" if dtype.name == "uint8" else text
