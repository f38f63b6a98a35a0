"""Every kernel on a real WebGPU device with default limits, against float64 references."""

from __future__ import annotations

from typing import Any

import jinja2
import numpy as np
import pytest
from kernel_harness import run
from numpy.typing import NDArray
from wgburn_shaders.kernels import matmul
from wgburn_shaders.kernels.body import Tile
from wgburn_shaders.render import render


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def close(got: NDArray[Any], want: NDArray[Any], tol: float = 2e-6) -> None:
    """Norm-wise relative agreement, plus shape."""
    assert got.shape == want.shape
    scale = np.linalg.norm(want.astype(np.float64)) or 1.0
    error = np.linalg.norm(got.astype(np.float64) - want) / scale
    assert error < tol, f"relative error {error:.2e}"


def element_strides(a: NDArray[Any]) -> tuple[int, ...]:
    """Strides of a view in elements, 0 where numpy broadcast."""
    return tuple(s // a.itemsize for s in a.strides)


def test_undefined_names_are_errors() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("matmul.wgsl", acc="f32")
    with pytest.raises(LookupError, match=r"there are: .*matmul"):
        render("no_such_template.wgsl")


# -- matmul ---------------------------------------------------------------------------------------


def multiply(
    a: NDArray[Any], b: NDArray[Any], tile: Tile | None = None, splits: int | None = None
) -> NDArray[Any]:
    """a @ b through the kernel, with views passed by strides of their contiguous base."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    av = np.broadcast_to(a, batch + a.shape[-2:])
    bv = np.broadcast_to(b, batch + b.shape[-2:])
    m, k, n = *a.shape[-2:], b.shape[-1]
    acc = {"f": "f32", "i": "i32", "u": "u32"}[a.dtype.kind]
    spec, chosen = matmul.choose(acc, batch, m, n, k, tile)
    splits = splits or chosen
    spec = spec._replace(split=splits > 1)
    launch = matmul.launch(
        spec, batch, m, n, k, element_strides(av), element_strides(bv), splits=splits
    )
    bases = [x if x.base is None else x.base for x in (a, b)]
    shape = ((splits,) if spec.split else ()) + batch + (m, n)
    out = run(matmul.build(spec), bases, shape, a.dtype, launch)
    return out.sum(0, dtype=out.dtype) if spec.split else out


@pytest.mark.parametrize(
    "m,n,k", [(1, 1, 1), (5, 7, 3), (33, 65, 17), (64, 96, 40), (1, 300, 50), (129, 1, 9)]
)
def test_matmul_odd_sizes(m: int, n: int, k: int) -> None:
    a, b = normal(m, k), normal(k, n, seed=1)
    close(multiply(a, b), a.astype(np.float64) @ b)


@pytest.mark.parametrize(
    "tile", [Tile(8, 8, 8, 8), Tile(8, 4, 8, 8), Tile(4, 4, 8, 8), Tile(8, 16, 8, 1)]
)
def test_matmul_every_tile_masks_its_edges(tile: Tile) -> None:
    a, b = normal(70, 31), normal(31, 75, seed=1)
    close(multiply(a, b, tile), a.astype(np.float64) @ b)


@pytest.mark.parametrize(
    "ab,bb", [((3,), (3,)), ((), (4,)), ((2, 1), (1, 3)), ((2, 3, 1), (2, 1, 2)), ((1,), (5,))]
)
def test_matmul_batches_broadcast(ab: tuple[int, ...], bb: tuple[int, ...]) -> None:
    a, b = normal(*ab, 9, 6), normal(*bb, 6, 11, seed=1)
    close(multiply(a, b), np.matmul(a.astype(np.float64), b))


def test_matmul_reads_transposed_views_in_place() -> None:
    a, b = normal(3, 20, 9), normal(3, 13, 20, seed=1)
    at, bt = a.transpose(0, 2, 1), b.transpose(0, 2, 1)
    close(multiply(at, bt), np.matmul(at.astype(np.float64), bt))


@pytest.mark.parametrize("splits", [2, 3, 7, 40])
def test_matmul_partial_sums(splits: int) -> None:
    a, b = normal(2, 10, 37), normal(37, 6, seed=1)
    close(multiply(a, b, splits=splits), np.matmul(a.astype(np.float64), b))


def test_matmul_integers_wrap() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-(2**31), 2**31, (9, 12), dtype=np.int32)
    b = rng.integers(-(2**31), 2**31, (12, 10), dtype=np.int32)
    np.testing.assert_array_equal(multiply(a, b), a @ b)
    u, v = a.astype(np.uint32), b.astype(np.uint32)
    np.testing.assert_array_equal(multiply(u, v), u @ v)


@pytest.mark.parametrize("splits", [1, None])
def test_matmul_long_sums_stay_accurate(splits: int | None) -> None:
    # Equal terms round the same way at every step: the worst case of a running float32 sum.
    a, b = np.full((4, 150_000), 0.1, np.float32), np.full((150_000, 5), 0.3, np.float32)
    want = a.astype(np.float64) @ b
    close(multiply(a, b, splits=splits), want, tol=1e-5)
    a, b = normal(6, 150_000), normal(150_000, 5, seed=1)
    close(multiply(a, b, splits=splits), a.astype(np.float64) @ b, tol=1e-5)


def test_matmul_empty_inner_dimension_is_zero() -> None:
    spec, splits = matmul.choose("f32", (), 3, 4, 0)
    assert splits == 1
    launch = matmul.launch(spec, (), 3, 4, 0, (0, 1), (4, 1))
    one = np.ones(1, np.float32)
    np.testing.assert_array_equal(
        run(matmul.build(spec), [one, one], (3, 4), np.float32, launch), np.zeros((3, 4))
    )
