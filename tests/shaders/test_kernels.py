"""Every kernel on a real WebGPU device with default limits, against float64 references."""

from __future__ import annotations

from typing import Any

import jinja2
import numpy as np
import pytest
import torch
from kernel_harness import run
from numpy.typing import NDArray

from wgburn_shaders.kernels import conv, index, matmul, pool, scan
from wgburn_shaders.kernels.body import MAX_TRIPS, Tile, pick_tile
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
    a: NDArray[Any],
    b: NDArray[Any],
    tile: Tile | None = None,
    splits: int | None = None,
    flush: int = 0,
) -> NDArray[Any]:
    """a @ b through the kernel, with views passed by strides of their contiguous base."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    av = np.broadcast_to(a, batch + a.shape[-2:])
    bv = np.broadcast_to(b, batch + b.shape[-2:])
    m, k, n = *a.shape[-2:], b.shape[-1]
    acc = {"f": "f32", "i": "i32", "u": "u32"}[a.dtype.kind]
    spec, chosen = matmul.choose(acc, batch, m, n, k, tile)
    splits = splits or chosen
    spec = spec._replace(split=splits > 1, flush=spec.flush or flush)
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


def test_a_store_in_loops_is_the_same_store() -> None:
    a, b = normal(70, 31), normal(31, 75, seed=1)
    strides = element_strides(a), element_strides(b)
    for tile in (Tile(4, 4, 8, 8), Tile(16, 16, 8, 1), Tile(2, 8, 4, 4)):
        spec = matmul.choose("f32", (), 70, 75, 31, tile)[0]
        launch = matmul.launch(spec, (), 70, 75, 31, *strides)
        bodies = (matmul.build(spec), matmul.build(spec._replace(rolled=True)))
        assert bodies[1].wgsl.count("st0(") == 1 < bodies[0].wgsl.count("st0(")
        plain, rolled = (run(body, [a, b], (70, 75), np.float32, launch) for body in bodies)
        np.testing.assert_array_equal(plain, rolled)


@pytest.mark.parametrize(
    "ab,bb", [((3,), (3,)), ((), (4,)), ((2, 1), (1, 3)), ((2, 3, 1), (2, 1, 2)), ((1,), (5,))]
)
def test_matmul_batches_broadcast(ab: tuple[int, ...], bb: tuple[int, ...]) -> None:
    a, b = normal(*ab, 9, 6), normal(*bb, 6, 11, seed=1)
    close(multiply(a, b), np.matmul(a.astype(np.float64), b))


@pytest.mark.parametrize("m,n,k,splits", [(70, 75, 31, 1), (130, 20, 16, 3), (64, 64, 1100, 2)])
def test_matmul_candidates_agree(m: int, n: int, k: int, splits: int) -> None:
    """Every candidate, with both operands dense and both transposed."""
    for a, b in ((normal(m, k), normal(k, n)), (normal(k, m).T, normal(n, k).T)):
        strides = element_strides(a), element_strides(b)
        first = matmul.choose("f32", (), m, n, k)[0]._replace(split=splits > 1, flush=512)
        specs = matmul.candidates(first, *strides)
        assert {spec.kind for spec in specs} == {matmul.REGISTER, matmul.SHARED}
        bases = [x if x.base is None else x.base for x in (a, b)]
        for spec in specs:
            launch = matmul.launch(spec, (), m, n, k, *strides, splits=splits)
            shape = (splits, m, n) if spec.split else (m, n)
            out = run(matmul.build(spec), bases, shape, np.float32, launch)
            close(out.reshape(-1, m, n).sum(0), a.astype(np.float64) @ b)


def test_matmul_refuses_more_workgroup_memory_than_every_device_has() -> None:
    spec = matmul.MatmulSpec("f32", 0, 8, 8, 16, 16, kind=matmul.SHARED)
    with pytest.raises(ValueError, match="stages"):
        matmul.build(spec)


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


@pytest.mark.parametrize(
    "k,splits,flush", [(150_000, None, 0), (150_000, 5, 512), (30_000, 1, 512)]
)
def test_matmul_long_sums_stay_accurate(k: int, splits: int | None, flush: int) -> None:
    # Equal terms round the same way at every step: the worst case of a running float32 sum.
    a, b = np.full((4, k), 0.1, np.float32), np.full((k, 5), 0.3, np.float32)
    close(multiply(a, b, None, splits, flush), a.astype(np.float64) @ b, tol=1e-5)
    a, b = normal(6, k), normal(k, 5, seed=1)
    close(multiply(a, b, None, splits, flush), a.astype(np.float64) @ b, tol=1e-5)


def test_long_inner_dimensions_are_split_or_summed_in_two_levels() -> None:
    spec, splits = matmul.choose("f32", (), 1024, 1024, 150_000)
    assert spec.split and spec.flush and 150_000 / splits <= MAX_TRIPS
    assert matmul.choose("f32", (), 1024, 1024, 1024) == (spec._replace(split=False, flush=0), 1)


def test_matmul_empty_inner_dimension_is_zero() -> None:
    spec, splits = matmul.choose("f32", (), 3, 4, 0)
    assert splits == 1
    launch = matmul.launch(spec, (), 3, 4, 0, (0, 1), (4, 1))
    one = np.ones(1, np.float32)
    np.testing.assert_array_equal(
        run(matmul.build(spec), [one, one], (3, 4), np.float32, launch), np.zeros((3, 4))
    )


@pytest.mark.parametrize("rows,cols", [(1, 1), (1, 9), (3, 700), (64, 10), (300, 2), (900, 900)])
@pytest.mark.parametrize("software", [True, False])
def test_tiles_are_no_larger_than_their_work(rows: int, cols: int, software: bool) -> None:
    tile = pick_tile(rows, cols, 1, 1, software)
    assert tile.wx * tile.wy <= 256
    for side, size in ((tile.tm, rows), (tile.tn, cols)):
        # A vector has a tile of its own; nothing else is narrower than 4.
        assert side < 2 * size or (side == 4 and size > 1)
    assert max(tile.tm, tile.tn) > 4 or rows < 900


# -- convolution ----------------------------------------------------------------------------------

CONV_CASES = [
    # n, c, o, size, kernel, stride, pad, dilation, groups
    (2, 3, 5, (11,), (3,), (1,), (0,), (1,), 1),
    (2, 4, 6, (13,), (4,), (2,), (3,), (2,), 2),
    (2, 1, 64, (9, 10), (3, 3), (1, 1), (0, 0), (1, 1), 1),
    (1, 5, 9, (8, 7), (3, 2), (1, 1), (1, 1), (1, 1), 1),
    (3, 6, 4, (10, 9), (3, 3), (2, 3), (1, 2), (2, 1), 2),
    (2, 8, 8, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), 8),
    (2, 4, 12, (6, 5), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (1, 3, 4, (9, 9), (2, 2), (3, 3), (0, 0), (1, 1), 1),
    (1, 2, 3, (5, 6, 4), (3, 2, 3), (1, 2, 1), (1, 0, 1), (1, 1, 1), 1),
    (1, 4, 4, (4, 4, 5), (2, 2, 2), (2, 1, 2), (1, 1, 0), (1, 2, 1), 2),
    (1, 1, 1, (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), 1),
]


def conv_reference(
    case: tuple[Any, ...],
) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float64]], conv.ConvSizes]:
    """x, w, g and torch's y, dx, dw in float64 for one case."""
    n, c, o, size, kernel, stride, pad, dilation, groups = case
    call = getattr(torch.nn.functional, f"conv{len(size)}d")
    arrays = [normal(n, c, *size), normal(o, c // groups, *kernel, seed=1)]
    x, w = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays)
    y = call(x, w, None, stride, pad, dilation, groups)
    arrays.append(normal(*y.shape, seed=2))
    y.backward(torch.tensor(arrays[2], dtype=torch.float64))
    sizes = conv.ConvSizes(n, c, o, size, tuple(y.shape[2:]), pad, groups)
    return arrays, [y.detach().numpy(), x.grad.numpy(), w.grad.numpy()], sizes


def convolve(
    kind: str,
    case: tuple[Any, ...],
    sizes: conv.ConvSizes,
    inputs: list[NDArray[Any]],
    shape: tuple[int, ...],
    tile: Tile | None = None,
    splits: int | None = None,
    flush: bool = False,
    software: bool = False,
) -> NDArray[Any]:
    kernel, stride, dilation = case[4], case[5], case[7]
    spec, chosen = conv.choose(kind, "f32", kernel, stride, dilation, sizes, tile, software)
    splits = splits or chosen
    spec = spec._replace(split=splits > 1, flush=spec.flush or flush, rolled=software)
    strides = [element_strides(a) for a in inputs]
    launch = conv.launch(spec, sizes, *strides, splits=splits)
    bases = [a if a.base is None else a.base for a in inputs]
    full = (splits, *shape) if spec.split else shape
    out = run(conv.build(spec), bases, full, np.float32, launch)
    return out.sum(0) if spec.split else out


@pytest.mark.parametrize("tile", [None, Tile(4, 8, 8, 1)])
@pytest.mark.parametrize("case", CONV_CASES)
def test_convolution_and_its_gradients(case: tuple[Any, ...], tile: Tile | None) -> None:
    (x, w, g), (y, dx, dw), sizes = conv_reference(case)
    close(convolve(conv.FORWARD, case, sizes, [x, w], y.shape, tile), y)
    close(convolve(conv.INPUT_GRAD, case, sizes, [g, w], dx.shape, tile), dx)
    close(convolve(conv.WEIGHT_GRAD, case, sizes, [g, x], dw.shape, tile), dw)


@pytest.mark.parametrize("case", [CONV_CASES[1], CONV_CASES[4], CONV_CASES[8]])
def test_convolution_two_level_sums_splits_and_views(case: tuple[Any, ...]) -> None:
    (x, w, g), (y, dx, dw), sizes = conv_reference(case)
    # The same values in memory with the first two dimensions swapped.
    x, w, g = (np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1) for a in (x, w, g))
    close(convolve(conv.FORWARD, case, sizes, [x, w], y.shape, flush=True), y)
    close(convolve(conv.INPUT_GRAD, case, sizes, [g, w], dx.shape, flush=True), dx)
    for splits in (2, 3):
        got = convolve(conv.WEIGHT_GRAD, case, sizes, [g, x], dw.shape, None, splits, flush=True)
        close(got, dw)


def test_convolution_in_the_tiles_of_software_adapters() -> None:
    case = (3, 20, 19, (13, 12), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    (x, w, g), (y, dx, dw), sizes = conv_reference(case)
    assert conv.choose(conv.FORWARD, "f32", *[(3, 3)] * 3, sizes, software=True)[0].tm == 16
    close(convolve(conv.FORWARD, case, sizes, [x, w], y.shape, software=True), y)
    close(convolve(conv.INPUT_GRAD, case, sizes, [g, w], dx.shape, software=True), dx)
    close(convolve(conv.WEIGHT_GRAD, case, sizes, [g, x], dw.shape, software=True), dw)


def test_weight_gradient_over_many_pixels_stays_accurate() -> None:
    case = (4, 1, 2, (200, 190), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    (x, _, g), (_, _, dw), sizes = conv_reference(case)
    spec, splits = conv.choose(conv.WEIGHT_GRAD, "f32", (3, 3), (1, 1), (1, 1), sizes)
    assert spec.split
    assert sizes.n * 200 * 190 / splits <= MAX_TRIPS
    close(convolve(conv.WEIGHT_GRAD, case, sizes, [g, x], dw.shape), dw, tol=1e-5)
    one = (1, 1, 1, (300,), (2,), (1,), (0,), (1,), 1)
    (x, _, g), (_, _, dw), sizes = conv_reference(one)
    close(convolve(conv.WEIGHT_GRAD, one, sizes, [g, x], dw.shape), dw)


# -- pooling --------------------------------------------------------------------------------------

POOL_CASES = [
    # planes, size, kernel, stride, pad, dilation, ceil mode
    ((2, 3), (11,), (3,), (2,), (1,), (1,), False),
    ((2, 2), (9, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((1, 3), (10, 7), (3, 2), (1, 2), (1, 1), (1, 1), True),
    ((2, 1), (8, 9), (3, 3), (2, 1), (1, 0), (2, 3), False),
    ((1, 2), (5, 6, 7), (2, 3, 2), (2, 2, 1), (0, 1, 1), (1, 1, 1), True),
    ((1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), False),
    # Windows that leave gaps between and in themselves.
    ((2, 1), (11, 9), (2, 2), (4, 3), (1, 0), (2, 1), False),
    ((1, 2), (12, 10), (2, 3), (3, 3), (1, 1), (1, 1), False),
]


@pytest.mark.parametrize("case", POOL_CASES)
def test_max_pool_its_positions_and_gradient(case: tuple[Any, ...]) -> None:
    lead, size, kernel, stride, pad, dilation, ceil = case
    x = normal(*lead, *size)
    x.flat[::7] = x.flat[0]  # ties, so that "the first one wins" is seen
    call = getattr(torch.nn.functional, f"max_pool{len(size)}d")
    t = torch.tensor(x, requires_grad=True)
    y, at = call(t, kernel, stride, pad, dilation, ceil, return_indices=True)
    g = normal(*y.shape, seed=3)
    y.backward(torch.tensor(g))
    planes, out = lead[0] * lead[1], tuple(y.shape[2:])
    launches = {}
    for what in (pool.MAX, pool.ARGMAX, pool.MAX_GRAD):
        spec = pool.PoolSpec(what, "f32", kernel, stride, dilation)
        launches[what] = pool.build(spec), pool.launch(spec, planes, size, out, pad)
    body, launch = launches[pool.MAX]
    np.testing.assert_array_equal(run(body, [x], y.shape, np.float32, launch), y.detach().numpy())
    body, launch = launches[pool.ARGMAX]
    positions = run(body, [x], y.shape, np.int32, launch)
    np.testing.assert_array_equal(positions, at.numpy())
    body, launch = launches[pool.MAX_GRAD]
    close(run(body, [g, positions], x.shape, np.float32, launch), t.grad.numpy())


def test_max_pool_propagates_nan_and_inf_and_takes_integers() -> None:
    x = np.array([[1, 2, np.nan, 0, np.nan, -np.inf, -np.inf, 5, np.inf]], np.float32)
    spec = pool.PoolSpec(pool.MAX, "f32", (2,), (1,), (1,))
    launch = pool.launch(spec, 1, (9,), (8,), (0,))
    want = [[2, np.nan, np.nan, np.nan, np.nan, -np.inf, 5, np.inf]]
    np.testing.assert_array_equal(run(pool.build(spec), [x], (1, 8), np.float32, launch), want)
    at = spec._replace(what=pool.ARGMAX)
    got = run(pool.build(at), [x], (1, 8), np.int32, launch)
    np.testing.assert_array_equal(got, [[1, 2, 2, 4, 4, 5, 7, 8]])
    ints = np.array([[-9, -3, -7, -(2**31)]], np.int32)
    spec = pool.PoolSpec(pool.MAX, "i32", (3,), (1,), (1,))
    launch = pool.launch(spec, 1, (4,), (4,), (1,))
    got = run(pool.build(spec), [ints], (1, 4), np.int32, launch)
    np.testing.assert_array_equal(got, [[-3, -3, -3, -7]])


@pytest.mark.parametrize("include_pad", [True, False])
@pytest.mark.parametrize("case", [c for c in POOL_CASES if set(c[5]) == {1}])
def test_average_pool_and_gradient(case: tuple[Any, ...], include_pad: bool) -> None:
    lead, size, kernel, stride, pad, dilation, ceil = case
    x = normal(*lead, *size)
    call = getattr(torch.nn.functional, f"avg_pool{len(size)}d")
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    y = call(t, kernel, stride, pad, ceil, include_pad)
    g = normal(*y.shape, seed=3)
    y.backward(torch.tensor(g, dtype=torch.float64))
    planes, out = lead[0] * lead[1], tuple(y.shape[2:])
    spec = pool.PoolSpec(pool.AVG, "f32", kernel, stride, dilation, include_pad)
    launch = pool.launch(spec, planes, size, out, pad)
    close(run(pool.build(spec), [x], y.shape, np.float32, launch), y.detach().numpy())
    spec = spec._replace(what=pool.AVG_GRAD)
    launch = pool.launch(spec, planes, size, out, pad)
    close(run(pool.build(spec), [g], x.shape, np.float32, launch), t.grad.numpy())


# -- indexing -------------------------------------------------------------------------------------

INDEX_CASES = [(1, 10, 1, 4), (3, 7, 5, 12), (1, 50, 300, 33), (4, 1, 6, 3), (2, 9, 70, 2100)]


def random_index(length: int, *shape: int) -> NDArray[np.int32]:
    """Indices of both signs, with repeats."""
    return np.random.default_rng(0).integers(-length, length, shape, dtype=np.int32)


@pytest.mark.parametrize("outer,length,inner,count", INDEX_CASES)
def test_gather_and_index_select(outer: int, length: int, inner: int, count: int) -> None:
    x = normal(outer, length, inner)
    at = random_index(length, outer, count, inner)
    spec = index.choose(index.GATHER, "f32", outer, inner)
    launch = index.launch(spec, outer, length, inner, count)
    got = run(index.build(spec), [x, at], at.shape, np.float32, launch)
    np.testing.assert_array_equal(got, np.take_along_axis(x, at % length, 1))
    at = at[0, :, 0].copy()
    spec = index.choose(index.INDEX_SELECT, "f32", outer, inner)
    launch = index.launch(spec, outer, length, inner, count)
    got = run(index.build(spec), [x, at], (outer, count, inner), np.float32, launch)
    np.testing.assert_array_equal(got, x[:, at])


@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize("outer,length,inner,count", INDEX_CASES)
def test_scatter_add_and_index_add(
    outer: int, length: int, inner: int, count: int, has_base: bool
) -> None:
    base, source = normal(outer, length, inner), normal(outer, count, inner, seed=1)
    at = random_index(length, outer, count, inner)
    start = base.astype(np.float64) if has_base else np.zeros(base.shape)
    extra = [base] if has_base else []

    want = start.copy()
    o, _, k = np.indices(at.shape)
    np.add.at(want, (o, at, k), source)
    spec = index.choose(index.SCATTER_ADD, "f32", outer, inner, has_base)
    launch = index.launch(spec, outer, length, inner, count)
    close(run(index.build(spec), [source, at, *extra], base.shape, np.float32, launch), want)

    want = start.copy()
    at = at[0, :, 0].copy()
    np.add.at(want, (slice(None), at), source)
    spec = index.choose(index.INDEX_ADD, "f32", outer, inner, has_base)
    launch = index.launch(spec, outer, length, inner, count)
    close(run(index.build(spec), [source, at, *extra], base.shape, np.float32, launch), want)


def test_indices_out_of_range_are_clamped() -> None:
    x = np.arange(4, dtype=np.int32)
    at = np.array([-(2**31), -5, -4, 3, 4, 2**31 - 1], np.int32)
    spec = index.choose(index.INDEX_SELECT, "i32", 1, 1)
    launch = index.launch(spec, 1, 4, 1, 6)
    got = run(index.build(spec), [x, at], (6,), np.int32, launch)
    np.testing.assert_array_equal(got, [0, 0, 0, 3, 3, 3])


# -- scans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", [scan.SERIAL, scan.WORKGROUP])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 17, 5), (1, 3000, 2), (2, 1024, 1)])
def test_running_sums_and_products(shape: tuple[int, int, int], kind: str, reverse: bool) -> None:
    x = normal(*shape)
    flip = slice(None, None, -1 if reverse else 1)
    spec = scan.ScanSpec(scan.SUM, "f32", reverse, kind)
    got = run(scan.build(spec), [x], shape, np.float32, scan.launch(spec, *shape))
    close(got, np.cumsum(x[:, flip].astype(np.float64), 1)[:, flip])
    near_one = (1 + x / 50).astype(np.float32)
    spec = spec._replace(what=scan.PROD)
    got = run(scan.build(spec), [near_one], shape, np.float32, scan.launch(spec, *shape))
    close(got, np.cumprod(near_one[:, flip].astype(np.float64), 1)[:, flip], tol=1e-5)


def test_long_integer_scan_wraps_and_takes_a_workgroup() -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (1, 200_000, 1), dtype=np.int32)
    spec = scan.choose(scan.SUM, "i32", *x.shape)
    assert spec.kind == scan.WORKGROUP
    got = run(scan.build(spec), [x], x.shape, np.int32, scan.launch(spec, *x.shape))
    np.testing.assert_array_equal(got, np.cumsum(x, 1, dtype=np.int32))
