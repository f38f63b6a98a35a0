"""Batched matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtype import DType
from ..core.errors import ShapeError
from ..core.shape import Shape, broadcast
from .record import Array, Call, Op, Template, register


def _shape(attrs: Any, a: Shape, b: Shape) -> Shape:
    if a[-1] != b[-2]:
        raise ShapeError(
            f"matmul: {a} @ {b}: the last dimension of the first ({a[-1]}) and the one but last "
            f"of the second ({b[-2]}) must be equal; did you mean a transpose, x.mT?"
        )
    if len(a) == 2 and len(b) == 2:
        return (a[0], b[1])
    return (*broadcast("matmul", a[:-2], b[:-2]), a[-2], b[-1])


def _numpy(call: Call, a: Array, b: Array) -> Array:
    if call.dtype == np.float16:
        return np.asarray(np.matmul(a.astype(np.float32), b.astype(np.float32))).astype(np.float16)
    out = call.room()
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:
        # One BLAS call instead of one a batch.
        np.matmul(a.reshape(-1, a.shape[-1]), b, out=out.reshape(-1, b.shape[-1]))
    else:
        np.matmul(a, b, out=out)
    return out


def _grad(c: Any, g: Any) -> tuple[Any, Any]:
    a, b = c.ins
    ga = gb = None
    if c.needs[0]:
        ga = (g @ b.mT).sum_to(c.shapes[0])
    if c.needs[1]:
        if len(c.shapes[1]) == 2 and len(c.shapes[0]) > 2:
            k, n = c.shapes[1]
            gb = a.reshape(-1, k).mT @ g.reshape(-1, n)
        else:
            gb = (a.mT @ g).sum_to(c.shapes[1])
    return ga, gb


def _dtype(attrs: Any, a: DType, b: DType) -> DType:
    return a


#: Both inputs have at least two dimensions; vectors are lifted by the caller.
matmul = register(
    Op(
        "matmul",
        "kernel",
        2,
        _shape,
        _dtype,
        _numpy,
        Template("matmul"),
        _grad,
        ((1,), (0,)),
        "MatMul",
        "iuf",
    )
)
