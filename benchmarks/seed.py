"""Runs the works on wgburn's devices and on peers, in turn, and compares them.

Owns: the order of measuring and the table. Each system runs in a process of its own (.worker).
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .works import WORKS, Work

ROOT = Path(__file__).resolve().parents[1]
#: Seconds after which a system gets no further round of one work.
BUDGET = 40.0


class Failed(Exception):
    """A system refused a request; the text is the cause."""


@dataclass
class Result:
    """What one system did with one work."""

    first_ms: float = 0.0
    ms: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.ms)


class Runner:
    """A worker process for one system."""

    def __init__(self, system: str, device: str) -> None:
        self.name = f"{system} {device}"
        self.is_peer = system != "wgburn"
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker"],
            cwd=ROOT,
            env=_environment(system),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.label = self.ask({"open": [system, device]})["label"]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(f"its process ended with status {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _environment(system: str) -> dict[str, str]:
    """tinygrad runs on WebGPU where Dawn is installed: the fair peer of a WebGPU runtime."""
    env = dict(os.environ)
    found = importlib.util.find_spec("pydawn") if system == "tinygrad" else None
    if found is not None and found.submodule_search_locations and "DEV" not in env:
        suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
        names = (f"libwebgpu_dawn_{platform.machine()}{suffix}", f"libwebgpu_dawn{suffix}")
        for name in names:
            library = Path(found.submodule_search_locations[0]) / "lib" / name
            if library.is_file():
                env |= {"DEV": "WEBGPU", "WEBGPU_PATH": str(library)}
                break
    return env


def measure(work: Work, runners: Sequence[Runner]) -> dict[str, Result]:
    """Time one work on all systems: a few samples here, a few there, and round again."""
    results = {runner.name: Result() for runner in runners}
    spent = dict.fromkeys(results, 0.0)
    for runner in runners:
        started = time.perf_counter()
        try:
            results[runner.name].first_ms = runner.ask({"prepare": work.name})["first_ms"]
        except Failed as failure:
            results[runner.name].error = str(failure)
        spent[runner.name] = time.perf_counter() - started
    for turn in range(work.rounds):
        for runner in runners:
            result = results[runner.name]
            if result.error or (turn and spent[runner.name] > BUDGET):
                continue
            samples = work.samples if spent[runner.name] < BUDGET / 2 else 1
            started = time.perf_counter()
            try:
                result.ms += runner.ask({"time": work.name, "samples": samples})["ms"]
            except Failed as failure:
                result.error = str(failure)
            spent[runner.name] += time.perf_counter() - started
    return results


def open_runners(
    devices: Sequence[str], peers: Sequence[str], tell: Callable[[str], None]
) -> list[Runner]:
    """The systems that can run here; the others are named with the cause."""
    runners = []
    wanted = [("wgburn", device) for device in devices] + [(peer, "cpu") for peer in peers]
    for system, device in wanted:
        try:
            runner = Runner(system, device)
        except Failed as failure:
            tell(f"# {system} {device}: {failure}")
        else:
            tell(f"# {runner.name}: {runner.label}")
            runners.append(runner)
    return runners


def run(
    devices: Sequence[str],
    peers: Sequence[str],
    groups: Sequence[str],
    tell: Callable[[str], None],
) -> Iterator[tuple[Work, dict[str, Result], list[Runner]]]:
    """Each selected work with its results, as soon as it is measured."""
    runners = open_runners(devices, peers, tell)
    try:
        if all(runner.is_peer for runner in runners):
            raise Failed("no device of wgburn could be opened; the lines above say why")
        for work in WORKS:
            if work.group in groups:
                yield work, measure(work, runners), runners
    finally:
        for runner in runners:
            runner.close()


def lines(work: Work, results: dict[str, Result], runners: Sequence[Runner]) -> Iterator[str]:
    """A line for wgburn on each device: median, min, max, first call, ratio to each peer."""
    for runner in runners:
        if runner.is_peer:
            continue
        head = f"{work.name:<7} {runner.name:<14}"
        result = results[runner.name]
        if result.error:
            yield f"{head} FAILED: {result.error}"
            continue
        yield (
            f"{head} median {result.median:9.3f} ms  min {min(result.ms):9.3f}  "
            f"max {max(result.ms):9.3f}  n {len(result.ms):2}  first {result.first_ms:8.1f}"
            + "".join(_ratio(result, results[peer.name], peer) for peer in runners if peer.is_peer)
        )


def _ratio(result: Result, other: Result, peer: Runner) -> str:
    name = peer.name.split()[0]
    if other.error:
        return f"  ({name} failed: {other.error[:60]})"
    return f"  {result.median / other.median:6.2f} x {name} ({other.median:.3f})"


def as_data(work: Work, results: dict[str, Result], runners: Sequence[Runner]) -> dict[str, Any]:
    """The same for a script."""
    systems = {}
    for runner in runners:
        result = results[runner.name]
        systems[runner.name] = {"label": runner.label, "peer": runner.is_peer} | (
            {"error": result.error}
            if result.error
            else {
                "median_ms": result.median,
                "min_ms": min(result.ms),
                "max_ms": max(result.ms),
                "samples": len(result.ms),
                "first_ms": result.first_ms,
                "ratio_to": {
                    peer.name.split()[0]: result.median / results[peer.name].median
                    for peer in runners
                    if peer.is_peer and peer is not runner and not results[peer.name].error
                },
            }
        )
    return {"work": work.name, "what": work.what, "systems": systems}
