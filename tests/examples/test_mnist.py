"""examples/mnist.py as a user runs it: its last line, its files, its errors."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import wgburn as wb

ROOT = Path(__file__).parents[2]
LAST_LINE = re.compile(
    r"test accuracy (\d\.\d{4}) \((\d+)/(\d+)\), device (\S.*), epochs (\d+), (\d+) s"
)


def mnist(*arguments, cwd=None, **variables):
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "mnist.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )


@pytest.fixture(scope="module")
def small_set(tmp_path_factory):
    """A set of 64 training and 32 test digits, images plain and labels gzipped."""
    from wgburn.data import load_mnist

    folder = tmp_path_factory.mktemp("digits")
    for split, prefix, count in (("train", "train", 64), ("test", "t10k", 32)):
        images, labels = load_mnist(ROOT / "examples" / "data" / "mnist", split)
        head = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(head + images[:count].tobytes())
        head = bytes([0, 0, 8, 1]) + count.to_bytes(4, "big")
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(head + labels[:count].tobytes())
        )
    return folder


@pytest.mark.parametrize("schedule", ["onecycle", "constant"])
def test_a_short_run(small_set, tmp_path, schedule):
    done = mnist(
        "--device", "cpu", "--epochs", 2, "--data", small_set, "--schedule", schedule, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    match = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert match, done.stdout
    accuracy, right, total, device, epochs, _ = match.groups()
    assert (total, device, epochs) == ("32", "cpu", "2")
    assert float(accuracy) == pytest.approx(int(right) / 32, abs=5e-5)
    out = tmp_path / "out" / "mnist"
    assert sorted(p.name for p in out.iterdir()) == ["curve.png", "digits.png", "model.safetensors"]
    for name in ("curve.png", "digits.png"):
        assert np.asarray(Image.open(out / name)).std() > 5
    state = wb.load(out / "model.safetensors", device="cpu")
    assert state["classifier.1.weight"].shape == (128, 1600)
    # No terminal: whole lines, no cursor movements.
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


def test_the_same_seed_gives_the_same_model(small_set, tmp_path):
    states = []
    for name in ("a", "b"):
        done = mnist(
            "--device", "cpu", "--epochs", 1, "--data", small_set, "--out", tmp_path / name
        )
        assert done.returncode == 0, done.stderr
        states.append(wb.load(tmp_path / name / "model.safetensors", device="cpu"))
    for name, value in states[0].items():
        np.testing.assert_array_equal(value.numpy(), states[1][name].numpy(), err_msg=name)


@pytest.mark.slow
def test_a_few_steps_on_the_gpu(wgpu, small_set, tmp_path):
    done = mnist("--device", "wgpu", "--epochs", 1, "--data", small_set, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert LAST_LINE.fullmatch(done.stdout.splitlines()[-1]), done.stdout


def broken(folder, name, content):
    for path in folder.iterdir():
        if path.name.startswith(name):
            path.unlink()
    if content is not None:
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    "name, content, cause",
    [
        ("train-images-idx3-ubyte", None, "holds no train-images-idx3-ubyte"),
        ("train-images-idx3-ubyte", b"", "no IDX file"),
        ("t10k-images-idx3-ubyte", bytes([0, 0, 8, 3, 0, 0, 0, 9]), "ends inside its header"),
        ("t10k-labels-idx1-ubyte", b"\x1f\x8b\x08junk", "damaged gzip data"),
        (
            "train-labels-idx1-ubyte",
            bytes([0, 0, 8, 1, 0, 0, 0, 1, 5]),
            "1 labels for the 64 images",
        ),
    ],
)
def test_bad_data_is_one_line(small_set, tmp_path, name, content, cause):
    folder = tmp_path / "data"
    folder.mkdir()
    for path in small_set.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    broken(folder, name, content)
    done = mnist("--device", "cpu", "--data", folder, "--out", tmp_path / "out")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert cause in line
    assert str(folder) in line


@pytest.mark.parametrize(
    "arguments, cause",
    [
        (["--data", "/no/such/folder"], "no such folder"),
        (["--device", "gpu"], "'gpu'"),
        (["--epochs", "0"], "--epochs"),
        (["--limit", "x"], "--limit"),
        (["--schedule", "linear"], "--schedule"),
    ],
)
def test_bad_options_are_one_line(tmp_path, arguments, cause):
    done = mnist(*arguments, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert cause in done.stderr.splitlines()[-1]


def test_no_adapter_is_one_line(tmp_path):
    names = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES")
    missing = dict.fromkeys(names, str(tmp_path / "missing.json"))
    done = mnist("--device", "wgpu", "--limit", 16, "--epochs", 1, cwd=tmp_path, **missing)
    if done.returncode == 0:
        pytest.skip("this machine has an adapter that needs no driver file")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert "Traceback" not in done.stderr
    assert "adapter" in line.lower()
