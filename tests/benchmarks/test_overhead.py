"""What Python costs and how many pipelines sizes cost, on a device that runs nothing."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import overhead, pipelines
from benchmarks.fake import CnnSteps, TransformerSteps, chain_step, fake_device

ROOT = Path(__file__).parents[2]


def test_a_steady_step_finds_its_plan():
    cost = overhead.ours("chain", lambda device: chain_step(device, 5), 3)
    # A product, a sum and a tanh five times, the last sum, and at least as much in backward.
    assert cost.ops >= 2 * (3 * 5 + 1)
    assert (cost.hit_rate, cost.misses) == (1.0, 0)
    assert 0 < cost.us < 1000


def test_a_step_of_a_model_finds_its_plans():
    cost = overhead.ours("cnn", lambda device: CnnSteps(device, 4, 8).at(4), 1)
    assert cost.misses == 0
    assert cost.hits > 0


def test_plans_that_are_missed_count():
    def grows(device):
        sizes = iter(range(4, 100))
        return lambda: chain_step(device, next(sizes))()

    cost = overhead.ours("grows", grows, 2)
    assert cost.hits == 0
    assert cost.misses > 0


def test_overhead_prints_json():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.overhead", "--repeats", "1", "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row.get("name") for row in rows[:3]] == ["chain", "cnn step", "transformer step"]
    assert all(row["hit_rate"] == 1.0 for row in rows[:3])


def test_new_sizes_share_pipelines():
    sizes = pipelines.fours(4, 32)
    cnn = pipelines.sweep("cnn", lambda device: CnnSteps(device, 4, 8), sizes)
    assert cnn.again == 0
    assert cnn.ratio <= pipelines.FOURS
    lengths = pipelines.arbitrary(4, 32)
    text = pipelines.sweep("text", lambda device: TransformerSteps(device, layers=1), lengths)
    assert text.again == 0
    assert text.ratio <= pipelines.ARBITRARY


def test_choices_by_size_are_coarse():
    """From the smallest sizes on, where thresholds are closest."""
    sizes = [4, 8, 16, 24, 48, 80]
    for make in (CnnSteps, TransformerSteps):
        found = pipelines.sweep(make.__name__, make, sizes)
        assert found.again == 0
        assert found.ratio <= pipelines.FOURS, found


def test_pipelines_of_a_second_device_are_its_own():
    device = fake_device()
    CnnSteps(device, 4, 8).at(4)()
    assert device.backend.queue.counters.pipelines_created > 10
