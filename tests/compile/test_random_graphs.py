"""Fused, unfused and numpy agree on random graphs, on each device; a wrong fusion rule shows."""

from contextlib import contextmanager

import numpy as np
import pytest
from compile.random_graphs import random_graph

import wgburn as wb
from wgburn.compile import emit

GRAPHS, FULL, CHUNK = 150, 1000, 10


@contextmanager
def fusion(on):
    before = wb.config.fuse
    wb.config.fuse = on
    try:
        yield
    finally:
        wb.config.fuse = before


def close(found, wanted, what):
    assert found.shape == wanted.shape, what
    if wanted.dtype.kind == "f":
        size = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-4 * size, err_msg=what)
    else:
        np.testing.assert_array_equal(found, wanted, err_msg=what)


def check(seed, device):
    """One graph: forward against numpy; gradients against one numpy call an op."""
    graph, gradients = random_graph(seed)
    autodiff = device.autodiff() if gradients else device
    results = {}
    for fused in (True, False):
        with fusion(fused):
            results[fused] = graph.run(autodiff, gradients)
    what = f"graph {seed} on {device}:\n{graph}"
    for fused, (outputs, _) in results.items():
        for found, i in zip(outputs, graph.outputs, strict=True):
            close(found, graph.values[i], f"fuse={fused}, value {i} of {what}")
    if gradients:
        with fusion(False):
            _, wanted = graph.run(wb.Device.cpu().autodiff(), True)
        for fused, (_, found) in results.items():
            assert len(found) == len(wanted)
            for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
                close(a, b, f"fuse={fused}, gradient {k} of {what}")


def seeds(config):
    return range(FULL if config.getoption("--full") else GRAPHS)


def pytest_generate_tests(metafunc):
    if "first" in metafunc.fixturenames:
        metafunc.parametrize("first", list(seeds(metafunc.config))[::CHUNK])


def test_fused_unfused_and_numpy_agree(device, first):
    for seed in range(first, first + CHUNK):
        check(seed, device)


def test_graphs_hold_what_they_should():
    names = set()
    dtypes = set()
    for seed in range(GRAPHS):
        graph, _ = random_graph(seed)
        assert graph.outputs
        names |= {s.name.split()[0] for s in graph.steps}
        dtypes |= {v.dtype.name for v in graph.values}
    assert {"float64", "int32", "bool", "int8"} <= dtypes
    assert {"reshape", "permute", "expand", "slice", "flip", "pad", "cat", "sum"} <= names
    assert {"softmax", "matmul", "gram", "where", "amax", "argmax", "index_select"} <= names


def test_a_wrong_fusion_rule_is_found(wgpu, monkeypatch):
    right = emit.view_coords

    def wrong(node, inner, coords):
        # Forget that a flip turns a dimension round.
        return coords if node.op.name == "flip" else right(node, inner, coords)

    monkeypatch.setattr(emit, "view_coords", wrong)
    wgpu.backend.plans.clear()
    try:
        with pytest.raises(AssertionError, match="fuse="):
            for seed in range(GRAPHS):
                check(seed, wgpu)
    finally:
        wgpu.backend.plans.clear()
