"""What a case of the op-table test is: inputs as bases and view steps, what to expect, how exactly.

Owns: `Case`, `Input` and its view variants, the comparison with a reference. Must not know: which
ops there are, devices' kinds, drivers. Imports numpy and wgburn only: it runs in Pyodide too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: dtype names as numpy spells them, and the feature of a device without which they don't exist.
FEATURE = {"float16": "shader-f16", "float64": "float64", "int64": "int64"}
DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint32",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
)
FLOATS = ("float16", "float32", "float64")


def kind_of(dtype: str) -> str:
    """ "b", "u", "i" or "f", as op records spell dtypes."""
    return np.dtype(dtype).kind


def rng(label: str) -> np.random.Generator:
    """Random numbers that depend on the name alone."""
    return np.random.default_rng(list(label.encode()))


# -- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """A base array and the view steps that lead from it to the operand.

    `of` >= 0: the steps start at that earlier input's base (the same storage twice). `number`: the
    base is a number of the program, which a kernel may hold as text. The step "stored" realises
    what it is given: the op reads memory with strides instead of a view node.
    """

    base: Array
    steps: tuple[tuple[Any, ...], ...] = ()
    of: int = -1
    number: bool = False

    @property
    def value(self) -> Array:
        """The operand as numpy sees it."""
        out = self.base
        for name, *args in self.steps:
            if name == "permute":
                out = out.transpose(args[0])
            elif name == "slice":
                out = out[args[0]]
            elif name == "flip":
                out = np.flip(out, args[0])
            elif name == "expand":
                out = np.broadcast_to(out, args[0])
            elif name == "reshape":
                out = out.reshape(args[0])
            elif name != "stored":
                raise ValueError(f"no view step {name!r}")
        return out

    def steps_on(self, t: Any, stored: list[Any] | None) -> Any:
        """The operand from a tensor of the base; `stored` collects what is to be realised first."""
        for name, *args in self.steps:
            if name == "permute":
                t = t.permute(args[0])
            elif name == "slice":
                t = t[args[0]]
            elif name == "flip":
                t = t.flip(args[0])
            elif name == "expand":
                t = t.expand(args[0])
            elif name == "reshape":
                t = t.reshape(args[0])
            elif stored is not None:
                stored.append(t)
        return t


def plain(a: Any) -> Input:
    return Input(np.ascontiguousarray(a).reshape(np.shape(a)))


def _garbage(a: Array) -> Any:
    """What lies between the elements of a view: would be noticed in any result."""
    return np.nan if a.dtype.kind == "f" else 93 if a.dtype.kind in "iu" else True


def transposed(a: Array) -> Input:
    order = tuple(reversed(range(a.ndim)))
    return Input(np.ascontiguousarray(a.transpose(order)), (("permute", order),))


def stepped(a: Array) -> Input:
    """Every second element of the last dimension from 1, every third of the first from 2."""
    shape = list(a.shape)
    index: list[slice] = [slice(None)] * a.ndim
    for d, step, start in ((a.ndim - 1, 2, 1), (0, 3, 2)):
        if index[d] == slice(None):
            shape[d] = start + step * a.shape[d]
            index[d] = slice(start, None, step)
    base = np.full(shape, _garbage(a), a.dtype)
    base[tuple(index)] = a
    return Input(base, (("slice", tuple(index)),))


def flipped(a: Array) -> Input:
    axes = tuple(range(a.ndim))
    return Input(np.ascontiguousarray(np.flip(a, axes)), (("flip", axes),))


def expanded(a: Array) -> Input:
    """The first row for all rows."""
    return Input(np.ascontiguousarray(a[:1]), (("expand", a.shape),))


def folded(a: Array) -> Input:
    """A reshape of a transpose: no strides describe it."""
    t = np.ascontiguousarray(a.reshape(a.shape[-1], -1).transpose())
    return Input(t, (("permute", (1, 0)), ("reshape", a.shape)))


def stored(i: Input) -> Input:
    """The same view, realised before the op reads it."""
    return replace(i, steps=(*i.steps, ("stored",)))


#: Views of an operand of rank 2 or more, by name.
VIEWS: dict[str, Callable[[Array], Input]] = {
    "transposed": transposed,
    "stepped": stepped,
    "flipped": flipped,
    "expanded": expanded,
    "folded": folded,
    "stored transposed": lambda a: stored(transposed(a)),
    "stored stepped": lambda a: stored(stepped(a)),
}


# -- cases ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tol:
    """How close a float32 result has to be: within any of the bounds. Other widths follow from it.

    `scale`: relative to `Case.scale` (the size of what was summed). `norm`: relative to the norm of
    the whole result, and no element off by more than that of the largest.
    """

    ulp: float = 4.0
    rel: float = 1e-6
    scale: float = 0.0
    norm: float = 0.0
    absolute: float = 0.0


#: Tolerances of float64 results beside those of float32.
_WIDTH = {"float16": 1.0, "float32": 1.0, "float64": 2.0**-29}
#: float16 results are float32 ones rounded once more: a unit in the last place each.
_HALF = 2.0**-10


@dataclass(frozen=True)
class Case:
    """One call of a primitive and what has to come out.

    check "value": shape, dtype and values. "grad": first and second derivative at inputs `wrt`.
    "none": the result is a constant of the tape. "raises": the call raises `error`.
    """

    label: str
    inputs: tuple[Input, ...] = ()
    attrs: Any = None
    dyn: tuple[Any, ...] = ()
    check: str = "value"
    ref: Callable[..., Any] | None = (
        None  # operands (float64, Python ints' worth of int64) -> exact
    )
    result: str = ""  # dtype of the result
    tol: Tol = field(default_factory=Tol)
    scale: Callable[..., Any] | None = None  # the same on magnitudes, for Tol.scale
    alternatives: tuple[Callable[..., Any], ...] = ()  # further results that are allowed
    wrt: tuple[int, ...] = ()
    error: type[BaseException] | None = None
    step: float = 1e-5  # of finite differences
    fd: float = 1e-6  # tolerance of finite differences
    close: float = 1e-5  # tolerance of a device's gradient against the cpu's
    orders: int = 2  # derivatives to check

    @property
    def dtypes(self) -> set[str]:
        found = {i.base.dtype.name for i in self.inputs} | ({self.result} if self.result else set())
        return {d if d != "bool_" else "bool" for d in found}


def exact(a: Array) -> Array:
    """Operands of a reference: wide enough that nothing is lost."""
    if a.dtype.kind == "f":
        return a.astype(np.float64)
    return a if a.dtype.kind == "b" else a.astype(np.int64)


def wrap(values: Any, dtype: str) -> Array:
    """Integers of any size modulo 2**bits."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values.astype(dtype)
    bits = np.iinfo(dtype).bits
    flat = [int(v) & ((1 << bits) - 1) for v in np.asarray(values, object).reshape(-1)]
    unsigned = np.array(flat, np.dtype(f"uint{bits}"))
    return unsigned.view(dtype).reshape(np.shape(values))


def wants(case: Case) -> list[Array]:
    """The exact results that are allowed, the expected one first."""
    assert case.ref is not None
    operands = [exact(i.value) for i in case.inputs]
    with np.errstate(all="ignore"):
        return [np.asarray(f(*operands)) for f in (case.ref, *case.alternatives)]


def fault(case: Case, got: Array, dtype_name: str) -> str:
    """What is wrong with a result: "" for nothing."""
    expected = wants(case)
    want = expected[0]
    if dtype_name.rstrip("_") != case.result.rstrip("_"):
        return f"dtype is {dtype_name}, must be {case.result}"
    if got.shape != want.shape:
        return f"shape is {got.shape}, must be {want.shape}"
    dtype = np.dtype(case.result)
    with np.errstate(all="ignore"):
        known = want.dtype != object
        if known and np.array_equal(got, want.astype(dtype), equal_nan=dtype.kind == "f"):
            return ""  # nearly always: every element is the exact result, rounded
    if dtype.kind == "f":
        scale = None
        if case.scale is not None:
            with np.errstate(all="ignore"):
                scale = np.asarray(case.scale(*[np.abs(exact(i.value)) for i in case.inputs]))
        ok = np.zeros(got.shape, bool)
        for w in expected:
            ok |= close(got, w, dtype, case.tol, scale)
    else:
        ok = np.zeros(got.shape, bool)
        for w in expected:
            ok |= got == (wrap(w, case.result) if dtype.kind in "iu" else w)
    return "" if ok.all() else _first(case, got, want, ok)


def close(got: Array, want: Array, dtype: np.dtype[Any], tol: Tol, scale: Array | None) -> Array:
    """Element by element whether a float result is near enough. Subnormals may be 0, -0 is 0."""
    width, half = _WIDTH[dtype.name], dtype == np.float16
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype)
        have = got.astype(np.float64)
        error = np.abs(have - want)
        finite = np.isfinite(want)
        if tol.norm:
            limit = max(tol.norm * width, _HALF if half else 0.0)
            w, e = np.where(finite, want, 0.0), np.where(finite, error, 0.0)
            bound = np.full(want.shape, limit * np.max(np.abs(w), initial=0.0))
            if not np.linalg.norm(e) <= limit * np.linalg.norm(w) + float(info.tiny):
                bound *= 0.0
        else:
            step = np.spacing(np.abs(rounded)).astype(np.float64)
            bound = np.maximum(tol.rel * width * np.abs(want), tol.absolute * width)
            bound = np.maximum(bound, (1.0 if half else tol.ulp) * step)
            if scale is not None:
                bound = bound + tol.scale * width * scale
        near = error <= np.maximum(np.where(finite, bound, 0.0), float(info.tiny))
        # Rounding may reach infinity one step early or late.
        top = float(info.max)
        edge = np.abs(want) >= top * (1 - 4 * float(info.eps))
        over = (np.sign(have) == np.sign(want)) & (np.abs(have) >= top * (1 - 8 * float(info.eps)))
        right = np.where(np.isinf(want), have == want, np.where(edge, over, near))
        return np.where(np.isnan(want), np.isnan(have), right).astype(bool)


def _first(case: Case, got: Array, want: Array, ok: Array) -> str:
    bad = tuple(int(i) for i in np.argwhere(~ok)[0]) if got.ndim else ()
    at = []
    for i in case.inputs:
        try:
            at.append(repr(np.broadcast_to(i.value, got.shape)[bad]))
        except ValueError:
            continue  # an operand of another shape
    where = f" (operands {', '.join(at)})" if at else ""
    return (
        f"{int((~ok).sum())} of {ok.size} elements wrong, first at {bad}: "
        f"got {got[bad]!r}, want {want[bad]!r}{where}"
    )
