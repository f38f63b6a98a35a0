"""Functions that make tensors: from data, filled, ranges, random."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np

from wgburn_shaders import philox

from ..core import dtype as dt
from ..core.dtype import DType, dtype_of
from ..core.errors import DTypeError, ShapeError, ValueRangeError
from ..core.node import Node
from ..core.shape import as_shape
from ..device.device import Device, as_device
from ..ops import source as src
from ..ops.record import Op
from . import bridge
from .indexing import known_bounds
from .tensor import Tensor, from_store


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of `data` (a number, nested lists, a numpy array, a tensor).

    Python floats are float32, ints int32; float64 arrays become float32 unless asked for. int64
    input is narrowed to int32 on devices without int64, with a range check (ValueRangeError).
    """
    dev = as_device(device)
    if isinstance(data, Tensor):
        out = data.detach().to(dev)
        return out if dtype is None else out.to(dtype_of(dtype))
    if isinstance(data, (list, tuple)) and any(isinstance(x, Tensor) for x in data):
        from .movement import stack

        return stack([x if isinstance(x, Tensor) else tensor(x, dtype, dev) for x in data])
    was_array = isinstance(data, (np.ndarray, np.generic))
    try:
        a = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"tensor: nested lists of unequal length ({error})") from None
    if a.dtype == object:
        raise DTypeError("tensor: the data holds something that is no number")
    want = dtype_of(dtype) if dtype is not None else _default_dtype(a, was_array, dev)
    out = from_array(a, want, dev)
    return out.requires_grad_() if requires_grad else out


def _default_dtype(a: np.ndarray[Any, Any], was_array: bool, dev: Device) -> DType:
    kind = a.dtype.kind
    if kind == "b":
        return dt.bool_
    if kind == "f":
        return dt.float16 if a.dtype == np.float16 else dt.float32
    if kind in "iu":
        # Only a numpy array's own 8 and 32 bit types are kept; int64 is what Python ints come as.
        found = {
            np.dtype("int8"): dt.int8,
            np.dtype("uint8"): dt.uint8,
            np.dtype("uint32"): dt.uint32,
        }
        return found.get(a.dtype, dt.int32) if was_array else dt.int32
    raise DTypeError(f"tensor: numpy dtype {a.dtype} has no wgburn counterpart")


def from_array(a: np.ndarray[Any, Any], want: DType, dev: Device) -> Tensor:
    """Copy a host array to a device in dtype `want`, range-checked where integers narrow."""
    backend = dev.backend
    backend.check_open()
    backend.check_dtype(want, "tensor")
    bounds = None
    if a.dtype.kind in "iu" and a.size:
        low, high = int(a.min()), int(a.max())
        if want.is_int:
            info = np.iinfo(want.np)
            if low < info.min or high > info.max:
                bad = low if low < info.min else high
                raise ValueRangeError(
                    f"tensor: {bad} does not fit {want.name} ({info.min} to {info.max})"
                )
            bounds = (low, high)
    elif a.dtype.kind == "f" and want.is_int and a.size and not np.isfinite(a).all():
        raise ValueRangeError(f"tensor: NaN or infinity does not fit {want.name}")
    host = np.ascontiguousarray(a, dtype=want.np).reshape(a.shape)
    store = backend.from_host(host, want)
    store.bounds = bounds
    return from_store(store, a.shape, want, dev)


def from_numpy(a: np.ndarray[Any, Any], device: Any = None) -> Tensor:
    """A tensor with a copy of an array, its dtype kept where the device has it."""
    dev = as_device(device)
    want = dtype_of(a.dtype) if a.dtype in {d.np for d in dt.ALL} else _default_dtype(a, True, dev)
    if want not in dev.backend.dtypes:
        want = _default_dtype(a, True, dev)
    return from_array(np.asarray(a), want, dev)


def from_dlpack(x: Any, device: Any = None) -> Tensor:
    """A tensor with a copy of any object with `__dlpack__` on the host (numpy, torch CPU, ...)."""
    return from_numpy(np.from_dlpack(x), device)


def full(shape: Any, value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor filled with one number."""
    dev = as_device(device)
    dev.backend.check_open()
    if isinstance(value, (Tensor, np.generic)):
        value = value.item()
    if dtype is None:
        d = (
            dt.bool_
            if isinstance(value, bool)
            else dt.int32
            if isinstance(value, int)
            else dt.float32
        )
    else:
        d = dtype_of(dtype)
    dev.backend.check_dtype(d, "full")
    t = bridge.wrap(Tensor, bridge.scalar_node(value, d, dev.backend), dev.is_autodiff)
    dims = as_shape("full", (shape,) if not isinstance(shape, int) else ((shape,),))
    if any(s < 0 for s in dims):
        raise ShapeError(f"full: shape {dims} has a negative size")
    return t.expand(dims)


def zeros(*shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros, float32 unless asked for."""
    return full(as_shape("zeros", shape), 0.0 if dtype is None else 0, dtype, device)


def ones(*shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones, float32 unless asked for."""
    return full(as_shape("ones", shape), 1.0 if dtype is None else 1, dtype, device)


def empty(*shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor whose values are for the caller to set (zeros: nothing is ever undefined)."""
    return zeros(*shape, dtype=dtype, device=device)


def zeros_like(t: Tensor, dtype: Any = None) -> Tensor:
    return zeros(t.shape, dtype=dtype or t.dtype, device=t.device)


def ones_like(t: Tensor, dtype: Any = None) -> Tensor:
    return ones(t.shape, dtype=dtype or t.dtype, device=t.device)


def full_like(t: Tensor, value: Any, dtype: Any = None) -> Tensor:
    return full(t.shape, value, dtype or t.dtype, t.device)


def empty_like(t: Tensor, dtype: Any = None) -> Tensor:
    return zeros_like(t, dtype)


def arange(
    start: Any, end: Any = None, step: Any = 1, dtype: Any = None, device: Any = None
) -> Tensor:
    """start, start + step, ... below `end`; int32 for ints, else float32."""
    start, end, step = (v.item() if isinstance(v, np.generic) else v for v in (start, end, step))
    if end is None:
        start, end = 0, start
    if step == 0:
        raise ValueRangeError("arange: step must not be 0")
    whole = all(isinstance(v, int) for v in (start, end, step))
    d = dtype_of(dtype) if dtype is not None else dt.int32 if whole else dt.float32
    n = max(0, ceil((end - start) / step))
    return _iota(n, start, step, d, device)


def _iota(n: int, start: Any, step: Any, d: DType, device: Any) -> Tensor:
    dev = as_device(device)
    dev.backend.check_open()
    dev.backend.check_dtype(d, "arange")
    kind = float if d.is_float else int
    if d.bits == 8 or d is dt.float16:
        return _iota(n, start, step, dt.float32 if d.is_float else dt.int32, dev).to(d)
    return _source(src.iota, (n,), d, (kind(start), kind(step)), dev)


def linspace(start: float, end: float, steps: int, dtype: Any = None, device: Any = None) -> Tensor:
    """`steps` evenly spaced numbers from start to end, both included."""
    d = dtype_of(dtype) if dtype is not None else dt.float32
    if steps < 0:
        raise ValueRangeError(f"linspace: steps {steps} must not be negative")
    return from_array(np.linspace(start, end, steps), d, as_device(device))


def eye(n: int, m: int | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the diagonal."""
    cols = n if m is None else m
    d = dtype_of(dtype) if dtype is not None else dt.float32
    rows = arange(n, device=device).reshape(n, 1)
    return (rows == arange(cols, device=device).reshape(1, cols)).to(d)


def one_hot(index: Tensor, num_classes: int) -> Tensor:
    """int32 tensor of shape (*index.shape, num_classes) with a 1 at each index."""
    known_bounds("one_hot", index, num_classes)
    classes = arange(num_classes, device=index.device)
    return (index.int().unsqueeze(-1) == classes).to(dt.int32)


def tril(t: Tensor, diagonal: int = 0) -> Tensor:
    return t.tril(diagonal)


def triu(t: Tensor, diagonal: int = 0) -> Tensor:
    return t.triu(diagonal)


# -- random ---------------------------------------------------------------------------------------


def _source(op: Op, shape: tuple[int, ...], d: DType, dyn: tuple[Any, ...], dev: Device) -> Tensor:
    dev.backend.check_open()
    dev.backend.recorded += 1
    if dev.backend.recorded > dev.backend.record_limit:
        dev.backend.flush()
    node = Node(op, (), src.SourceAttrs(shape, d), dyn, shape, d, dev.backend)
    return bridge.wrap(Tensor, node, dev.is_autodiff)


def _random(op: Op, shape: tuple[Any, ...], d: DType, device: Any, what: str) -> Tensor:
    dims = as_shape(what, shape)
    if any(s < 0 for s in dims):
        raise ShapeError(f"{what}: shape {dims} has a negative size")
    if prod(dims) > 0x7FFFFFFF:
        raise ShapeError(f"{what}: shape {dims} has more elements than a 32-bit index reaches")
    dev = as_device(device)
    return _source(op, dims, d, dev.backend.stream.take(), dev)


def random_bits(*shape: Any, device: Any = None) -> Tensor:
    """Uniform uint32: Philox4x32-10 of the device's seed, equal on every backend."""
    return _random(src.random_bits, shape, dt.uint32, device, "random_bits")


def rand(*shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Uniform on [0, 1) with 24 random bits."""
    t = _random(src.random_uniform, shape, dt.float32, device, "rand")
    return t if dtype is None else t.to(dtype_of(dtype))


def randn(*shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Standard normal (Box-Muller)."""
    t = _random(src.random_normal, shape, dt.float32, device, "randn")
    return t if dtype is None else t.to(dtype_of(dtype))


def randint(
    low: int, high: int | None = None, size: Any = (), dtype: Any = None, device: Any = None
) -> Tensor:
    """Integers from low (0 when one bound is given) to high - 1, int32; ranges up to 2**31 - 1."""
    if high is None:
        low, high = 0, low
    span = high - low
    if span <= 0:
        raise ValueRangeError(f"randint: the range {low} to {high} is empty")
    if span > 0x7FFFFFFF:
        raise ValueRangeError(f"randint: the range {low} to {high} is wider than 2**31 - 1")
    bits = _random(
        src.random_bits,
        (size,) if not isinstance(size, int) else ((size,),),
        dt.uint32,
        device,
        "randint",
    )
    t = (bits % span).to(dt.int32) + low
    return t if dtype is None else t.to(dtype_of(dtype))


def rand_like(t: Tensor) -> Tensor:
    return rand(t.shape, dtype=t.dtype, device=t.device)


def randn_like(t: Tensor) -> Tensor:
    return randn(t.shape, dtype=t.dtype, device=t.device)


def bernoulli(p: Tensor) -> Tensor:
    """1 with probability `p` (element by element), else 0."""
    return (rand(p.shape, device=p.device) < p).to(p.dtype)


def randperm(n: int, device: Any = None) -> Tensor:
    """A random order of 0..n-1 (int32), equal on every backend for a seed."""
    dev = as_device(device)
    off_lo, off_hi, seed_lo, seed_hi = dev.backend.stream.take()
    bits = philox.random_bits(2 * n, off_lo | off_hi << 32, seed_lo | seed_hi << 32).astype(
        np.uint64
    )
    keys = bits[0::2] << np.uint64(32) | bits[1::2]
    return from_array(np.argsort(keys, kind="stable"), dt.int32, dev)
