"""Max and average pooling over 1 to 3 trailing dimensions, and their gradients.

Owns: specs and launch arithmetic. Inputs and outputs are dense [planes, *size] or [planes, *out];
`templates/pool.wgsl` says what each kind reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from wgburn_shaders.kernels.body import KernelBody, Launch, ceil_div, product, unsigned
from wgburn_shaders.render import render

MAX, ARGMAX, MAX_GRAD, AVG, AVG_GRAD = "max", "argmax", "max_grad", "avg", "avg_grad"
LANES = 64
#: The least value of each type; for f32 the bits of -inf, which WGSL can't write down.
LOWEST = {"f32": 0xFF800000, "i32": -(2**31), "u32": 0}


class PoolSpec(NamedTuple):
    what: str
    acc: str  # type of x; ARGMAX stores i32 whatever it is
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    include_pad: bool = True  # averages only


def _flat(name: str, sizes: str, rank: int) -> str:
    """WGSL of a row-major offset: ((a0 * n1 + a1) * n2 + a2)."""
    text = f"{name}0"
    for d in range(1, rank):
        text = f"({text}) * P.{sizes}{d} + {name}{d}"
    return text


@cache
def build(spec: PoolSpec) -> KernelBody:
    rank = len(spec.kernel)
    if spec.what in (AVG, AVG_GRAD) and (spec.acc != "f32" or set(spec.dilation) != {1}):
        raise ValueError(f"average pooling is f32 and undilated, got {spec}")
    flat = {"flat_window": _flat("w", "out", rank), "flat_source": _flat("s", "n", rank)}
    # How far a window reaches, and whether no two of them share an element.
    reach = tuple((k - 1) * di + 1 for k, di in zip(spec.kernel, spec.dilation, strict=True))
    disjoint = all(r <= st for r, st in zip(reach, spec.stride, strict=True))
    params = list(unsigned("total", "plane", "windows"))
    for d in range(rank):
        params += unsigned(f"n{d}", f"out{d}", f"pad{d}")
    if spec.what in (MAX, ARGMAX):
        params.append(("lowest", "i32" if spec.acc == "i32" else "u32"))
    wgsl = render("pool.wgsl", **spec._asdict(), **flat, reach=reach, disjoint=disjoint)
    return KernelBody(wgsl, tuple(params), (LANES, 1, 1))


def launch(
    spec: PoolSpec, planes: int, size: Sequence[int], out: Sequence[int], pad: Sequence[int]
) -> Launch:
    """`planes`: the product of all dimensions in front; `out` decides about ceil mode."""
    reads_windows = spec.what in (MAX_GRAD, AVG_GRAD)
    total = planes * product(size if reads_windows else out)
    values = {"total": total, "plane": product(size), "windows": product(out)}
    for d in range(len(spec.kernel)):
        values |= {f"n{d}": size[d], f"out{d}": out[d], f"pad{d}": pad[d]}
    if spec.what in (MAX, ARGMAX):
        values["lowest"] = LOWEST[spec.acc]
    return values, ceil_div(total, LANES)
