"""The safetensors file format on numpy arrays: a strict reader and an atomic writer.

Owns: bytes on disk <-> named arrays. Must not know: tensors, devices, or what the names mean.

A file is 8 bytes (little-endian header length), a JSON header {name: {dtype, shape, data_offsets}}
with an optional "__metadata__" of strings, then the arrays' bytes: little-endian, row-major, dense.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core.errors import FileFormatError
from .files import Data, PathLike, map_file

#: The format's own bound on the header, against files that ask for absurd memory.
MAX_HEADER = 100_000_000
#: numpy's bound on dimensions.
MAX_RANK = 64

_METADATA = "__metadata__"
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}

#: dtypes read and written as they are. BF16 is read as float32.
_NUMPY: dict[str, str] = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U32": "<u4",
    "I32": "<i4",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
_NAME_OF = {np.dtype(code): name for name, code in _NUMPY.items()}
#: Bytes an element of every dtype whose place in a file we can check, readable or not.
_ITEMSIZE = {name: np.dtype(code).itemsize for name, code in _NUMPY.items()} | {
    "BF16": 2,
    "I16": 2,
    "U16": 2,
    "U64": 8,
    "C64": 8,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
}


class Entry(NamedTuple):
    """One array of a file: what it is and where its bytes lie in the data section."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class LazyFile(Mapping[str, NDArray[Any]]):
    """The arrays of one file. `file[name]` maps just that array: read-only, no copy but for BF16.

    Names come in the order of the data; `metadata` holds the file's strings; `entry(name)` tells
    dtype and shape without touching data. Arrays stay valid after `close()`.
    """

    def __init__(self, data: Data, name: str) -> None:
        self._name = name
        self._data = data
        self._start, self._entries, self.metadata = _parse(data, name)

    def entry(self, name: str) -> Entry:
        return self._entries[name]

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        count = prod(entry.shape)
        code = "<u2" if entry.dtype == "BF16" else _NUMPY.get(entry.dtype)
        if code is None:
            readable = ", ".join(["BF16", *_NUMPY])
            raise FileFormatError(
                f"{self._name}: tensor {name!r} has dtype {entry.dtype}, which wgburn lacks; "
                f"convert it to one of {readable}"
            )
        if count == 0:
            array: NDArray[Any] = np.empty(entry.shape, code)
        else:
            flat = np.frombuffer(self._data, code, count, self._start + entry.begin)
            array = flat.reshape(entry.shape)
        if entry.dtype == "BOOL" and count and array.view("u1").max() > 1:
            raise FileFormatError(f"{self._name}: tensor {name!r} has booleans other than 0 and 1")
        if entry.dtype == "BF16":
            # A bfloat16 is the upper half of a float32.
            return (array.astype("<u4") << np.uint32(16)).view("<f4")
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"LazyFile({self._name!r}, {len(self)} tensors)"

    def __enter__(self) -> LazyFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file, unless an array of it is still alive: the last one does it then."""
        if isinstance(self._data, mmap.mmap):
            with suppress(BufferError):
                self._data.close()


def read_safetensors(path: PathLike) -> LazyFile:
    """Open a file and check its whole header. Raises FileFormatError naming file and cause."""
    name = os.fspath(path)
    data = map_file(path)
    return LazyFile(data, name)


def parse_safetensors(data: bytes, name: str = "<bytes>") -> LazyFile:
    """The arrays of a file that is in memory already."""
    return LazyFile(data, name)


def write_safetensors(
    arrays: Mapping[str, NDArray[Any]], path: PathLike, metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays to `path`: whole or not at all, also when the process dies in the middle."""
    target = Path(path)
    blocks, header = _layout(arrays, metadata, str(target))
    try:
        _replace_atomically(target, [len(header).to_bytes(8, "little"), header, *blocks])
    except OSError as error:
        raise FileFormatError(f"{target}: cannot be written: {error.strerror or error}") from error


# -- reading ------------------------------------------------------------------------------------


def _fail(name: str, cause: str) -> NoReturn:
    raise FileFormatError(f"{name}: {cause}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object hook of the JSON reader: a key that comes twice is refused, not chosen between."""
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"key {key!r} comes twice")
        table[key] = value
    return table


def _parse(data: Data, name: str) -> tuple[int, dict[str, Entry], dict[str, str]]:
    """Offset of the data section, entries in the order of their bytes, metadata."""
    if len(data) < 8:
        _fail(name, f"{len(data)} bytes are no safetensors file: it starts with 8 of length")
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER:
        _fail(name, f"header of {length} bytes, over the format's limit of {MAX_HEADER}")
    start = 8 + length
    if start > len(data):
        _fail(name, f"truncated: the header needs {start} bytes, the file has {len(data)}")
    raw = data[8:start]
    if raw[:1] != b"{":
        _fail(name, "the header is no JSON object; is this a safetensors file?")
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        _fail(name, f"damaged header: {' '.join(str(error).split())}")
    metadata = _metadata(header.pop(_METADATA, {}), name)
    entries = {key: _entry(key, value, name) for key, value in header.items()}
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    _check_coverage(ordered, len(data) - start, name)
    return start, ordered, metadata


def _metadata(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        _fail(name, f"{_METADATA} must be an object of strings")
    return value


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 2**63 for v in value)


def _entry(key: str, value: Any, name: str) -> Entry:
    what = f"tensor {key!r}"
    if not isinstance(value, dict) or set(value) != _ENTRY_KEYS:
        _fail(name, f"{what}: needs exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEMSIZE:
        _fail(name, f"{what}: unknown dtype {dtype!r}")
    if not _naturals(shape) or len(shape) > MAX_RANK or prod(d for d in shape if d) >= 2**60:
        _fail(name, f"{what}: {shape!r} is no shape")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _fail(name, f"{what}: {offsets!r} are no data offsets")
    begin, end = offsets
    need = prod(shape) * _ITEMSIZE[dtype]
    if need != end - begin:
        _fail(name, f"{what}: {dtype}{shape} takes {need} bytes, its offsets span {end - begin}")
    return Entry(dtype, tuple(shape), begin, end)


def _check_coverage(ordered: Mapping[str, Entry], available: int, name: str) -> None:
    """Arrays follow one another from 0 to the end of the file: no gap, overlap or trailing data."""
    at = 0
    for key, entry in ordered.items():
        if entry.begin != at:
            how = "overlaps the tensor before it" if entry.begin < at else "leaves a gap before it"
            _fail(name, f"tensor {key!r} {how}: it starts at {entry.begin}, not {at}")
        at = entry.end
    if at > available:
        _fail(name, f"truncated: the tensors need {at} bytes of data, the file has {available}")
    if at < available:
        _fail(name, f"{available - at} bytes follow the last tensor")


# -- writing ------------------------------------------------------------------------------------


def _layout(
    arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None, target: str
) -> tuple[list[NDArray[Any]], bytes]:
    """The arrays in the order of the file, ready to write, and the header."""
    named = [(_text(name, "tensor name", target), array) for name, array in arrays.items()]
    plain = [(name, *_plain(name, array, target)) for name, array in named]
    # Wide elements first keeps every array aligned; within a width, names give a stable order.
    plain.sort(key=lambda item: (-item[2].dtype.itemsize, item[0]))
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = {
            _text(k, "metadata key", target): _text(v, "metadata value", target)
            for k, v in metadata.items()
        }
    at = 0
    for name, dtype, array in plain:
        end = at + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    raw += b" " * (-len(raw) % 8)  # the data section starts 8-byte aligned
    if len(raw) > MAX_HEADER:
        raise FileFormatError(
            f"{target}: header of {len(raw)} bytes, over the format's limit of {MAX_HEADER}"
        )
    return [array for _, _, array in plain], raw


def _text(value: Any, what: str, target: str) -> str:
    if not isinstance(value, str):
        raise FileFormatError(f"{target}: {what} {value!r} must be a string")
    if value == _METADATA and what == "tensor name":
        raise FileFormatError(f"{target}: no tensor can be named {_METADATA}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise FileFormatError(f"{target}: {what} {value!r} is no valid Unicode") from None
    return value


def _plain(name: str, array: NDArray[Any], target: str) -> tuple[str, NDArray[Any]]:
    """The format's dtype and a little-endian row-major array of the same values."""
    little = array.dtype.newbyteorder("<")
    dtype = _NAME_OF.get(little)
    if dtype is None:
        known = ", ".join(str(d) for d in _NAME_OF)
        raise FileFormatError(
            f"{target}: tensor {name!r} has dtype {array.dtype}; files hold {known}"
        )
    return dtype, np.asarray(array, dtype=little, order="C")


def _replace_atomically(target: Path, blocks: Sequence[Any]) -> None:
    """Write beside the target and rename over it: readers see the old file or the new one."""
    if target.exists() and not target.is_file():
        raise FileFormatError(f"{target}: exists and is no regular file; choose another name")
    mode = _mode_for(target)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for block in blocks:
                if isinstance(block, bytes):
                    file.write(block)
                elif block.size:
                    file.write(memoryview(block.reshape(-1)).cast("B"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _mode_for(target: Path) -> int:
    """Permissions of the new file: those of the one it replaces, else what open() would give."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask
