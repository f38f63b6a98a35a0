"""The host's threads: items are drawn once, errors come through, parts join to the whole."""

import os
import threading
import weakref
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
from compile.seed_models import transformer_step

import wgburn as wb
from wgburn.compile import parts
from wgburn.device import helpers
from wgburn.device.cpu import CpuBackend, Runner

pytestmark = pytest.mark.quick


def test_every_item_is_drawn_once_on_the_host():
    drawn = []
    helpers.share(range(1000), lambda mine: drawn.extend(mine))
    assert sorted(drawn) == list(range(1000))


def test_a_helpers_error_is_raised_on_the_host():
    began = threading.Event()
    me = threading.get_ident()

    def work(mine):
        for _ in mine:
            if threading.get_ident() == me:
                began.wait(10)
            else:
                began.set()
                raise ZeroDivisionError

    if helpers.WORKERS == 1:
        pytest.skip("no helpers here")
    with pytest.raises(ZeroDivisionError):
        helpers.share(range(4), work)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((64, 16), (16, 32)),
        ((1, 64, 16), (16, 32)),
        ((8, 4, 16), (8, 16, 4)),
        ((2, 9, 4, 16), (9, 16, 4)),
        ((16, 16), (5, 16, 16)),
        ((8, 1, 4, 16), (1, 2, 16, 4)),
        ((3, 64, 16), (1, 16, 8)),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_products_in_parts_are_the_whole_on_cpu(monkeypatch, first, second, turned):
    monkeypatch.setattr(parts, "PRODUCTS", 0)
    monkeypatch.setattr(wb.Device.cpu().backend, "plans", OrderedDict())
    rng = np.random.default_rng(0)
    a = rng.standard_normal(first, dtype=np.float32)
    b = rng.standard_normal(second, dtype=np.float32)
    if turned:  # views of another layout are cut as well
        x = wb.tensor(np.swapaxes(a, -1, -2), device=wb.Device.cpu()).mT
    else:
        x = wb.tensor(a, device=wb.Device.cpu())
    found = (x @ wb.tensor(b, device=wb.Device.cpu())).numpy()
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [64, 100, 640])
@pytest.mark.parametrize("dim", [0, 1])
def test_sums_over_many_or_few_values_on_cpu(rows, dim):
    x = np.random.default_rng(0).standard_normal((rows, 128), dtype=np.float32) + 100
    found = wb.tensor(x, device=wb.Device.cpu()).sum(dim).numpy()
    np.testing.assert_allclose(found, x.astype(np.float64).sum(dim), rtol=1e-6)
    x[3, 5] = np.nan
    found = wb.tensor(x, device=wb.Device.cpu()).sum(dim).numpy()
    assert np.flatnonzero(np.isnan(found)).tolist() == [5 if dim == 0 else 3]


def test_whoever_needs_a_job_first_does_it():
    found = []
    job = helpers.Job(lambda: found.append(threading.get_ident()))
    job.join()
    job.join()  # once is enough
    job.help()
    job.drop()
    assert found == [threading.get_ident()]


def test_a_dropped_job_is_never_done_and_holds_nothing():
    class Held:
        pass

    held, done = Held(), []
    gone = weakref.ref(held)
    job = helpers.Job(partial(done.append, held))
    job.drop()
    del held
    assert gone() is None
    job.help()
    assert not done


def test_a_jobs_error_is_raised_by_whoever_joins():
    def fails():
        raise ZeroDivisionError

    job = helpers.Job(fails)
    threading.Thread(target=job.help).start()
    with pytest.raises(ZeroDivisionError):
        job.join()


def test_an_error_in_a_plan_leaves_the_device_usable(monkeypatch):
    """With helpers at work on other steps."""
    device = wb.Device(CpuBackend())
    step, model, _ = transformer_step(device.autodiff(), 8)
    before = step().item()
    whole = Runner._whole
    counts = iter(range(10**6))

    def breaks(self, n):
        if n.name == "index_add" and next(counts) == 0:
            raise KeyboardInterrupt
        return whole(self, n)

    monkeypatch.setattr(Runner, "_whole", breaks)
    kept = {n: p.numpy() for n, p in model.named_parameters()}
    with pytest.raises(KeyboardInterrupt):
        step()
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.numpy(), kept[name])
    assert step().item() < before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
@pytest.mark.skipif(helpers.WORKERS == 1, reason="no helpers here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_helpers_of_its_own():
    helpers.hand_out(lambda: None).join()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        names = []

        def work():
            names.append(threading.current_thread().name)
            began.set()

        began = threading.Event()
        helpers.hand_out(work)
        began.wait(20)
        os.write(writer, "".join(names).encode())
        os._exit(0)
    os.close(writer)
    found = os.read(reader, 100).decode()
    os.waitpid(child, 0)
    os.close(reader)
    assert found.startswith("wgburn-cpu")
