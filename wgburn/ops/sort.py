"""Stable order along the last axis, as positions: ordered runs, and the merging of two neighbours.

A row no longer than BLOCK is one run. NaN counts as the largest; equal elements keep their order,
descending too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wgburn_shaders.kernels.sort import BLOCK

from ..core.shape import Shape
from .record import NONDIFF, Array, Call, Op, Template, _index, register, unsupported


class SortAttrs(NamedTuple):
    """run: length of the ordered runs, of the result (sort_blocks) or the input (sort_merge)."""

    descending: bool
    run: int = BLOCK


def _order(x: Array, descending: bool) -> Array:
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    back = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(x.shape[-1] - 1 - back)


def _in_runs(x: Array, run: int, descending: bool) -> Array:
    """Positions that order each run of the rows."""
    n = x.shape[-1]
    out = np.empty(x.shape, np.int32)
    whole = n - n % run
    if whole:
        blocks = x[..., :whole].reshape(*x.shape[:-1], whole // run, run)
        starts = np.arange(0, whole, run)[:, None]
        out[..., :whole] = (_order(blocks, descending) + starts).reshape(*x.shape[:-1], whole)
    if whole < n:
        out[..., whole:] = _order(x[..., whole:], descending) + whole
    return out


def _blocks_numpy(call: Call, x: Array) -> Array:
    return _in_runs(x, call.attrs.run, call.attrs.descending)


def _merge_shape(attrs: Any, x: Shape, at: Shape) -> Shape:
    return at


def _merge_numpy(call: Call, x: Array, at: Array) -> Array:
    # numpy's stable sort is quick with runs that are ordered already.
    found = np.take_along_axis(x, at, -1)
    order = _in_runs(found, 2 * call.attrs.run, call.attrs.descending)
    return np.take_along_axis(at, order, -1)


def _sort(name: str, arity: int, shape: Any, numpy: Any) -> Op:
    onnx = unsupported("the exporter writes TopK")
    template = Template(name)
    return register(Op(name, "kernel", arity, shape, _index, numpy, template, NONDIFF, onnx=onnx))


sort_blocks: Op = _sort("sort_blocks", 1, lambda attrs, a: a, _blocks_numpy)
sort_merge: Op = _sort("sort_merge", 2, _merge_shape, _merge_numpy)

__all__ = ["BLOCK", "SortAttrs", "sort_blocks", "sort_merge"]
