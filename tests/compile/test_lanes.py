"""Lanes of host plans: whatever the graph, nothing is read before it is there or after it went."""

import numpy as np
import pytest
from compile.seed_models import transformer_step
from hypothesis import given, settings
from hypothesis import strategies as st

import wgburn as wb
from wgburn.compile import lanes
from wgburn.compile.host import HostStep, Inner
from wgburn.compile.parts import Threads
from wgburn.device import cpu
from wgburn.ops.record import Call

quick = pytest.mark.quick

BOTH = Threads(2)


def product(node, srcs, size):
    shape = (size, size)
    call = Call(None, (), shape, np.dtype(np.float32))
    n = Inner(node, "matmul", False, None, None, shape, call.dtype, None, srcs, (0, 0), "", call)
    return HostStep((n,), (), (node,), 1, 1, ())


@st.composite
def graphs(draw):
    """Products of products: two leaves, then steps that read any two values before them."""
    count = draw(st.integers(1, 25))
    steps = []
    for k in range(count):
        srcs = tuple(draw(st.integers(0, k + 1)) for _ in range(2))
        steps.append(product(k + 2, srcs, draw(st.sampled_from([8, 256, 300]))))
    outputs = draw(st.sets(st.integers(2, count + 1), min_size=1))
    return steps, outputs


@quick
@given(graphs(), st.integers(2, 4))
@settings(max_examples=100, deadline=None)
def test_every_step_runs_once_and_on_values_that_are_there(found, threads):
    steps, outputs = found
    shapes = [(300, 300)] * 2 + [s.inner[0].shape for s in steps]
    order = lanes.in_lanes(steps, shapes, Threads(threads))
    dead = lanes.lives(order, outputs)
    assert sorted(s.outputs for s in order) == sorted(s.outputs for s in steps)
    there, running, gone = {0, 1}, {}, set()
    for k, s in enumerate(order):
        for b in s.joins:
            there.add(running.pop(b).outputs[0])
        reads = set(lanes.reads_of(s))
        assert reads <= there - gone
        if s.beside:
            running[k] = s
        else:
            there.update(s.outputs)
        gone.update(dead.get(k, ()))
        for r in running.values():
            assert gone.isdisjoint(lanes.reads_of(r)), "a helper still reads it"
    assert gone.isdisjoint(outputs)


@quick
def test_a_product_off_the_longest_way_goes_to_a_helper():
    # Two products of one value: a chain hangs on the second, nothing on the first.
    steps = [
        product(1, (0, 0), 256),
        product(2, (1, 1), 300),
        product(3, (1, 1), 300),
        product(4, (3, 3), 300),
    ]
    shapes = [(256, 256), (256, 256), (300, 300), (300, 300), (300, 300)]
    order = lanes.in_lanes(steps, shapes, BOTH)
    assert [(s.outputs[0], s.beside) for s in order] == [
        (1, False),
        (2, True),
        (3, False),
        (4, False),
    ]
    assert lanes.in_lanes(steps, shapes, Threads(1)) == steps
    assert lanes.in_lanes(steps, shapes, Threads(2, products=False)) == steps


@quick
def test_what_reads_a_helpers_result_is_put_off_until_it_is_there():
    steps = [
        product(1, (0, 0), 300),  # beside: the way through 3 and 4 is longer
        product(2, (1, 1), 8),
        product(3, (0, 0), 300),
        product(4, (3, 3), 300),
        product(5, (4, 2), 8),
    ]
    shapes = [(300, 300), (300, 300), (8, 8), (300, 300), (300, 300), (8, 8)]
    order = lanes.in_lanes(steps, shapes, BOTH)
    assert [s.outputs[0] for s in order] == [1, 3, 2, 4, 5]
    assert order[0].beside and order[2].joins == (0,)
    assert 1 not in lanes.lives(order, {5}).get(1, ())


def test_training_with_and_without_helpers_is_the_same(monkeypatch):
    losses, grads = {}, {}
    for workers in (1, 2):
        monkeypatch.setattr(cpu, "WORKERS", workers)
        device = cpu.CpuBackend()
        step, model, _ = transformer_step(wb.Device(device).autodiff(), 8)
        losses[workers] = [step().item()]
        # Of the first step, from equal weights.
        grads[workers] = {n: p.grad.numpy() for n, p in model.named_parameters()}
        losses[workers] += [step().item() for _ in range(2)]
        steps = [s for p in device.plans.values() for s in p.steps]
        assert any(s.beside for s in steps) == (workers == 2)
    np.testing.assert_allclose(losses[1], losses[2], rtol=1e-6)
    for name, g in grads[1].items():
        assert np.linalg.norm(g - grads[2][name]) <= 1e-5 * np.linalg.norm(g), name
