"""wb.save and wb.load: tensors to files and back, on every device."""

import numpy as np
import pytest
import safetensors.numpy as reference

import wgburn as wb
from wgburn.core.errors import FileFormatError, ValueRangeError

pytestmark = pytest.mark.quick


def test_tensors_come_back(device, tmp_path):
    path = tmp_path / "a.safetensors"
    state = {
        "f": wb.tensor(np.array([[1.5, -0.0], [np.inf, np.nan]], np.float32), device=device),
        "i": wb.tensor([1, -2, 3], device=device),
        "b": wb.tensor([True, False, True], device=device),
        "u": wb.tensor(np.arange(5, dtype=np.uint8), device=device),
        "s": wb.tensor(2.5, device=device),
        "e": wb.zeros(0, 3, device=device),
        "view": wb.arange(6, device=device).reshape(2, 3).T,
        "array": np.arange(3, dtype=np.float32),
    }
    wb.save(state, path, metadata={"note": "x"})
    loaded = wb.load(path, device=device)
    assert loaded.keys() == state.keys()
    for name, value in state.items():
        got = loaded[name]
        want = value if isinstance(value, np.ndarray) else value.numpy()
        assert got.device == device
        assert got.shape == want.shape
        assert got.dtype.np == want.dtype
        np.testing.assert_array_equal(got.numpy(), want)
    assert reference.load_file(path)["view"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_model_written_by_the_reference_package_loads(device, tmp_path):
    path = tmp_path / "a.safetensors"
    reference.save_file({"n": np.array(7, np.int64), "w": np.ones((2, 2), np.float32)}, path)
    loaded = wb.load(path, device=device)
    assert loaded["n"].item() == 7
    assert loaded["n"].dtype in (wb.int32, wb.int64)


def test_64_bit_types_are_kept_where_the_device_has_them(cpu, wgpu, tmp_path):
    path = tmp_path / "a.safetensors"
    reference.save_file({"i": np.array([2**40]), "d": np.array([0.1])}, path)
    loaded = wb.load(path, device=cpu)
    assert (loaded["i"].dtype, loaded["d"].dtype) == (wb.int64, wb.float64)
    assert loaded["i"].item() == 2**40
    with pytest.raises(ValueRangeError, match="tensor 'i'"):
        wb.load(path, device=wgpu)


def test_batch_counters_are_int64_in_files_only(device, tmp_path):
    path = tmp_path / "a.safetensors"
    counter = wb.tensor(3, device=device)
    assert counter.dtype is wb.int32
    wb.save({"bn.num_batches_tracked": counter}, path)
    assert reference.load_file(path)["bn.num_batches_tracked"].dtype == np.int64
    assert wb.load(path, device=device)["bn.num_batches_tracked"].dtype is wb.int32


def test_loading_copies(cpu, tmp_path):
    path = tmp_path / "a.safetensors"
    wb.save({"a": np.zeros(4, np.float32)}, path)
    loaded = wb.load(path, device=cpu)
    wb.save({"a": np.ones(4, np.float32)}, path)
    with open(path, "r+b") as file:
        file.truncate(8)
    assert loaded["a"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "state, cause",
    [
        ({"a": [1.0]}, "'a' is list, not a tensor or array"),
        ({"a": {"b": 1}}, "'a' is dict"),
        ([1.0], "list is no mapping"),
    ],
)
def test_what_is_no_state(tmp_path, state, cause):
    with pytest.raises(FileFormatError, match=cause):
        wb.save(state, tmp_path / "a.safetensors")


def test_a_module_is_no_state(cpu, tmp_path):
    with wb.use_device(cpu):
        model = wb.nn.Linear(2, 3)
    with pytest.raises(FileFormatError, match=r"pass its state_dict\(\)"):
        wb.save(model, tmp_path / "a.safetensors")


def test_a_missing_file(tmp_path):
    with pytest.raises(FileFormatError, match="no such file"):
        wb.load(tmp_path / "none.safetensors")
