"""Memory on navigator.gpu: nothing overlaps or is lost, loops do not grow. Runs inside Pyodide."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from runtime.memory_walk import Walk, wander

import wgburn as wb
from wgburn import nn, optim
from wgburn.nn import functional as F
from wgburn_runtime import browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("seed", range(2))
async def test_at_random(seed):
    driver = await browser.open_browser(limits="default")
    try:
        walk = Walk(driver)
        await wander(walk, seed, 150, 32 << 10)
        assert walk.number > 20
    finally:
        driver.close()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(20, 40), nn.BatchNorm1d(40), nn.Linear(40, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


async def test_a_loop_does_not_grow_and_leaves_nothing():
    """Batches of five sizes, with a clean-up in the middle; the losses are those of the cpu."""
    device = (await wb.Device.wgpu_async(limits="default")).autodiff()
    rng = np.random.default_rng(0)
    await device.synchronize_async()
    gc.collect()
    start = device.memory().in_use
    host = wb.Device.cpu().autodiff()
    host.seed(0)
    with wb.use_device(host):
        reference = Model()
    with wb.use_device(device):
        model = Model()
    model.load_state_dict(reference.state_dict())
    pairs = [(m, optim.AdamW(m.parameters(), lr=1e-3)) for m in (model, reference)]

    async def step(x, y):
        losses = []
        for m, optimizer in pairs:
            at = next(m.parameters()).device
            optimizer.zero_grad()
            loss = F.cross_entropy(m(wb.tensor(x, device=at)), wb.tensor(y, device=at))
            loss.backward()
            optimizer.step()
            losses.append(float(await loss.numpy_async()))
        return losses

    reserved = []
    for k in range(30):
        n = (16, 5, 24, 9, 12)[k % 5]
        x, y = rng.standard_normal((n, 20), np.float32), rng.integers(0, 3, n, np.int32)
        mine, expected = await step(x, y)
        assert mine == pytest.approx(expected, rel=1e-4)
        if k % 5 == 4:
            reserved.append(device.memory().reserved)
        if k == 14:
            device.memory_cleanup()
    assert max(reserved) == reserved[0]
    assert set(reserved[3:]) == {reserved[3]}
    pairs.clear()
    del model, reference
    gc.collect()
    assert device.memory().in_use == start
