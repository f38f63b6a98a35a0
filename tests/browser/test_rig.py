"""The rig itself: what fails in the browser fails here, with its text, and a hang ends."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from browser.rig.chromium import find_chromium

from web.local import ENVIRONMENT, ROOT, wheel

pytestmark = pytest.mark.slow


def test_every_end_of_a_test_arrives(tmp_path: Path) -> None:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    report = tmp_path / "report.xml"
    module = "tests/browser/rig/deliberate.py"
    command = (sys.executable, "-m", "pytest", module, "-q", f"--junit-xml={report}")
    done = subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        end = next((c for c in case if c.tag in ("failure", "error", "skipped")), None)
        text = "" if end is None else f"{end.get('message')} {end.text}"
        found[case.get("name")] = ("passed" if end is None else end.tag, text)
    ends = {name: end for name, (end, _) in found.items()}
    assert done.returncode == 1, done.stdout
    assert ends == {
        "test_passes[1]": "passed",
        "test_passes[2]": "passed",
        "test_passes_async": "passed",
        "test_fails": "failure",
        "test_fails_async": "failure",
        "test_complains_on_the_console": "failure",
        "test_skipped": "skipped",
        "test_hangs": "failure",
        "test_passes_after_the_hang": "passed",
    }
    assert "told so" in found["test_fails"][1]
    assert "from a coroutine" in found["test_fails_async"][1]
    assert "a complaint" in found["test_complains_on_the_console"][1]
    assert "on purpose" in found["test_skipped"][1]
    assert "no word from the browser for 5 s" in found["test_hangs"][1]


def test_the_wheel_is_small() -> None:
    name, data = wheel()
    assert name.endswith("-py3-none-any.whl")
    assert len(data) <= 400_000
