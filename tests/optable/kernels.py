"""Cases of the heavy kernels: matrix products, convolutions, pooling.

Owns: references that walk every tap or window in Python. Must not know: devices, tiles, how sums
are split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import wgburn as wb
from wgburn.ops.conv import ConvAttrs
from wgburn.ops.pool import PoolAttrs
from wgburn.ops.record import Op

from .case import VIEWS, Array, Case, Input, Tol, kind_of, plain, rng, stored, wrap

_SUMS = Tol(norm=1e-5)


def normal(label: str, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    random = rng(f"{label} {shape}")
    if kind_of(dtype) in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return random.normal(size=shape).astype(dtype)


# -- matmul ---------------------------------------------------------------------------------------

_PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((1, 1), (1, 1)),
    ((3, 4), (4, 5)),
    ((17, 33), (33, 9)),
    ((70, 65), (65, 130)),
    ((1, 50), (50, 7)),
    ((50, 7), (7, 1)),
    ((2, 3, 4), (2, 4, 5)),
    ((7, 2, 3), (3, 4)),
    ((3, 4), (5, 4, 2)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((2, 3, 1, 4, 5), (2, 1, 3, 5, 2)),
    ((3, 0), (0, 2)),
    ((0, 3), (3, 2)),
    ((2, 0, 3), (3, 2)),
    # Inner dimensions that are summed in parts, and in two levels.
    ((1, 5000), (5000, 1)),
    ((5, 3000), (3000, 3)),
    ((64, 2600), (2600, 64)),
    # More workgroups than one dimension has.
    ((66000, 2, 2), (66000, 2, 2)),
]


def matmul_cases(op: Op) -> Iterator[Case]:
    def case(label: str, a: Input, b: Input) -> Case:
        dtype = a.base.dtype.name

        def ref(x: Array, y: Array) -> Any:
            if kind_of(dtype) == "f":
                return np.matmul(x, y)
            return wrap(np.matmul(x.astype(object), y.astype(object)), dtype)

        return Case(label, (a, b), ref=ref, result=dtype, tol=_SUMS)

    for a, b in _PRODUCTS:
        yield case(f"{a} @ {b}", plain(normal("a", a)), plain(normal("b", b)))
    for dtype in ("int32", "uint32", "int8", "uint8", "int64", "float16", "float64"):
        if kind_of(dtype) in op.dtypes:
            for a, b in (_PRODUCTS[2], _PRODUCTS[6]):
                label = f"{dtype} {a} @ {b}"
                yield case(label, plain(normal("a", a, dtype)), plain(normal("b", b, dtype)))
    for (name, view), other in product(VIEWS.items(), ("plain", "transposed", "stored stepped")):
        a, b = normal("a", (6, 9)), normal("b", (9, 5))
        second = plain(b) if other == "plain" else VIEWS[other](b)
        yield case(f"{name} @ {other}", view(a), second)
    batch = Input(normal("a", (3, 6, 2)), (("permute", (2, 0, 1)),))
    yield case("batch in front of a permuted one", batch, plain(normal("b", (2, 6, 4))))
    one = normal("x", (8, 8))
    twice = {"x": (), "x.T": (("permute", (1, 0)),), "flipped x": (("flip", (0,)),)}
    for name, steps in twice.items():
        yield case(f"x @ {name}", plain(one), Input(one, steps, of=0))
    part = Input(one, (("slice", (slice(2, 6), slice(1, 5))),))
    other = Input(one, (("slice", (slice(0, 4), slice(4, 8))),), of=0)
    yield case("parts of one x", stored(part), stored(other))
    special = np.ones((4, 5), np.float32)
    special[0, 1], special[1, 2], special[2, 0] = np.nan, np.inf, -np.inf
    ones = np.ones((5, 3), np.float32)
    ones[2, 1] = 0.0
    yield case("NaN and infinity", plain(special), plain(ones))
    for a, b in (((3, 4), (5, 2)), ((2, 3, 4), (3, 4, 5))):
        bad = (plain(normal("a", a)), plain(normal("b", b)))
        yield Case(f"{a} @ {b}", bad, check="raises", error=wb.ShapeError)
    flags = (plain(np.ones((2, 2), bool)),) * 2
    yield Case("refuses bool", flags, check="raises", error=wb.DTypeError)
    for a, b in (_PRODUCTS[1], *_PRODUCTS[6:10], _PRODUCTS[11], _PRODUCTS[12]):
        inputs = tuple(plain(normal(n, s, "float64")) for n, s in (("a", a), ("b", b)))
        yield Case(f"gradient {a} @ {b}", inputs, check="grad", wrt=(0, 1))
    x = plain(normal("x", (4, 4), "float64"))
    turned = Input(x.base, (("permute", (1, 0)),), of=0)
    yield Case("gradient of x @ x.T", (x, turned), check="grad", wrt=(0,))


# -- convolution ----------------------------------------------------------------------------------


def _taps(a: ConvAttrs, size: Any, kernel: Any, out: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(tap, places of the result, places of the input) that a tap joins, one of each at a time."""
    for tap, o in product(np.ndindex(*kernel), np.ndindex(*out)):
        at = tuple(
            i * st - p + t * d
            for i, st, p, t, d in zip(o, a.stride, a.padding, tap, a.dilation, strict=True)
        )
        if all(0 <= i < n for i, n in zip(at, size, strict=True)):
            yield tap, o, at


def _groups(a: ConvAttrs, x_channels: int, w_out: int) -> Iterator[tuple[slice, slice]]:
    cg, og = x_channels // a.groups, w_out // a.groups
    for g in range(a.groups):
        yield slice(g * cg, (g + 1) * cg), slice(g * og, (g + 1) * og)


_ALL = (slice(None), slice(None))


def _conv(a: ConvAttrs, out: Any) -> Callable[[Array, Array], Array]:
    def ref(x: Array, w: Array) -> Array:
        y = np.zeros((x.shape[0], w.shape[0], *out))
        for tap, o, at in _taps(a, x.shape[2:], w.shape[2:], out):
            for c, k in _groups(a, x.shape[1], w.shape[0]):
                y[(slice(None), k, *o)] += x[(slice(None), c, *at)] @ w[(k, slice(None), *tap)].T
        return y

    return ref


def _input_grad(a: ConvAttrs) -> Callable[[Array, Array], Array]:
    def ref(g: Array, w: Array) -> Array:
        channels = w.shape[1] * a.groups
        x = np.zeros((g.shape[0], channels, *a.size))
        for tap, o, at in _taps(a, a.size, w.shape[2:], g.shape[2:]):
            for c, k in _groups(a, channels, w.shape[0]):
                x[(slice(None), c, *at)] += g[(slice(None), k, *o)] @ w[(k, slice(None), *tap)]
        return x

    return ref


def _weight_grad(a: ConvAttrs) -> Callable[[Array, Array], Array]:
    def ref(g: Array, x: Array) -> Array:
        w = np.zeros((g.shape[1], x.shape[1] // a.groups, *a.size))
        for tap, o, at in _taps(a, x.shape[2:], a.size, g.shape[2:]):
            for c, k in _groups(a, x.shape[1], g.shape[1]):
                w[(k, slice(None), *tap)] += g[(slice(None), k, *o)].T @ x[(slice(None), c, *at)]
        return w

    return ref


#: x, w, stride, padding, dilation, groups
_CONVS: list[tuple[Any, ...]] = [
    ((1, 1, 3), (1, 1, 2), (1,), (0,), (1,), 1),
    ((2, 3, 11), (4, 3, 3), (2,), (1,), (1,), 1),
    ((2, 4, 9), (6, 2, 2), (1,), (2,), (3,), 2),
    ((2, 3, 7, 6), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    ((2, 3, 7, 6), (4, 3, 3, 2), (2, 1), (1, 2), (1, 2), 1),
    ((1, 4, 6, 6), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    ((2, 6, 5, 5), (9, 2, 1, 1), (1, 1), (0, 0), (1, 1), 3),
    ((1, 2, 8, 9), (3, 2, 3, 3), (3, 2), (2, 1), (2, 2), 1),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2), 1),
    ((2, 2, 5, 5), (2, 2, 5, 5), (1, 1), (0, 0), (1, 1), 1),
    ((0, 2, 5, 5), (2, 2, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    # Sums that are long for few results.
    ((1, 400, 3, 3), (2, 400, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    ((30, 2, 12, 12), (3, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 20, 4, 4), (300, 20, 2, 2), (1, 1), (0, 0), (1, 1), 1),
]


def _out(x: Any, w: Any, stride: Any, padding: Any, dilation: Any) -> tuple[int, ...]:
    return tuple(
        (s + 2 * p - d * (k - 1) - 1) // st + 1
        for s, k, st, p, d in zip(x[2:], w[2:], stride, padding, dilation, strict=True)
    )


def _operands(name: str, spec: tuple[Any, ...]) -> tuple[list[Any], ConvAttrs, Any]:
    """Shapes of the two operands, attrs and reference of one of the three ops at a convolution."""
    x, w, stride, padding, dilation, groups = spec
    out = _out(x, w, stride, padding, dilation)
    attrs = ConvAttrs(stride, padding, dilation, groups)
    g = (x[0], w[0], *out)
    if name == "conv":
        return [x, w], attrs, _conv(attrs, out)
    if name == "conv_input_grad":
        attrs = attrs._replace(size=x[2:])
        return [g, w], attrs, _input_grad(attrs)
    attrs = attrs._replace(size=w[2:])
    return [g, x], attrs, _weight_grad(attrs)


def conv_cases(op: Op) -> Iterator[Case]:
    def case(label: str, spec: Any, dtype: str, views: Any = (plain, plain)) -> Case:
        shapes, attrs, ref = _operands(op.name, spec)
        inputs = tuple(
            view(normal(f"{op.name} {k}", s, dtype))
            for k, (s, view) in enumerate(zip(shapes, views, strict=True))
        )
        return Case(label, inputs, attrs, ref=ref, result=dtype, tol=_SUMS)

    for spec in _CONVS:
        yield case(str(spec), spec, "float32")
    for dtype in ("float16", "float64"):
        for spec in (_CONVS[1], _CONVS[4], _CONVS[8]):
            yield case(f"{dtype} {spec}", spec, dtype)
    for (name, view), second in product(VIEWS.items(), (plain, VIEWS["transposed"])):
        yield case(f"{name}, {second.__name__}", _CONVS[4], "float32", (view, second))
    if op.name == "conv":
        yield _with_nan()
        wrong = ((1, 3, 5, 5), (2, 4, 3, 3)), ((1, 3, 2, 2), (2, 3, 3, 3))
        for a, b in wrong:
            bad = (plain(normal("x", a)), plain(normal("w", b)))
            attrs = ConvAttrs((1, 1), (0, 0), (1, 1), 1)
            yield Case(f"{a} with {b}", bad, attrs, check="raises", error=wb.ShapeError)
    if op.name == "conv_input_grad":
        # Transposed convolutions make results larger than the convolution's own input need be.
        a = ConvAttrs((2, 2), (1, 0), (1, 1), 1, (8, 9))
        two = plain(normal("g", (2, 3, 4, 4))), plain(normal("w", (3, 2, 3, 2)))
        yield Case("larger result", two, a, ref=_input_grad(a), result="float32", tol=_SUMS)
    for dtype in ("int32", "bool"):
        shapes, attrs, _ = _operands(op.name, _CONVS[3])
        bad = tuple(plain(np.ones(s, dtype)) for s in shapes)
        yield Case(f"refuses {dtype}", bad, attrs, check="raises", error=wb.DTypeError)
    for spec in (*_CONVS[:9], _CONVS[10]):
        shapes, attrs, _ = _operands(op.name, spec)
        inputs = tuple(plain(normal(f"{op.name} {k}", s, "float64")) for k, s in enumerate(shapes))
        yield Case(f"gradient {spec}", inputs, attrs, check="grad", wrt=(0, 1), fd=3e-6)


def _with_nan() -> Case:
    shapes, attrs, ref = _operands("conv", _CONVS[3])
    x, w = (normal(f"conv {k}", s) for k, s in enumerate(shapes))
    x[0, 1, 3, 3], x[1, 0, 0, 0] = np.nan, np.inf
    return Case("NaN", (plain(x), plain(w)), attrs, ref=ref, result="float32", tol=_SUMS)


# -- pooling --------------------------------------------------------------------------------------

#: x, kernel, stride, padding, dilation, extra windows at the far end (ceil mode)
_POOLS: list[tuple[Any, ...]] = [
    ((2, 3, 7), (2,), (2,), (0,), (1,), (0,)),
    ((2, 3, 8), (3,), (2,), (1,), (2,), (0,)),
    ((2, 2, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1), (0, 0)),
    ((2, 2, 7, 7), (3, 2), (2, 1), (1, 1), (1, 1), (0, 0)),
    ((1, 2, 8, 8), (3, 3), (2, 3), (1, 0), (1, 1), (1, 1)),
    ((1, 1, 9, 9), (3, 2), (1, 2), (0, 0), (2, 3), (0, 0)),
    ((2, 1, 4, 5, 4), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 1), (0, 0, 0)),
    ((0, 2, 6, 6), (2, 2), (2, 2), (0, 0), (1, 1), (0, 0)),
    ((3, 5, 12, 12), (12, 12), (12, 12), (0, 0), (1, 1), (0, 0)),
]


def _attrs(spec: Any, count_pad: bool = True) -> PoolAttrs:
    x, kernel, stride, padding, dilation, extra = spec
    out = tuple(
        n + e
        for n, e in zip(_out(x, (0, 0, *kernel), stride, padding, dilation), extra, strict=True)
    )
    return PoolAttrs(kernel, stride, padding, dilation, out, (), count_pad)


def _window(a: PoolAttrs, o: tuple[int, ...], size: Any) -> list[tuple[int, ...]]:
    """Input places of a window, in row-major order."""
    out = []
    for tap in np.ndindex(*a.kernel):
        at = tuple(
            i * s - p + t * d
            for i, s, p, t, d in zip(o, a.stride, a.padding, tap, a.dilation, strict=True)
        )
        if all(0 <= i < n for i, n in zip(at, size, strict=True)):
            out.append(at)
    return out


def _divisor(a: PoolAttrs, o: tuple[int, ...], size: Any) -> int:
    """How many elements a window averages over, counted one by one (torch: without what lies
    beyond the padding)."""
    if not a.count_pad:
        return len(_window(a, o, size))
    spans = [
        [i * s - p + t for t in range(k) if i * s - p + t < n + p]
        for i, s, p, k, n in zip(o, a.stride, a.padding, a.kernel, size, strict=True)
    ]
    return int(np.prod([len(s) for s in spans]))


def _pooled(a: PoolAttrs, what: str) -> Callable[[Array], Array]:
    def ref(x: Array) -> Array:
        size = x.shape[2:]
        y = np.zeros((*x.shape[:2], *a.out), np.int64 if what == "index" else np.float64)
        for o in np.ndindex(*a.out):
            places = _window(a, o, size)
            values = np.stack([x[(*_ALL, *at)] for at in places], -1)
            if what == "max":
                y[(*_ALL, *o)] = values.max(-1)
            elif what == "avg":
                y[(*_ALL, *o)] = values.sum(-1) / _divisor(a, o, size)
            else:
                flat = np.array([np.ravel_multi_index(at, size) for at in places])
                y[(*_ALL, *o)] = flat[values.argmax(-1)]
        return y

    return ref


def _max_grad(a: PoolAttrs) -> Callable[[Array, Array], Array]:
    def ref(g: Array, position: Array) -> Array:
        out = np.zeros((*g.shape[:2], int(np.prod(a.size))))
        for n, c in np.ndindex(*g.shape[:2]):
            np.add.at(out[n, c], position[n, c].reshape(-1), g[n, c].reshape(-1))
        return out.reshape((*g.shape[:2], *a.size))

    return ref


def _avg_grad(a: PoolAttrs) -> Callable[[Array], Array]:
    def ref(g: Array) -> Array:
        out = np.zeros((*g.shape[:2], *a.size))
        for o in np.ndindex(*a.out):
            for at in _window(a, o, a.size):
                out[(*_ALL, *at)] += g[(*_ALL, *o)] / _divisor(a, o, a.size)
        return out

    return ref


def _distinct(label: str, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """No two elements of one window are near each other."""
    n = int(np.prod(shape))
    order = rng(f"{label} {shape}").permutation(n)
    return ((order - n / 2) / max(n, 8) * 8 + 0.01).reshape(shape).astype(dtype)


def _specs(op: Op) -> list[tuple[Any, PoolAttrs]]:
    average = op.name.startswith("avg")
    made = []
    for spec in _POOLS:
        if average and set(spec[4]) != {1}:
            continue
        made.append((spec, _attrs(spec)))
        if average and any(spec[3]):
            made.append((spec, _attrs(spec, count_pad=False)))
    return made


def pool_cases(op: Op) -> Iterator[Case]:
    what = {"max_pool": "max", "max_pool_index": "index", "avg_pool": "avg"}[op.name]

    def case(label: str, x: Input, a: PoolAttrs) -> Case:
        dtype = "int32" if what == "index" else x.base.dtype.name
        tol = Tol(norm=1e-6) if what == "avg" else Tol(0.5, 0)
        return Case(label, (x,), a, ref=_pooled(a, what), result=dtype, tol=tol)

    for spec, a in _specs(op):
        label = f"{spec[0]} {a}"
        yield case(label, plain(normal(op.name, spec[0])), a)
        if spec in _POOLS[2:4]:
            ties = np.round(normal(op.name, spec[0]))
            yield case(f"{label} ties", plain(ties), a)
            for dtype in ("float16", "float64"):
                yield case(f"{dtype} {label}", plain(normal(op.name, spec[0], dtype)), a)
    spec, a = _POOLS[3], _attrs(_POOLS[3])
    for name, view in VIEWS.items():
        yield case(name, view(normal(op.name, spec[0])), a)
    special = normal(op.name, spec[0])
    special[0, 0, 2, 3], special[0, 1], special[1, 0, 0, 0] = np.nan, -np.inf, np.inf
    special[1, 1, 3:5, 3:5] = np.nan
    if what != "avg":
        yield case("NaN and infinity", plain(special), a)
    bad = (plain(np.ones(spec[0], np.int32)),)
    yield Case("refuses int32", bad, a, check="raises", error=wb.DTypeError)
    if what == "index":
        yield Case("no gradient", (plain(normal("x", spec[0])),), a, check="none")
        return
    for spec, a in _specs(op):
        x = plain(_distinct(op.name, spec[0], "float64"))
        yield Case(f"gradient {spec[0]} {a}", (x,), a, check="grad", wrt=(0,))


def pool_grad_cases(op: Op) -> Iterator[Case]:
    biggest = op.name == "max_pool_grad"

    def inputs(spec: Any, a: PoolAttrs, dtype: str, view: Any = plain) -> tuple[Input, ...]:
        g = view(normal(op.name, (*spec[0][:2], *a.out), dtype))
        if not biggest:
            return (g,)
        found = _pooled(a, "index")(normal("x", spec[0]).astype(np.float64)).astype(np.int32)
        return g, view(found) if view is not VIEWS["expanded"] else plain(found)

    def case(label: str, spec: Any, a: PoolAttrs, dtype: str, view: Any = plain) -> Case:
        sized = a._replace(size=spec[0][2:])
        ref = _max_grad(sized) if biggest else _avg_grad(sized)
        made = inputs(spec, a, dtype, view)
        return Case(label, made, sized, ref=ref, result=dtype, tol=Tol(norm=1e-6))

    for spec, a in _specs(op):
        yield case(f"{spec[0]} {a}", spec, a, "float32")
        if spec in _POOLS[2:4]:
            for dtype in ("float16", "float64"):
                yield case(f"{dtype} {spec[0]} {a}", spec, a, dtype)
    for name, view in VIEWS.items():
        yield case(name, _POOLS[3], _attrs(_POOLS[3]), "float32", view)
    for spec, a in _specs(op):
        sized = a._replace(size=spec[0][2:])
        made = inputs(spec, a, "float64")
        yield Case(f"gradient {spec[0]} {a}", made, sized, check="grad", wrt=(0,))
