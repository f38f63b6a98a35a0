"""Sorting, overwriting and pair-wise scanning kernels on a WebGPU device with default limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_harness import run
from numpy.typing import NDArray

from wgburn_shaders.kernels import index, scan, sort

SPECIAL = np.array(
    [3, -1, np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40, 3, -1, np.nan], np.float32
)
ACC = {"f": "f32", "i": "i32", "u": "u32"}


def order(x: NDArray[Any], descending: bool) -> NDArray[Any]:
    if not descending:
        return np.argsort(x, -1, kind="stable")
    return x.shape[-1] - 1 - np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1]


def argsort(x: NDArray[Any], descending: bool, block: int = sort.BLOCK) -> NDArray[Any]:
    """As the tensor layer does: runs, then merges."""
    rows, n = x.shape
    spec = sort.choose(sort.BLOCKS, ACC[x.dtype.kind], n, descending, block)
    at = run(sort.build(spec), [x], x.shape, np.int32, sort.launch(spec, rows, n, block))
    length = block
    while length < n:
        spec = sort.SortSpec(sort.MERGE, ACC[x.dtype.kind], descending)
        launch = sort.launch(spec, rows, n, length)
        at = run(sort.build(spec), [x, at], x.shape, np.int32, launch)
        length *= 2
    return at


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 33, 64, 65, 255, 256, 257, 512, 513, 1023, 1024])
def test_one_block_is_stable(n: int, descending: bool) -> None:
    x = np.random.default_rng(n).integers(-9, 9, (5, n)).astype(np.float32)
    np.testing.assert_array_equal(argsort(x, descending), order(x, descending))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", [7, 8, 9, 63, 64, 65, 100])
def test_merging_short_runs(n: int, descending: bool) -> None:
    x = np.random.default_rng(n).integers(-9, 9, (3, n)).astype(np.int32)
    np.testing.assert_array_equal(argsort(x, descending, 4), order(x, descending))


@pytest.mark.parametrize("n", [1025, 5000])
def test_long_rows(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
    np.testing.assert_array_equal(argsort(x, False), order(x, False))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("block", [4, sort.BLOCK])
def test_special_values(block: int, descending: bool) -> None:
    # NaN is the largest, zeros of both signs are equal, subnormal numbers are themselves.
    got = argsort(SPECIAL[None], descending, block)
    np.testing.assert_array_equal(got, order(SPECIAL[None], descending))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_whole_range_of_integers(dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.array([[0, info.max, info.min, 1, info.max - 1, info.min + 1, 0]], dtype)
    for descending in (False, True):
        np.testing.assert_array_equal(argsort(x, descending), order(x, descending))


def test_many_rows_share_workgroups() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 3)).astype(np.float32)
    np.testing.assert_array_equal(argsort(x, False), order(x, False))


def test_a_run_is_a_power_of_two() -> None:
    for length in (0, 1, 24, 2048):
        with pytest.raises(ValueError, match=r"power of two|cannot order"):
            sort.launch(sort.SortSpec(sort.BLOCKS, "f32", False), 1, 5000, length)


# -- scatters that overwrite or combine -----------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 5, 1, 9), (2, 4, 3, 10), (3, 70, 130, 40)])
def test_the_last_source_wins(shape: tuple[int, int, int, int]) -> None:
    outer, length, inner, count = shape
    rng = np.random.default_rng(0)
    base = rng.standard_normal((outer, length, inner)).astype(np.float32)
    source = rng.standard_normal((outer, count, inner)).astype(np.float32)
    at = rng.integers(-length, length, source.shape).astype(np.int32)
    want = base.copy()
    o, _, k = np.indices(at.shape)
    for i in range(count):
        want[o[:, i], at[:, i], k[:, i]] = source[:, i]
    spec = index.choose(index.SCATTER_SET, "f32", outer, inner, True)
    launch = index.launch(spec, outer, length, inner, count)
    got = run(index.build(spec), [source, at, base], base.shape, np.float32, launch)
    np.testing.assert_array_equal(got, want)

    want = base.copy()
    vector = at[0, :, 0].copy()
    for i in range(count):
        want[:, vector[i]] = source[:, i]
    spec = index.choose(index.INDEX_SET, "f32", outer, inner, True)
    launch = index.launch(spec, outer, length, inner, count)
    got = run(index.build(spec), [source, vector, base], base.shape, np.float32, launch)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "what,fn",
    [
        (index.SCATTER_PROD, np.multiply),
        (index.SCATTER_AMAX, np.maximum),
        (index.SCATTER_AMIN, np.minimum),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32])
def test_scatters_that_combine(what: str, fn: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(1, 9, (2, 4, 3)).astype(dtype)
    source = rng.integers(1, 9, (2, 10, 3)).astype(dtype)
    if dtype == np.float32:
        source[0, 3, 1] = np.nan
    at = rng.integers(0, 4, source.shape).astype(np.int32)
    want = base.copy()
    o, _, k = np.indices(at.shape)
    fn.at(want, (o, at, k), source)
    spec = index.choose(what, ACC[np.dtype(dtype).kind], 2, 3, True)
    launch = index.launch(spec, 2, 4, 3, 10)
    got = run(index.build(spec), [source, at, base], base.shape, dtype, launch)
    np.testing.assert_array_equal(got, want)


def test_only_additions_can_do_without_a_base() -> None:
    with pytest.raises(ValueError, match="base"):
        index.choose(index.SCATTER_SET, "f32", 1, 1)


# -- scans of pairs -------------------------------------------------------------------------------

SHAPES = [(1, 1, 1), (3, 17, 5), (1, 3000, 2), (2, 1024, 1)]


@pytest.mark.parametrize("kind", [scan.SERIAL, scan.WORKGROUP])
@pytest.mark.parametrize("shape", SHAPES)
def test_linear_recurrences(shape: tuple[int, int, int], kind: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(-1.01, 1.01, shape).astype(np.float32)
    b = rng.standard_normal(shape).astype(np.float32)
    want = np.zeros(shape)
    y = np.zeros((shape[0], shape[2]))
    for i in range(shape[1]):
        y = a[:, i] * y + b[:, i]
        want[:, i] = y
    spec = scan.ScanSpec(scan.LINEAR, "f32", kind=kind)
    got = run(scan.build(spec), [a, b], shape, np.float32, scan.launch(spec, *shape))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [scan.SERIAL, scan.WORKGROUP])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what,better", [(scan.MAX_AT, np.maximum), (scan.MIN_AT, np.minimum)])
def test_places_of_running_extrema(
    shape: tuple[int, int, int], kind: str, what: str, better: Any
) -> None:
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.float32)
    x[:, shape[1] // 2 :: 97, -1] = np.nan
    best = better.accumulate(x, 1)
    place = np.arange(shape[1])[None, :, None]
    want = np.maximum.accumulate(np.where((x == best) | np.isnan(x), place, -1), 1)
    spec = scan.ScanSpec(what, "f32", kind=kind)
    got = run(scan.build(spec), [x], shape, np.int32, scan.launch(spec, *shape))
    np.testing.assert_array_equal(got, want)


def test_pairs_run_forwards_only() -> None:
    with pytest.raises(ValueError, match="forwards"):
        scan.build(scan.ScanSpec(scan.LINEAR, "f32", True))
