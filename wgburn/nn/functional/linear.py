"""Affine maps, table look-ups and dropout."""

from __future__ import annotations

from typing import Any

from ...core.errors import DTypeError, IndexRangeError, ShapeError, ValueRangeError
from ...tensor import creation
from .checks import need_float


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input [*, in] times weight [out, in] transposed, plus bias [out].
    Raises ShapeError, DTypeError.
    """
    need_float("linear", input=input, weight=weight, bias=bias)
    if weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: input {input.shape} and weight {weight.shape}: the weight is [out, in] and "
            "the last "
            f"dimension of the input must be in ({weight.shape[-1]}); flatten or transpose the "
            "input first"
        )
    out = input.reshape(-1, weight.shape[1]) if input.ndim > 2 and input.size else input
    out = out @ weight.T
    if bias is not None:
        out = out + bias
    return out.reshape((*input.shape[:-1], weight.shape[0]))


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """input1 [*, i] and input2 [*, j] through weight [out, i, j]."""
    need_float("bilinear", input1=input1, input2=input2, weight=weight, bias=bias)
    out, i, j = weight.shape
    if input1.shape[:-1] != input2.shape[:-1] or (input1.shape[-1], input2.shape[-1]) != (i, j):
        raise ShapeError(
            f"bilinear: inputs {input1.shape} and {input2.shape} do not fit weight {weight.shape}"
        )
    lead = input1.shape[:-1]
    left = input1.reshape(-1, i) @ weight.permute(1, 0, 2).reshape(i, out * j)
    both = left.reshape(-1, out, j) * input2.reshape(-1, 1, j)
    y = both.sum(-1)
    y = y if bias is None else y + bias
    return y.reshape((*lead, out))


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Any:
    """Rows of weight [rows, size] by integer input of any shape. The row `padding_idx` gets no
    gradient.

    Raises IndexRangeError where the host knows that an index has no row, DTypeError for float
    input.
    """
    if input.dtype.kind not in "iu":
        raise DTypeError(
            f"embedding: input is {input.dtype.name}, it takes integers; convert first: input.int()"
        )
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight {weight.shape} must be [rows, size]")
    rows = weight.shape[0]
    store = input._node.store
    bounds = store.bounds if store is not None else None
    if bounds is not None and (bounds[0] < 0 or bounds[1] >= rows):
        bad = bounds[0] if bounds[0] < 0 else bounds[1]
        raise IndexRangeError(
            f"embedding: index {bad} has no row in a weight of {rows} rows (0 to {rows - 1})"
        )
    out = weight.index_select(0, input.reshape(-1)).reshape((*input.shape, weight.shape[1]))
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise ValueRangeError(f"embedding: padding_idx={padding_idx} is no row of {rows}")
        if out.requires_grad:
            out = (input == padding_idx % rows).unsqueeze(-1).where(out.detach(), out)
    return out


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """int32 [*, num_classes] with a 1 at each index;
    -1 counts the classes (and reads the tensor).
    """
    if num_classes == -1:
        num_classes = int(tensor.max().item()) + 1 if tensor.size else 1
    return creation.one_hot(tensor, num_classes)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zero each element with probability p and scale the rest by 1 / (1 - p);
    the input when not training.
    """
    return _dropped("dropout", input, p, training, input.shape)


def _dropped(op: str, x: Any, p: float, training: bool, mask: tuple[int, ...]) -> Any:
    if not 0 <= p <= 1:
        raise ValueRangeError(f"{op}: p={p} must be a probability, 0 to 1")
    if not training or p == 0:
        return x
    need_float(op, input=x)
    if p == 1:
        return x * 0.0
    keep = creation.rand(mask, device=x.device.inner()) < 1.0 - p
    return keep.where(x * (1.0 / (1.0 - p)), 0.0)


def _channel_dropout(op: str, x: Any, p: float, training: bool, n: int) -> Any:
    if x.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{op}: input {x.shape} must have {n + 2} dimensions, or {n + 1} without a batch"
        )
    lead = x.ndim - n
    return _dropped(op, x, p, training, (*x.shape[:lead], *[1] * n))


def dropout1d(input: Any, p: float = 0.5, training: bool = True) -> Any:
    """Zero whole channels of [N, C, L]."""
    return _channel_dropout("dropout1d", input, p, training, 1)


def dropout2d(input: Any, p: float = 0.5, training: bool = True) -> Any:
    """Zero whole channels of [N, C, H, W]."""
    return _channel_dropout("dropout2d", input, p, training, 2)


def dropout3d(input: Any, p: float = 0.5, training: bool = True) -> Any:
    """Zero whole channels of [N, C, D, H, W]."""
    return _channel_dropout("dropout3d", input, p, training, 3)
