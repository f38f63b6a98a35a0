"""Weights in one file or many: formats told by content, shards, choosing, renaming."""

import json
import re

import numpy as np
import pytest
import safetensors.numpy as reference

import wgburn as wb
from wgburn.core.errors import FileFormatError, StateDictError
from wgburn.io import open_weights

pytestmark = pytest.mark.quick

STATE = {
    "bert.embed.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bert.layer.0.bias": np.ones(2, np.float32),
    "bert.layer.1.bias": np.full(2, 2, np.float32),
    "head.weight": np.zeros((1, 2), np.float32),
}


def sharded(folder, **changes):
    """A folder with an index and two shards."""
    names = list(STATE)
    parts = {
        "model-00001-of-00002.safetensors": names[:2],
        "model-00002-of-00002.safetensors": names[2:],
    }
    for shard, inside in parts.items():
        reference.save_file({name: STATE[name] for name in inside}, folder / shard)
    table = {name: shard for shard, inside in parts.items() for name in inside} | changes
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": table}, indent=2))
    return index


@pytest.fixture
def single(tmp_path):
    path = tmp_path / "weights"
    reference.save_file(STATE, path)
    return path


def check(got, names=STATE):
    assert sorted(got) == sorted(names)
    for name, value in got.items():
        np.testing.assert_array_equal(value.numpy(), STATE[name])


def test_shards_by_index_or_folder(device, tmp_path):
    index = sharded(tmp_path)
    check(wb.load(index, device))
    check(wb.load(tmp_path, device))


def test_a_folder_with_one_file(cpu, tmp_path):
    reference.save_file(STATE, tmp_path / "model.safetensors")
    check(wb.load(tmp_path, cpu))


def test_shards_of_torch_files(cpu, tmp_path):
    torch = pytest.importorskip("torch")
    table = {}
    for number, name in enumerate(STATE):
        table[name] = f"pytorch_model-{number}.bin"
        torch.save({name: torch.from_numpy(STATE[name])}, tmp_path / table[name])
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": table}))
    check(wb.load(tmp_path, cpu))


def test_content_decides_not_the_name(cpu, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    assert wb.load(tmp_path / "model.safetensors", cpu)["a"].tolist() == [1]
    reference.save_file({"a": np.full(1, 2, np.float32)}, tmp_path / "model.pt")
    assert wb.load(tmp_path / "model.pt", cpu)["a"].tolist() == [2]
    sharded(tmp_path).rename(tmp_path / "model.bin")
    check(wb.load(tmp_path / "model.bin", cpu))


@pytest.mark.parametrize("brace", ["low", "high"])
def test_a_header_whose_length_looks_like_json(cpu, tmp_path, brace):
    """The first byte of a safetensors file may be that of "{" by chance: 0x7b of length."""
    want = 0x7B if brace == "low" else 0x0A7B
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    header += b" " * (want - len(header))
    (tmp_path / "a").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert wb.load(tmp_path / "a", cpu)["a"].tolist() == [0]


def test_opening_reads_no_values_and_only_what_is_asked_for(tmp_path):
    sharded(tmp_path)
    with open_weights(tmp_path) as weights:
        assert len(weights) == 4
        assert weights.entry("bert.embed.weight").shape == (2, 3)
        array = weights["bert.embed.weight"]
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, STATE["bert.embed.weight"])


@pytest.mark.parametrize(
    "keys, names",
    [
        ("bert.", [n for n in STATE if n.startswith("bert")]),
        (re.compile(r"layer\.\d+\."), ["bert.layer.0.bias", "bert.layer.1.bias"]),
        (lambda name: name.endswith("weight"), ["bert.embed.weight", "head.weight"]),
        (["head.weight"], ["head.weight"]),
        ("nothing", []),
    ],
)
def test_choosing(cpu, single, keys, names):
    check(wb.load(single, cpu, keys=keys), names)


def test_names_that_are_not_there_are_told_together(cpu, single):
    with pytest.raises(FileFormatError, match=r"holds no 'a', 'b'"):
        wb.load(single, cpu, keys=["a", "head.weight", "b"])


@pytest.mark.parametrize(
    "rename, names",
    [
        ({"bert.": "", "head.weight": "out"}, "embed.weight layer.0.bias layer.1.bias out"),
        ({"bert.": "b.", "bert.layer.": "l."}, "b.embed.weight head.weight l.0.bias l.1.bias"),
        (
            (r"layer\.(\d)", r"h\1"),
            "bert.embed.weight bert.h0.bias bert.h1.bias head.weight",
        ),
        (
            [(re.compile("^bert"), "x"), ("x.embed", "e")],
            "e.weight head.weight x.layer.0.bias x.layer.1.bias",
        ),
        (lambda name: None if "layer" in name else name[-8:], "d.weight"),
    ],
)
def test_renaming(cpu, single, rename, names):
    if callable(rename):
        with pytest.raises(FileFormatError, match=r"'d\.weight' \(also from 'head\.weight'\)"):
            wb.load(single, cpu, rename=rename)
        got = wb.load(single, cpu, keys="head", rename=rename)
    else:
        got = wb.load(single, cpu, rename=rename)
    assert " ".join(sorted(got)) == names


def test_a_wrong_rename_is_told(cpu, single):
    with pytest.raises(FileFormatError, match="rename gives 3"):
        wb.load(single, cpu, rename=lambda name: 3)


@pytest.mark.parametrize(
    "changes, cause",
    [
        ({"x": "../model-00001-of-00002.safetensors"}, "no plain file name"),
        ({"x": "/etc/passwd"}, "no plain file name"),
        ({"x": "gone.safetensors"}, r"shard gone\.safetensors is missing"),
        ({"x": "model-00001-of-00002.safetensors"}, "lacks tensor 'x'"),
        ({"x": 3}, "without a weight_map"),
    ],
)
def test_bad_indexes(cpu, tmp_path, changes, cause):
    with pytest.raises(FileFormatError, match=cause):
        wb.load(sharded(tmp_path, **changes), cpu)


def test_everything_wrong_with_shards_is_told_at_once(cpu, tmp_path):
    index = sharded(tmp_path, x="gone", y="model-00001-of-00002.safetensors")
    with pytest.raises(FileFormatError) as caught:
        wb.load(index, cpu)
    assert "shard gone is missing" in str(caught.value)
    assert "lacks tensor 'y'" in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"weight_map": []}', b"[1]", b"", b"junk" * 9])
def test_what_is_no_weights(cpu, tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(FileFormatError, match=str(tmp_path)):
        wb.load(tmp_path / "a", cpu)


def test_an_empty_folder(cpu, tmp_path):
    with pytest.raises(FileFormatError, match=r"a folder with none of model\.safetensors"):
        wb.load(tmp_path, cpu)


def test_a_module_tells_everything_that_does_not_fit_and_stays_as_it_was(cpu, tmp_path):
    with wb.use_device(cpu):
        model = wb.nn.Sequential(wb.nn.Linear(2, 3), wb.nn.Linear(3, 1))
    before = {name: value.numpy() for name, value in model.state_dict().items()}
    state = {
        "0.weight": np.zeros((3, 2), np.float32),
        "0.bias": np.zeros(4, np.float32),
        "1.weight": np.zeros((1, 3), np.float32),
        "other": np.zeros(1, np.float32),
    }
    reference.save_file(state, tmp_path / "a")
    with pytest.raises(StateDictError) as caught:
        model.load_state_dict(wb.load(tmp_path / "a", cpu))
    for part in ("missing: 1.bias", "unexpected: other", "0.bias is (4,) in the state and (3,)"):
        assert part in str(caught.value)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    # Lazily, straight from the file: nothing else of it is read.
    state |= {"0.bias": np.ones(3, np.float32), "1.bias": np.ones(1, np.float32)}
    reference.save_file(state, tmp_path / "b")
    with open_weights(tmp_path / "b") as weights:
        model.load_state_dict(weights.only(lambda name: name != "other"))
    assert model.state_dict()["0.bias"].tolist() == [1, 1, 1]
