"""Cases of indexed access and of sorting.

Owns: references that visit every index in order. Must not know: devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import wgburn as wb
from wgburn.ops.record import Op

from .case import DTYPES, VIEWS, Array, Case, Input, Tol, exact, kind_of, plain, rng, wrap
from .movement import values

_EXACT = Tol(0.5, 0.0)

#: What a scatter does at a place: (what is there, what comes) -> what stays.
_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "scatter_add": lambda a, b: a + b,
    "scatter": lambda a, b: b,
    "scatter_prod": lambda a, b: a * b,
    "scatter_amax": lambda a, b: max(a, b) if a == a and b == b else np.nan,
    "scatter_amin": lambda a, b: min(a, b) if a == a and b == b else np.nan,
    "index_add": lambda a, b: a + b,
    "index_copy": lambda a, b: b,
}


def _rows(op: Op) -> bool:
    """Whether the index is a vector that names slices, or one position for each element."""
    return op.name.startswith("index_")


def _places(op: Op, axis: int, index: Array, shape: Any) -> Iterator[tuple[Any, Any]]:
    """(place in what is indexed, place in what is read or comes in), in order."""
    length = shape[axis]
    if _rows(op):
        inner = (*shape[:axis], index.shape[0], *shape[axis + 1 :])
        for at in np.ndindex(*inner):
            yield (*at[:axis], int(index[at[axis]]) % length, *at[axis + 1 :]), at
        return
    for at in np.ndindex(*index.shape):
        yield (*at[:axis], int(index[at]) % length, *at[axis + 1 :]), at


def _result_shape(op: Op, axis: int, x: Any, index: Any) -> tuple[int, ...]:
    return (*x[:axis], index[0], *x[axis + 1 :]) if _rows(op) else tuple(index)


def _reference(op: Op, axis: int, dtype: str) -> Callable[..., Any]:
    if op.arity == 2:

        def read(x: Array, index: Array) -> Array:
            out = np.zeros(_result_shape(op, axis, x.shape, index.shape), x.dtype)
            for there, at in _places(op, axis, index, x.shape):
                out[at] = x[there]
            return out

        return read

    join = _JOIN[op.name]

    def write(x: Array, index: Array, source: Array) -> Array:
        whole = kind_of(dtype) in "iu"
        out = x.astype(object) if whole else x.copy()
        for there, at in _places(op, axis, index, x.shape):
            out[there] = join(out[there], int(source[at]) if whole else source[at])
        return wrap(out, dtype) if whole else out

    return write


#: x, index, axis (for slices the index is its length)
_ELEMENTS: list[tuple[Any, Any, int]] = [
    ((5,), (3,), 0),
    ((4, 6), (4, 3), 1),
    ((4, 6), (9, 6), 0),
    ((3, 4, 5), (3, 2, 5), 1),
    ((3, 4, 5), (3, 4, 1), 2),
    ((2, 3), (2, 0), 1),
    ((0, 3), (0, 2), 1),
    ((40, 50), (40, 70), 1),
]
_SLICES: list[tuple[Any, Any, int]] = [
    ((5,), (3,), 0),
    ((4, 6), (3,), 1),
    ((4, 6), (9,), 0),
    ((3, 4, 5), (6,), 1),
    ((3, 4, 5), (2,), 2),
    ((2, 3), (0,), 1),
    ((0, 3), (2,), 1),
    ((300, 20), (500,), 0),
    ((7, 400), (90,), 1),
]


def _index(op: Op, x: Any, shape: Any, axis: int) -> Array:
    random = rng(f"{op.name} {x} {shape}")
    n = x[axis]
    return random.integers(-n, n, shape).astype(np.int32)


def index_cases(op: Op) -> Iterator[Case]:
    specs = _SLICES if _rows(op) else _ELEMENTS

    def case(
        label: str, x: Input, index: Input, axis: int, source: Any = None, nan: bool = False
    ) -> Case:
        dtype = x.base.dtype.name
        tol = _EXACT
        if op.name in ("scatter_add", "index_add", "scatter_prod"):
            tol = Tol(norm=1e-6)
        if op.arity == 2:
            inputs: tuple[Input, ...] = (x, index)
        else:
            shape = _result_shape(op, axis, x.value.shape, index.value.shape)
            made = values(f"{op.name} source", dtype, shape)
            if kind_of(dtype) in "iu" and op.name == "scatter_prod":
                made = made % np.array(4, dtype)
            inputs = (x, index, plain(made) if source is None else source(made))
        ref = _reference(op, axis, dtype)
        return Case(label, inputs, axis, ref=ref, result=dtype, tol=tol)

    for x, shape, axis in specs:
        a, i = plain(values(op.name, "float32", x)), plain(_index(op, x, shape, axis))
        yield case(f"{x} by {shape} along {axis}", a, i, axis)
    for dtype in DTYPES:
        if kind_of(dtype) in op.dtypes and dtype != "float32":
            for x, shape, axis in (specs[1], specs[3]):
                a, i = plain(values(op.name, dtype, x)), plain(_index(op, x, shape, axis))
                yield case(f"{dtype} {x} by {shape} along {axis}", a, i, axis)
    x, shape, axis = specs[3]
    i = _index(op, x, shape, axis)
    for name, view in VIEWS.items():
        a = values(op.name, "float32", x)
        yield case(f"{name} operand", view(a), plain(i), axis)
        if i.ndim > 1:
            yield case(f"{name} index", plain(a), view(i), axis)
        if op.arity == 3:
            yield case(f"{name} source", plain(a), plain(i), axis, view)
    same = np.zeros(shape, np.int32)
    yield case("all of one place", plain(values(op.name, "float32", x)), plain(same), axis)
    special = np.array([np.nan, np.inf, -np.inf, 1, 2], np.float32)
    at = plain(np.array([4, 0, 1, 2, 0], np.int32))
    if op.name not in ("scatter_add", "index_add", "scatter_prod"):
        yield case("NaN and infinity", plain(special), at, 0)
    if op.arity == 3:
        # From nothing: sums into zeros are a kernel of their own.
        zeros = Input(np.zeros((1,) * len(x), np.float32), (("expand", x),))
        yield case("into zeros", zeros, plain(i), axis)
    if op.name == "gather":
        yield _large()
    for dtype in ("bool", "int32", "float32"):
        if kind_of(dtype) not in op.dtypes:
            a, i = plain(np.ones(3, dtype)), plain(np.zeros(3, np.int32))
            bad = (a, i, a)
            yield Case(f"refuses {dtype}", bad, 0, check="raises", error=wb.DTypeError)
    yield from _gradients(op, specs)


def _large() -> Case:
    """More workgroups than one dimension has; numpy's own gather is the reference."""
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    index = rng("large").integers(0, 8, (3, 1400003), dtype=np.int32)
    return Case(
        "more than 65,535 workgroups",
        (plain(x), plain(index)),
        1,
        ref=lambda v, at: np.take_along_axis(v, at, 1),
        result="float32",
        tol=_EXACT,
    )


def _gradients(op: Op, specs: Any) -> Iterator[Case]:
    for x, shape, axis in (*specs[:4], *specs[5:7]):
        i = _index(op, x, shape, axis)
        inputs = [plain(values(op.name, "float64", x) + 0.3), plain(i)]
        wrt: tuple[int, ...] = (0,)
        if op.arity == 3:
            inputs.append(plain(values("source", "float64", _result_shape(op, axis, x, shape))))
            wrt = (0, 2)
        label = f"gradient {x} by {shape} along {axis}"
        yield Case(label, tuple(inputs), axis, check="grad", wrt=wrt)


# -- sorting --------------------------------------------------------------------------------------


def _position(row: Array, descending: bool) -> list[int]:
    """Python's stable sort; NaN is the largest number."""

    def key(i: int) -> Any:
        v = row[i].item()
        return (1, 0) if v != v else (0, v)

    # reverse=True keeps the order of equals too.
    return sorted(range(len(row)), key=key, reverse=descending)


def _runs(x: Array, run: int, descending: bool) -> Array:
    n = x.shape[-1]
    out = np.zeros(x.shape, np.int64)
    for at in np.ndindex(*x.shape[:-1]):
        for start in range(0, n, run):
            order = _position(x[at][start : start + run], descending)
            out[at][start : start + run] = np.array(order) + start
    return out


def _rows_to_sort(dtype: str, shape: tuple[int, ...]) -> Array:
    random = rng(f"sort {dtype} {shape}")
    if kind_of(dtype) == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind_of(dtype) in "iu":
        return random.integers(0, 60, shape).astype(dtype)
    return np.round(random.normal(size=shape) * 9).astype(dtype)


def sort_cases(op: Op) -> Iterator[Case]:
    from wgburn.ops.sort import BLOCK, SortAttrs

    merge = op.name == "sort_merge"

    def case(label: str, x: Input, descending: bool) -> Case:
        attrs = SortAttrs(descending, BLOCK)
        if not merge:
            ref: Any = lambda v: _runs(v, BLOCK, descending)  # noqa: E731
            return Case(label, (x,), attrs, ref=ref, result="int32")
        first = _runs(exact(x.value), BLOCK, descending).astype(np.int32)
        ref = lambda v, at: _runs(v, 2 * BLOCK, descending)  # noqa: E731
        return Case(label, (x, plain(first)), attrs, ref=ref, result="int32")

    shapes: list[tuple[int, ...]] = [(BLOCK + 3,), (2, 2 * BLOCK), (2, 3 * BLOCK + 7)]
    if not merge:
        shapes += [(1,), (5,), (3, 4, 7), (0,), (0, 3), (3, BLOCK - 1)]
    for shape, descending in product(shapes, (False, True)):
        yield case(f"{shape} {descending}", plain(_rows_to_sort("float32", shape)), descending)
    wide = (2, BLOCK + 9 if merge else 9)
    for dtype, descending in product(DTYPES, (False, True)):
        yield case(f"{dtype} {descending}", plain(_rows_to_sort(dtype, wide)), descending)
    special = _rows_to_sort("float32", wide)
    special[0, :5], special[1, -4:] = (np.nan, np.inf, -np.inf, np.nan, -0.0), np.nan
    for descending in (False, True):
        yield case(f"NaN and infinity {descending}", plain(special), descending)
    for name, view in VIEWS.items():
        yield case(name, view(_rows_to_sort("float32", wide)), False)
