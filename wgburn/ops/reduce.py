"""Reductions over axes: sum, prod, extrema and their positions, any, all."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod as prod_of
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.dtype import DType
from .record import NONDIFF, OUT, Array, ReduceAttrs, _bool, _index, reduce
from .scan import cumprod


@dataclass(frozen=True)
class Combine:
    """WGSL rule of a reduction, by the kind of the accumulator: neutral element and combining
    expression ({a} accumulator, {b} next value). `position` reductions carry the index of the
    winner along."""

    init: dict[str, str]
    combine: dict[str, str]
    position: bool = False


_F_LOW, _F_HIGH = "(-wb_inf())", "wb_inf()"
_I_LOW, _I_HIGH = "(-2147483647 - 1)", "2147483647"
_U_LOW, _U_HIGH = "0u", "4294967295u"


def _sum_dtype(attrs: Any, a: DType) -> DType:
    """Sums of booleans and narrow integers are int32 on every device; the rest keep their dtype."""
    return dt.int32 if a.kind == "b" or a.bits == 8 else a


def expand_back(c: Any, t: Any) -> Any:
    """A reduced tensor shown with the reduced axes as size 1, to broadcast against the input."""
    if c.attrs.keepdim:
        return t
    shape = tuple(1 if i in c.attrs.axes else s for i, s in enumerate(c.shapes[0]))
    return t.reshape(shape)


#: Rows up to this length are summed by BLAS, in several lanes at once like numpy's own loop, which
#: costs several times as much on short rows.
_SHORT_ROW = 512


def _np_sum(x: Array, axes: tuple[int, ...], keepdim: bool, dtype: np.dtype[Any]) -> Array:
    acc = np.float32 if dtype == np.float16 else dtype
    if axes == (x.ndim - 1,) and x.dtype == np.float32 and x.flags.c_contiguous:
        length = x.shape[-1]
        if 0 < length <= _SHORT_ROW < x.size:
            sums = x.reshape(-1, length) @ np.ones(length, np.float32)
            return sums.reshape(*x.shape[:-1], 1) if keepdim else sums.reshape(x.shape[:-1])
    if axes and x.ndim and axes[-1] != x.ndim - 1 and dtype.kind == "f" and dtype.itemsize <= 4:
        return _sum_leading(x, axes, keepdim, acc).astype(dtype, copy=False)
    return np.asarray(np.sum(x, axis=axes, keepdims=keepdim, dtype=acc)).astype(dtype, copy=False)


def _sum_leading(x: Array, axes: tuple[int, ...], keepdim: bool, acc: Any) -> Array:
    """Sum where the last axis stays: numpy's own loop adds whole rows in sequence, losing digits
    over many rows; adding inner axes first and the outermost in float64 keeps float32 accuracy."""
    inner = axes[1:]
    part = np.sum(x, axis=inner, keepdims=True, dtype=acc) if inner else x
    at = axes[0]
    rows = part.shape[at]
    if rows % 64 == 0 and rows > 64:
        # Sums of 64 rows are as exact in float32, and a conversion less for each element.
        runs = part.reshape(*part.shape[:at], rows // 64, 64, *part.shape[at + 1 :])
        part = np.add.reduce(runs, axis=at + 1, dtype=acc)
    wide = np.float64 if rows > 64 else acc
    out = np.add.reduce(part, axis=at, keepdims=True, dtype=wide)
    return np.asarray(out if keepdim else out.squeeze(axes))


def _plain(fn: Any) -> Any:
    def rule(x: Array, axes: tuple[int, ...], keepdim: bool, dtype: np.dtype[Any]) -> Array:
        return np.asarray(fn(x, axis=axes, keepdims=keepdim)).astype(dtype, copy=False)

    return rule


def _np_prod(x: Array, axes: tuple[int, ...], keepdim: bool, dtype: np.dtype[Any]) -> Array:
    acc = np.float32 if dtype == np.float16 else dtype
    out = np.prod(x, axis=axes, keepdims=keepdim, dtype=acc)
    return np.asarray(out).astype(dtype, copy=False)


def _np_position(fn: Any) -> Any:
    def rule(x: Array, axes: tuple[int, ...], keepdim: bool, dtype: np.dtype[Any]) -> Array:
        kept = [i for i in range(x.ndim) if i not in axes]
        length = prod_of(x.shape[i] for i in axes)
        moved = x.transpose(*kept, *axes).reshape(*(x.shape[i] for i in kept), length)
        out = np.asarray(fn(moved, axis=-1)).astype(np.int32)
        if keepdim:
            out = out.reshape(tuple(1 if i in axes else s for i, s in enumerate(x.shape)))
        return out

    return rule


def _prod_grad(c: Any, g: Any) -> tuple[Any]:
    # Products of the others, safe at zeros: exclusive products from both sides along one flat axis.
    x = c.ins[0]
    kept = [i for i in range(x.ndim) if i not in c.attrs.axes]
    order = (*kept, *c.attrs.axes)
    moved = x.permute(order)
    lead = tuple(x.shape[i] for i in kept)
    n = 1
    for i in c.attrs.axes:
        n *= x.shape[i]
    flat = moved.reshape((*lead, n))
    others = _exclusive_product(flat) * _exclusive_product(flat.flip(-1)).flip(-1)
    gx = others * g.reshape((*lead, 1))
    inverse = tuple(sorted(range(x.ndim), key=lambda i: order[i]))
    return (gx.reshape(moved.shape).permute(inverse),)


def _exclusive_product(x: Any) -> Any:
    """Products of all earlier elements along the last axis."""
    lead = ((0, 0),) * (x.ndim - 1)
    n = x.shape[-1]
    return x.apply(cumprod, (), x.ndim - 1).pad_constant((*lead, (1, 0)), 1.0).slice_axis(-1, 0, n)


def _extreme_grad(c: Any, g: Any) -> tuple[Any]:
    # Ties share the gradient evenly (torch.amax).
    mask = (c.ins[0] == expand_back(c, c.out)).to(c.dtypes[0])
    count = mask.sum(c.attrs.axes, keepdim=True)
    return (mask * (expand_back(c, g) / count),)


sum_ = reduce(
    "sum",
    _np_sum,
    Combine({"f": "0.0", "i": "0", "u": "0u"}, dict.fromkeys("fiu", "({a} + {b})")),
    lambda c, g: (expand_back(c, g).expand(c.shapes[0]),),
    result=_sum_dtype,
    onnx="ReduceSum",
)
prod = reduce(
    "prod",
    _np_prod,
    Combine({"f": "1.0", "i": "1", "u": "1u"}, dict.fromkeys("fiu", "({a} * {b})")),
    _prod_grad,
    saves=(0,),
    result=_sum_dtype,
    onnx="ReduceProd",
)
amax = reduce(
    "amax",
    _plain(np.max),
    Combine(
        {"f": _F_LOW, "i": _I_LOW, "u": _U_LOW},
        {"f": "wb_max({a}, {b})", "i": "max({a}, {b})", "u": "max({a}, {b})"},
    ),
    _extreme_grad,
    saves=(0, OUT),
    dtypes="iuf",
    onnx="ReduceMax",
)
amin = reduce(
    "amin",
    _plain(np.min),
    Combine(
        {"f": _F_HIGH, "i": _I_HIGH, "u": _U_HIGH},
        {"f": "wb_min({a}, {b})", "i": "min({a}, {b})", "u": "min({a}, {b})"},
    ),
    _extreme_grad,
    saves=(0, OUT),
    dtypes="iuf",
    onnx="ReduceMin",
)
# For positions {b} beats {a} when the expression is true; the first NaN beats everything, ties keep
# the earlier index (numpy and torch).
argmax = reduce(
    "argmax",
    _np_position(np.argmax),
    Combine(
        {"f": _F_LOW, "i": _I_LOW, "u": _U_LOW},
        {
            "f": "((!wb_isnan({a})) && (wb_isnan({b}) || wb_gt({b}, {a})))",
            "i": "({b} > {a})",
            "u": "({b} > {a})",
        },
        position=True,
    ),
    NONDIFF,
    dtypes="iuf",
    result=_index,
    onnx="ArgMax",
)
argmin = reduce(
    "argmin",
    _np_position(np.argmin),
    Combine(
        {"f": _F_HIGH, "i": _I_HIGH, "u": _U_HIGH},
        {
            "f": "((!wb_isnan({a})) && (wb_isnan({b}) || wb_lt({b}, {a})))",
            "i": "({b} < {a})",
            "u": "({b} < {a})",
        },
        position=True,
    ),
    NONDIFF,
    dtypes="iuf",
    result=_index,
    onnx="ArgMin",
)
any_ = reduce(
    "any",
    _plain(np.any),
    Combine({"b": "false"}, {"b": "({a} || {b})"}),
    NONDIFF,
    dtypes="b",
    result=_bool,
)
all_ = reduce(
    "all",
    _plain(np.all),
    Combine({"b": "true"}, {"b": "({a} && {b})"}),
    NONDIFF,
    dtypes="b",
    result=_bool,
)

__all__ = ["Combine", "ReduceAttrs"]
