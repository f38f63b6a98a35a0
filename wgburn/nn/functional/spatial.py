"""Padding, resizing, windows as columns and shuffles of pixels and channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import ShapeError, ValueRangeError
from ...tensor.creation import tensor
from .checks import need_float, per_dim
from .pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

# -- padding


def _source(op: str, n: int, before: int, after: int, mode: str) -> NDArray[np.int32]:
    """Which element each place of the padded dimension shows."""
    i = np.arange(-before, n + after)
    if mode == "replicate":
        i = np.clip(i, 0, n - 1)
    elif mode == "circular":
        if max(before, after) > n:
            raise ShapeError(f"{op}: circular padding {before, after} is wider than the size {n}")
        i = i % n
    else:
        if max(before, after) >= n:
            raise ShapeError(f"{op}: reflect padding {before, after} must be below the size {n}")
        i = np.abs(i)
        i = np.where(i >= n, 2 * (n - 1) - i, i)
    return i.astype(np.int32)


def pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Add elements around a tensor; `pad` is (before, after) of the last dimension, then of the one
    before it, and so on; negative numbers crop. mode: constant, reflect, replicate, circular.
    """
    if len(pad) % 2 or len(pad) // 2 > input.ndim:
        raise ShapeError(
            f"pad: {len(pad)} widths for input {input.shape}; "
            "give (before, after) a dimension, the last dimension first"
        )
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)][::-1]
    lead = input.ndim - len(pairs)
    if mode == "constant":
        return input.pad_constant([(0, 0)] * lead + pairs, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise ValueRangeError(f"pad: mode {mode!r}; use constant, reflect, replicate or circular")
    for d, (before, after) in enumerate(pairs, lead):
        crop = [(0, 0)] * input.ndim
        crop[d] = (min(before, 0), min(after, 0))
        input = input.pad_constant(crop)
        if before > 0 or after > 0:
            index = _source("pad", input.shape[d], max(before, 0), max(after, 0), mode)
            input = input.index_select(d, tensor(index, device=input.device.inner()))
    return input


# -- resizing


def _taps(
    mode: str, n: int, out: int, scale: float, align: bool
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Elements [out, taps] that each result mixes, and their shares (None: one element, whole)."""
    i = np.arange(out, dtype=np.float32)
    step = np.float32(scale)
    if mode == "nearest":
        return np.minimum(np.floor(i * step), n - 1)[:, None], None
    if mode == "nearest-exact":
        return np.minimum(np.floor((i + np.float32(0.5)) * step), n - 1)[:, None], None
    if align:
        at = i * np.float32((n - 1) / (out - 1) if out > 1 else 0.0)
    else:
        at = (i + np.float32(0.5)) * step - np.float32(0.5)
    if mode != "bicubic":
        at = np.maximum(at, 0)
    low = np.floor(at)
    t = (at - low)[:, None].astype(np.float64)
    if mode == "bicubic":
        near, far = t + np.array([0, -1]), t + np.array([1, -2])
        a = -0.75
        near = np.abs(near)
        far = np.abs(far)
        inner = ((a + 2) * near - (a + 3)) * near * near + 1
        outer = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
        shares = np.concatenate([outer[:, :1], inner, outer[:, 1:]], 1)
        return np.clip(low[:, None] + np.arange(-1, 3), 0, n - 1), shares
    return np.minimum(low[:, None] + np.arange(2), n - 1), np.concatenate([1 - t, t], 1)


def _resized(x: Any, dim: int, index: NDArray[Any], shares: NDArray[Any] | None) -> Any:
    device = x.device.inner()
    shape = tuple(len(index) if i == dim else 1 for i in range(x.ndim))
    out: Any = None
    for tap in range(index.shape[1]):
        part = x.index_select(dim, tensor(index[:, tap].astype(np.int32), device=device))
        if shares is not None:
            share = tensor(shares[:, tap].astype(x.dtype.np), dtype=x.dtype, device=device)
            part = part * share.reshape(shape)
        out = part if out is None else out + part
    return out


_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Any:
    """Resize [N, C, *] to `size`, or by `scale_factor`.

    mode: nearest, nearest-exact, linear (3-d), bilinear, bicubic (4-d), trilinear (5-d), area.
    """
    op, n = "interpolate", input.ndim - 2
    if not 1 <= n <= 3:
        raise ShapeError(f"{op}: input {input.shape} must be [N, C, *] with 1 to 3 more dimensions")
    if mode not in ("nearest", "nearest-exact", "area", *_LINEAR):
        raise ValueRangeError(
            f"{op}: mode {mode!r}; use nearest, nearest-exact, area, {', '.join(_LINEAR)}"
        )
    if mode in _LINEAR and _LINEAR[mode] != n:
        raise ShapeError(
            f"{op}: mode {mode!r} takes {_LINEAR[mode] + 2} dimensions, the input is {input.shape}"
        )
    if align_corners is not None and mode not in _LINEAR:
        raise ValueRangeError(f"{op}: align_corners has no meaning for mode {mode!r}; leave it out")
    if (size is None) == (scale_factor is None):
        raise ValueRangeError(f"{op}: give either size or scale_factor")
    need_float(op, input=input)
    old = input.shape[2:]
    if size is not None:
        new = per_dim(op, "size", size, n)
        scales = [a / b for a, b in zip(old, new, strict=True)]
    else:
        factors = (
            [float(scale_factor)] * n
            if isinstance(scale_factor, (int, float))
            else [float(f) for f in scale_factor]
        )
        new = tuple(math.floor(a * f) for a, f in zip(old, factors, strict=True))
        scales = [1 / f for f in factors]
        if recompute_scale_factor:
            scales = [a / b for a, b in zip(old, new, strict=True)]
    if min(*old, *new) < 1:
        raise ShapeError(f"{op}: cannot resize {input.shape} to {new}")
    if mode == "area":
        pools = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
        return pools[n - 1](input, new)
    out = input
    for d in range(n):
        if old[d] != new[d] or scales[d] != 1:
            out = _resized(out, d + 2, *_taps(mode, old[d], new[d], scales[d], bool(align_corners)))
    return out


# -- windows as columns


def _window_index(
    op: str, size: int, k: int, dilation: int, pad: int, stride: int
) -> NDArray[np.int32]:
    """Places [k, windows] in the padded dimension."""
    room = size + 2 * pad - dilation * (k - 1) - 1
    if room < 0:
        raise ShapeError(
            f"{op}: kernel {k} with dilation {dilation} is larger than {size + 2 * pad}"
        )
    starts = np.arange(room // stride + 1) * stride
    return (np.arange(k)[:, None] * dilation + starts).astype(np.int32)


def _geometry(op: str, kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[Any]:
    named = {"kernel_size": kernel, "dilation": dilation, "padding": padding, "stride": stride}
    return [per_dim(op, name, value, 2) for name, value in named.items()]


def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Windows of [N, C, H, W] as columns: [N, C * KH * KW, windows]."""
    op = "unfold"
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if input.ndim != 4:
        raise ShapeError(f"{op}: input {input.shape} must be [N, C, H, W] or [C, H, W]")
    k, dil, p, st = _geometry(op, kernel_size, dilation, padding, stride)
    n, c, h, w = input.shape
    rows = _window_index(op, h, k[0], dil[0], p[0], st[0])
    columns = _window_index(op, w, k[1], dil[1], p[1], st[1])
    device = input.device.inner()
    x = input.pad_constant(((0, 0), (0, 0), (p[0], p[0]), (p[1], p[1])))
    x = x.index_select(2, tensor(rows.reshape(-1), device=device))
    x = x.index_select(3, tensor(columns.reshape(-1), device=device))
    x = x.reshape((n, c, *rows.shape, *columns.shape)).permute(0, 1, 2, 4, 3, 5)
    return x.reshape((n, c * k[0] * k[1], rows.shape[1] * columns.shape[1]))


def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """Columns [N, C * KH * KW, windows] added up in an image of output_size (unfold's
    transpose).
    """
    op = "fold"
    if input.ndim == 2:
        return fold(
            input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride
        ).squeeze(0)
    k, dil, p, st = _geometry(op, kernel_size, dilation, padding, stride)
    h, w = per_dim(op, "output_size", output_size, 2)
    rows = _window_index(op, h, k[0], dil[0], p[0], st[0])
    columns = _window_index(op, w, k[1], dil[1], p[1], st[1])
    each, windows = k[0] * k[1], rows.shape[1] * columns.shape[1]
    if input.ndim != 3 or input.shape[1] % each or input.shape[2] != windows:
        raise ShapeError(
            f"{op}: input {input.shape} must be [N, C * {each}, {windows}] for an image of {h, w}"
        )
    n, c = input.shape[0], input.shape[1] // each
    device = input.device.inner()
    x = input.reshape((n, c, k[0], k[1], rows.shape[1], columns.shape[1])).permute(0, 1, 2, 4, 3, 5)
    x = x.reshape((n, c, rows.size, columns.size))
    wide = w + 2 * p[1]
    x = x.zeros_of((n, c, rows.size, wide)).index_add(
        3, tensor(columns.reshape(-1), device=device), x
    )
    x = x.zeros_of((n, c, h + 2 * p[0], wide)).index_add(
        2, tensor(rows.reshape(-1), device=device), x
    )
    return x.narrow(2, p[0], h).narrow(3, p[1], w)


# -- shuffles


def _images(op: str, x: Any) -> tuple[tuple[int, ...], int, int, int]:
    if x.ndim < 3:
        raise ShapeError(f"{op}: input {x.shape} must be [*, C, H, W]")
    return x.shape[:-3], x.shape[-3], x.shape[-2], x.shape[-1]


def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """[*, C r r, H, W] to [*, C, H r, W r]."""
    lead, c, h, w = _images("pixel_shuffle", input)
    r = upscale_factor
    if c % (r * r):
        raise ShapeError(f"pixel_shuffle: {c} channels of {input.shape} are no multiple of {r * r}")
    x = input.reshape((math.prod(lead), c // (r * r), r, r, h, w))
    return x.permute(0, 1, 4, 2, 5, 3).reshape((*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """[*, C, H r, W r] to [*, C r r, H, W]."""
    lead, c, h, w = _images("pixel_unshuffle", input)
    r = downscale_factor
    if h % r or w % r:
        raise ShapeError(f"pixel_unshuffle: sizes {h, w} of {input.shape} are no multiples of {r}")
    x = input.reshape((math.prod(lead), c, h // r, r, w // r, r))
    return x.permute(0, 1, 3, 5, 2, 4).reshape((*lead, c * r * r, h // r, w // r))


def channel_shuffle(input: Any, groups: int) -> Any:
    """Interleave the channels of groups: [N, G C, *] as [N, C G, *]."""
    n, c, *rest = input.shape
    if c % groups:
        raise ShapeError(
            f"channel_shuffle: {c} channels of {input.shape} do not form {groups} groups"
        )
    return input.reshape((n, groups, c // groups, *rest)).transpose(1, 2).reshape(input.shape)
