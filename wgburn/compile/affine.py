"""Affine index arithmetic: where an element is, as a linear form of loop positions.

Owns: `Num` (a number known when a plan is made, plus slots known when it runs), `Form` (a linear
form over index variables) and the splitting of forms through reshapes. Must not know: WGSL, ops,
devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.shape import Shape, dense_strides


class Num(NamedTuple):
    """const + sum of coefficient * number slot."""

    const: int = 0
    terms: tuple[tuple[int, int], ...] = ()  # (slot, coefficient)

    def plus(self, other: Num) -> Num:
        if not other.terms and not other.const:
            return self
        terms = dict(self.terms)
        for slot, c in other.terms:
            terms[slot] = terms.get(slot, 0) + c
        return Num(self.const + other.const, tuple(sorted((s, c) for s, c in terms.items() if c)))

    def times(self, k: int) -> Num:
        return Num(self.const * k, tuple((s, c * k) for s, c in self.terms)) if k else ZERO

    def value(self, numbers: Sequence[Any]) -> int:
        return self.const + sum(int(numbers[s]) * c for s, c in self.terms)


ZERO = Num()


class Form(NamedTuple):
    """sum of coefficient * variable + offset. Variables 0..rank-1 are loop dimensions."""

    terms: tuple[tuple[int, int], ...] = ()  # (variable, coefficient), sorted, no zeros
    offset: Num = ZERO

    def plus(self, other: Form) -> Form:
        if not other.terms:
            return Form(self.terms, self.offset.plus(other.offset))
        if not self.terms:
            return Form(other.terms, self.offset.plus(other.offset))
        terms = dict(self.terms)
        for v, c in other.terms:
            terms[v] = terms.get(v, 0) + c
        return Form(
            tuple(sorted((v, c) for v, c in terms.items() if c)), self.offset.plus(other.offset)
        )

    def times(self, k: int) -> Form:
        return (
            Form(tuple((v, c * k) for v, c in self.terms), self.offset.times(k)) if k else NOWHERE
        )

    def shifted(self, by: Num) -> Form:
        return Form(self.terms, self.offset.plus(by))


NOWHERE = Form()
Coords = tuple[Form, ...]


def loop_coords(shape: Shape) -> Coords:
    """Each dimension is its own loop variable."""
    return tuple(Form(((i, 1),)) if s != 1 else NOWHERE for i, s in enumerate(shape))


def linear(coords: Coords, strides: Sequence[int], offset: Num = ZERO) -> Form:
    """The position in memory of coordinates."""
    out = Form((), offset)
    for c, s in zip(coords, strides, strict=True):
        if s:
            out = out.plus(c.times(s))
    return out


def split(form: Form, shape: Shape, extent: dict[int, int]) -> Coords | None:
    """Coordinates in a dense `shape` of a row-major position given as a form, or None where the
    form does not fall apart along the dimensions. `extent`: how many values each variable takes."""
    if form.offset.terms:
        return None
    strides = dense_strides(shape)
    terms = list(form.terms)
    rest = form.offset.const
    out: list[Form] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            out.append(NOWHERE)
            continue
        mine = [(v, c) for v, c in terms if c >= stride and c % stride == 0]
        inside = [(v, c // stride) for v, c in mine]
        terms = [t for t in terms if t not in mine]
        start = rest // stride
        rest -= start * stride
        top = start + sum((extent[v] - 1) * c for v, c in inside)
        if start < 0 or top >= size:
            return None
        out.append(Form(tuple(sorted(inside)), Num(start)))
    if terms or rest:
        return None
    return tuple(out)


def straddling(form: Form, shape: Shape, extent: dict[int, int]) -> tuple[int, int] | None:
    """A variable that walks over the border of two dimensions of `shape`, and how many of its
    values lie inside the inner one, where taking it apart there helps; else None."""
    for stride in dense_strides(shape):
        for v, c in form.terms:
            if (
                0 < c < stride < c * extent[v]
                and stride % c == 0
                and extent[v] % (stride // c) == 0
            ):
                return v, stride // c
    return None


class Domain:
    """The loops of a kernel over the dimensions of a shape: usually one each, more where a reshape
    inside the kernel asks for it. Variables are numbered in order of `dims`, outermost first."""

    def __init__(self, shape: Shape, dims: Sequence[int] | None = None) -> None:
        self.shape = shape
        self.dims = tuple(range(len(shape))) if dims is None else tuple(dims)
        self.factors: dict[int, list[int]] = {d: [shape[d]] for d in self.dims}

    def refine(self, variable: int, inner: int) -> None:
        """Take a variable apart into (outer, inner)."""
        for d in self.dims:
            f = self.factors[d]
            if variable < len(f):
                f[variable : variable + 1] = [f[variable] // inner, inner]
                return
            variable -= len(f)

    def sizes(self, dims: Sequence[int] | None = None) -> Shape:
        """Sizes of the loops (of some dimensions)."""
        return tuple(n for d in (self.dims if dims is None else dims) for n in self.factors[d])

    @property
    def extent(self) -> dict[int, int]:
        return dict(enumerate(self.sizes()))

    def coords(self) -> Coords:
        """Every dimension of the shape as a form of the loops."""
        found: dict[int, Form] = {}
        v = 0
        for d in self.dims:
            form, stride = NOWHERE, 1
            f = self.factors[d]
            for k in reversed(range(len(f))):
                if f[k] != 1:
                    form = form.plus(Form(((v + k, stride),)))
                stride *= f[k]
            found[d] = form
            v += len(f)
        return tuple(found[d] for d in range(len(self.shape)))
