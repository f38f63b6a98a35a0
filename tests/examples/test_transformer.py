"""examples/transformer.py: its data leaks nothing, it runs, and all devices train alike."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import text_training

import wgburn as wb

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))
stdlib_text = pytest.importorskip("stdlib_text")

LAST_LINE = re.compile(
    r"test accuracy (\d\.\d{4}) \((\d+)/(\d+)\), device (\S.*), epochs (\d+), (\d+) s"
)


def transformer(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "transformer.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=dict(os.environ),
    )


# -- the texts -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts():
    return stdlib_text.load(64)


def test_no_file_is_in_both_halves(texts):
    learn, test = texts
    assert not {p.file for p in learn} & {p.file for p in test}
    assert len({p.file for p in test}) > 30
    seen, asked = ({tuple(stdlib_text.words(p.text)) for p in half} for half in texts)
    assert not seen & asked
    assert not any("Copyright (" in p.text for half in texts for p in half)


def test_all_areas_are_there_equally_often(texts):
    for half in texts:
        counts = np.bincount([p.area for p in half], minlength=4)
        assert len(set(counts)) == 1
        assert counts[0] > 100
        assert all(stdlib_text.MIN_WORDS <= len(stdlib_text.words(p.text)) for p in half[:200])


def test_the_same_texts_every_time(texts):
    assert stdlib_text.load(64) == texts
    assert len(stdlib_text.load(64, limit=40)[0]) == 40


def test_words():
    assert stdlib_text.words("def readLine(self, HTTPError_x2): # it's ----") == (
        "def read line ( self , http error x 2 ) : # it ' s -".split()
    )


def test_vocabulary():
    v = stdlib_text.Vocabulary.of(["b a b", "c c b"], 4)
    assert v.listed == ("b", "c")
    assert len(v) == 4
    assert v.encode(["c b x c c", "b"], 4).tolist() == [[3, 2, 1, 3], [2, 0, 0, 0]]


def test_a_python_without_sources(tmp_path):
    with pytest.raises(FileNotFoundError, match="sources of the standard library"):
        stdlib_text.load(64, root=tmp_path)


# -- the example ---------------------------------------------------------------------------------


def test_a_short_run(tmp_path):
    done = transformer(
        "--small", "--device", "cpu", "--epochs", 2, "--limit", 160, "--length", 32,
        "--width", 16, "--hidden", 16, "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    match = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert match, done.stdout
    assert match.groups()[2:5] == ("40", "cpu", "2")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "curve.png",
        "model.safetensors",
        "passages.png",
    ]
    with wb.io.read_safetensors(tmp_path / "model.safetensors") as file:
        assert json.loads(file.metadata["areas"]) == list(stdlib_text.NAMES)
        assert len(json.loads(file.metadata["vocabulary"])) > 100
        assert file.entry("tokens.weight").shape == (8000, 16)


@pytest.mark.slow
def test_it_learns_what_the_test_asks(tmp_path):
    """Better than guessing by far, on files it never saw, from a part of the data."""
    done = transformer(
        "--small", "--device", "cpu", "--epochs", 3, "--limit", 2400, "--length", 64, "--layers", 1,
        "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    accuracy = float(LAST_LINE.fullmatch(done.stdout.splitlines()[-1])[1])
    assert accuracy > 0.45, done.stdout


@pytest.mark.quick
@pytest.mark.parametrize(
    "arguments, cause",
    [
        (["--device", "gpu", "--limit", "8"], "'gpu'"),
        (["--epochs", "0"], "--epochs"),
        (["--width", "10", "--heads", "4"], "10 does not split into 4 heads"),
    ],
)
def test_bad_options_are_one_line(arguments, cause):
    done = transformer(*arguments)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert cause in done.stderr.splitlines()[-1]


# -- all devices train alike ----------------------------------------------------------------------
# At tiny sizes; in Chromium: tests/browser/test_models.py.


def test_thirty_steps_agree(cpu, wgpu):
    """Parity (a)."""
    text_training.check_losses({str(d): asyncio.run(text_training.losses(d)) for d in (cpu, wgpu)})


def test_each_step_agrees_from_the_same_state(cpu, wgpu):
    """Parity (b)."""
    records = asyncio.run(text_training.recorded(cpu))
    text_training.check_followed(asyncio.run(text_training.followed(wgpu, records)))
