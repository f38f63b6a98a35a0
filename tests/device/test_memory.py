"""Memory of a device as its user sees it: steady states, weights, what is too much, reports."""

import copy
import gc
import threading
import types

import numpy as np
import pytest
from capture.training import same, state
from compile.seed_models import training_step
from device.small_models import STEPS, Pictures, pictures_step

import wgburn as wb
from wgburn import nn, optim
from wgburn.device.device import Device
from wgburn.device.wgpu import WgpuBackend
from wgburn_runtime.errors import OutOfMemoryError
from wgburn_runtime.fake import FakeDriver

KIB, MIB = 1 << 10, 1 << 20


quick = pytest.mark.quick


def pools(device):
    return {p["kind"]: p for p in device.memory().pools}


# -- a training loop ------------------------------------------------------------------------------
def test_batches_of_five_sizes_for_two_hundred_steps(fresh):
    """After each size was there once, nothing grows; when all is dropped, nothing is left."""
    device = fresh.autodiff()
    device.seed(0)
    device.synchronize()
    start = device.memory().in_use
    with wb.use_device(device):
        model = Pictures()
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)

    def data(batch):
        x = rng.standard_normal((batch, 1, 12, 12), np.float32)
        y = rng.integers(0, 10, batch, np.int32)
        return wb.tensor(x, device=device), wb.tensor(y, device=device)

    sizes = (16, 3, 32, 7, 24)
    seen = []
    for k in range(200):
        loss = training_step(model, optimizer, *data(sizes[k % 5]))()
        if k % 5 == 4:
            device.synchronize()
            seen.append(device.memory())
    assert np.isfinite(loss.item())
    assert len({m.reserved for m in seen}) == 1, [m.reserved for m in seen]
    assert {m.peak_reserved for m in seen[1:]} == {seen[1].peak_reserved}
    assert len({m.in_use for m in seen[1:]}) == 1
    counters = device.backend.queue.counters
    assert counters.misses <= 4 * 5 and counters.hits >= 200 - 4 * 5
    del model, optimizer, loss
    gc.collect()
    assert device.memory().in_use == start
    device.memory_cleanup()
    after = pools(device)
    assert sum(after[kind]["reserved"] for kind in ("tiny", "values", "weights", "scratch")) == 0


# -- explain --------------------------------------------------------------------------------------
@quick
def test_explain_leaves_pending_parameters_pending(wgpu):
    device = wgpu.autodiff()
    device.synchronize()
    device.seed(5)
    with wb.use_device(device):
        expected = nn.Linear(6, 3).weight.numpy()
        device.synchronize()
        device.seed(5)
        layer = nn.Linear(6, 3)
        x = wb.ones(2, 6)
    for ask in (wb.explain, lambda f: wb.dry_run(f)()):
        assert layer.weight._node.store is None
        before = device.backend.queue.counters.executions
        ask(lambda: layer(x))
        assert layer.weight._node.store is None
        assert device.backend.queue.counters.executions == before
    np.testing.assert_array_equal(layer.weight.numpy(), expected)


@quick
def test_few_kernels_update_many_parameters(rules):
    """What windows of weights are for: the storage bindings of a launch do not limit it."""
    from browser.seed_training import DigitCnn

    device = rules.autodiff()
    with wb.use_device(device):
        model = DigitCnn(channels=64)
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        x, y = wb.randn(64, 1, 28, 28), wb.randint(0, 10, (64,))
    step = training_step(model, optimizer, x, y)
    parameters = list(model.parameters())
    assert len(parameters) == 14
    for _ in range(2):
        step()
        device.synchronize()
    found = wb.explain(step).kernels
    assert len([k for k in found if not k.second_stage]) <= 39
    for p in parameters:
        p.grad = wb.ones(*p.shape, device=device)
    device.synchronize()
    update = wb.explain(optimizer.step)
    assert len(update.kernels) <= 4, str(update)


# -- weights --------------------------------------------------------------------------------------
def is_weight(t):
    store = t._node.store
    return store.lasting and store.buf.lasting


@quick
def test_parameters_and_optimizer_state_lie_in_the_pool_of_weights(fresh):
    device = fresh.autodiff()
    step, model, optimizer = pictures_step(device, 4)
    loss = step()
    device.synchronize()
    parameters = list(model.parameters())
    assert all(is_weight(p) for p in parameters)
    for p in parameters:
        moments = [t for t in optimizer.state[p].values() if isinstance(t, wb.Tensor)]
        assert len(moments) >= 2 and all(is_weight(t) for t in moments if t.ndim)
        assert not is_weight(p.grad)
    assert not is_weight(loss)
    weights = pools(device)["weights"]["in_use"]
    assert weights == pytest.approx(3 * sum(p.nbytes for p in parameters), rel=0.05)


@pytest.mark.parametrize("name", STEPS)
def test_training_with_cleanups_is_training(fresh, name):
    """Bit for bit: moving weights changes nothing but where they are."""
    results, moved = [], 0
    for clean in (False, True):
        device = fresh.autodiff()
        device.seed(21)
        junk = []
        with wb.use_device(device):
            for _ in range(12):  # what lies between the weights, and goes away
                junk.append(nn.Parameter(wb.zeros(100_000)))
                device.synchronize()
            step, model, optimizer = STEPS[name](device, 8)
            more = nn.Parameter(wb.zeros(150_000))
        losses = []
        for k in range(6):
            losses.append(step().item())
            if clean:
                del junk[::2]
                places = [p._node.store.buf.place for p in model.parameters()]
                device.memory_cleanup()
                moved += places != [p._node.store.buf.place for p in model.parameters()]
                if k == 2:
                    junk.append(nn.Parameter(wb.zeros(70_000, device=device)))
        results.append((losses, state(device, model, optimizer)[:2]))
        del step, model, optimizer, junk, more
        gc.collect()
        device.memory_cleanup()
    assert moved
    (plain, kept), (cleaned, others) = results
    assert plain == cleaned
    same((*kept, None), (*others, None))


@quick
def test_cleanup_of_all_kinds_of_values(fresh):
    """Views, values of every dtype and pending work survive being moved."""
    device = fresh
    rng = np.random.default_rng(1)
    held, expected = [], []
    for k in range(60):
        a = rng.standard_normal((int(rng.integers(1, 300)), int(rng.integers(1, 300))))
        a = (a * 50).astype([np.float32, np.int32, np.uint8, np.int8, np.bool_][k % 5])
        t = wb.tensor(a, device=device)
        device.synchronize()
        if k % 3 == 0:
            held.append(t[::2].T if k % 2 else t)
            expected.append(a[::2].T if k % 2 else a)
    del t
    pending = held[0].to(wb.float32) * 2
    reserved = device.memory().reserved
    device.memory_cleanup()
    after = device.memory()
    assert after.reserved < reserved
    assert after.reserved - pools(device)["driver"]["reserved"] <= 1.15 * after.in_use
    for t, a in zip(held, expected, strict=True):
        np.testing.assert_array_equal(t.numpy(), a)
    np.testing.assert_array_equal(pending.numpy(), expected[0].astype(np.float32) * 2)


@quick
def test_weights_that_are_loaded_copied_and_moved(fresh, cpu):
    device = fresh.autodiff()
    with wb.use_device(device):
        device.seed(1)
        one, two = Pictures(), Pictures()
        x = wb.randn(3, 1, 12, 12)
    one.eval(), two.eval()
    expected = one(x).numpy()
    assert not np.array_equal(two(x).numpy(), expected)
    two.load_state_dict(one.state_dict())
    twin = copy.deepcopy(one)
    there = copy.deepcopy(one).to(cpu)
    back = copy.deepcopy(there).to(device)
    for model in (two, twin, back):
        np.testing.assert_array_equal(model(x).numpy(), expected)
        assert all(is_weight(p) for p in model.parameters())
    np.testing.assert_allclose(there(x.to(cpu)).numpy(), expected, rtol=1e-4, atol=1e-5)
    # Each has memory of its own: changing one changes no other.
    optimizer = optim.SGD(twin.parameters(), lr=1.0)
    twin(x).square().sum().backward()
    optimizer.step()
    assert not np.array_equal(twin(x).numpy(), expected)
    for model in (one, two, back):
        np.testing.assert_array_equal(model(x).numpy(), expected)


# -- a full device --------------------------------------------------------------------------------
def spread(fresh, spare_pages):
    """Small parameters in a page of weights with nothing else in it, beside `spare_pages` pages
    with room for some of them; their optimizer has stepped once."""
    device = fresh.autodiff()
    rng = np.random.default_rng(1)

    def parameter(*shape):
        return nn.Parameter(wb.tensor(rng.standard_normal(shape, np.float32), device=device))

    def page(p):
        return p._node.store.buf.page

    small = [parameter(100 + 7 * k, 5) for k in range(8)]
    optimizer = optim.AdamW(small, lr=0.1)
    for p in small:
        p.grad = wb.full(p.shape, 0.5, device=device)
    optimizer.step()
    device.synchronize()
    home, filler, gaps = page(small[0]), [], []
    while len({page(f) for f in filler} - {home}) < spare_pages:
        filler.append(parameter(40_000))
    known = {page(f) for f in filler}
    while page(f := parameter(2500)) in known:
        gaps.append(f)
    kept = [f for f in filler if page(f) is not home] + gaps[::2]
    return device, small, optimizer, kept


@pytest.mark.parametrize("spare_pages", [1, 3])
@pytest.mark.parametrize("refused", ["scratch", "values"])
def test_a_step_on_a_full_device_is_the_same_step(fresh, spare_pages, refused):
    """Room is made in the middle of it, by whatever may be moved without harm."""
    results = []
    for full in (False, True):
        device, small, optimizer, kept = spread(fresh, spare_pages)
        memory = device.backend.queue.memory
        memory._settle()
        pool = memory.scratch if refused == "scratch" else memory.values
        source, asked = pool._source, []

        def create(size, source=source, asked=asked, full=full):
            asked.append(size)
            if full and len(asked) == 1:
                raise OutOfMemoryError(f"no room for {size} bytes")
            return source.create(size)

        pool._source = types.SimpleNamespace(
            create=create, destroy=source.destroy, copy=source.copy
        )
        optimizer.zero_grad()
        for p in small:
            p.grad = wb.full(p.shape, 0.5, device=device)
        x = wb.ones(600, 300, device=device) / 300
        y = (x @ x.T).tanh() @ x
        optimizer.step()
        y.numpy()
        pool._source = source
        assert asked, "nothing was asked of the device"
        results.append([t.numpy() for t in (*small, *kept, y)])
        del small, optimizer, kept, x, y, p
        gc.collect()
        device.memory_cleanup()
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@quick
def test_out_of_memory_names_tensors_and_the_device_goes_on():
    with wb.config.override(memory={"max_bytes": 16 * MIB}):
        device = Device(WgpuBackend(FakeDriver(), "small"))
    held = wb.ones(1024, 2048, device=device) * 2
    wb.eval(held)
    with pytest.raises(wb.OutOfMemoryError) as caught:
        wb.eval(wb.ones(3000, 1024, device=device) * 3)
    text = str(caught.value)
    for part in ("float32[3000, 1024]", f"{8 * MIB} float32[1024, 2048]", "budget of 16777216"):
        assert part in text
    assert wb.eval(wb.ones(100, 100, device=device) + 1) is None
    del held
    wb.eval(wb.ones(3000, 1024, device=device) * 3)
    assert device.memory().peak_reserved <= 16 * MIB
    device.close()


@quick
def test_a_lost_device_and_a_new_one():
    device = wb.Device.wgpu(power="low-power", limits="default")
    held = wb.ones(100, device=device) * 2
    wb.eval(held)
    device.backend.driver.close()
    with pytest.raises(wb.DeviceLostError):
        wb.eval(wb.ones(3 * MIB, device=device) * 2)
    with pytest.raises(wb.DeviceLostError):
        held.numpy()
    del held
    assert device.memory().in_use == 0
    again = wb.Device.wgpu(power="low-power", limits="default")
    assert again != device
    assert (wb.ones(4, device=again) * 2).tolist() == [2] * 4
    again.close()


# -- looking --------------------------------------------------------------------------------------
@quick
def test_the_report_is_a_table(fresh):
    device = fresh.autodiff()
    with wb.use_device(device):
        layer = nn.Linear(300, 1000)
        out = layer(wb.randn(50, 300)).softmax(-1) @ wb.randn(1000, 20)
    wb.eval(out)
    report = device.memory()
    header, rule, *rows = str(report).splitlines()
    assert set(rule) == {"-", " "}
    assert header.split() == (
        "memory in use padding reserved peak in use peak reserved pages values".split()
    )
    assert [row.split()[0] for row in rows] == [
        "tiny", "values", "weights", "scratch", "driver", "all",
    ]  # fmt: skip
    assert "1.1 MiB" in rows[2]  # 301,000 weights
    assert report.in_use == sum(p["in_use"] for p in report.pools)
    assert report.padding == sum(p["padding"] for p in report.pools)
    assert report.reserved == sum(p["reserved"] for p in report.pools)
    assert all(p["pages"] >= 0 and p["allocations"] >= 0 for p in report.pools)
    assert pools(device)["weights"]["allocations"] == 2


@quick
def test_the_report_of_the_cpu_is_one_too(cpu):
    text = str(cpu.memory())
    assert "in use" in text.splitlines()[0] and text.splitlines()[-1].startswith("all")


def test_what_a_failed_call_held_is_free_for_the_next(wgpu):
    with wb.config.override(memory={"max_bytes": 16 * MIB}):
        device = Device(WgpuBackend(FakeDriver(), "budget"))

    def attempt(mib):
        try:
            (wb.tensor(np.ones(mib << 18, np.float32), device=device).exp() * 2).numpy()
        except wb.OutOfMemoryError:
            return False
        return True

    # The caught error and its frames are a cycle that holds the failed call's tensors.
    assert [attempt(4), attempt(10), attempt(4)] == [True, False, True]
    device.close()


def test_threads_share_a_device(device):
    a = wb.tensor(np.ones((64, 64), np.float32), device=device)
    found = []

    def work():
        for _ in range(20):
            found.append((a @ a).sum().item())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [64.0**3] * 60
