"""Host arrays that are used again: a cache of large blocks under numpy arrays.

A fresh 40 MB array costs the kernel 10,000 page faults, more than adding two of them. Blocks come
back when the last numpy view of them dies, whoever holds it. Owns: the cache. Must not know:
tensors.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Below this many bytes malloc's own free lists are as good.
SMALL = 1 << 16
#: Cached, unused bytes are kept below this.
MAX_CACHED = 1 << 30


class Usage(NamedTuple):
    """Bytes of large blocks: lent out (as asked for, and the class's surplus) and held."""

    in_use: int
    reserved: int
    padding: int
    peak_in_use: int
    peak_reserved: int


#: Memory and its address, which takes numpy longer to find than the rest of `empty`.
Raw = tuple[NDArray[np.uint8], int]


class _Lent:
    """What numpy keeps alive as the base of every view of a block that is lent out; the block comes
    back when it dies. Mixed into ctypes' arrays: numpy takes their memory five times as fast as
    that of an object with __array_interface__."""

    raw: Raw
    size: int
    asked: int

    def __del__(self) -> None:
        _give_back(self.size, self.asked, self.raw)


@cache
def _lent(size: int) -> Any:
    """The class of blocks of a size."""
    return type("Lent", (_Lent, ctypes.c_ubyte * size), {})


_free: dict[int, list[Raw]] = {}
_cached = _out = _asked = _peak_asked = _peak_reserved = 0
# Re-entrant: the garbage collector may run a block's __del__ while this thread holds the lock.
_lock = threading.RLock()


def _size_class(nbytes: int) -> int:
    step = 1 << max(nbytes.bit_length() - 3, 12)
    return -(-nbytes // step) * step


def _give_back(size: int, asked: int, raw: Raw) -> None:
    global _cached, _out, _asked
    try:
        with _lock:
            _out -= size
            _asked -= asked
            if _cached + size <= MAX_CACHED:
                _free.setdefault(size, []).append(raw)
                _cached += size
    except Exception:
        pass


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised C-contiguous array, from the cache when it is large."""
    global _cached, _out, _asked, _peak_asked, _peak_reserved
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < SMALL:
        return np.empty(shape, dtype)
    size = _size_class(nbytes)
    with _lock:
        stack = _free.get(size)
        raw = stack.pop() if stack else None
        if raw is not None:
            _cached -= size
        _out += size
        _asked += nbytes
        _peak_asked = max(_peak_asked, _asked)
        _peak_reserved = max(_peak_reserved, _out + _cached)
    if raw is None:
        fresh = np.empty(size, np.uint8)
        raw = fresh, fresh.ctypes.data
    block = _lent(size).from_address(raw[1])
    block.raw, block.size, block.asked = raw, size, nbytes
    return np.ndarray(shape, dtype, block)


def usage() -> Usage:
    """What the cache holds and lends at the moment."""
    return Usage(_asked, _out + _cached, _out - _asked, _peak_asked, _peak_reserved)


def release() -> None:
    """Give every unused block back to the system."""
    global _cached
    with _lock:
        _free.clear()
        _cached = 0
