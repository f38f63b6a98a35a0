"""How many threads numpy's matrix products use while our own threads do the work.

Owns: the switch of the OpenBLAS that numpy brings along. Must not know: plans, ops. Two levels of
threads fight over the cores, and OpenBLAS waits actively: on a busy machine its second thread costs
several times what it saves. Where numpy uses another library, nothing is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_lock = threading.Lock()
_users = 0
_before = 0
_library: list[Any] = []


def _found() -> Any:
    """(getter, setter) of numpy's OpenBLAS, or None."""
    if not _library:
        _library.append(None)
        folder = Path(np.__file__).resolve().parent
        for path in [
            *folder.parent.glob("numpy.libs/*openblas*"),
            *folder.glob(".dylibs/*openblas*"),
        ]:
            try:
                lib = ctypes.CDLL(str(path))
                pair = (
                    lib.scipy_openblas_get_num_threads64_,
                    lib.scipy_openblas_set_num_threads64_,
                )
            except (OSError, AttributeError):
                continue
            _library[0] = pair
            break
    return _library[0]


def can_limit() -> bool:
    """Whether the number of threads is ours to set."""
    return _found() is not None


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Matrix products within run on the calling thread alone. Nests; threads share it."""
    global _users, _before
    pair = _found()
    if pair is None:
        yield
        return
    get, put = pair
    with _lock:
        if _users == 0:
            _before = get()
            put(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                put(_before)
