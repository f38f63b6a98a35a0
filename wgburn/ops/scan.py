"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtype import DType
from .record import OUT, Array, Call, Op, Template, register, unsupported


def _same(attrs: Any, a: DType) -> DType:
    return a


def _scan(name: str, np_rule: Any, grad: Any, saves: tuple[int, ...], onnx: Any) -> Op:
    def rule(call: Call, x: Array) -> Array:
        wide = np.float32 if x.dtype == np.float16 else x.dtype
        return np.asarray(np_rule(x, axis=call.attrs, dtype=wide))

    template = Template(name)
    return register(
        Op(
            name,
            "kernel",
            1,
            lambda attrs, a: a,
            _same,
            rule,
            template,
            grad,
            (saves,),
            onnx,
            "iuf",
        )
    )


cumsum: Op = _scan(
    "cumsum",
    np.cumsum,
    lambda c, g: (g.flip(c.attrs).apply(cumsum, (), c.attrs).flip(c.attrs),),
    (),
    "CumSum",
)


def _ahead(t: Any, axis: int, steps: int, fill: float) -> Any:
    """t[i + steps] along the axis, `fill` behind the end."""
    n = t.shape[axis]
    steps = min(steps, n)
    widths = tuple((0, steps) if i == axis else (0, 0) for i in range(t.ndim))
    return t.slice_axis(axis, steps, n - steps).pad_constant(widths, fill)


def _cumprod_grad(c: Any, g: Any) -> tuple[Any]:
    # out[j] is x[k] times the factors around it, for every j >= k. Those behind k make a sum
    # s[k] = g[k] + x[k+1] * s[k+1], worked out in log2(n) doublings; nothing is divided, so zeros
    # are no special case.
    x, axis = c.ins[0], c.attrs
    n = x.shape[axis]
    sums, factors = g, _ahead(x, axis, 1, 0.0)
    step = 1
    while step < n:
        sums = sums + factors * _ahead(sums, axis, step, 0.0)
        factors = factors * _ahead(factors, axis, step, 0.0)
        step *= 2
    widths = tuple((1, 0) if i == axis else (0, 0) for i in range(x.ndim))
    before = c.out.pad_constant(widths, 1.0).slice_axis(axis, 0, n)
    return (before * sums,)


cumprod: Op = _scan(
    "cumprod", np.cumprod, _cumprod_grad, (0, OUT), unsupported("ONNX has no running product")
)
