"""IDX files, the digits, and the order of batches."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wgburn.core.errors import FileFormatError, ShapeError, ValueRangeError
from wgburn.data import Batches, find_idx, load_mnist, read_idx

pytestmark = pytest.mark.quick

SHIPPED = Path(__file__).parents[2] / "examples" / "data" / "mnist"
CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array):
    array = np.asarray(array)
    code = CODES[array.dtype.str[1:]]
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    body = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return bytes([0, 0, code, array.ndim]) + sizes + body


def write_set(folder, images, labels, prefix="train"):
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
    (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels), mtime=0))


def test_the_shipped_digits():
    train = load_mnist(SHIPPED, "train")
    test = load_mnist(SHIPPED, "test")
    assert train.images.shape == (10_000, 28, 28)
    assert test.images.shape == (2_000, 28, 28)
    assert set(train.labels) == set(test.labels) == set(range(10))
    # Ink in the middle, none in the corners; every class about a tenth.
    assert train.images[:, 10:18, 10:18].mean() > 50 > train.images[:, :2, :2].mean()
    assert np.bincount(train.labels).min() > 800


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (0,), (2, 0, 4)])
@pytest.mark.parametrize("zipped", [False, True])
def test_every_dtype_plain_and_gzipped(tmp_path, dtype, shape, zipped):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    raw = idx(array)
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(raw, mtime=0) if zipped else raw)
    loaded = read_idx(path)
    assert loaded.dtype == array.dtype
    assert loaded.dtype.isnative
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize(
    "blob, cause",
    [
        (b"", "no IDX file: it starts with nothing"),
        (b"\0\0\x08", "no IDX file"),
        (b"hello world", "no IDX file: it starts with 68 65 6c 6c"),
        (b"\0\0\x0a\x01\0\0\0\0", "no IDX file"),
        (b"\0\0\x08\0", "no IDX file"),
        (b"\0\0\x08\x02\0\0\0\x01", "ends inside its header"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "shape (5,) takes 5 bytes, there are 3"),
        (b"\0\0\x08\x01\0\0\0\x02abc", "longer than its shape (2,) says (2 bytes)"),
        (b"\0\0\x0e\xff" + b"\0" * 1020, "no IDX file"),
        (b"\0\0\x0e\x20" + b"\xff" * 128, "truncated: shape"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x02ab", mtime=0)[:-9], "damaged gzip data"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x02ab", mtime=0)[:-8] + b"\0" * 8, "damaged gzip data"),
        (b"\x1f\x8bnonsense", "damaged gzip data"),
        (
            gzip.compress(b"\0\0\x08\x01\0\0\0\x02" + b"a" * 10_000, mtime=0),
            "longer than its shape",
        ),
    ],
)
def test_a_damaged_file_names_itself_and_the_cause(tmp_path, blob, cause):
    path = tmp_path / "x"
    path.write_bytes(blob)
    with pytest.raises(FileFormatError) as caught:
        read_idx(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileFormatError, match="no such file"):
        read_idx(tmp_path / "x")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_idx(tmp_path)
    with pytest.raises(FileFormatError, match="no such folder"):
        load_mnist(tmp_path / "none", "test")
    with pytest.raises(FileFormatError, match="holds no t10k-images-idx3-ubyte"):
        load_mnist(tmp_path, "test")


@pytest.mark.parametrize(
    "name", ["t10k-labels-idx1-ubyte", "t10k-labels-idx1-ubyte.gz", "t10k-labels.idx1-ubyte"]
)
def test_names_in_use(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    assert find_idx(tmp_path, "t10k-labels-idx1-ubyte") == tmp_path / name


def test_images_and_labels_must_fit(tmp_path):
    image = np.zeros((2, 28, 28), "u1")
    for images, labels, cause in [
        (image, np.array([1], "u1"), "1 labels for the 2 images"),
        (image, np.array([1, 10], "u1"), "label 10 is no digit"),
        (image[:, 1:], np.array([1, 2], "u1"), r"must be uint8 \[n, 28, 28\], not uint8"),
        (image, np.array([1, 2], "i4"), r"must be uint8 \[n\], not int32"),
        (image[:0], np.zeros(0, "u1"), "holds no digit"),
    ]:
        write_set(tmp_path, images, labels)
        with pytest.raises(FileFormatError, match=cause):
            load_mnist(tmp_path, "train")
    write_set(tmp_path, image, np.array([1, 9], "u1"))
    assert load_mnist(tmp_path, "train").labels.tolist() == [1, 9]


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 50), size=st.integers(1, 20), shuffle=st.booleans(), drop=st.booleans())
def test_an_epoch_yields_each_sample_once(n, size, shuffle, drop):
    a = np.arange(n)
    batches = Batches(a, a * 2, batch_size=size, shuffle=shuffle, drop_last=drop)
    seen = list(batches)
    assert len(seen) == len(batches)
    assert all((x * 2 == y).all() for x, y in seen)
    flat = np.concatenate([x for x, _ in seen]) if seen else a[:0]
    assert len(flat) == len(set(flat.tolist())) == batches.samples
    assert batches.samples == (n - n % size if drop else n)
    if not shuffle:
        assert (flat == a[: len(flat)]).all()


def test_epochs_differ_and_repeat():
    a = np.arange(100)

    def epochs(seed, start=0, count=2):
        batches = Batches(a, batch_size=10, seed=seed)
        batches.epoch = start
        return [np.concatenate([x for (x,) in batches]).tolist() for _ in range(count)]

    first, second = epochs(seed=1)
    assert first != second
    assert first != a.tolist()
    assert epochs(seed=1) == [first, second]
    assert epochs(seed=1, start=1, count=1) == [second]
    assert epochs(seed=2, count=1) != [first]


def test_bad_batches():
    with pytest.raises(ShapeError, match=r"\[2, 3\]"):
        Batches(np.zeros(2), np.zeros(3), batch_size=1)
    with pytest.raises(ValueRangeError, match="batch_size is 0"):
        Batches(np.zeros(2), batch_size=0)
    with pytest.raises(ValueRangeError, match="at least one array"):
        Batches(batch_size=1)
