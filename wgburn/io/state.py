"""wb.save and wb.load: named tensors to a safetensors file, and from any file of weights.

Owns: what a state becomes in a file and back. Must not know: modules, optimizers, the file's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import DTypeError, FileFormatError, ValueRangeError
from ..device.device import Device, as_device
from ..tensor.creation import from_numpy
from ..tensor.tensor import Tensor
from .files import PathLike
from .safetensors import write_safetensors
from .weights import Keys, Rename, open_weights

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


def load(
    path: PathLike,
    device: Device | str | None = None,
    *,
    keys: Keys | None = None,
    rename: Rename | None = None,
) -> dict[str, Tensor]:
    """The tensors of a file, on `device` (the default device if None). All of them, or none.

    Reads safetensors, torch's .pt/.pth/.bin (without torch, executing nothing in them), an index of
    shards, or a folder with one of these: the content decides, not the name. Nested dicts become
    dotted names; what is no tensor is left out.

    `keys` chooses by name in the file: a leading part ("encoder."), a compiled pattern, a test, or
    a list of exact names. `rename` then gives new names: a dict of names or leading parts
    ({"bert.": ""}), a (pattern, replacement) pair or several, or a function. Only what is chosen
    is read.

    bfloat16 becomes float32; on a device without 64-bit types, int64 becomes int32 and float64
    float32. Raises FileFormatError for a file that is missing, damaged, or asks for code to run.
    """
    target = as_device(device)
    with open_weights(path) as weights:
        chosen = weights.only(keys).renamed(rename)
        return {name: _to_tensor(name, chosen[name], path, target) for name in chosen}


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
    except DTypeError as error:
        raise FileFormatError(f"{path}: tensor {name!r}: {error}") from error


def _is_counter(name: Any) -> bool:
    return isinstance(name, str) and name.rpartition(".")[2] == _COUNTER
