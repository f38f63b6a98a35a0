"""Convolution and transposed convolution in 1 to 3 dimensions."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError, ValueRangeError
from ...ops import conv as ops
from .checks import need_float, per_dim, spatial


def _check(op: str, x: Any, weight: Any, bias: Any, n: int, form: str) -> None:
    need_float(op, input=x, weight=weight, bias=bias)
    if weight.ndim != n + 2:
        raise ShapeError(f"{op}: weight {weight.shape} must have {n + 2} dimensions, {form}")


def _biased(op: str, y: Any, bias: Any, n: int) -> Any:
    if bias is None:
        return y
    if bias.shape != (y.shape[1],):
        raise ShapeError(
            f"{op}: bias {bias.shape} must be ({y.shape[1]},), one a channel of the result "
            f"{y.shape}"
        )
    return y + bias.reshape((1, y.shape[1], *[1] * n))


def _positive(op: str, **values: tuple[int, ...]) -> None:
    for name, value in values.items():
        if min(value) < 1:
            raise ValueRangeError(f"{op}: {name}={value} must be at least 1")


def _conv(
    n: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    op = f"conv{n}d"
    _check(op, x, weight, bias, n, "[out, in / groups, *kernel]")
    x, added = spatial(op, x, n)
    stride, dilation = per_dim(op, "stride", stride, n), per_dim(op, "dilation", dilation, n)
    _positive(op, stride=stride, dilation=dilation, groups=(groups,))
    if x.shape[1] != weight.shape[1] * groups:
        raise ShapeError(
            f"{op}: input {x.shape} has {x.shape[1]} channels, weight {weight.shape} with "
            f"groups={groups} takes "
            f"{weight.shape[1] * groups}; the input is [N, C, *size]"
        )
    if isinstance(padding, str):
        x, padding = _named_padding(op, x, weight.shape[2:], stride, dilation, padding)
    attrs = ops.ConvAttrs(stride, per_dim(op, "padding", padding, n), dilation, groups)
    y = _biased(op, x.apply(ops.conv, (weight,), attrs), bias, n)
    return y.squeeze(0) if added else y


def _named_padding(
    op: str, x: Any, kernel: Any, stride: Any, dilation: Any, padding: str
) -> tuple[Any, Any]:
    if padding == "valid":
        return x, (0,) * len(kernel)
    if padding != "same":
        raise ValueRangeError(f"{op}: padding={padding!r}; use 'same', 'valid' or numbers")
    if any(s != 1 for s in stride):
        raise ValueRangeError(f"{op}: padding='same' needs stride 1, got {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    # An even kernel needs one more at the far end.
    if any(t % 2 for t in total):
        x = x.pad_constant(((0, 0), (0, 0), *[(0, t % 2) for t in total]))
    return x, tuple(t // 2 for t in total)


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """input [N, C, L], weight [out, C / groups, K].
    Raises ShapeError, DTypeError, ValueRangeError.
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """input [N, C, H, W], weight [out, C / groups, KH, KW]; padding also "same" or "valid"."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """input [N, C, D, H, W], weight [out, C / groups, KD, KH, KW]."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _transposed(
    n: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    op = f"conv_transpose{n}d"
    _check(op, x, weight, bias, n, "[in, out / groups, *kernel]")
    x, added = spatial(op, x, n)
    stride, dilation = per_dim(op, "stride", stride, n), per_dim(op, "dilation", dilation, n)
    padding = per_dim(op, "padding", padding, n)
    extra = per_dim(op, "output_padding", output_padding, n)
    _positive(op, stride=stride, dilation=dilation, groups=(groups,))
    if x.shape[1] != weight.shape[0] or x.shape[1] % groups:
        raise ShapeError(
            f"{op}: input {x.shape} has {x.shape[1]} channels, weight {weight.shape} with "
            f"groups={groups} takes "
            f"{weight.shape[0]} (the weight is [in, out / groups, *kernel], in divisible by groups)"
        )
    if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ValueRangeError(
            f"{op}: output_padding={extra} must be below stride {stride} or dilation {dilation}"
        )
    size = tuple(
        (s - 1) * st - 2 * p + d * (k - 1) + e + 1
        for s, st, p, d, k, e in zip(
            x.shape[2:], stride, padding, dilation, weight.shape[2:], extra, strict=True
        )
    )
    if min(size) < 1:
        raise ShapeError(
            f"{op}: input {x.shape} with kernel {weight.shape[2:]} and padding {padding} gives "
            f"size {size}"
        )
    attrs = ops.ConvAttrs(stride, padding, dilation, groups, size)
    y = _biased(op, x.apply(ops.conv_input_grad, (weight,), attrs), bias, n)
    return y.squeeze(0) if added else y


def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """input [N, C, L], weight [C, out / groups, K]."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """input [N, C, H, W], weight [C, out / groups, KH, KW]."""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """input [N, C, D, H, W], weight [C, out / groups, KD, KH, KW]."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
