"""Cases of views, pads, joins and sources: what numpy's own indexing, padding and ranges give.

Owns: references of movement ops, a Philox generator in Python integers. Must not know: devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import wgburn as wb
from wgburn.core.dtype import dtype_of
from wgburn.ops.movement import PadAttrs, SliceAttrs
from wgburn.ops.record import Op
from wgburn.ops.source import ConstAttrs, SourceAttrs

from .case import DTYPES, VIEWS, Array, Case, Input, Tol, kind_of, plain, rng

_EXACT = Tol(0.5, 0.0)
#: Results of movement are compared bit for bit; these widths cover every way elements are stored.
_WIDTHS = ("float32", "int8", "uint8", "bool", "float16", "int32", "uint32", "int64", "float64")


def values(label: str, dtype: str, shape: tuple[int, ...]) -> Array:
    random = rng(f"{label} {dtype} {shape}")
    kind = kind_of(dtype)
    if kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return random.normal(size=shape).astype(dtype)


# -- views ----------------------------------------------------------------------------------------

Spec = tuple[tuple[int, ...], Any, tuple[Any, ...], Callable[[Array], Any]]


def _slice_spec(shape: Any, starts: Any, sizes: Any, steps: Any) -> Spec:
    index = tuple(
        slice(a, a + (n - 1) * s + 1 if n else a, s)
        for a, n, s in zip(starts, sizes, steps, strict=True)
    )
    return shape, SliceAttrs(sizes, steps), starts, lambda x: x[index]


def _view_specs(name: str) -> list[Spec]:
    """(shape of the operand, attrs, slots, reference)."""

    def reshape(old: tuple[int, ...], new: tuple[int, ...]) -> Spec:
        return old, new, (), lambda x: x.reshape(new)

    def permute(old: tuple[int, ...], order: tuple[int, ...]) -> Spec:
        return old, order, (), lambda x: np.transpose(x, order)

    def expand(old: tuple[int, ...], new: tuple[int, ...]) -> Spec:
        return old, new, (), lambda x: np.broadcast_to(x, new)

    def flip(old: tuple[int, ...], axes: tuple[int, ...]) -> Spec:
        return old, axes, (), lambda x: np.flip(x, axes)

    return {
        "reshape": [
            reshape((3, 4), (2, 6)),
            reshape((3, 4), (12,)),
            reshape((2, 3, 4), (4, 3, 2)),
            reshape((), (1, 1)),
            reshape((1,), ()),
            reshape((0, 3), (3, 0, 2)),
        ],
        "permute": [
            permute((3, 4), (1, 0)),
            permute((2, 3, 5), (2, 0, 1)),
            permute((2, 1, 3, 2), (3, 2, 0, 1)),
            permute((0, 3), (1, 0)),
        ],
        "expand": [
            expand((3, 1), (3, 5)),
            expand((4,), (2, 3, 4)),
            expand((), (2, 2)),
            expand((1, 3), (0, 3)),
            expand((1, 1, 2), (3, 1, 2)),
        ],
        "slice": [
            _slice_spec((7,), (2,), (4,), (1,)),
            _slice_spec((4, 9), (1, 3), (2, 2), (2, 4)),
            _slice_spec((5, 6), (4, 0), (1, 6), (1, 1)),
            _slice_spec((5, 6), (0, 6), (5, 0), (1, 1)),
            _slice_spec((2, 3, 8), (0, 1, 3), (2, 2, 5), (1, 1, 1)),
        ],
        "flip": [
            flip((5,), (0,)),
            flip((3, 4), (1,)),
            flip((2, 3, 4), (0, 2)),
            flip((0, 2), (1,)),
            flip((1, 3), (0, 1)),
        ],
    }.get(name, [])


def view_cases(op: Op) -> Iterator[Case]:
    specs = _view_specs(op.name)

    def case(label: str, x: Input, spec: Spec, dtype: str) -> Case:
        _, attrs, dyn, ref = spec
        return Case(label, (x,), attrs, dyn, ref=ref, result=dtype, tol=_EXACT)

    for spec, dtype in product(specs, _WIDTHS):
        if dtype == "float32" or spec in specs[:3]:
            x = plain(values(op.name, dtype, spec[0]))
            yield case(f"{dtype} {spec[0]} {spec[1]} {spec[2]}", x, spec, dtype)
    for spec, (name, view) in product(specs, VIEWS.items()):
        if len(spec[0]) >= 2 and 0 not in spec[0]:
            for dtype in ("float32", "uint8"):
                x = view(values(op.name, dtype, spec[0]))
                yield case(f"{dtype} {name} {spec[0]} {spec[1]}", x, spec, dtype)
    for shape, attrs, dyn, _ in specs:
        x = values(op.name, "float64", shape)
        label = f"gradient {shape} {attrs}"
        yield Case(label, (plain(x),), attrs, dyn, check="grad", wrt=(0,))
    if op.name == "expand":
        bad = (plain(np.ones((2, 3), np.float32)),)
        yield Case("to another size", bad, (2, 4), check="raises", error=wb.ShapeError)


# -- pad and cat ----------------------------------------------------------------------------------


def _padded(x: Array, sizes: Any, steps: Any, lows: Any, fill: Any) -> Array:
    """Element by element: where input element i goes, and nothing else."""
    out = np.full(sizes, fill, x.dtype)
    for at in np.ndindex(*x.shape):
        to = tuple(lo + i * s for lo, i, s in zip(lows, at, steps, strict=True))
        if all(0 <= t < n for t, n in zip(to, sizes, strict=True)):
            out[to] = x[at]
    return out


_PADS: list[tuple[Any, Any, Any, Any]] = [
    ((3,), (6,), (1,), (2,)),
    ((3, 4), (5, 9), (1, 1), (1, 3)),
    ((3, 4), (7, 10), (3, 2), (0, 1)),
    ((5, 6), (3, 4), (1, 1), (-1, -2)),
    ((5, 6), (7, 3), (1, 1), (1, -3)),
    ((5,), (4,), (3,), (-4,)),
    ((2,), (3,), (1,), (-5,)),
    ((0, 2), (2, 3), (1, 1), (0, 0)),
    ((2, 3), (0, 3), (1, 1), (0, 0)),
    ((), (), (), ()),
    ((2, 3, 2), (4, 3, 5), (1, 1, 2), (1, 0, 1)),
]


def pad_cases(op: Op) -> Iterator[Case]:
    def case(label: str, x: Input, spec: Any, fill: Any, dtype: str) -> Case:
        _, sizes, steps, lows = spec
        return Case(
            label,
            (x,),
            PadAttrs(sizes, steps),
            (*lows, fill),
            ref=lambda v: _padded(v, sizes, steps, lows, fill),
            result=dtype,
            tol=_EXACT,
        )

    for spec, dtype in product(_PADS, _WIDTHS):
        if dtype == "float32" or spec in _PADS[1:4]:
            fill: Any = {"b": True, "f": -1.5}.get(kind_of(dtype), 7)
            x = plain(values("pad", dtype, spec[0]))
            yield case(f"{dtype} {spec}", x, spec, fill, dtype)
    for fill in (np.inf, -np.inf, np.nan, 0.0):
        x = plain(values("pad", "float32", (3, 4)))
        yield case(f"with {fill}", x, _PADS[1], fill, "float32")
    for (name, view), dtype in product(VIEWS.items(), ("float32", "int8")):
        yield case(f"{dtype} {name}", view(values("pad", dtype, (5, 6))), _PADS[4], 1, dtype)
    for shape, sizes, steps, lows in _PADS:
        x = values("pad", "float64", shape)
        attrs, dyn = PadAttrs(sizes, steps), (*lows, 0.5)
        yield Case(f"gradient {shape} {sizes}", (plain(x),), attrs, dyn, check="grad", wrt=(0,))


def cat_cases(op: Op) -> Iterator[Case]:
    def case(label: str, inputs: list[Input], axis: int, dtype: str) -> Case:
        return Case(
            label,
            tuple(inputs),
            axis,
            ref=lambda *xs: np.concatenate(xs, axis),
            result=dtype,
            tol=_EXACT,
        )

    def parts(dtype: str, axis: int, sizes: tuple[int, ...]) -> list[Array]:
        shape = (3, 4, 2)
        return [
            values(f"cat {k}", dtype, (*shape[:axis], n, *shape[axis + 1 :]))
            for k, n in enumerate(sizes)
        ]

    for axis, sizes in product((0, 1, 2), ((2, 3), (1, 1, 1), (4, 0, 2), (1, 2, 3, 1, 2, 3, 1))):
        made = [plain(a) for a in parts("float32", axis, sizes)]
        yield case(f"along {axis} of {sizes}", made, axis, "float32")
    for dtype in _WIDTHS:
        made = [plain(a) for a in parts(dtype, 2, (2, 3))]
        yield case(f"{dtype}", made, 2, dtype)
        a = values("cat", dtype, (5,))
        yield case(f"{dtype} vectors", [plain(a), plain(a[:3]), plain(a[1:])], 0, dtype)
    for (name, view), dtype in product(VIEWS.items(), ("float32", "uint8")):
        a, b = values("cat", dtype, (3, 5)), values("cat b", dtype, (3, 5))
        yield case(f"{dtype} {name}", [view(a), plain(b), view(b)], 1, dtype)
    x = values("cat", "float32", (4, 4))
    turned = Input(x, (("permute", (1, 0)),), of=0)
    yield case("x, x, x.T", [plain(x), Input(x, (), of=0), turned], 0, "float32")
    yield case("nothing", [plain(x[:0]), plain(x[:0])], 0, "float32")
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 3e38], np.float32)
    yield case("NaN and infinity", [plain(special), plain(special[::-1])], 0, "float32")
    for axis, sizes in ((0, (2, 3)), (1, (1, 2, 1)), (2, (0, 2))):
        made = [plain(a) for a in parts("float64", axis, sizes)]
        label = f"gradient along {axis} of {sizes}"
        yield Case(label, tuple(made), axis, check="grad", wrt=tuple(range(len(made))))
    twice = (plain(values("cat", "float64", (2, 2))),)
    again = Input(twice[0].base, (("permute", (1, 0)),), of=0)
    yield Case("gradient of x, x.T", (*twice, again), 0, check="grad", wrt=(0,))


# -- sources --------------------------------------------------------------------------------------


def const_cases(op: Op) -> Iterator[Case]:
    for dtype in DTYPES:
        kind = kind_of(dtype)
        numbers: list[Any] = {"b": [False, True], "f": [0.0, 1.0, -1.0]}.get(kind, [0, 1, -1])
        slots: list[Any] = {"b": [], "f": [2.5, -0.1, math.inf, -math.inf, math.nan]}.get(kind, [])
        if kind in "iu":
            info = np.iinfo(dtype)
            slots = [info.min, info.max, 7]
            numbers = numbers if kind == "i" else numbers[:2]
        for value, slot in [(v, False) for v in numbers] + [(v, True) for v in slots]:
            yield Case(
                f"{dtype} {value} {'slot' if slot else 'structure'}",
                (),
                ConstAttrs(dtype_of(dtype), None if slot else value),
                (value,) if slot else (),
                ref=lambda value=value: np.asarray(value),
                result=dtype,
                tol=_EXACT,
            )


def iota_cases(op: Op) -> Iterator[Case]:
    ranges: list[tuple[int, Any, Any]] = [(0, 0, 1), (1, 5, 3), (10, -3, 2), (1000, 7, -5)]
    for dtype, (n, start, step) in product(("int32", "uint32", "int64"), ranges):
        if dtype == "uint32":
            start, step = abs(start), abs(step)
        yield _iota(dtype, n, start, step, _EXACT)
    yield _iota("int32", 4, 2**31 - 4, 1, _EXACT)
    for dtype in ("float32", "float64"):
        for n, start, step in (*ranges, (300, 0.5, 0.1), (70, 1.0, -1e-3)):
            most = abs(start) + n * abs(step)
            yield _iota(dtype, n, float(start), float(step), Tol(1, 0, absolute=2e-7 * most))


def _iota(dtype: str, n: int, start: Any, step: Any, tol: Tol) -> Case:
    # A device and numpy's rule for narrow floats know the slots in float32.
    known = (np.float32(start), np.float32(step)) if dtype == "float32" else (start, step)
    numbers = (float(known[0]), float(known[1])) if kind_of(dtype) == "f" else known
    return Case(
        f"{dtype} {n} from {start} by {step}",
        (),
        SourceAttrs((n,), dtype_of(dtype)),
        (start, step),
        ref=lambda: np.array([numbers[0] + i * numbers[1] for i in range(n)]).reshape(n),
        result=dtype,
        tol=tol,
    )


def _philox(block: int, offset: int, seed: int) -> list[int]:
    """Four words of Philox4x32-10 (Salmon et al. 2011), counter (block, 0, offset), key seed."""
    low = (1 << 32) - 1
    c = [block, 0, offset & low, offset >> 32]
    key = [seed & low, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & low, (a >> 32) ^ c[3] ^ key[1], a & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return c


def _bits(n: int, offset: int, seed: int) -> Array:
    words = [w for block in range(-(-n // 4)) for w in _philox(block, offset, seed)]
    return np.array(words[:n], np.int64)


def _normal(n: int, offset: int, seed: int) -> Array:
    bits = _bits(2 * n, offset, seed).reshape(-1, 2) >> 8
    radius = (bits[:, 0] + 1.0) * 2.0**-24
    return np.asarray(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * bits[:, 1] * 2.0**-24))


_RANDOM: dict[str, tuple[Any, str, Tol]] = {
    "random_bits": (_bits, "uint32", _EXACT),
    "random_uniform": (lambda *a: (_bits(*a) >> 8) * 2.0**-24, "float32", _EXACT),
    "random_normal": (_normal, "float32", Tol(absolute=1e-6)),
}


def random_cases(op: Op) -> Iterator[Case]:
    fn, dtype, tol = _RANDOM[op.name]
    streams = [(0, 0), (1, 42), (2**32 + 5, 2**63 + 2**31 + 9)]
    shapes: list[tuple[int, ...]] = [(), (1,), (7,), (3, 5, 11), (0, 4), (1031,)]
    for shape, (offset, seed) in product(shapes, streams):
        low = (1 << 32) - 1
        yield Case(
            f"{shape} at {offset} of {seed}",
            (),
            SourceAttrs(shape, dtype_of(dtype)),
            (offset & low, offset >> 32, seed & low, seed >> 32),
            ref=lambda shape=shape, o=offset, s=seed: fn(math.prod(shape), o, s).reshape(shape),
            result=dtype,
            tol=tol,
        )
