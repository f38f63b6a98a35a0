"""The names of `wb`: all of them listed, sorted, and there."""

import subprocess
import sys

import pytest

import wgburn as wb

pytestmark = pytest.mark.quick

#: The contract: what programs written against the documentation use.
CONTRACT = """
    Tensor Device DType DeviceInfo MemoryReport config default_device set_default_device use_device
    tensor zeros ones full empty arange linspace eye rand randn randint from_numpy from_dlpack
    zeros_like ones_like full_like empty_like rand_like randn_like bernoulli randperm one_hot
    eval eval_async cat concat stack where save load nn optim io data
    float64 float32 float16 int64 int32 uint32 int8 uint8 bool_
    grad value_and_grad gradient_of no_grad enable_grad set_grad_enabled is_grad_enabled checkpoint
    WgburnError ShapeError DTypeError ValueRangeError IndexRangeError DeviceError OutOfMemoryError
    DeviceLostError GradError StateDictError FileFormatError SyncUnavailableError
    exp log tanh matmul sum mean amax argmax softmax clamp permute reshape gather isnan
""".split()


def test_the_contract_is_exported():
    assert set(CONTRACT) <= set(wb.__all__)


def test_names_are_sorted_and_each_there_once():
    assert len(set(wb.__all__)) == len(wb.__all__)
    assert not [name for name in wb.__all__ if getattr(wb, name, None) is None]
    assert set(wb.__all__) <= set(dir(wb))


def test_functions_are_the_tensor_methods():
    x = wb.tensor([[1.0, 4.0], [9.0, 16.0]])
    assert wb.sqrt(x).tolist() == x.sqrt().tolist() == [[1, 2], [3, 4]]
    assert wb.sum(x, 1, keepdim=True).tolist() == [[5], [25]]
    assert wb.reshape(x, 4).shape == (4,)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'softmaxx'"):
        _ = wb.softmaxx


def test_no_module_leaks_into_the_names():
    hidden = [name for name in wb.__all__ if name.startswith("_") and name != "__version__"]
    assert not hidden


def test_star_import():
    code = "from wgburn import *; print(zeros(2).shape, nn.__name__, config.fuse)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[0] == "(2,) wgburn.nn True"
