"""IDX files, the format of the MNIST digits, gzipped or not.

Owns: bytes of one file -> one array. Must not know: what the array means.

A file is two zero bytes, one byte of dtype, one of rank, that many big-endian 32-bit sizes, and the
values.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core.errors import FileFormatError

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"


def find_idx(folder: str | os.PathLike[str], name: str) -> Path:
    """The file `name` in `folder`, gzipped or not; "x-idx3-ubyte" also as "x.idx3-ubyte"."""
    base = Path(folder)
    names = [name, f"{name}.gz"]
    head, dash, tail = name.rpartition("-idx")
    if dash:
        names += [f"{head}.idx{tail}", f"{head}.idx{tail}.gz"]
    if not base.is_dir():
        raise FileFormatError(f"{base}: no such folder; it should hold {name}[.gz]")
    for candidate in names:
        if (base / candidate).is_file():
            return base / candidate
    raise FileFormatError(f"{base}: holds no {name}, gzipped or not")


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of an IDX file, in native byte order. Raises FileFormatError naming the file."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        raise FileFormatError(f"{name}: no such file") from None
    except OSError as error:
        raise FileFormatError(f"{name}: cannot be read: {error.strerror or error}") from error
    try:
        if raw.startswith(_GZIP_MAGIC):
            with gzip.open(io.BytesIO(raw)) as stream:
                return _decode(stream, name)
        return _decode(io.BytesIO(raw), name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileFormatError(f"{name}: damaged gzip data: {error}") from error


def _fail(name: str, cause: str) -> NoReturn:
    raise FileFormatError(f"{name}: {cause}")


def _decode(stream: IO[bytes] | gzip.GzipFile, name: str) -> NDArray[Any]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES or not 0 < magic[3] <= 32:
        _fail(name, f"no IDX file: it starts with {magic.hex(' ') or 'nothing'}")
    rank = magic[3]
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        _fail(name, "truncated: it ends inside its header")
    shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, 4 * rank, 4))
    dtype = np.dtype(_DTYPES[magic[2]])
    need = prod(shape) * dtype.itemsize
    # One byte more than wanted: tells trailing data, and a gzip bomb is never unpacked whole.
    values = stream.read(need + 1) if need < 2**40 else b""
    if len(values) < need:
        _fail(name, f"truncated: shape {shape} takes {need} bytes, there are {len(values)}")
    if len(values) > need:
        _fail(name, f"longer than its shape {shape} says ({need} bytes)")
    return np.frombuffer(values, dtype).reshape(shape).astype(dtype.newbyteorder("="))
