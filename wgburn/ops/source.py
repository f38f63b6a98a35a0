"""Sources: ops without inputs (constants, ranges, random numbers).

Random streams: element i of an op recorded at (seed, offset) is a fixed function of those three
numbers (Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), so
every backend and every fusion gives the same bits.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from wgburn_shaders import philox

from ..core.dtype import DType, float32, uint32
from ..core.shape import Shape
from .record import NONDIFF, Array, Call, Op, register


class SourceAttrs(NamedTuple):
    shape: Shape
    dtype: DType


class ConstAttrs(NamedTuple):
    """value None: the value is a slot; else it is structure (0, 1, -1 and their kin)."""

    dtype: DType
    value: Any


def _const_numpy(call: Call) -> Array:
    value = call.dyn[0] if call.attrs.value is None else call.attrs.value
    if call.dtype.kind == "f":
        return np.array(value, call.dtype)
    return np.array(value).astype(call.dtype)  # an integer out of range wraps


const = register(
    Op(
        "const",
        "source",
        0,
        lambda attrs: (),
        lambda attrs: attrs.dtype,
        _const_numpy,
        "const",
        NONDIFF,
        (),
        "Constant",
        dyn="d",
    )
)


def _iota_numpy(call: Call) -> Array:
    """start + i * step; 32-bit floats compute in float32, as WGSL does."""
    start, step = call.dyn
    n = call.shape[0]
    if call.dtype.kind == "f":
        return (
            (np.float32(start) + np.arange(n, dtype=np.float32) * np.float32(step)).astype(
                call.dtype
            )
            if call.dtype.itemsize <= 4
            else start + np.arange(n) * float(step)
        )
    return (start + np.arange(n, dtype=np.int64) * step).astype(call.dtype)


iota = register(
    Op(
        "iota",
        "source",
        0,
        lambda attrs: attrs.shape,
        lambda attrs: attrs.dtype,
        _iota_numpy,
        {
            "f": "({d0} + f32({i}) * {d1})",
            "i": "({d0} + i32({i}) * {d1})",
            "u": "({d0} + {i} * {d1})",
        },
        NONDIFF,
        (),
        "Range",
        dyn="dd",
    )
)


def split64(value: int) -> tuple[int, int]:
    """Low and high 32 bits."""
    return value & 0xFFFFFFFF, (value >> 32) & 0xFFFFFFFF


def _bits(call: Call, words: int) -> Array:
    off_lo, off_hi, seed_lo, seed_hi = call.dyn
    return philox.random_bits(words, off_lo | (off_hi << 32), seed_lo | (seed_hi << 32))


_BITS = "wb_random_bits({i}, {d0}, {d1}, {d2}, {d3})"
random_bits = register(
    Op(
        "random_bits",
        "source",
        0,
        lambda attrs: attrs.shape,
        lambda attrs: uint32,
        lambda call: _bits(call, prod(call.shape)).reshape(call.shape),
        {"u": _BITS},
        NONDIFF,
        (),
        dyn="uuuu",
    )
)
random_uniform = register(
    Op(
        "random_uniform",
        "source",
        0,
        lambda attrs: attrs.shape,
        lambda attrs: float32,
        lambda call: philox.uniform(_bits(call, prod(call.shape))).reshape(call.shape),
        {"f": f"wb_uniform({_BITS})"},
        NONDIFF,
        (),
        dyn="uuuu",
    )
)


def _normal_numpy(call: Call) -> Array:
    bits = _bits(call, 2 * prod(call.shape)).reshape(-1, 2)
    return np.asarray(philox.normal(bits[:, 0], bits[:, 1])).reshape(call.shape)


random_normal = register(
    Op(
        "random_normal",
        "source",
        0,
        lambda attrs: attrs.shape,
        lambda attrs: float32,
        _normal_numpy,
        {
            "f": "wb_normal(wb_random_bits({i} * 2u, {d0}, {d1}, {d2}, {d3}),"
            " wb_random_bits({i} * 2u + 1u, {d0}, {d1}, {d2}, {d3}))"
        },
        NONDIFF,
        (),
        dyn="uuuu",
    )
)
