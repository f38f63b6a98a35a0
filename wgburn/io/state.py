"""wb.save and wb.load: named tensors in a safetensors file.

Owns: what a state becomes in a file and back. Must not know: modules, optimizers, the file's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import FileFormatError, ValueRangeError
from ..device.device import Device, as_device
from ..tensor.creation import from_numpy
from ..tensor.tensor import Tensor
from .safetensors import PathLike, read_safetensors, write_safetensors

#: Counters that torch keeps as int64. Here they are int32, and int64 in files only.
_COUNTER = "num_batches_tracked"


def save(
    state: Mapping[str, Tensor | NDArray[Any]],
    path: PathLike,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a state (`model.state_dict()`, or tensors and arrays by name) to a safetensors file.

    The file is replaced whole or left as it was. Raises FileFormatError naming file and cause.
    """
    if not isinstance(state, Mapping):
        hint = "; pass its state_dict()" if hasattr(state, "state_dict") else ""
        raise FileFormatError(f"{path}: {type(state).__name__} is no mapping of tensors{hint}")
    arrays = {name: _to_array(name, value, path) for name, value in state.items()}
    write_safetensors(arrays, path, metadata)


def load(path: PathLike, device: Device | str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on `device` (the default device if None).

    bfloat16 becomes float32; on a device without 64-bit types, int64 becomes int32 and float64
    float32. Raises FileFormatError for a file that is missing or damaged.
    """
    target = as_device(device)
    with read_safetensors(path) as file:
        return {name: _to_tensor(name, file[name], path, target) for name in file}


def _to_array(name: Any, value: Any, path: PathLike) -> NDArray[Any]:
    if isinstance(value, Tensor):
        array: NDArray[Any] = value.numpy()
    elif isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    else:
        raise FileFormatError(f"{path}: {name!r} is {type(value).__name__}, not a tensor or array")
    if _is_counter(name):
        return array.astype(np.int64)
    return array


def _to_tensor(name: str, array: NDArray[Any], path: PathLike, device: Device) -> Tensor:
    if _is_counter(name) and array.dtype == np.int64:
        array = array.astype(np.int32)
    try:
        return from_numpy(array, device)
    except ValueRangeError as error:  # int64 values that do not fit the device's int32
        raise ValueRangeError(f"{path}: tensor {name!r}: {error}") from error


def _is_counter(name: Any) -> bool:
    return isinstance(name, str) and name.rpartition(".")[2] == _COUNTER
