"""Pooling in 1 to 3 spatial dimensions: maximum (value, position, gradient) and average.

Positions are flat indices into the input's spatial dimensions; the first maximum of a window wins,
and a NaN wins over every number (torch).
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..core import hostmem
from ..core.dtype import DType, int32
from ..core.shape import Shape
from .record import NONDIFF, Array, Call, Op, Template, register


class PoolAttrs(NamedTuple):
    """One int a spatial dimension. `out`: spatial size of the pooled side; `size`: of the unpooled
    side (gradients only). `count_pad`: averages divide by the window incl. padding."""

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    out: Shape
    size: Shape = ()
    count_pad: bool = True


def _pooled(attrs: PoolAttrs, x: Shape) -> Shape:
    return (*x[:2], *attrs.out)


def _unpooled(attrs: PoolAttrs, g: Shape, *rest: Shape) -> Shape:
    return (*g[:2], *attrs.size)


def _same(attrs: Any, a: DType, *rest: DType) -> DType:
    return a


def _index(attrs: Any, *rest: DType) -> DType:
    return int32


def _framed(x: Array, a: PoolAttrs, fill: float) -> Array:
    """x with its padding, and as much at the far end as the last window needs (ceil mode)."""
    need = [
        (o - 1) * s + d * (k - 1) + 1
        for o, s, d, k in zip(a.out, a.stride, a.dilation, a.kernel, strict=True)
    ]
    size = x.shape[2:]
    if not any(a.padding) and all(n <= s for n, s in zip(need, size, strict=True)):
        return x
    pads = [(p, max(0, n - s - p)) for p, n, s in zip(a.padding, need, size, strict=True)]
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)


def _taps(a: PoolAttrs) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """(offset in the window, slices of the framed input) of every window element, row-major."""
    out = []
    for tap in np.ndindex(*a.kernel):
        cut = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, a.dilation, a.out, a.stride, strict=True)
        )
        out.append((tap, (slice(None), slice(None), *cut)))
    return out


def _low(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _max_numpy(call: Call, x: Array) -> Array:
    framed = _framed(x, call.attrs, _low(x.dtype))
    out = hostmem.empty(call.shape, x.dtype)
    for i, (_, cut) in enumerate(_taps(call.attrs)):
        if i == 0:
            np.copyto(out, framed[cut])
        else:
            np.maximum(out, framed[cut], out=out)
    return out


def _position_numpy(call: Call, x: Array) -> Array:
    a: PoolAttrs = call.attrs
    framed = _framed(x, a, _low(x.dtype))
    size = x.shape[2:]
    best = hostmem.empty(call.shape, x.dtype)
    winner = hostmem.empty(call.shape, np.dtype(np.uint8 if prod(a.kernel) < 256 else np.int32))
    better = hostmem.empty(call.shape, np.dtype(bool))
    taps = _taps(a)
    # max() is NaN exactly when a NaN is there; without one a plain comparison will do.
    nans = x.dtype.kind == "f" and x.size > 0 and bool(np.isnan(x.max()))
    # Samples of about a second-level cache at a time: every tap reads them again.
    step = max(1, (1 << 19) // max(best[:1].nbytes, 1)) if len(best) else 1
    for start in range(0, len(best), step):
        part = slice(start, start + step)
        top, who, more = best[part], winner[part], better[part]
        for i, (_, cut) in enumerate(taps):
            v = framed[part][cut]
            if i == 0:
                np.copyto(top, v)
                who[...] = 0
                continue
            if nans:
                # NaN-true "greater": not (v <= best) holds for NaN too; a NaN best stays.
                np.less_equal(v, top, out=more)
                np.logical_not(more, out=more)
                more &= ~np.isnan(top)
            else:
                np.greater(v, top, out=more)
            np.copyto(who, i, where=more)
            np.maximum(top, v, out=top)
    starts = [np.arange(o) * s - p for o, s, p in zip(a.out, a.stride, a.padding, strict=True)]
    if any(a.padding):
        # Padding counts as the lowest value but wins nothing: where no element is larger, the first
        # one inside the input does.
        inside = [-(np.minimum(st, 0) // d) for st, d in zip(starts, a.dilation, strict=True)]
        first = np.ravel_multi_index(np.ix_(*inside), a.kernel, mode="clip")
        np.copyto(winner, first, where=best == _low(x.dtype), casting="unsafe")
    grid = np.meshgrid(*starts, indexing="ij")
    strides = [prod(size[i + 1 :]) for i in range(len(size))]
    origin = sum(
        (g * st for g, st in zip(grid, strides, strict=True)), np.zeros(a.out, np.int64)
    ).astype(np.int32)
    steps = [
        sum(t * d * st for t, d, st in zip(tap, a.dilation, strides, strict=True))
        for tap, _ in taps
    ]
    out = np.take(np.array(steps, np.int32), winner)
    out += origin
    return out


def _max_grad_numpy(call: Call, g: Array, position: Array) -> Array:
    a: PoolAttrs = call.attrs
    size = a.size
    out = hostmem.empty((*call.shape[:2], prod(size)), g.dtype)
    out[...] = 0
    rows = g.shape[0] * g.shape[1]
    if not rows:
        return out.reshape(call.shape)
    flat, index, grad = out.reshape(rows, -1), position.reshape(rows, -1), g.reshape(rows, -1)
    disjoint = all(k <= s for k, s in zip(a.kernel, a.stride, strict=True)) and a.dilation == (
        1,
    ) * len(a.kernel)
    if disjoint:
        np.put_along_axis(flat, index, grad, axis=1)
    else:
        base = np.arange(rows, dtype=np.int64)[:, None] * flat.shape[1]
        total = np.bincount(
            (index + base).reshape(-1), weights=grad.reshape(-1), minlength=flat.size
        )
        flat[...] = total.reshape(flat.shape)
    return out.reshape(call.shape)


def _avg_divisor(a: PoolAttrs, size: Shape) -> Array:
    """Elements each window averages over, as torch counts them."""
    counts = []
    for k, s, p, o, n in zip(a.kernel, a.stride, a.padding, a.out, size, strict=True):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        if not a.count_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        counts.append((end - start).astype(np.float32))
    total = counts[0]
    for c in counts[1:]:
        total = np.multiply.outer(total, c)
    return np.asarray(total)


def _avg_numpy(call: Call, x: Array) -> Array:
    a: PoolAttrs = call.attrs
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    framed = _framed(wide, a, 0.0)
    out = hostmem.empty(call.shape, wide.dtype)
    out[...] = 0
    for _, cut in _taps(a):
        out += framed[cut]
    out /= _avg_divisor(a, x.shape[2:]).astype(wide.dtype)
    return out


def _avg_grad_numpy(call: Call, g: Array) -> Array:
    a: PoolAttrs = call.attrs
    share = (g / _avg_divisor(a, a.size)).astype(g.dtype)
    need = [
        max((o - 1) * s + k, n + p)
        for o, s, k, n, p in zip(a.out, a.stride, a.kernel, a.size, a.padding, strict=True)
    ]
    out = np.zeros((*call.shape[:2], *need), g.dtype)
    for _, cut in _taps(a):
        out[cut] += share
    inner = tuple(slice(p, p + n) for p, n in zip(a.padding, a.size, strict=True))
    if all(p + n <= m for p, n, m in zip(a.padding, a.size, need, strict=True)):
        return out[(slice(None), slice(None), *inner)]
    full = np.zeros(call.shape, g.dtype)
    got = out[(slice(None), slice(None), *inner)]
    full[tuple(slice(0, s) for s in got.shape)] = got
    return full


def _max_pool_grad(c: Any, g: Any) -> tuple[Any]:
    x = c.ins[0]
    position = x.apply(max_pool_index, (), c.attrs)
    return (g.apply(max_pool_grad, (position,), c.attrs._replace(size=c.shapes[0][2:])),)


def _max_pool_grad_grad(c: Any, t: Any) -> tuple[Any, None]:
    position = c.ins[1]
    n, ch = c.shapes[0][:2]
    flat = t.reshape(n, ch, prod(c.shape[2:]))
    flat = flat.gather(2, position.reshape(n, ch, prod(c.shapes[0][2:])))
    return flat.reshape(c.shapes[0]), None


max_pool: Op = register(
    Op(
        "max_pool",
        "kernel",
        1,
        _pooled,
        _same,
        _max_numpy,
        Template("max_pool"),
        _max_pool_grad,
        ((0,),),
        "MaxPool",
        "f",
    )
)
max_pool_index: Op = register(
    Op(
        "max_pool_index",
        "kernel",
        1,
        _pooled,
        _index,
        _position_numpy,
        Template("max_pool_index"),
        NONDIFF,
        dtypes="f",
    )
)
max_pool_grad: Op = register(
    Op(
        "max_pool_grad",
        "kernel",
        2,
        _unpooled,
        _same,
        _max_grad_numpy,
        Template("max_pool_grad"),
        _max_pool_grad_grad,
        ((1,), ()),
        dtypes="f",
    )
)
avg_pool: Op = register(
    Op(
        "avg_pool",
        "kernel",
        1,
        _pooled,
        _same,
        _avg_numpy,
        Template("avg_pool"),
        lambda c, g: (g.apply(avg_pool_grad, (), c.attrs._replace(size=c.shapes[0][2:])),),
        ((),),
        "AveragePool",
        "f",
    )
)
avg_pool_grad: Op = register(
    Op(
        "avg_pool_grad",
        "kernel",
        1,
        _unpooled,
        _same,
        _avg_grad_numpy,
        Template("avg_pool_grad"),
        lambda c, t: (t.apply(avg_pool, (), c.attrs._replace(size=())),),
        ((),),
        dtypes="f",
    )
)
