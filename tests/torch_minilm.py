"""Sentence vectors of MiniLM as torch computes them from the file, written out op by op.

Owns: the truth that wgburn's embeddings are compared with. Must not know: wgburn.
"""

import json

import numpy as np


def tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def embed(folder, sentences):
    """[n, width]. One at a time and without padding: the example pads and masks."""
    import torch
    from safetensors.torch import load_file

    w = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    F = torch.nn.functional

    def dense(x, name):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def one(sentence):
        ids = torch.tensor(words.encode(sentence).ids)
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

    words = tokenizer(folder)
    words.no_padding()
    with torch.no_grad():
        return torch.stack([one(sentence) for sentence in sentences]).numpy()


def check(got, want):
    """Equal to 1e-4, and of length 1."""
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 1e-4
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
