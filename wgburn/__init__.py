"""wgburn: deep learning that trains and runs anywhere WebGPU runs.

`import wgburn as wb` is all a user needs; everything public is here or one name below (wb.nn, wb.optim).
Importing opens no device and loads no GPU, template or settings library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .autodiff.functional import (
    checkpoint,
    enable_grad,
    grad,
    gradient_of,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
    value_and_grad,
)
from .core.dtype import (
    DType,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint32,
)
from .core.errors import (
    DeviceError,
    DeviceLostError,
    DTypeError,
    FileFormatError,
    GradError,
    IndexRangeError,
    OutOfMemoryError,
    ShapeError,
    StateDictError,
    SyncUnavailableError,
    ValueRangeError,
    WgburnError,
)
from .device.backend import DeviceInfo, MemoryReport
from .device.device import Device, default_device, set_default_device, use_device
from .ops import table as _table
from .tensor.arithmetic import where
from .tensor.creation import (
    arange,
    bernoulli,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    one_hot,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    random_bits,
    randperm,
    tensor,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .tensor.movement import cat, stack
from .tensor.tensor import Tensor, eval, eval_async

concat = concatenate = cat
__version__ = "0.1.0"

#: Loaded at first use, so that `import wgburn` stays cheap.
_LAZY = {"nn", "optim", "io", "data", "lora", "onnx", "remote", "train"}
_LAZY_NAMES = {"save": "io", "load": "io", "config": "core.config"}

if TYPE_CHECKING:
    from . import io, nn, optim
    from .core.config import config
    from .io import load, save


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    elif name in _LAZY_NAMES:
        return getattr(importlib.import_module(f".{_LAZY_NAMES[name]}", __name__), name)
    else:
        method = _functions().get(name)
        if method is not None:
            return method
    raise AttributeError(f"module 'wgburn' has no attribute {name!r}")


def _functions() -> dict[str, Any]:
    """Tensor methods as functions of the module: wb.exp(x) is x.exp()."""
    names = (
        "abs absolute acos acosh add all amax amin any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin"
        " asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil chunk clamp clip cos cosh cumsum"
        " div divide dot eq erf erfinv exp exp2 expm1 flatten flip floor floor_divide fmod gather ge gt index_add"
        " index_select isfinite isinf isnan le log log10 log1p log2 log_softmax logical_and logical_not logical_or"
        " logical_xor logsumexp lt masked_fill matmul max maximum mean min minimum mm moveaxis movedim mul multiply narrow"
        " ne neg negative permute pow prod reciprocal relu remainder repeat_interleave reshape roll round rsqrt scatter_add"
        " sigmoid sign sin sinh softmax split sqrt square squeeze std sub subtract sum swapaxes take_along_dim tan tanh"
        " tile transpose trunc unbind unflatten unsqueeze var clone detach softplus true_divide bmm"
    )
    return {n: getattr(Tensor, n) for n in names.split()}


def __dir__() -> list[str]:
    return sorted(set(globals()) | _LAZY | set(_LAZY_NAMES) | set(_functions()))


del _table
