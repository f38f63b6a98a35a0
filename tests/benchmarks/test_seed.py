"""`python -m benchmarks seed`: its options, its table, and systems that are missing or fail."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import seed
from benchmarks.works import GROUPS, WORKS, by_name

ROOT = Path(__file__).parents[2]


def benchmarks(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True, cwd=ROOT
    )


class FakeRunner:
    """Answers with given times; a text instead of a number is a failure."""

    def __init__(self, name, is_peer, first, *times):
        self.name, self.is_peer, self.label = name, is_peer, name
        self.first, self.times = first, list(times)
        self.asked = []

    def ask(self, request):
        self.asked.append(request)
        answer = self.first if "prepare" in request else self.times.pop(0)
        if isinstance(answer, str):
            raise seed.Failed(answer)
        return {"first_ms": answer} if "prepare" in request else {"ms": answer}


@pytest.mark.quick
def test_systems_take_turns_and_are_compared():
    order = []

    class Told(FakeRunner):
        def ask(self, request):
            order.append((self.name, next(iter(request))))
            return super().ask(request)

    work = by_name("mm512")._replace(rounds=2, samples=2)
    ours = Told("wgburn cpu", False, 50.0, [4.0, 6.0], [2.0, 4.0])
    peer = Told("torch cpu", True, 9.0, [2.0, 2.0], [2.0, 2.0])
    results = seed.measure(work, [ours, peer])
    assert order == [
        ("wgburn cpu", "prepare"),
        ("torch cpu", "prepare"),
        *[("wgburn cpu", "time"), ("torch cpu", "time")] * 2,
    ]
    (line,) = seed.lines(work, results, [ours, peer])
    assert " ".join(line.split()) == (
        "mm512 wgburn cpu median 4.000 ms min 2.000 max 6.000 n 4 first 50.0 2.00 x torch (2.000)"
    )
    data = seed.as_data(work, results, [ours, peer])
    assert data["systems"]["wgburn cpu"]["ratio_to"] == {"torch": 2.0}
    assert data["systems"]["torch cpu"]["ratio_to"] == {}
    json.dumps(data)


@pytest.mark.quick
def test_a_failure_is_told_and_stops_nobody_else():
    work = by_name("ew")._replace(rounds=1)
    ours = FakeRunner("wgburn wgpu", False, "DeviceError: too large")
    other = FakeRunner("wgburn cpu", False, 1.0, [3.0])
    peer = FakeRunner("tinygrad cpu", True, 1.0, "it broke")
    runners = [ours, other, peer]
    results = seed.measure(work, runners)
    first, second = seed.lines(work, results, runners)
    assert first.split(maxsplit=3) == ["ew", "wgburn", "wgpu", "FAILED: DeviceError: too large"]
    assert "median     3.000" in second
    assert second.endswith("(tinygrad failed: it broke)")
    assert seed.as_data(work, results, runners)["systems"]["wgburn wgpu"]["error"]


@pytest.mark.quick
def test_every_system_has_every_work():
    for system in ("on_wgburn", "on_torch", "on_tinygrad"):
        text = (ROOT / "benchmarks" / f"{system}.py").read_text()
        for work in WORKS:
            assert f"def _{work.name}(self)" in text, (system, work.name)
    assert GROUPS == ("mm", "ew", "mlp", "cnn", "tr")


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_each_work_runs_on_the_cpu(work):
    runner = seed.Runner("wgburn", "cpu")
    try:
        results = seed.measure(work._replace(rounds=1, samples=1), [runner])
    finally:
        runner.close()
    assert results["wgburn cpu"].error == ""
    assert len(results["wgburn cpu"].ms) == 1
    assert results["wgburn cpu"].median > 0


def test_one_line_a_work_and_missing_peers_are_named():
    done = benchmarks("seed", "--works", "mlp", "--against", "tinygrad")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (row,) = [line for line in lines if not line.startswith("#")]
    assert row.startswith("mlp     wgburn cpu")
    assert any(line.startswith("# tinygrad cpu: ") for line in lines)


def test_json():
    done = benchmarks("seed", "--works", "mlp", "--json")
    assert done.returncode == 0, done.stderr
    (work,) = json.loads(done.stdout)
    cpu = work["systems"]["wgburn cpu"]
    assert cpu["min_ms"] <= cpu["median_ms"] <= cpu["max_ms"]


@pytest.mark.quick
@pytest.mark.parametrize(
    "arguments, cause",
    [
        (["--works", "mm,xx"], "'xx' is not one of mm, ew, mlp, cnn, tr"),
        (["--against", "jax"], "'jax' is not one of torch, tinygrad"),
        (["--device", "gpu", "--works", "mlp"], "no device of wgburn could be opened"),
    ],
)
def test_errors_are_one_line(arguments, cause):
    done = benchmarks("seed", *arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert cause in done.stderr.splitlines()[-1]
