"""examples/transformer.py: its data leaks nothing, it runs, and all devices train alike."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import wgburn as wb
from wgburn import nn

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))
stdlib_text = pytest.importorskip("stdlib_text")
models = pytest.importorskip("models")

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


def tiny(device, lr):
    learning = device.autodiff()
    learning.seed(1)
    with wb.use_device(learning):
        model = models.TextTransformer(
            vocabulary=20, length=8, width=16, hidden=24, heads=2, layers=2, dropout=0.0
        )
    return model, wb.optim.Adam(model.parameters(), lr=lr)


def batch(step):
    rng = np.random.default_rng([3, step])
    tokens = rng.integers(1, 20, (6, 8)).astype(np.int32)
    tokens[0, 5:] = tokens[3, 2:] = 0
    # Something to learn: the class is that of the first word.
    return tokens, tokens[:, 0] % 4


def step(model, optimizer, device, number):
    tokens, labels = batch(number)
    logits = model(wb.tensor(tokens, device=device))
    loss = nn.functional.cross_entropy(logits, wb.tensor(labels, device=device))
    optimizer.zero_grad()
    loss.backward()
    return loss


def test_thirty_steps_agree(cpu, wgpu):
    """Small steps: rounding has no time to grow."""
    losses = []
    for device in (cpu, wgpu):
        model, optimizer = tiny(device, 1e-4)
        run = []
        for number in range(30):
            run.append(step(model, optimizer, device, number))
            optimizer.step()
        losses.append([loss.item() for loss in run])
    assert np.abs(np.subtract(*losses)).max() < 1e-3
    assert len(set(losses[0])) == 30


def test_each_step_agrees_from_the_same_state(cpu, wgpu):
    model, optimizer = tiny(cpu, 1e-3)
    other, other_optimizer = tiny(wgpu, 1e-3)
    for number in range(8):
        other.load_state_dict(model.state_dict())
        loss = step(model, optimizer, cpu, number)
        again = step(other, other_optimizer, wgpu, number)
        assert abs(loss.item() - again.item()) < 1e-5
        mirror = dict(other.named_parameters())
        for name, p in model.named_parameters():
            want, got = p.grad.numpy(), mirror[name].grad.numpy()
            # The gradient of a key's bias is zero in truth: what is left of it is rounding.
            if name.endswith("in_proj_bias"):
                want, got = (np.delete(g, np.s_[16:32]) for g in (want, got))
            distance = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-8)
            assert distance < 1e-4, (number, name, distance)
        optimizer.step()
