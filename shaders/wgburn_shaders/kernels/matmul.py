"""Matrix product over strided, batched, broadcast operands, with optional split of k.

Owns: the spec (the structure in the text), the default for given sizes, the launch arithmetic.
Inputs: 0 = A, 1 = B. Output: dense [batch..., m, n]; with `split` [splits, batch..., m, n] partial
sums, to be added up by a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from wgburn_shaders.kernels.body import (
    KernelBody,
    Launch,
    Tile,
    ceil_div,
    pick_splits,
    pick_tile,
    product,
    unsigned,
)
from wgburn_shaders.render import render

#: Inner length of a two-level sum, and the inner dimension above which float sums take two levels.
FLUSH = 512
FLUSH_ABOVE = 2048
#: The shortest slice of the inner dimension that is worth a partial sum, and the shortest inner
#: dimension that is worth the launch that adds partial sums up.
MIN_CHUNK = 128
SPLIT_FROM = 512
#: What `candidates` offers to tuning.
REGISTER_TILES = (Tile(8, 8, 8, 8), Tile(8, 4, 8, 8), Tile(4, 4, 8, 8), Tile(8, 16, 8, 1))
SHARED_TILES = (Tile(8, 8, 8, 8), Tile(8, 4, 16, 8), Tile(4, 4, 16, 16))


#: Where operands are read from in the inner loop: straight from storage, or from workgroup memory.
REGISTER, SHARED = "register", "shared"


class MatmulSpec(NamedTuple):
    acc: str  # "f32" | "i32" | "u32"
    batch_rank: int
    tm: int = 4
    tn: int = 4
    wx: int = 8
    wy: int = 8
    split: bool = False  # write partial sums, one plane a slice of k
    flush: int = 0  # length of the inner level of a two-level sum; 0 = one level
    kind: str = REGISTER
    depth: int = 16  # SHARED: steps of k staged at a time
    a_along_k: bool = True  # SHARED: lanes that stage A run along k (else m)
    b_along_n: bool = True  # SHARED: lanes that stage B run along n (else k)
    rolled: bool = False  # one store in loops: st0 is long (an epilogue)


#: Spec default limit of workgroup memory, in bytes.
WORKGROUP_BYTES = 16384


def choose(
    acc: str,
    batch: Sequence[int],
    m: int,
    n: int,
    k: int,
    tile: Tile | None = None,
    software: bool = False,
) -> tuple[MatmulSpec, int]:
    """The default spec for these sizes and its number of splits (1 unless the spec splits).

    `software` says that the adapter runs on a CPU, which wants other tiles."""
    planes = product(batch)
    chunk = MIN_CHUNK if k >= SPLIT_FROM else k + 1
    tile = tile or pick_tile(m, n, planes, min(64, max(1, k // chunk)), software)
    splits = pick_splits(tile, m, n, planes, k, chunk, software)
    long = acc == "f32" and ceil_div(k, splits) > FLUSH_ABOVE
    return MatmulSpec(acc, len(batch), *tile, splits > 1, FLUSH if long else 0), splits


def candidates(
    spec: MatmulSpec,
    a_strides: Sequence[int],
    b_strides: Sequence[int],
    software: bool = False,
) -> tuple[MatmulSpec, ...]:
    """Specs worth timing against `spec` (the first), for its split and its launch call."""
    if spec.tm * spec.wy <= 4 or spec.tn * spec.wx <= 4:
        return (spec,)  # a matrix by a vector: there is nothing to share
    staged = spec._replace(
        kind=SHARED,
        a_along_k=a_strides[-1] <= a_strides[-2],
        b_along_n=b_strides[-1] <= b_strides[-2],
    )
    others = [spec._replace(tm=t.tm, tn=t.tn, wx=t.wx, wy=t.wy) for t in REGISTER_TILES]
    # On a CPU workgroup memory gains nothing, and SwiftShader compiles its barriers in seconds.
    shared_tiles = () if software else SHARED_TILES
    others += [staged._replace(tm=t.tm, tn=t.tn, wx=t.wx, wy=t.wy) for t in shared_tiles]
    return (spec, *(other for other in others if other != spec))


@cache
def build(spec: MatmulSpec) -> KernelBody:
    staged = 4 * spec.depth * (spec.tm * spec.wy + spec.tn * spec.wx + 2)
    if spec.kind == SHARED and staged > WORKGROUP_BYTES:
        raise ValueError(f"matmul stages {staged} bytes, over {WORKGROUP_BYTES}: {spec}")
    if spec.kind == SHARED and spec.flush % spec.depth:
        raise ValueError(f"matmul flushes in the middle of a stage: {spec}")
    names = ["groups", "tiles_m", "tiles_n", "wx", "wy", "m", "n", "k", "a_off", "b_off"]
    names += ["a_sm", "a_sk", "b_sk", "b_sn"]
    if spec.split:
        names += ["batch", "k_chunk"]
    for d in range(spec.batch_rank):
        names += [f"n_b{d}", f"a_sb{d}", f"b_sb{d}"]
    wgsl = render("matmul.wgsl", **spec._asdict())
    return KernelBody(wgsl, unsigned(*names), (spec.wx * spec.wy, 1, 1))


def launch(
    spec: MatmulSpec,
    batch: Sequence[int],
    m: int,
    n: int,
    k: int,
    a_strides: Sequence[int],
    b_strides: Sequence[int],
    a_off: int = 0,
    b_off: int = 0,
    splits: int = 1,
) -> Launch:
    """Strides are in elements: a [batch..., m, k], b [batch..., k, n]; 0 broadcasts."""
    rank = spec.batch_rank
    if len(batch) != rank or len(a_strides) != rank + 2 or len(b_strides) != rank + 2:
        raise ValueError(
            f"matmul: spec has batch rank {rank}, got batch {tuple(batch)}, "
            f"a strides {tuple(a_strides)}, b strides {tuple(b_strides)}"
        )
    if splits != 1 and not spec.split:
        raise ValueError(f"matmul: {splits} splits need a spec with split=True")
    tiles_m, tiles_n = ceil_div(m, spec.tm * spec.wy), ceil_div(n, spec.tn * spec.wx)
    groups = product(batch) * splits * tiles_m * tiles_n
    values = {"groups": groups, "tiles_m": tiles_m, "tiles_n": tiles_n}
    values |= {"wx": spec.wx, "wy": spec.wy, "m": m, "n": n, "k": k}
    values |= {"a_off": a_off, "a_sm": a_strides[rank], "a_sk": a_strides[rank + 1]}
    values |= {"b_off": b_off, "b_sk": b_strides[rank], "b_sn": b_strides[rank + 1]}
    if spec.split:
        values |= {"batch": product(batch), "k_chunk": ceil_div(k, splits)}
    for d in range(rank):
        values |= {f"n_b{d}": batch[d], f"a_sb{d}": a_strides[d], f"b_sb{d}": b_strides[d]}
    return values, groups
