"""Pooling in 1 to 3 dimensions: windows, and windows that adapt to a size of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import ShapeError, ValueRangeError
from ...ops import pool as ops
from ...tensor.creation import tensor
from .checks import need_float, per_dim, spatial


def _out_size(
    op: str, size: int, k: int, stride: int, pad: int, dilation: int, ceil_mode: bool
) -> int:
    room = size + 2 * pad - dilation * (k - 1) - 1
    if room < 0:
        raise ShapeError(
            f"{op}: a window of {dilation * (k - 1) + 1} is larger than the padded size "
            f"{size + 2 * pad}"
        )
    n = (-(-room // stride) if ceil_mode else room // stride) + 1
    # A window must begin inside the input or its padding at the near end.
    if ceil_mode and (n - 1) * stride >= size + pad:
        n -= 1
    return n


def _attrs(
    op: str,
    x: Any,
    n: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    count_pad: bool = True,
) -> ops.PoolAttrs:
    kernel = per_dim(op, "kernel_size", kernel, n)
    stride = (
        kernel
        if stride is None or stride == () or stride == []
        else per_dim(op, "stride", stride, n)
    )
    padding, dilation = per_dim(op, "padding", padding, n), per_dim(op, "dilation", dilation, n)
    if min(*kernel, *stride, *dilation) < 1:
        raise ValueRangeError(
            f"{op}: kernel {kernel}, stride {stride} and dilation {dilation} must be at least 1"
        )
    if any(p < 0 or p > k // 2 for p, k in zip(padding, kernel, strict=True)):
        raise ValueRangeError(f"{op}: padding {padding} must be 0 to half of the kernel {kernel}")
    out = tuple(
        _out_size(op, s, k, st, p, d, ceil_mode)
        for s, k, st, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    )
    return ops.PoolAttrs(kernel, stride, padding, dilation, out, (), count_pad)


def _max_pool(
    n: int,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    op = f"max_pool{n}d"
    need_float(op, input=x)
    x, added = spatial(op, x, n)
    attrs = _attrs(op, x, n, kernel, stride, padding, dilation, ceil_mode)
    y = x.apply(ops.max_pool, (), attrs)
    y = y.squeeze(0) if added else y
    if not return_indices:
        return y
    where = x.apply(ops.max_pool_index, (), attrs)
    return y, where.squeeze(0) if added else where


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of windows of [N, C, L]; with return_indices also the (flat) positions. NaN wins."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of windows of [N, C, H, W]."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of windows of [N, C, D, H, W]."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _avg_pool(
    n: int,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_pad: bool,
    divisor: int | None,
) -> Any:
    op = f"avg_pool{n}d"
    need_float(op, input=x)
    x, added = spatial(op, x, n)
    attrs = _attrs(op, x, n, kernel, stride, padding, 1, ceil_mode, count_pad)
    if divisor is None:
        y = x.apply(ops.avg_pool, (), attrs)
    else:
        y = _sum_pool(x, attrs) / float(divisor)
    return y.squeeze(0) if added else y


def _sum_pool(x: Any, a: ops.PoolAttrs) -> Any:
    """Sums of windows: averages over a frame that every window fits into, times the window's
    size.
    """
    widths = [(0, 0), (0, 0)]
    size = 1
    for s, k, st, p, o in zip(x.shape[2:], a.kernel, a.stride, a.padding, a.out, strict=True):
        widths.append((p, max(0, (o - 1) * st + k - s - p)))
        size *= k
    return x.pad_constant(widths).apply(
        ops.avg_pool, (), a._replace(padding=(0,) * len(a.kernel))
    ) * float(size)


def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """Mean of windows of [N, C, L]."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Mean of windows of [N, C, H, W]."""
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Mean of windows of [N, C, D, H, W]."""
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


# -- adaptive


def _target(op: str, x: Any, output_size: Any, n: int) -> tuple[int, ...]:
    if output_size is None or isinstance(output_size, int):
        output_size = (output_size,) * n
    if len(output_size) != n:
        raise ValueRangeError(f"{op}: output_size={output_size!r} must be one int or {n}")
    out = tuple(s if o is None else int(o) for o, s in zip(output_size, x.shape[2:], strict=True))
    if min(out) < 1 or min(x.shape[2:]) < 1:
        raise ShapeError(f"{op}: cannot pool {x.shape} to {out}")
    return out


def _windows(size: int, out: int) -> list[tuple[int, int]]:
    """(first, end) of each window: they cover everything, and overlap where sizes do not divide."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def _even(x: Any, out: tuple[int, ...]) -> ops.PoolAttrs | None:
    """The equivalent plain pooling where every size divides."""
    size = x.shape[2:]
    if any(s % o for s, o in zip(size, out, strict=True)):
        return None
    kernel = tuple(s // o for s, o in zip(size, out, strict=True))
    return ops.PoolAttrs(kernel, kernel, (0,) * len(out), (1,) * len(out), out)


def _adaptive_avg(n: int, x: Any, output_size: Any) -> Any:
    op = f"adaptive_avg_pool{n}d"
    need_float(op, input=x)
    x, added = spatial(op, x, n)
    out = _target(op, x, output_size, n)
    attrs = _even(x, out)
    if attrs is not None:
        y = x.apply(ops.avg_pool, (), attrs)
    else:
        y = x
        for d, o in enumerate(out):
            y = _average_along(y, d + 2, o)
    return y.squeeze(0) if added else y


def _average_along(x: Any, dim: int, out: int) -> Any:
    """Means of the windows of one dimension, as a product with the matrix of their shares."""
    size = x.shape[dim]
    if size == out:
        return x
    share = np.zeros((size, out), x.dtype.np)
    for i, (a, b) in enumerate(_windows(size, out)):
        share[a:b, i] = 1.0 / (b - a)
    matrix = tensor(share, dtype=x.dtype, device=x.device.inner())
    return (x.transpose(dim, -1) @ matrix).transpose(dim, -1)


def _adaptive_max(n: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    op = f"adaptive_max_pool{n}d"
    need_float(op, input=x)
    x, added = spatial(op, x, n)
    out = _target(op, x, output_size, n)
    attrs = _even(x, out)
    where: Any = None
    if attrs is not None:
        y = x.apply(ops.max_pool, (), attrs)
        where = x.apply(ops.max_pool_index, (), attrs) if return_indices else None
    else:
        y, where = _largest(x, out)
    if added:
        y, where = y.squeeze(0), None if where is None else where.squeeze(0)
    return (y, where) if return_indices else y


def _largest(x: Any, out: tuple[int, ...]) -> tuple[Any, Any]:
    """Maxima of uneven windows and their flat positions: one dimension after the other, the last
    first,
    so that of equals the first in row-major order wins."""
    size = x.shape[2:]
    where: Any = None
    for d in reversed(range(len(out))):
        windows = _windows(size[d], out[d])
        longest = max(b - a for a, b in windows)
        # Shorter windows name their last element again, which changes no maximum and no first
        # place.
        index = np.array(
            [[min(a + i, b - 1) for i in range(longest)] for a, b in windows], np.int32
        )
        dim = d + 2
        pick = tensor(index.reshape(-1), device=x.device.inner())
        shape = (*x.shape[:dim], out[d], longest, *x.shape[dim + 1 :])
        parts = x.index_select(dim, pick).reshape(shape)
        if where is None:
            stride = 1
            places = tensor(index, device=x.device.inner()).reshape(
                (*[1] * dim, out[d], longest, *[1] * (x.ndim - dim - 1))
            )
            flat = (places * stride).expand(shape)
        else:
            stride = int(np.prod(size[d + 1 :]))
            rows = tensor(index, device=x.device.inner()).reshape(
                (*[1] * dim, out[d], longest, *[1] * (x.ndim - dim - 1))
            )
            flat = where.index_select(dim, pick).reshape(shape) + rows * stride
        x, best = parts.max(dim + 1, keepdim=True)
        x = x.squeeze(dim + 1)
        where = flat.gather(dim + 1, best).squeeze(dim + 1)
    return x, where


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """Means over windows that make [N, C, L] output_size long."""
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """output_size: an int or a pair; None keeps a size."""
    return _adaptive_avg(2, input, output_size)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    return _adaptive_avg(3, input, output_size)


def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over windows that make [N, C, L] output_size long."""
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    return _adaptive_max(3, input, output_size, return_indices)
