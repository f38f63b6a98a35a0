"""The safetensors codec: both ways against the reference package, and on damaged files."""

import json
import os
import stat
import struct

import numpy as np
import pytest
import safetensors.numpy as reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wgburn.core.errors import FileFormatError
from wgburn.io.safetensors import parse_safetensors, read_safetensors, write_safetensors

pytestmark = pytest.mark.quick

DTYPES = ["bool", "uint8", "int8", "uint32", "int32", "int64", "float16", "float32", "float64"]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, min_side=0, max_dims=4))
)
names = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda n: n != "__metadata__")
states = st.dictionaries(names, arrays, max_size=5)
strings = st.text(st.characters(codec="utf-8"), max_size=8)
relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert a[name].shape == b[name].shape
        assert a[name].tobytes() == b[name].tobytes()  # bits: NaN and -0 count


def encode(header, data=b"", pad=0):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw += b" " * pad
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@relaxed
@given(state=states, metadata=st.dictionaries(strings, strings, max_size=3))
def test_the_reference_reads_what_we_write(tmp_path, state, metadata):
    path = tmp_path / "a.safetensors"
    write_safetensors(state, path, metadata)
    same(reference.load_file(path), state)
    with read_safetensors(path) as file:
        same(dict(file), state)
        assert file.metadata == metadata


@relaxed
@given(state=states, metadata=st.none() | st.dictionaries(strings, strings, min_size=1, max_size=3))
def test_we_read_what_the_reference_writes(tmp_path, state, metadata):
    path = tmp_path / "a.safetensors"
    if not state:
        metadata = None  # the reference writes broken JSON for metadata without tensors
    reference.save_file(state, path, metadata)
    with read_safetensors(path) as file:
        same(dict(file), state)
        assert file.metadata == (metadata or {})


@relaxed
@given(
    state=states,
    cut=st.floats(0, 1, exclude_max=True),
    flip=st.integers(0, 10**6),
    junk=st.binary(),
)
def test_a_damaged_file_is_refused(tmp_path, state, cut, flip, junk):
    path = tmp_path / "a.safetensors"
    write_safetensors(state, path)
    whole = path.read_bytes()
    shorter = whole[: int(cut * len(whole))]
    with pytest.raises(FileFormatError):
        parse_safetensors(shorter)
    if junk:
        with pytest.raises(FileFormatError):
            parse_safetensors(whole + junk)
    # A flipped byte is refused, or lands in data or text, where the format has no check sum.
    flipped = bytearray(whole)
    flipped[flip % len(flipped)] ^= 1 + flip % 255
    read = refused_or_read(bytes(flipped))
    assert read is None or sum(a.nbytes for a in read.values()) <= 2 * len(whole)


def refused_or_read(blob):
    """The arrays of a blob, or None if it was refused in one line; anything else fails the test."""
    try:
        file = parse_safetensors(blob)
        return {name: file[name] for name in file}
    except FileFormatError as refused:
        message = str(refused)
    assert message
    assert "\n" not in message
    return None


@relaxed
@given(data=st.binary(max_size=200))
def test_noise_is_refused(data):
    assert refused_or_read(data) is None or len(data) >= 10
    assert refused_or_read(encode(b"{" + data)) in (None, {})


@pytest.mark.parametrize(
    "blob, cause",
    [
        (b"", "0 bytes are no safetensors file"),
        (b"1234567", "7 bytes are no safetensors file"),
        (struct.pack("<Q", 100_000_001) + b"{}", "over the format's limit"),
        (struct.pack("<Q", 2**63), "over the format's limit"),
        (struct.pack("<Q", 10) + b"{}", "truncated: the header needs 18 bytes, the file has 10"),
        (encode(b"[]"), "no JSON object"),
        (encode(b" {}"), "no JSON object"),
        (encode(b"{"), "damaged header"),
        (encode(b'{"\xff": 1}'), "damaged header"),
        (encode(b'{"a":' * 100_000), "damaged header"),
        (encode(b'{"a":1' + b"0" * 10_000 + b"}"), "damaged header"),
        (encode(b'{"a":1,"a":1}'), "key 'a' comes twice"),
        (
            encode(b'{"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"x"),
            "key 'dtype' comes twice",
        ),
        (encode({"a": 1}), "needs exactly dtype, shape and data_offsets"),
        (encode({"a": {**entry(), "more": 1}}, b"1234"), "needs exactly"),
        (encode({"a": {"dtype": "F32", "shape": [1]}}, b"1234"), "needs exactly"),
        (encode({"a": entry("F33")}, b"1234"), "unknown dtype 'F33'"),
        (encode({"a": entry(dtype=4)}, b"1234"), "unknown dtype 4"),
        (encode({"a": entry(shape=[-1])}, b"1234"), "is no shape"),
        (encode({"a": entry(shape=[1.0])}, b"1234"), "is no shape"),
        (encode({"a": entry(shape=[True])}, b"1234"), "is no shape"),
        (encode({"a": entry(shape=[1] * 65)}, b"1234"), "is no shape"),
        (encode({"a": entry(shape=[0, 2**62], offsets=(0, 0))}), "is no shape"),
        (encode({"a": entry(shape=[2**32] * 4)}, b"1234"), "is no shape"),
        (encode({"a": entry(offsets=(4, 0))}, b"1234"), "are no data offsets"),
        (encode({"a": entry(offsets=(0, 4, 8))}, b"1234"), "are no data offsets"),
        (encode({"a": entry(offsets=(-4, 0))}, b"1234"), "are no data offsets"),
        (encode({"a": entry(shape=[2])}, b"1234"), "takes 8 bytes, its offsets span 4"),
        (encode({"a": entry()}, b"123"), "truncated: the tensors need 4 bytes"),
        (encode({"a": entry()}, b"12345"), "1 bytes follow the last tensor"),
        (encode({}, b"1"), "1 bytes follow the last tensor"),
        (encode({"a": entry(offsets=(4, 8))}, b"12345678"), "'a' leaves a gap before it"),
        (
            encode({"a": entry(), "b": entry(offsets=(8, 12))}, b"123456789012"),
            "'b' leaves a gap before it",
        ),
        (encode({"a": entry(), "b": entry()}, b"1234"), "'b' overlaps the tensor before it"),
        (
            encode({"a": entry(shape=[2], offsets=(0, 8)), "b": entry(offsets=(4, 8))}, b"8" * 8),
            "'b' overlaps",
        ),
        (encode({"__metadata__": {"a": 1}}), "must be an object of strings"),
        (encode({"__metadata__": []}), "must be an object of strings"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_cause(tmp_path, blob, cause):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(blob)
    with pytest.raises(FileFormatError) as caught:
        read_safetensors(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_booleans_are_zero_or_one():
    file = parse_safetensors(encode({"a": entry("BOOL", [2], (0, 2))}, b"\x01\x02"))
    with pytest.raises(FileFormatError, match="booleans"):
        file["a"]


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileFormatError, match="no such file"):
        read_safetensors(tmp_path / "none.safetensors")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_safetensors(tmp_path)
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_safetensors({}, tmp_path / "no" / "folder.safetensors")


def test_bfloat16_is_read_as_float32():
    values = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 2.0**-130, 3.0e38], "f4")
    halves = (values.view("u4") >> 16).astype("<u2")
    file = parse_safetensors(encode({"a": entry("BF16", [3, 3], (0, 18))}, halves.tobytes()))
    assert file["a"].dtype == np.float32
    assert file.entry("a").dtype == "BF16"
    np.testing.assert_array_equal(file["a"].view("u4").ravel(), halves.astype("u4") << 16)


def test_a_dtype_we_lack_stops_only_the_tensor_that_has_it():
    header = {"a": entry("I16", [2], (0, 4)), "b": entry("U8", [1], (4, 5))}
    file = parse_safetensors(encode(header, b"12345"))
    assert file["b"].tolist() == [ord("5")]
    with pytest.raises(FileFormatError, match="tensor 'a' has dtype I16"):
        file["a"]


def test_a_header_padded_with_spaces_and_a_misaligned_array_are_read():
    values = np.arange(3, dtype="<f8")
    blob = encode({"a": entry("F64", [3], (0, 24))}, values.tobytes(), pad=3)
    np.testing.assert_array_equal(parse_safetensors(blob)["a"], values)


def test_arrays_are_mapped_read_only_and_outlive_the_file(tmp_path):
    path = tmp_path / "a.safetensors"
    write_safetensors({"a": np.arange(4.0)}, path)
    with read_safetensors(path) as file:
        array = file["a"]
    assert not array.flags.writeable
    assert not array.flags.owndata
    np.testing.assert_array_equal(array, np.arange(4.0))


def test_views_and_foreign_byte_orders_are_written_by_value(tmp_path):
    path = tmp_path / "a.safetensors"
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    state = {
        "t": base.T,
        "s": base[:, ::2],
        "b": base.astype(">f4"),
        "z": np.broadcast_to(base[0, 1], (2, 2)),
    }
    write_safetensors(state, path)
    loaded = reference.load_file(path)
    for name, array in state.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].shape == array.shape


@pytest.mark.parametrize(
    "state, metadata, cause",
    [
        ({"a": np.zeros(1, np.complex64)}, None, "tensor 'a' has dtype complex64"),
        ({"a": np.array([object()])}, None, "has dtype object"),
        ({1: np.zeros(1)}, None, "tensor name 1 must be a string"),
        ({"__metadata__": np.zeros(1)}, None, "no tensor can be named __metadata__"),
        ({"\ud800": np.zeros(1)}, None, "is no valid Unicode"),
        ({}, {"a": 1}, "metadata value 1 must be a string"),
        ({}, {1: "a"}, "metadata key 1 must be a string"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(tmp_path, state, metadata, cause):
    path = tmp_path / "a.safetensors"
    write_safetensors({"old": np.ones(2)}, path)
    with pytest.raises(FileFormatError, match=cause):
        write_safetensors(state, path, metadata)
    assert list(read_safetensors(path)) == ["old"]
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_a_failure_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    write_safetensors({"old": np.ones(2)}, path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileFormatError, match="cannot be written: No space left"):
        write_safetensors({"new": np.ones(2)}, path)
    assert list(read_safetensors(path)) == ["old"]
    assert os.listdir(tmp_path) == ["a.safetensors"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    path = tmp_path / "a.safetensors"
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    write_safetensors({}, path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)
    path.chmod(0o640)
    write_safetensors({}, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
