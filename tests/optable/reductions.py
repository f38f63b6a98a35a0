"""Cases of reductions and running sums: axes, sizes that change how work is spread, dtypes, views.

Owns: references of reductions. Must not know: devices, how a reduction is spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import wgburn as wb
from wgburn.ops.record import Op, ReduceAttrs

from .case import DTYPES, VIEWS, Array, Case, Input, Tol, kind_of, plain, rng, wrap
from .runner import differentiable

#: Names of dtypes that sum and multiply into int32.
_NARROW = {"bool": "int32", "int8": "int32", "uint8": "int32"}


@dataclass(frozen=True)
class Reducer:
    """One reduction: float and whole-number references, and the dtype of its result."""

    f: Callable[..., Any]
    i: Callable[..., Any]
    result: str  # "same" | "wide" (narrow ones become int32) | a dtype name
    empty: bool = True  # whether nothing has a value
    spread: float = 1.0  # operands are drawn from around 1 or around 0


def _position(fn: Any) -> Callable[..., Any]:
    def at(x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
        """numpy finds positions along one axis only: bring the reduced ones together."""
        kept = [d for d in range(x.ndim) if d not in axis]
        shape = tuple(x.shape[d] for d in kept)
        length = int(np.prod([x.shape[d] for d in axis]))
        flat = x.transpose([*kept, *axis]).reshape((*shape, length))
        found = fn(flat, axis=-1)
        return np.expand_dims(found, axis) if keepdims and axis else np.asarray(found)

    return at


def _python_prod(x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Products of whole numbers of any size."""
    return np.prod(x.astype(object), axis=axis, keepdims=keepdims)


def _python_sum(x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    return np.sum(x.astype(object), axis=axis, keepdims=keepdims)


REDUCERS: dict[str, Reducer] = {
    "sum": Reducer(np.sum, _python_sum, "wide"),
    "prod": Reducer(np.prod, _python_prod, "wide", spread=0.0),
    "amax": Reducer(np.max, np.max, "same", empty=False),
    "amin": Reducer(np.min, np.min, "same", empty=False),
    "argmax": Reducer(_position(np.argmax), _position(np.argmax), "int32", empty=False),
    "argmin": Reducer(_position(np.argmin), _position(np.argmin), "int32", empty=False),
    "any": Reducer(np.any, np.any, "bool"),
    "all": Reducer(np.all, np.all, "bool"),
}

#: Shape, reduced axes. Around the lengths at which other kernels take over: one thread a result up
#: to 64, a workgroup, a wider one from 2048, several from 8192; results side by side in memory.
_SIZES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 65), (1,)),
    ((65, 3), (0,)),
    ((200, 70), (0,)),
    ((3, 2049), (1,)),
    ((10007,), (0,)),
    ((2, 9001), (1,)),
    ((9001, 2), (0,)),
    ((20, 30, 40), (0, 2)),
    ((7, 3000, 3), (1,)),
]
_SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((1,), (0,)),
    ((5,), (0,)),
    ((3, 4, 5), (0,)),
    ((3, 4, 5), (1,)),
    ((3, 4, 5), (2,)),
    ((3, 4, 5), (0, 2)),
    ((3, 4, 5), (0, 1, 2)),
    ((3, 4), ()),
    ((0, 3), (1,)),
    ((2, 1, 3), (1,)),
]
_EMPTY: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0,), (0,)), ((2, 0, 3), (1,))]


def cases(op: Op) -> Iterator[Case]:
    """Every case of a reduction."""
    red = REDUCERS.get(op.name)
    if red is None:
        return
    accepted = [d for d in DTYPES if kind_of(d) in op.dtypes]
    main = "float32" if "float32" in accepted else accepted[0]
    for shape, axes in [*_SHAPES, *(_EMPTY if red.empty else [])]:
        for keepdim in (False, True):
            x = plain(sample(op, main, shape))
            yield case(op, f"{shape} over {axes} {keepdim}", x, axes, keepdim)
    for shape, axes in _sizes(op):
        yield case(op, f"{shape} over {axes}", plain(sample(op, main, shape)), axes)
    for dtype in accepted:
        if dtype != main:
            x = sample(op, dtype, (6, 35))
            yield case(op, f"{dtype} rows", plain(x), (1,))
            yield case(op, f"{dtype} columns", plain(x), (0,))
            yield case(op, f"{dtype} long", plain(sample(op, dtype, (2, 3000))), (1,))
    for name, view in VIEWS.items():
        a = sample(op, main, (6, 9))
        yield case(op, name, view(a), (0,))
        yield case(op, f"{name}, rows", view(a), (1,))
    yield from _special(op, accepted)
    for kind, dtype in (("b", "bool"), ("i", "int32"), ("f", "float32")):
        if kind not in op.dtypes:
            bad = (plain(np.ones(3, dtype)),)
            attrs = ReduceAttrs((0,), False)
            yield Case(f"refuses {dtype}", bad, attrs, check="raises", error=wb.DTypeError)
    if differentiable(op):
        yield from _gradients(op)
    else:
        yield Case(
            "no gradient", (plain(sample(op, main, (3,))),), ReduceAttrs((0,), False), check="none"
        )


def _sizes(op: Op) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    out = list(_SIZES)
    if op.name == "sum":
        # More rows than workgroups in one dimension, more trips than one loop may make.
        out += [((66000, 65), (1,)), ((66000, 3), (1,)), ((3, 70001), (1,))]
    if op.name in ("argmax", "argmin"):
        out += [((33000, 64), (0,)), ((70001,), (0,))]
    if op.name == "prod":
        out = [(s, a) for s, a in out if np.prod([s[d] for d in a]) < 4000]
    return out


def case(op: Op, label: str, x: Input, axes: tuple[int, ...], keepdim: bool = False) -> Case:
    red = REDUCERS[op.name]
    dtype = x.base.dtype.name
    fn = red.f if kind_of(dtype) == "f" else red.i
    result = dtype if red.result == "same" else red.result
    if red.result == "wide":
        result = _NARROW.get(dtype, dtype)

    def ref(v: Array) -> Any:
        return fn(v, axis=axes, keepdims=keepdim)

    tol, scale = Tol(), None
    if op.name == "sum":
        tol, scale = Tol(scale=1e-6), ref
    elif op.name == "prod":
        n = int(np.prod([x.value.shape[d] for d in axes])) if axes else 1
        tol = Tol(rel=1e-6 + 1.2e-7 * n)
    return Case(
        label, (x,), ReduceAttrs(axes, keepdim), ref=ref, result=result, tol=tol, scale=scale
    )


def sample(op: Op, dtype: str, shape: tuple[int, ...]) -> Array:
    random = rng(f"{op.name} {dtype} {shape}")
    kind = kind_of(dtype)
    if kind == "b":
        rare = 0.02 if op.name == "any" else 0.98 if op.name == "all" else 0.5
        return random.random(shape) < rare
    if kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if op.name == "prod":
        signs = random.choice([-1.0, 1.0], shape)
        return (random.uniform(0.95, 1.05, shape) * signs).astype(dtype)
    if len(shape) and np.prod(shape) > 1_000_000:
        # Whole numbers, whose sums are exact: a large case is quick to make and to compare.
        return (np.arange(np.prod(shape)) % 13 - 6).reshape(shape).astype(dtype)
    # Few distinct values where positions are asked for, so that there are ties.
    if op.name.startswith("arg"):
        return np.round(random.normal(size=shape) * 4).astype(dtype)
    return random.normal(size=shape).astype(dtype)


def _special(op: Op, accepted: list[str]) -> Iterator[Case]:
    """NaN, infinities and ties in every place of short and long rows."""
    if "float32" not in accepted:
        for dtype in accepted:
            rows = np.array([[False] * 5, [True] * 5, [False, True, False, False, False]])
            yield case(op, "rows", plain(rows.astype(dtype)), (1,))
            yield case(op, "columns", plain(rows.T.astype(dtype)), (0,))
            long = np.full((3, 3000), op.name == "all")
            long[1, 2999], long[2, 0] = op.name != "all", op.name != "all"
            yield case(op, "one in a long row", plain(long.astype(dtype)), (1,))
        return
    nan, inf = np.nan, np.inf
    rows = np.array(
        [
            [1, 2, nan, 3, nan],
            [nan, nan, nan, nan, nan],
            [-inf, -inf, -inf, -inf, -inf],
            [inf, inf, 1, 2, inf],
            [inf, -inf, 0, 1, 2],
            [3e38, 3e38, 1, -3e38, 0],
            [-0.0, 0.0, -0.0, 0.0, -0.0],
            [1, 7, 7, 1, 1],
        ],
        np.float32,
    )
    rows = rows[[i for i in range(8) if i != 5]] if op.name in ("sum", "prod") else rows
    yield case(op, "NaN and infinity", plain(rows), (1,))
    yield case(op, "NaN and infinity in columns", plain(np.ascontiguousarray(rows.T)), (0,))
    long = np.ones((4, 5000), np.float32)
    long[0, 4321], long[1, [77, 4990]], long[2, [1234, 4000]] = nan, (nan, inf), (5, 5)
    if op.name not in ("sum", "prod"):
        long[3, [3, 4000]] = -inf
    yield case(op, "NaN and ties in long rows", plain(long), (1,))
    yield case(op, "NaN and ties in long columns", plain(np.ascontiguousarray(long.T)), (0,))


def _gradients(op: Op) -> Iterator[Case]:
    random = rng(f"gradient {op.name}")

    def values(shape: tuple[int, ...]) -> Array:
        # Distinct values: a difference quotient across a tie has no meaning.
        n = int(np.prod(shape))
        return (random.permutation(n) * 0.37 - 0.2 * n + 0.1).reshape(shape) / max(n, 4) * 4

    for shape, axes, keepdim in (
        ((3, 4), (1,), False),
        ((3, 4), (0,), True),
        ((2, 3, 2), (0, 2), False),
        ((5,), (0,), False),
        ((), (), False),
        ((0, 3), (1,), False),
    ):
        attrs = ReduceAttrs(axes, keepdim)
        label = f"gradient {shape} over {axes} {keepdim}"
        yield Case(label, (plain(values(shape)),), attrs, check="grad", wrt=(0,))
    view = Input(values((4, 3)), (("permute", (1, 0)), ("slice", (slice(None), slice(0, 4, 2)))))
    yield Case("gradient through a view", (view,), ReduceAttrs((1,), False), check="grad", wrt=(0,))
    if op.name == "prod":
        for zeros in ((1,), (0, 2)):
            x = values((2, 4))
            x[0, list(zeros)] = 0.0
            label = f"gradient with {len(zeros)} zeros"
            yield Case(label, (plain(x),), ReduceAttrs((1,), False), check="grad", wrt=(0,))


# -- running sums and products --------------------------------------------------------------------

_SCANS = {"cumsum": np.cumsum, "cumprod": np.cumprod}


def scan_cases(op: Op) -> Iterator[Case]:
    fn: Any = _SCANS[op.name]
    product = op.name == "cumprod"

    def one(label: str, x: Input, axis: int) -> Case:
        dtype = x.base.dtype.name
        n = x.value.shape[axis]
        if kind_of(dtype) != "f":
            return Case(
                label,
                (x,),
                axis,
                ref=lambda v: wrap(fn(v.astype(object), axis=axis), dtype),
                result=dtype,
            )
        return Case(
            label,
            (x,),
            axis,
            ref=lambda v: fn(v, axis=axis),
            result=dtype,
            tol=Tol(rel=1e-6 + 1.2e-7 * n) if product else Tol(scale=1e-6),
            scale=None if product else (lambda v: np.cumsum(v, axis=axis)),
        )

    def values(dtype: str, shape: tuple[int, ...]) -> Array:
        random = rng(f"{op.name} {dtype} {shape}")
        if kind_of(dtype) in "iu":
            return random.integers(0, 100, shape).astype(dtype)
        if product:
            return (random.uniform(0.97, 1.03, shape) * random.choice([-1, 1], shape)).astype(dtype)
        return random.normal(size=shape).astype(dtype)

    shapes = [((5,), 0), ((1,), 0), ((0,), 0), ((2, 0, 3), 2), ((3, 4, 5), 1), ((3, 70), 1)]
    shapes += [((70, 3), 0), ((2, 3000), 1), ((300, 70), 0), ((1025,), 0)]
    if not product:
        shapes += [((40001,), 0), ((70000, 3), 1), ((40000, 2), 0)]
    for shape, axis in shapes:
        yield one(f"{shape} along {axis}", plain(values("float32", shape)), axis)
    for dtype in DTYPES:
        if kind_of(dtype) in op.dtypes and dtype != "float32":
            yield one(dtype, plain(values(dtype, (4, 9))), 1)
            yield one(f"{dtype} long", plain(values(dtype, (500,))), 0)
    for name, view in VIEWS.items():
        yield one(name, view(values("float32", (5, 6))), 0)
    special = np.array([[1, np.nan, 2, 3], [np.inf, 1, -np.inf, 2], [0, np.inf, 1, 1]], np.float32)
    yield one("NaN and infinity", plain(special), 1)
    for shape, axis in (((4,), 0), ((2, 3, 2), 1), ((0, 2), 1)):
        x = rng(f"{op.name} gradient {shape}").uniform(0.5, 1.5, shape)
        yield Case(f"gradient {shape}", (plain(x),), axis, check="grad", wrt=(0,))
    if product:
        x = np.array([[0.7, 0.0, 1.2, -0.8], [0.0, 1.1, 0.0, 2.0]])
        yield Case("gradient with zeros", (plain(x),), 1, check="grad", wrt=(0,))


_LINES: list[tuple[tuple[int, ...], int]] = [
    ((5,), 0),
    ((1,), 0),
    ((0,), 0),
    ((3, 4, 5), 1),
    ((3, 70), 1),
    ((70, 3), 0),
    ((2, 3000), 1),
    ((300, 70), 0),
    ((40001,), 0),
]


def linear_cases(op: Op) -> Iterator[Case]:
    """y[i] = a[i] * y[i - 1] + b[i]."""

    def recurrence(axis: int) -> Callable[[Array, Array], Any]:
        def ref(a: Array, b: Array) -> Any:
            out, y = [], np.zeros(np.delete(b.shape, axis))
            for i in range(b.shape[axis]):
                y = np.take(a, i, axis) * y + np.take(b, i, axis)
                out.append(y)
            return np.stack(out, axis) if out else np.zeros(b.shape)

        return ref

    def one(label: str, a: Input, b: Input, axis: int) -> Case:
        ref, dtype = recurrence(axis), a.base.dtype.name
        return Case(label, (a, b), axis, ref=ref, result=dtype, tol=Tol(scale=2e-6), scale=ref)

    def pair(shape: tuple[int, ...], dtype: str = "float32") -> tuple[Array, Array]:
        random = rng(f"linear {shape}")
        return (
            random.uniform(-1, 1, shape).astype(dtype),
            random.normal(size=shape).astype(dtype),
        )

    for shape, axis in _LINES:
        a, b = pair(shape)
        yield one(f"{shape} along {axis}", plain(a), plain(b), axis)
    for dtype in ("float16", "float64"):
        a, b = pair((4, 9), dtype)
        yield one(dtype, plain(a), plain(b), 1)
    for name, view in VIEWS.items():
        a, b = pair((5, 6))
        yield one(f"{name} factors", view(a), plain(b), 0)
        yield one(f"{name} terms", plain(a), view(b), 1)
    a, b = pair((6, 6))
    yield one("x of x.T", plain(a), Input(a, (("permute", (1, 0)),), of=0), 0)
    b[1, 3], b[2, 0] = np.nan, np.inf
    yield one("NaN and infinity", plain(a), plain(b), 1)
    bad = (plain(a), plain(b[:3]))
    yield Case("other shapes", bad, 0, check="raises", error=wb.ShapeError)
    whole = (plain(np.ones(3, np.int32)), plain(np.ones(3, np.int32)))
    yield Case("refuses int32", whole, 0, check="raises", error=wb.DTypeError)
    for shape, axis in (((4,), 0), ((2, 3, 2), 1), ((0, 2), 1), ((1, 3), 0)):
        a, b = pair(shape, "float64")
        label = f"gradient {shape} along {axis}"
        yield Case(label, (plain(a), plain(b)), axis, check="grad", wrt=(0, 1))


def running_position_cases(op: Op) -> Iterator[Case]:
    """Where the largest or smallest so far was last met; a NaN is both."""
    sign = 1 if op.name == "cummax_index" else -1

    def line(row: Array) -> list[int]:
        best, at, out = None, 0, []
        for i, v in enumerate(row.tolist()):
            if best is None or v != v or (best == best and sign * v >= sign * best):
                best, at = v, i
            out.append(at)
        return out

    def one(label: str, x: Input, axis: int) -> Case:
        def ref(v: Array) -> Any:
            return np.apply_along_axis(line, axis, v) if v.size else np.zeros(v.shape, np.int64)

        return Case(label, (x,), axis, ref=ref, result="int32")

    def values(dtype: str, shape: tuple[int, ...]) -> Array:
        random = rng(f"{op.name} {dtype} {shape}")
        if kind_of(dtype) in "iu":
            return random.integers(0, 100, shape).astype(dtype)
        return np.round(random.normal(size=shape) * 3).astype(dtype)

    for shape, axis in _LINES:
        yield one(f"{shape} along {axis}", plain(values("float32", shape)), axis)
    for dtype in DTYPES:
        if kind_of(dtype) in op.dtypes and dtype != "float32":
            yield one(dtype, plain(values(dtype, (4, 9))), 1)
            yield one(f"{dtype} long", plain(values(dtype, (300,))), 0)
    for name, view in VIEWS.items():
        yield one(name, view(values("float32", (5, 6))), 0)
    special = np.array(
        [[1, np.nan, 2, np.nan, 3], [np.inf, 1, -np.inf, np.inf, 2], [-np.inf, -np.inf, 0, 0, 1]],
        np.float32,
    )
    yield one("NaN and infinity", plain(special), 1)
    long = np.tile(special, (1, 60))
    yield one("NaN and infinity in long rows", plain(long), 1)
    flags = (plain(np.ones(3, bool)),)
    yield Case("refuses bool", flags, 0, check="raises", error=wb.DTypeError)
    yield Case("no gradient", (plain(values("float32", (3,))),), 0, check="none")
