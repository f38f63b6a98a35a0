"""torch's files without torch: every layout and dtype, and pickles that want more than data."""

import collections
import io
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import wgburn as wb
from wgburn.core.errors import FileFormatError
from wgburn.io import read_torch

torch = pytest.importorskip("torch")

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


def save(value, path, zipped=True):
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def archive(path, stream, **members):
    """A file laid out like torch.save's, around a pickle of our own."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", stream)
        file.writestr("a/byteorder", "little")
        for name, content in members.items():
            file.writestr("a/data/" + name.removeprefix("s"), content)
    return path


def example_state():
    base = torch.arange(24, dtype=torch.float32)
    grid = base.reshape(4, 6)
    return collections.OrderedDict(
        plain=torch.randn(3, 4),
        transposed=torch.randn(3, 4).T,
        part=grid[1:3, ::2],
        shared=grid,
        expanded=torch.tensor([1.0, 2.0]).expand(5, 2),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(torch.randn(2)),
        channels_last=torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    )


@FORMATS
def test_strided_and_shared_tensors(device, tmp_path, zipped):
    state = example_state()
    got = wb.load(save(state, tmp_path / "a.pt", zipped), device=device)
    assert list(got) == list(state)
    for name, want in state.items():
        assert got[name].shape == tuple(want.shape)
        np.testing.assert_array_equal(got[name].numpy(), want.detach().numpy(), err_msg=name)


@FORMATS
def test_dtypes(cpu, tmp_path, zipped):
    values = [-3.0, 0.0, 1.5, 100.0]
    state = {
        str(dtype).removeprefix("torch."): torch.tensor(values).to(dtype)
        for dtype in (
            torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
            torch.int32, torch.int8, torch.uint8, torch.bool,
        )
    }  # fmt: skip
    got = wb.load(save(state, tmp_path / "a.bin", zipped), device=cpu)
    for name, want in state.items():
        kind = {"bfloat16": "float32", "bool": "bool"}.get(name, name)
        assert got[name].numpy().dtype == np.dtype(kind)
        want = want.float() if name == "bfloat16" else want
        np.testing.assert_array_equal(got[name].numpy(), want.numpy())


@FORMATS
def test_dtypes_that_only_files_have(cpu, tmp_path, zipped):
    state = {"u32": torch.tensor([2**31]).to(torch.uint32), "i16": torch.tensor([-5]).short()}
    path = save(state, tmp_path / "a.pt", zipped)
    file = read_torch(path)
    assert (file["u32"].tolist(), file["i16"].tolist()) == ([2**31], [-5])
    assert (file.entry("u32").dtype, file.entry("i16").dtype) == ("uint32", "int16")
    assert wb.load(path, cpu, keys="u32")["u32"].item() == 2**31
    state = {"z": torch.tensor([1j])}
    path = save(state, tmp_path / "b.pt", zipped)
    assert read_torch(path)["z"].tolist() == [1j]
    with pytest.raises(FileFormatError, match=r"tensor .z.: .*complex64"):
        wb.load(path, cpu)


@FORMATS
def test_a_checkpoint_is_a_tree(cpu, tmp_path, zipped):
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    whole = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 7,
        "note": "x",
        "seen": {1, 2},
        "size": torch.Size([2, 3]),
        "dtype": torch.float32,
        "history": [torch.ones(1), torch.zeros(2)],
    }
    path = save(whole, tmp_path / "a.pth", zipped)
    with read_torch(path) as file:
        assert file.tree["epoch"] == 7
        assert file.tree["note"] == "x"
        assert file.tree["seen"] == {1, 2}
        assert file.tree["size"] == (2, 3)
        assert file.tree["dtype"].name == "float32"
        assert file.tree["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
        assert "optimizer.state.0.exp_avg" in file
        assert file["history.1"].tolist() == [0, 0]
    got = wb.load(path, cpu, keys="model.", rename={"model.": ""})
    assert sorted(got) == ["bias", "weight"]
    np.testing.assert_array_equal(got["weight"].numpy(), model.weight.detach().numpy())


def test_only_what_is_asked_for_is_read(tmp_path):
    save({"big": torch.zeros(1 << 22), "small": torch.ones(3)}, tmp_path / "a.pt")
    with read_torch(tmp_path / "a.pt") as file:
        small = file["small"]
        assert file["big"].base is not None  # a view of the file
    assert not small.flags.writeable
    assert small.tolist() == [1, 1, 1]


def test_an_archive_that_was_packed_again(cpu, tmp_path):
    save({"a": torch.arange(1000.0)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as old,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert (tmp_path / "b.pt").stat().st_size < (tmp_path / "a.pt").stat().st_size
    np.testing.assert_array_equal(wb.load(tmp_path / "b.pt", cpu)["a"].numpy(), np.arange(1000))


def test_loading_works_without_torch(tmp_path):
    path = save({"a": torch.ones(2)}, tmp_path / "a.pt")
    code = (
        "import sys, wgburn as wb\n"
        f"print(wb.load({str(path)!r}, 'cpu')['a'].tolist(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[1.0, 1.0] False\n", done.stderr


# -- pickles that want more ----------------------------------------------------------------------


class Runs:
    """Pickled, this calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.what = (function, arguments)

    def __reduce__(self):
        return self.what


@FORMATS
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_malicious_reduce_is_refused_and_does_nothing(tmp_path, zipped, protocol):
    victim = tmp_path / "victim"
    victim.write_text("here")
    state = {"w": torch.ones(2), "x": Runs(Path.unlink, victim)}
    path = tmp_path / "a.pt"
    torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    with pytest.raises(FileFormatError, match="refused") as caught:
        wb.load(path, "cpu")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert victim.read_text() == "here"
    # The same file does its work where pickles are trusted: the test is not an empty one.
    torch.load(path, weights_only=False)
    assert not victim.exists()


@pytest.mark.parametrize(
    "value, named",
    [
        (Runs(eval, "1"), "builtins.eval"),
        (Runs(getattr, "a", "b"), "builtins.getattr"),
        (Runs(subprocess.call, ["true"]), "subprocess.call"),
        (collections.defaultdict(list), "collections.defaultdict"),
        (np.float64(1.0), "scalar"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (torch.nn.functional.relu, "torch.nn.functional.relu"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_what_is_no_data_is_named(tmp_path, value, named, protocol):
    stream = io.BytesIO()
    pickle._Pickler(stream, protocol, fix_imports=False).dump({"a": value})
    with pytest.raises(FileFormatError, match="refused") as caught:
        read_torch(archive(tmp_path / "a.pt", stream.getvalue()))
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "stream, cause",
    [
        (b"\x80\x02(ibuiltins\neval\n.", "INST"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "NEWOBJ"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02ccollections\nOrderedDict\n}b.", "sets attributes"),
        (b"\x80\x02K\x01)R.", "calls int, which is data"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "'os.system'"),
        (b"\x80\x02ctorch\nload\n.", "'torch.load'"),
        (b"\x80\x02ctorch._utils\n__builtins__\n.", "'torch._utils.__builtins__'"),
    ],
)
def test_opcodes_that_run_code_are_refused(tmp_path, stream, cause):
    with pytest.raises(FileFormatError, match="refused") as caught:
        read_torch(archive(tmp_path / "a.pt", stream))
    assert cause in str(caught.value)


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x08tQ"


def tensor(offset=b"K\0", shape=b"K\x08\x85", strides=b"K\x01\x85", storage=STORAGE):
    return b"\x80\x02}X\x01\0\0\0a" + TENSOR + b"(" + storage + offset + shape + strides + b"tRs."


def test_a_tensor_made_by_hand_loads(tmp_path):
    content = np.arange(8, dtype="<f4").tobytes()
    path = archive(tmp_path / "a.pt", tensor(), s0=content)
    assert read_torch(path)["a"].tolist() == list(range(8))
    assert read_torch(archive(path, tensor(offset=b"K\x01", shape=b"K\x07\x85"), s0=content))[
        "a"
    ].tolist() == list(range(1, 8))


@pytest.mark.parametrize(
    "stream, members, cause",
    [
        (tensor(), {}, "lacks storage '0'"),
        (tensor(), {"s0": bytes(31)}, "needs 32 bytes, the archive has 31"),
        (tensor(offset=b"K\x01"), None, "reaches element 8 of a storage of 8"),
        (tensor(offset=b"J\xff\xff\xff\xff"), None, "without storage"),
        (tensor(shape=b"J\xff\xff\xff\xff\x85"), None, "of shape"),
        (tensor(strides=b"J\xff\xff\xff\xff\x85"), None, "strides"),
        (tensor(strides=b"K\x02\x85"), None, "reaches element 14"),
        (tensor(strides=b")"), None, "strides"),
        (tensor(shape=b"J\xff\xff\xff\x7f\x85", strides=b"K\0\x85"), None, "in 32 bytes"),
        (tensor(shape=b"\x88\x85"), None, "of shape"),
        (tensor(storage=b"N"), None, "without storage"),
        (tensor(storage=STORAGE.replace(b"K\x08tQ", b"J\xff\xff\xff\xfftQ")), None, "-1 elements"),
        (tensor(storage=STORAGE.replace(b"ctorch\nFloatStorage\n", b"N")), None, "no storage"),
        (b"\x80\x02]q\0h\0a.", {}, "without end"),
        (b"\x80\x02}", {}, "damaged pickle"),
        (b"\x80\x02.", {}, "damaged pickle"),
        (b"\x80\x02a.", {}, "damaged pickle"),
        (b"\x80\x02(K\x01u.", {}, "damaged pickle"),
        (b"\x80\x02}]K\x01s.", {}, "as a key"),
        (b"", {}, "damaged pickle"),
        (b"\x80\x02" + tensor()[9:-2] + b".", None, "without a name"),
    ],
)
def test_bad_streams_are_one_line(tmp_path, stream, members, cause):
    members = {"s0": bytes(32)} if members is None else members
    with pytest.raises(FileFormatError) as caught:
        read_torch(archive(tmp_path / "a.pt", stream, **members))
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_tensors_of_one_name(tmp_path):
    save({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}, tmp_path / "a.pt")
    with pytest.raises(FileFormatError, match=r"two tensors are named 'a\.b'"):
        read_torch(tmp_path / "a.pt")


def test_shared_containers_do_not_explode(tmp_path):
    value = [torch.ones(1)]
    for _ in range(40):
        value = [value, value]
    save({"a": value}, tmp_path / "a.pt")
    with pytest.raises(FileFormatError):
        read_torch(tmp_path / "a.pt")


def test_other_files_are_told_apart(cpu, tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(2))
    with pytest.raises(FileFormatError, match=r"no data\.pkl"):
        wb.load(tmp_path / "a.npz", cpu)
    (tmp_path / "b").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(FileFormatError, match=r"not one of torch\.save"):
        wb.load(tmp_path / "b", cpu)
    archive(tmp_path / "c.pt", b"\x80\x02}.")
    with zipfile.ZipFile(tmp_path / "c.pt", "a") as file:
        file.writestr("a/constants.pkl", b"\x80\x02).")
    with pytest.raises(FileFormatError, match="TorchScript"):
        wb.load(tmp_path / "c.pt", cpu)


@FORMATS
def test_damage_is_never_more_than_an_error(tmp_path, zipped):
    """Cut short or changed anywhere, a file loads with right shapes or raises FileFormatError."""
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}
    whole = save(state, tmp_path / "a.pt", zipped).read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "b.pt"
    broken = [whole[:n] for n in rng.integers(0, len(whole), 60)]
    for _ in range(300):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), rng.integers(1, 4)):
            damaged[at] = rng.integers(256)
        broken.append(bytes(damaged))
    causes = []
    for content in broken:
        path.write_bytes(content)
        try:
            with read_torch(path) as file:
                for name in file:
                    assert file[name].nbytes < 10**6
        except FileFormatError as error:
            causes.append(str(error))
    assert len(causes) > 60
    assert not any("\n" in cause for cause in causes)
