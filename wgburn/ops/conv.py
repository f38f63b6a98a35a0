"""Convolution in 1 to 3 spatial dimensions and its two gradients.

The three ops are bilinear and close under differentiation: each one's gradients are the others.
Transposed convolution is `conv_input_grad` with the result's spatial size given.
numpy: blocked im2col and BLAS.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..core import hostmem
from ..core.dtype import DType
from ..core.errors import ShapeError
from ..core.shape import Shape
from .record import Array, Call, Op, Template, register


class ConvAttrs(NamedTuple):
    """Structure of a convolution; one int a spatial dimension. `size`: spatial size of the result
    where it does not follow from the inputs (input gradient: S; weight gradient: kernel K), else
    ()."""

    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int
    size: Shape = ()


def conv_out_size(size: Shape, kernel: Shape, attrs: ConvAttrs) -> Shape:
    """Spatial size of the result. Raises ShapeError when the kernel does not fit."""
    out = []
    for s, k, st, p, d in zip(
        size, kernel, attrs.stride, attrs.padding, attrs.dilation, strict=True
    ):
        n = s + 2 * p - d * (k - 1) - 1
        if n < 0:
            raise ShapeError(
                f"conv: kernel {kernel} with dilation {attrs.dilation} is larger than the padded "
                f"input {tuple(a + 2 * b for a, b in zip(size, attrs.padding, strict=True))}"
            )
        out.append(n // st + 1)
    return tuple(out)


def _same(attrs: Any, a: DType, b: DType) -> DType:
    return a


def _forward_shape(attrs: ConvAttrs, x: Shape, w: Shape) -> Shape:
    if x[1] != w[1] * attrs.groups:
        raise ShapeError(
            f"conv: input {x} has {x[1]} channels, weight {w} with groups={attrs.groups} "
            f"takes {w[1] * attrs.groups}"
        )
    if w[0] % attrs.groups:
        raise ShapeError(f"conv: {w[0]} output channels are not divisible by groups={attrs.groups}")
    return (x[0], w[0], *conv_out_size(x[2:], w[2:], attrs))


#: Bytes of the im2col scratch of one block; about a second-level cache, so that BLAS reads it warm.
_BLOCK_BYTES = 3 << 20


def _padded(x: Array, attrs: ConvAttrs) -> Array:
    if not any(attrs.padding):
        return x
    shape = (*x.shape[:2], *(s + 2 * p for s, p in zip(x.shape[2:], attrs.padding, strict=True)))
    out = hostmem.empty(shape, x.dtype)
    out[...] = 0
    inner = tuple(slice(p, p + s) for s, p in zip(x.shape[2:], attrs.padding, strict=True))
    out[(slice(None), slice(None), *inner)] = x
    return out


def _windows(x: Array, kernel: Shape, out: Shape, attrs: ConvAttrs) -> Array:
    """View of a padded input as [N, C, *K, *OS]."""
    n, c = x.shape[:2]
    sp = x.strides[2:]
    return np.lib.stride_tricks.as_strided(
        x,
        (n, c, *kernel, *out),
        (
            *x.strides[:2],
            *(s * d for s, d in zip(sp, attrs.dilation, strict=True)),
            *(s * t for s, t in zip(sp, attrs.stride, strict=True)),
        ),
        writeable=False,
    )


def _blocks(n: int, bytes_each: int) -> range:
    return range(0, n, max(1, _BLOCK_BYTES // max(bytes_each, 1)))


def _float(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype == np.float16 else x


def forward_numpy(call: Call, x: Array, w: Array) -> Array:
    attrs: ConvAttrs = call.attrs
    x, w = _float(x), _float(w)
    n, o, *rest = call.shape
    osize = tuple(rest)
    kernel = w.shape[2:]
    g, cg = attrs.groups, w.shape[1]
    taps, pixels = cg * prod(kernel), prod(osize)
    win = _windows(_padded(x, attrs), kernel, osize, attrs)
    w2 = np.ascontiguousarray(w).reshape(g, o // g, taps)
    y = call.room() if x.dtype == call.dtype else hostmem.empty(call.shape, x.dtype)
    y = y.reshape(n, g, o // g, pixels)
    if n == 0 or pixels == 0:
        return y.reshape(call.shape)
    step = _blocks(n, x.itemsize * g * taps * pixels).step
    cols = hostmem.empty((step, g, taps, pixels), x.dtype)
    for i in range(0, n, step):
        m = min(step, n - i)
        block = cols[:m]
        block.reshape(m, g * cg, *kernel, *osize)[...] = win[i : i + m]
        np.matmul(w2, block, out=y[i : i + m])
    return y.reshape(call.shape)


def _input_grad_shape(attrs: ConvAttrs, g: Shape, w: Shape) -> Shape:
    if g[1] != w[0]:
        raise ShapeError(
            f"conv_transpose: input {g} has {g[1]} channels, weight {w} takes {w[0]} "
            "(weight is [in, out / groups, *kernel])"
        )
    return (g[0], w[1] * attrs.groups, *attrs.size)


def input_grad_numpy(call: Call, g: Array, w: Array) -> Array:
    attrs: ConvAttrs = call.attrs
    g, w = _float(g), _float(w)
    n, c, *rest = call.shape
    size = tuple(rest)
    osize, kernel = g.shape[2:], w.shape[2:]
    gr = attrs.groups
    o, cg = w.shape[0], w.shape[1]
    taps, pixels = cg * prod(kernel), prod(osize)
    psize = tuple(
        max(s + 2 * p, (on - 1) * st + d * (k - 1) + 1)
        for s, p, on, st, d, k in zip(
            size, attrs.padding, osize, attrs.stride, attrs.dilation, kernel, strict=True
        )
    )
    out = hostmem.empty((n, c, *psize), g.dtype)
    out[...] = 0
    wt = np.ascontiguousarray(w.reshape(gr, o // gr, taps).transpose(0, 2, 1))
    gm = np.ascontiguousarray(g).reshape(n, gr, o // gr, pixels)
    if n and pixels:
        step = _blocks(n, g.itemsize * gr * taps * pixels).step
        cols = hostmem.empty((step, gr, taps, pixels), g.dtype)
        for i in range(0, n, step):
            m = min(step, n - i)
            block = cols[:m]
            np.matmul(wt, gm[i : i + m], out=block)
            taps_of = block.reshape(m, c, *kernel, *osize)
            for tap in np.ndindex(*kernel):
                where = tuple(
                    slice(t * d, t * d + (on - 1) * st + 1, st)
                    for t, d, on, st in zip(tap, attrs.dilation, osize, attrs.stride, strict=True)
                )
                out[(slice(i, i + m), slice(None), *where)] += taps_of[
                    (slice(None), slice(None), *tap)
                ]
    inner = tuple(slice(p, p + s) for s, p in zip(size, attrs.padding, strict=True))
    return out[(slice(None), slice(None), *inner)]


def _weight_grad_shape(attrs: ConvAttrs, g: Shape, x: Shape) -> Shape:
    return (g[1], x[1] // attrs.groups, *attrs.size)


def weight_grad_numpy(call: Call, g: Array, x: Array) -> Array:
    attrs: ConvAttrs = call.attrs
    g, x = _float(g), _float(x)
    o, cg, *rest = call.shape
    kernel = tuple(rest)
    n, osize = g.shape[0], g.shape[2:]
    gr = attrs.groups
    taps, pixels = cg * prod(kernel), prod(osize)
    win = _windows(_padded(x, attrs), kernel, osize, attrs)
    gm = np.ascontiguousarray(g).reshape(n, gr, o // gr, pixels)
    total = np.zeros((gr, taps, o // gr), np.float64 if x.dtype == np.float64 else np.float32)
    if n and pixels:
        step = _blocks(n, x.itemsize * gr * taps * pixels).step
        cols = hostmem.empty((step, gr, taps, pixels), x.dtype)
        for i in range(0, n, step):
            m = min(step, n - i)
            block = cols[:m]
            block.reshape(m, gr * cg, *kernel, *osize)[...] = win[i : i + m]
            total += np.matmul(block, gm[i : i + m].transpose(0, 1, 3, 2)).sum(0)
    return (
        np.ascontiguousarray(total.transpose(0, 2, 1))
        .reshape(call.shape)
        .astype(call.dtype, copy=False)
    )


def _forward_grad(c: Any, g: Any) -> tuple[Any, Any]:
    x, w = c.ins
    a = c.attrs
    gx = g.apply(conv_input_grad, (w,), a._replace(size=c.shapes[0][2:])) if c.needs[0] else None
    gw = g.apply(conv_weight_grad, (x,), a._replace(size=c.shapes[1][2:])) if c.needs[1] else None
    return gx, gw


def _input_grad_grad(c: Any, t: Any) -> tuple[Any, Any]:
    g, w = c.ins
    a = c.attrs
    gg = t.apply(conv, (w,), a._replace(size=())) if c.needs[0] else None
    gw = g.apply(conv_weight_grad, (t,), a._replace(size=c.shapes[1][2:])) if c.needs[1] else None
    return gg, gw


def _weight_grad_grad(c: Any, t: Any) -> tuple[Any, Any]:
    g, x = c.ins
    a = c.attrs
    gg = x.apply(conv, (t,), a._replace(size=())) if c.needs[0] else None
    gx = g.apply(conv_input_grad, (t,), a._replace(size=c.shapes[1][2:])) if c.needs[1] else None
    return gg, gx


conv = register(
    Op(
        "conv",
        "kernel",
        2,
        _forward_shape,
        _same,
        forward_numpy,
        Template("conv"),
        _forward_grad,
        ((1,), (0,)),
        "Conv",
        "f",
    )
)
#: g [N, O, *OS], w [O, C/groups, *K] -> [N, C, *size]
conv_input_grad = register(
    Op(
        "conv_input_grad",
        "kernel",
        2,
        _input_grad_shape,
        _same,
        input_grad_numpy,
        Template("conv_input_grad"),
        _input_grad_grad,
        ((1,), (0,)),
        "ConvTranspose",
        "f",
    )
)
#: g [N, O, *OS], x [N, C, *S] -> [O, C/groups, *size]
conv_weight_grad = register(
    Op(
        "conv_weight_grad",
        "kernel",
        2,
        _weight_grad_shape,
        _same,
        weight_grad_numpy,
        Template("conv_weight_grad"),
        _weight_grad_grad,
        ((1,), (0,)),
        dtypes="f",
    )
)
