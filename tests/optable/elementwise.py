"""Cases of element-wise records, made from the record and a reference.

Owns: operands (special values, magnitudes, random ones), shapes, views, one storage twice; where,
cast. Must not know: devices, how cases are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import wgburn as wb
from wgburn.core.dtype import dtype_of
from wgburn.ops.record import Op

from .case import DTYPES, VIEWS, Array, Case, Input, Tol, kind_of, plain, rng, wrap
from .references import BINARY, UNARY, Fn
from .runner import differentiable

_SPECIALS = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-30, -1e-6, 1e10, 3e38, -3e38, np.inf, -np.inf, np.nan]
)


def fn_of(op: Op) -> Fn | None:
    return (UNARY if op.arity == 1 else BINARY).get(op.name)


def cases(op: Op) -> Iterator[Case]:
    """Every case of a unary or binary record."""
    fn = fn_of(op)
    if fn is None:
        return
    accepted = [d for d in DTYPES if kind_of(d) in op.dtypes]
    for dtype in accepted:
        yield _case(op, fn, f"{dtype} values", [plain(a) for a in _grid(op, fn, dtype)], dtype)
    main = "float32" if "f" in op.dtypes else "int32" if "i" in op.dtypes else "bool"
    yield from _subnormal(op, fn, main)
    yield from _shapes(op, fn, main)
    yield from _views(op, fn, main)
    for dtype in ("int8", "bool"):
        if dtype in accepted and dtype != main:
            a = [sample(op, fn, dtype, (5, 7), k) for k in range(op.arity)]
            for view in ("stepped", "folded"):
                yield _case(op, fn, f"{dtype} {view}", [VIEWS[view](x) for x in a], dtype)
    if op.arity == 2:
        yield from _numbers(op, fn, main)
    if op.name in ("neg", "add"):
        # More workgroups than one dimension has.
        large = np.arange(4_200_003, dtype=np.float32)
        yield _case(op, fn, "large", [plain(large), plain(large[:1])][: op.arity], "float32")
    yield from _refusals(op)
    if differentiable(op):
        yield from _gradients(op, fn)
    elif "f" in op.dtypes:
        inputs = tuple(plain(sample(op, fn, "float32", (3,), k)) for k in range(op.arity))
        yield Case("no gradient", inputs, check="none")


def _case(op: Op, fn: Fn, label: str, inputs: list[Input], dtype: str, **more: Any) -> Case:
    return Case(
        label,
        tuple(inputs),
        ref=reference(fn, dtype),
        result=dtype if fn.result == "same" else fn.result,
        tol=fn.tol,
        **more,
    )


def reference(fn: Fn, dtype: str) -> Callable[..., Any]:
    """The reference for a dtype. Integers go through Python's, one by one."""
    kind = kind_of(dtype)
    if kind == "f":
        assert fn.f is not None
        return fn.f
    if kind == "b":
        assert fn.b is not None
        return fn.b
    one = fn.i
    assert one is not None

    def integers(*operands: Array) -> Array:
        shape = np.broadcast_shapes(*[o.shape for o in operands])
        lists = [np.broadcast_to(o, shape).reshape(-1).tolist() for o in operands]
        out = [one(*values) for values in zip(*lists, strict=True)]
        if fn.result == "bool":
            return np.array(out, bool).reshape(shape)
        return wrap(np.array(out, object).reshape(shape), dtype)

    return integers


# -- operands -------------------------------------------------------------------------------------


def sample(op: Op, fn: Fn, dtype: str, shape: Any, k: int, derivative: bool = False) -> Array:
    """Random operand number k."""
    random = rng(f"{op.name} {dtype} {k} {shape}")
    kind = kind_of(dtype)
    if kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        low = 0 if kind == "u" else -7
        return random.integers(low, 8, shape).astype(dtype)
    lo, hi = _smooth(fn, k) if derivative else fn.domain
    return random.uniform(lo, hi, shape).astype(dtype)


def _smooth(fn: Fn, k: int) -> tuple[float, float]:
    lo, hi = fn.smooth[k] if isinstance(fn.smooth[0], tuple) else fn.smooth
    return float(lo), float(hi)


def specials(dtype: str) -> Array:
    kind = kind_of(dtype)
    if kind == "b":
        return np.array([False, True])
    if kind == "f":
        with np.errstate(over="ignore"):
            return _SPECIALS.astype(dtype)
    info = np.iinfo(dtype)
    values = [info.min, info.min + 1, -2, -1, 0, 1, 2, 3, 7, 31, 33, info.max - 1, info.max]
    return np.array([v for v in values if v >= info.min], dtype)


def _grid(op: Op, fn: Fn, dtype: str) -> list[Array]:
    """Operands in one dimension: the specials (all pairs of them), then random ones."""
    s = specials(dtype)
    if op.arity == 1:
        parts = [s, sample(op, fn, dtype, (200,), 0)]
        if kind_of(dtype) == "f":
            magnitudes = np.logspace(-37, 38, 76)
            with np.errstate(over="ignore"):
                parts.append(np.concatenate([magnitudes, -magnitudes]).astype(dtype))
        return [np.concatenate(parts)]
    a, b = (x.reshape(-1) for x in np.meshgrid(s, s))
    more = [sample(op, fn, dtype, (160,), k) for k in range(2)]
    grid = [np.concatenate([a, more[0]]), np.concatenate([b, more[1]])]
    if op.name == "floor_divide" and kind_of(dtype) == "f":
        # A quotient that rounds to a whole number has two right answers: keep clear of them.
        with np.errstate(all="ignore"):
            q = np.asarray(grid[0].astype(np.float64) / grid[1])
            near = np.abs(q - np.rint(q)) <= 1e-2 * np.abs(q)
            clear = ~near | (q == np.rint(q)) | (np.abs(q) > 1e9)
            clear &= (q == 0) | ~(np.abs(q) < 1e-30)  # a quotient may underflow
        grid = [g[clear] for g in grid]
    return grid


def _subnormal(op: Op, fn: Fn, dtype: str) -> Iterator[Case]:
    """Devices may read subnormal numbers as 0."""
    if kind_of(dtype) != "f":
        return
    tiny = np.array([1e-40, -1e-40, 3e-45, 1.0, 0.0, -2.0], np.float32)
    a = [x.reshape(-1) for x in np.meshgrid(tiny, tiny)] if op.arity == 2 else [tiny]
    ref = reference(fn, dtype)

    def flush(x: Array) -> Array:
        return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(0.0, x), x)

    def flushed(which: tuple[bool, ...]) -> Callable[..., Any]:
        return lambda *xs: ref(*[flush(x) if f else x for x, f in zip(xs, which, strict=True)])

    which = [(True,)] if op.arity == 1 else [(True, True), (True, False), (False, True)]
    yield _case(
        op,
        fn,
        "subnormal",
        [plain(x) for x in a],
        dtype,
        alternatives=tuple(flushed(w) for w in which),
    )


# -- shapes and views -----------------------------------------------------------------------------


def _shapes(op: Op, fn: Fn, dtype: str) -> Iterator[Case]:
    def of(*shapes: tuple[int, ...]) -> list[Input]:
        return [plain(sample(op, fn, dtype, s, k)) for k, s in enumerate(shapes)]

    if op.arity == 1:
        for shape in ((), (0,), (2, 0, 3), (1, 1), (3, 5, 2)):
            yield _case(op, fn, f"shape {shape}", of(shape), dtype)
        return
    pairs = [
        ((), ()),
        ((), (3,)),
        ((4, 1), (1, 5)),
        ((2, 3, 4), (4,)),
        ((2, 1, 4), (3, 1)),
        ((0, 3), (1, 3)),
        ((0,), ()),
        ((1, 1, 1), (2, 3)),
    ]
    for a, b in pairs:
        yield _case(op, fn, f"broadcast {a} {b}", of(a, b), dtype)
    wrong = tuple(of((2, 3), (4,)))
    yield Case("shapes that do not broadcast", wrong, check="raises", error=wb.ShapeError)


def _views(op: Op, fn: Fn, dtype: str) -> Iterator[Case]:
    a = sample(op, fn, dtype, (5, 7), 0)
    if op.arity == 1:
        for name, view in VIEWS.items():
            yield _case(op, fn, name, [view(a)], dtype)
        return
    b = sample(op, fn, dtype, (5, 7), 1)
    for (name, view), other in zip(
        VIEWS.items(),
        ("stored stepped", "flipped", "transposed", "folded", "stepped", "flipped", "expanded"),
        strict=True,
    ):
        yield _case(op, fn, f"{name}, {other}", [view(a), VIEWS[other](b)], dtype)
    square = sample(op, fn, dtype, (6, 6), 0)
    turn = ("permute", (1, 0))
    part = ("slice", (slice(1, 5), slice(0, 6, 2)))
    twice = {
        "x op x": ((), ()),
        "x op x.T": ((), (turn,)),
        "x op flipped x": ((), (("flip", (0, 1)),)),
        "parts of one x": ((part,), (("slice", (slice(2, 6), slice(1, 6, 2))),)),
        "stored parts of one x": ((part, ("stored",)), (part, ("flip", (1,)), ("stored",))),
    }
    for name, (first, second) in twice.items():
        inputs = [Input(square, first), Input(square, second, of=0)]
        yield _case(op, fn, name, inputs, dtype)


def _numbers(op: Op, fn: Fn, dtype: str) -> Iterator[Case]:
    """Numbers of the program as operands: some are text in a kernel, where compilers simplify."""
    kind = kind_of(dtype)
    values: list[Any] = {
        "f": [0.0, 1.0, -1.0, 2.5, -0.0, np.inf, np.nan],
        "i": [0, 1, -1, 3],
        "b": [False, True],
    }[kind]
    x = specials(dtype)
    if op.name == "floor_divide" and kind == "f":
        x = x[~(np.isfinite(x) & (np.abs(x) > 1e37))]  # a quotient may underflow
    for value in values:
        number = Input(np.array(value, dtype), number=True)
        yield _case(op, fn, f"x op {value}", [plain(x), number], dtype)
        yield _case(op, fn, f"{value} op x", [number, plain(x)], dtype)
    yield _case(op, fn, "specials x op x", [plain(x), Input(x, (), of=0)], dtype)


def _refusals(op: Op) -> Iterator[Case]:
    """A dtype kind outside the record's is refused, not computed."""
    for kind, dtype in (("b", "bool"), ("i", "int32"), ("u", "uint32"), ("f", "float32")):
        if kind not in op.dtypes:
            inputs = tuple(plain(np.ones(2, dtype)) for _ in range(op.arity))
            yield Case(f"refuses {dtype}", inputs, check="raises", error=wb.DTypeError)


# -- gradients ------------------------------------------------------------------------------------


def _gradients(op: Op, fn: Fn) -> Iterator[Case]:
    def at(shape: tuple[int, ...], k: int) -> Array:
        return sample(op, fn, "float64", shape, k, derivative=True)

    def case(label: str, *inputs: Input) -> Case:
        wrt = tuple(k for k, i in enumerate(inputs) if i.of < 0)
        return Case(label, tuple(inputs), check="grad", wrt=wrt, close=fn.close)

    if op.arity == 1:
        for shape in ((3, 4), (), (0, 2)):
            yield case(f"gradient {shape}", plain(at(shape, 0)))
        yield case(
            "gradient through a view",
            Input(at((4, 3), 0), (("permute", (1, 0)), ("slice", (slice(None), slice(0, 4, 2))))),
        )
        if op.name in ("abs", "relu"):
            yield case("gradient below 0", plain(-at((4,), 0)))
        return
    for a, b in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2,)), ((0, 2), (2,))):
        yield case(f"gradient {a} {b}", plain(at(a, 0)), plain(at(b, 1)))
    twice = at((3, 3), 0)
    if not isinstance(fn.smooth[0], tuple) and op.name not in ("maximum", "minimum"):
        yield case("gradient of x op x", plain(twice), Input(twice, (), of=0))
    turned = Input(at((2, 3), 1), (("permute", (1, 0)),))
    yield case("gradient through a view", plain(at((3, 2), 0)), turned)


# -- where and cast -------------------------------------------------------------------------------


def where_cases(op: Op) -> Iterator[Case]:
    random = rng("where")

    def values(dtype: str, shape: tuple[int, ...]) -> Array:
        if kind_of(dtype) == "b":
            return random.integers(0, 2, shape).astype(bool)
        return random.integers(0, 100, shape).astype(dtype)

    def case(label: str, inputs: list[Input], dtype: str) -> Case:
        return Case(label, tuple(inputs), ref=np.where, result=dtype, tol=Tol(0, 0))

    for dtype in DTYPES:
        s = specials(dtype)
        cond = random.integers(0, 2, s.shape).astype(bool)
        yield case(f"{dtype} values", [plain(cond), plain(s), plain(s[::-1])], dtype)
    shapes = [((), (), ()), ((3, 1), (4,), ()), ((2, 3), (2, 3), (2, 3)), ((0, 2), (2,), (1, 2))]
    for c, a, b in shapes:
        three = [values("bool", c), values("float32", a), values("float32", b)]
        yield case(f"broadcast {c} {a} {b}", [plain(x) for x in three], "float32")
    for dtype in ("float32", "int8", "bool"):
        for name, view in VIEWS.items():
            three = [values("bool", (5, 7)), values(dtype, (5, 7)), values(dtype, (5, 7))]
            if dtype == "float32" or name in ("stepped", "folded"):
                yield case(f"{dtype} {name}", [view(x) for x in three], dtype)
    one = values("bool", (6, 6))
    turned = Input(one, (("permute", (1, 0)),), of=0)
    yield case("condition twice", [plain(one), Input(one, (), of=0), turned], "bool")
    wrong = (plain(values("bool", (3,))), plain(np.ones(4)), plain(np.ones(3)))
    yield Case("shapes that do not broadcast", wrong, check="raises", error=wb.ShapeError)
    for dtype in ("float32", "int32"):
        bad = (plain(np.ones(2, dtype)), plain(np.ones(2)), plain(np.ones(2)))
        yield Case(f"refuses {dtype}", bad, check="raises", error=wb.DTypeError)
    for c, a, b in shapes:
        grads = (
            plain(values("bool", c)),
            plain(random.normal(size=a)),
            plain(random.normal(size=b)),
        )
        yield Case(f"gradient {c} {a} {b}", grads, check="grad", wrt=(1, 2))


def _cast_reference(source: str, target: str) -> Callable[[Array], Any]:
    if kind_of(target) == "b":
        return lambda x: x != 0
    if kind_of(target) == "f":
        return lambda x: x.astype(np.float64)
    if kind_of(source) != "f":
        return lambda x: wrap(x.astype(np.int64), target)
    signed = kind_of(target) == "i"
    bits = 64 if target == "int64" else 32
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def one(v: float) -> int:
        if np.isnan(v):
            return 0
        return low if v <= low else high if v >= high else int(v)

    return lambda x: wrap(
        np.array([one(v) for v in x.reshape(-1)], object).reshape(x.shape), target
    )


def cast_cases(op: Op) -> Iterator[Case]:
    random = rng("cast")
    for source in DTYPES:
        values = [specials(source)]
        if kind_of(source) == "f":
            edges = [
                0.49,
                1.5,
                -1.5,
                2.5,
                127.6,
                128.0,
                255.9,
                256.0,
                -0.9,
                3e9,
                -3e9,
                65504.0,
                65519.0,
                7e4,
            ]
            edges += [2147483520.0, 2147483648.0, 4294967040.0, 4294967296.0, 16777217.0, 1e-7]
            with np.errstate(over="ignore"):
                values.append(np.array(edges).astype(source))
        elif kind_of(source) in "iu":
            info = np.iinfo(source)
            many = random.integers(info.min, info.max, 40, dtype=source, endpoint=True)
            values.append(many)
        operand = np.concatenate(values)
        for target in DTYPES:
            tol = Tol(0.5, 0) if target != "float16" else Tol()
            if kind_of(source) in "iu" and target == "float32":
                tol = Tol(1.0, 0)  # WGSL may take either neighbour of an integer between two floats
            yield Case(
                f"{source} to {target}",
                (plain(operand),),
                dtype_of(target),
                ref=_cast_reference(source, target),
                result=target,
                tol=tol,
            )
    for shape in ((), (0, 3), (2, 3)):
        a = plain(random.normal(size=shape).astype(np.float32))
        yield Case(
            f"shape {shape}",
            (a,),
            dtype_of("int32"),
            ref=_cast_reference("float32", "int32"),
            result="int32",
        )
    a = random.integers(0, 100, (5, 7)).astype(np.uint8)
    for name, view in VIEWS.items():
        yield Case(
            f"uint8 {name}",
            (view(a),),
            dtype_of("float32"),
            ref=_cast_reference("uint8", "float32"),
            result="float32",
        )
    yield Case(
        "gradient",
        (plain(random.normal(size=(3, 2))),),
        dtype_of("float32"),
        check="grad",
        wrt=(0,),
        step=0.05,
        fd=1e-4,
    )


__all__ = ["cases", "cast_cases", "where_cases"]
