"""The `wgburn` command, as a process: what it prints and how it exits."""

import importlib.metadata
import json
import os
import subprocess
import sys

import pytest

from wgburn.core.config import ALLOWED

quick = pytest.mark.quick


def wgburn(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "wgburn.cli.main", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def no_drivers(folder):
    """Variables under which the loaders of Vulkan and OpenGL find no driver."""
    missing = str(folder / "missing.json")
    names = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES")
    return dict.fromkeys(names, missing)


@quick
def test_version_and_help():
    shown = wgburn("--version")
    assert shown.returncode == 0
    assert shown.stdout == f"wgburn {importlib.metadata.version('wgburn')}\n"
    assert "info" in wgburn("--help").stdout
    assert wgburn("info", "-h").returncode == 0


@quick
def test_info_for_a_script():
    shown = wgburn("info", "--json")
    assert shown.returncode == 0, shown.stderr
    facts = json.loads(shown.stdout)
    cpu, *others = facts["devices"]
    assert (cpu["kind"], cpu["available"]) == ("cpu", True)
    for device in others:
        assert device["available"] or device["reason"]
        if device["available"] and device["kind"] == "wgpu":
            assert device["limits"]["maxStorageBufferBindingSize"] >= 128 << 20
    assert facts["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert facts["settings"].keys() == ALLOWED.keys()


def test_info_for_a_person():
    shown = wgburn("info", WGBURN_DEBUG="0")
    assert shown.returncode == 0, shown.stderr
    assert "cpu" in shown.stdout
    assert "debug = 0  (WGBURN_DEBUG)" in shown.stdout


def test_info_says_why_there_is_no_gpu(tmp_path):
    shown = wgburn("info", "--json", **no_drivers(tmp_path))
    assert shown.returncode == 0, shown.stderr
    gpus = [d for d in json.loads(shown.stdout)["devices"] if d["kind"] == "wgpu"]
    assert gpus
    if not any(d["available"] for d in gpus):  # Metal and Direct3D need no driver files
        assert "adapter" in gpus[0]["reason"]
        assert gpus[0]["reason"] in wgburn("info", **no_drivers(tmp_path)).stdout


@pytest.mark.parametrize(
    "arguments, variables, status, cause",
    [
        (["inof"], {}, 2, "No such command 'inof'"),
        (["info", "--jsn"], {}, 2, "No such option"),
        (["info"], {"WGBURN_DEBUG": "9"}, 1, "Error: WGBURN_DEBUG is '9'"),
    ],
)
def test_errors_are_one_line_and_a_status(arguments, variables, status, cause):
    shown = wgburn(*arguments, **variables)
    assert shown.returncode == status
    assert "Traceback" not in shown.stderr
    assert cause in shown.stderr.splitlines()[-1]


def test_debug_shows_the_traceback():
    shown = wgburn("--debug", "info", WGBURN_DEBUG="9")
    assert shown.returncode == 1
    assert "Traceback" in shown.stderr
