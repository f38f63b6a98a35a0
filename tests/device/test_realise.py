"""What a read computes: all that is held, nothing else, in one execution; what failures leave."""

import asyncio

import numpy as np
import pytest
from engine_probe import probing

import wgburn as wb

pytestmark = pytest.mark.quick


@pytest.fixture
def x(device):
    t = wb.tensor([1.0, 2.0, 3.0], device=device)
    device.synchronize()
    return t


def test_nothing_runs_before_a_read(device, x):
    with probing(device) as probe:
        y = (x.exp() + 1).sum()
        assert probe.executions == 0
        assert y.shape == ()
        y.item()
        assert probe.executions == 1
        y.item()
        assert probe.executions == 1


def test_one_read_computes_everything_held(device, x):
    with probing(device) as probe:
        a, b, c = x.sin(), x.cos() * 2, (x @ x).exp()
        a.numpy()
        assert probe.executions == 1
        assert probe.ops["cos"] == probe.ops["exp"] == 1
        b.numpy()
        c.item()
        assert probe.executions == 1


def test_dead_values_are_never_computed(device, x):
    with probing(device) as probe:
        x.erf()
        dropped = x.tan()
        del dropped
        unused = (x.sinh(), x.acosh())
        unused = unused[:1]
        x.sin().numpy()
        assert probe.ops["sin"] == 1
        assert probe.ops["sinh"] == 1
        for dead in ("erf", "tan", "acosh"):
            assert probe.ops[dead] == 0


def test_an_op_that_would_fail_does_not_when_nobody_holds_it(cpu):
    x = wb.tensor([1.0, 2.0], device=cpu)
    bad = x[wb.tensor([1], device=cpu) * 7]
    del bad
    assert (x + 1).tolist() == [2, 3]


def test_shared_parts_are_computed_once(device, x):
    with probing(device) as probe:
        base = x.exp()
        y, z = base * 2, base + 1
        del base
        wb.eval(y, z)
        assert probe.ops["exp"] == 1
        assert probe.executions == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.numpy(),
        lambda t: t.sum().item(),
        lambda t: t.tolist(),
        lambda t: repr(t),
        lambda t: float(t[0]),
        lambda t: bool(t[0] > 0),
        lambda t: np.asarray(t),
        lambda t: wb.eval(t),
        lambda t: wb.eval({"a": [t]}),
        lambda t: t.device.synchronize(),
        lambda t: asyncio.run(t.numpy_async()),
        lambda t: asyncio.run(t.sum().item_async()),
        lambda t: asyncio.run(wb.eval_async(t)),
        lambda t: asyncio.run(t.device.synchronize_async()),
    ],
)
def test_every_read_realises(device, x, read):
    with probing(device) as probe:
        held = x.exp2()
        y = x.sin() + 1
        read(y)
        assert probe.ops["exp2"] == 1
        assert y._node.store is not None and held._node.store is not None
    assert y._node.srcs == ()


def test_eval_of_several_devices(cpu, wgpu):
    a, b = wb.ones(2, device=cpu) * 2, wb.ones(2, device=wgpu) * 3
    wb.eval([a, {"b": b}])
    assert a._node.store is not None and b._node.store is not None


def test_equal_work_finds_its_plan(device):
    backend = device.backend

    def work(scale, n):
        x = wb.tensor(np.arange(n, dtype=np.float32), device=device)
        return ((x * scale).cos() + scale).sum().item()

    work(0.5, 6)
    misses, hits = backend.plan_misses, backend.plan_hits
    values = [work(s, 6) for s in (0.25, 0.125, 3.5)]
    assert backend.plan_misses == misses
    assert backend.plan_hits == hits + 3
    for s, v in zip((0.25, 0.125, 3.5), values, strict=True):
        assert v == pytest.approx((np.cos(np.arange(6) * s) + s).sum(), rel=1e-5)


def test_moving_slices_and_random_numbers_keep_the_plan(device):
    backend = device.backend
    x = wb.tensor(np.arange(40, dtype=np.float32), device=device)

    def work(start):
        noise = wb.rand(4, device=device)
        return (x[start : start + 4] * 2).tolist(), noise.tolist()

    work(1)
    misses = backend.plan_misses
    (a, n1), (b, n2) = work(7), work(30)
    assert backend.plan_misses == misses
    assert a == [14, 16, 18, 20]
    assert b == [60, 62, 64, 66]
    assert n1 != n2


def test_the_alias_pattern_is_part_of_the_plan(device):
    x = wb.tensor([1.0, 2.0], device=device)
    y = wb.tensor([5.0, 7.0], device=device)
    assert (x * x).tolist() == [1, 4]
    assert (x * y).tolist() == [5, 14]
    assert (y * y).tolist() == [25, 49]
    assert (x[:1] * x[1:]).tolist() == [2]
    assert (x[:1] * y[1:]).tolist() == [7]


# -- failures -------------------------------------------------------------------------------------


def test_one_bad_value_does_not_take_others_along(cpu):
    x = wb.tensor([1.0, 2.0], device=cpu)
    bad = x[wb.tensor([0, 1], device=cpu) + 1]
    after = bad * 2
    good = x.exp()
    other = good + 1
    assert good.tolist() == pytest.approx([np.e, np.e**2])
    assert other[0].item() == pytest.approx(np.e + 1)
    for t in (bad, after, bad):
        with pytest.raises(wb.IndexRangeError, match=r"index 2 is out of range.*size 2"):
            t.numpy()
    assert (x * 3).tolist() == [3, 6]


def test_synchronize_tells_of_a_failure_once(cpu):
    x = wb.tensor([1.0, 2.0], device=cpu)
    bad = x[wb.tensor([5], device=cpu) + 0]
    with pytest.raises(wb.IndexRangeError):
        cpu.synchronize()
    cpu.synchronize()
    del bad
    assert x.sum().item() == 3


def test_the_record_limit_passes_over_failures(cpu):
    x = wb.tensor([1.0, 2.0], device=cpu)
    bad = x[wb.tensor([5], device=cpu) + 0]
    backend = cpu.backend
    limit, backend.record_limit = backend.record_limit, 20
    try:
        y = x
        for _ in range(100):
            y = y + 1
        assert y.tolist() == [101, 102]
    finally:
        backend.record_limit = limit
    with pytest.raises(wb.IndexRangeError):
        bad.item()


def test_an_execution_that_fails_once(device, x, monkeypatch):
    """Out of memory, say: the values that fit are computed, the rest names the cause."""
    backend = device.backend
    execute = backend.execute
    calls = []

    def fail_first(*args):
        calls.append(1)
        if len(calls) == 1:
            raise wb.OutOfMemoryError("no room for 12 bytes")
        return execute(*args)

    a, b = x * 2, x * 3
    monkeypatch.setattr(backend, "execute", fail_first)
    assert a.tolist() == [2, 4, 6]
    assert b.tolist() == [3, 6, 9]
    monkeypatch.setattr(
        backend, "execute", lambda *args: (_ for _ in ()).throw(wb.OutOfMemoryError("no room"))
    )
    c = x * 4
    with pytest.raises(wb.OutOfMemoryError, match="no room"):
        c.numpy()
    monkeypatch.setattr(backend, "execute", execute)
    assert (x * 4).tolist() == [4, 8, 12]
    assert isinstance(wb.OutOfMemoryError("x"), MemoryError)


def test_threads_share_a_device_in_turn(device):
    """Reads from a worker thread see what the main thread recorded."""
    import threading

    y = wb.ones(3, device=device) * 5
    got = []
    thread = threading.Thread(target=lambda: got.append(y.tolist()))
    thread.start()
    thread.join()
    assert got == [[5, 5, 5]]
