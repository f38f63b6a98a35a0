"""torch's files (.pt, .pth, .bin) without torch: the tree in them, its tensors read lazily.

Owns: both of torch's formats, the zip archive (since torch 1.6) and the sequence of pickles before
it. Must not know: our tensors, devices, or what the names mean.

Nothing in a file is executed: see .unpickle. Every size, offset and stride is checked against the
bytes that are there before an array is made.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core.errors import FileFormatError
from .files import Data, PathLike, map_file
from .unpickle import Maker, Source, unpickle

#: Bytes of the pickle in an archive: names and shapes, never the values.
MAX_PICKLE = 100_000_000
#: Containers and values that the tree may reach, counting shared ones each time.
MAX_NODES = 1_000_000
MAX_DEPTH = 100
#: An expanded tensor (stride 0) is larger than its bytes; up to this size that is believed.
MAX_EXPANDED = 1 << 30
MAX_RANK = 64

#: What zipfile lets through from a damaged archive.
_ZIP_ERRORS = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, NotImplementedError,
    OSError, OverflowError, RuntimeError, ValueError,
)  # fmt: skip

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001


class DType(NamedTuple):
    """torch's name and numpy's code; numpy has no bfloat16, which is read as float32."""

    name: str
    code: str

    @property
    def itemsize(self) -> int:
        return np.dtype(self.code).itemsize


_DTYPES = {
    name: DType(name, code)
    for name, code in {
        "float32": "f4", "float64": "f8", "float16": "f2", "bfloat16": "u2",
        "int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1",
        "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
        "bool": "b1", "complex64": "c8", "complex128": "c16",
    }.items()
}  # fmt: skip
_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_UNTYPED = DType("uint8", "u1")


@dataclass(eq=False)
class Storage:
    """A run of bytes that tensors share. `data` and `start` are known once the file is read."""

    dtype: DType
    count: int
    data: Data | Callable[[], bytes] | None = None
    start: int = 0

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize


@dataclass(eq=False)
class Entry:
    """One tensor of a file: what it is and where its elements lie in its storage."""

    storage: Storage
    type: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.type.name


class TorchFile(Mapping[str, NDArray[Any]]):
    """The tensors of one file by name. `file[name]` reads just that one, without a copy if it can.

    Names are the keys on the way to a tensor, joined with dots. `tree` is the whole object as
    saved: dicts, lists, tuples, sets and plain values, with an Entry for each tensor, which
    `array(entry)` reads.
    """

    def __init__(self, data: Data, name: str) -> None:
        self._name = name
        self._data = data
        self._little = True
        self.metadata: dict[str, str] = {}
        if data[:4] == b"PK\x03\x04":
            self.tree = self._read_archive()
        else:
            self.tree = self._read_legacy()
        self._entries = dict(_named_entries(self.tree, name))

    def entry(self, name: str) -> Entry:
        return self._entries[name]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.array(self._entries[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"TorchFile({self._name!r}, {len(self)} tensors)"

    def __enter__(self) -> TorchFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file, unless an array of it is still alive: the last one does it then."""
        if isinstance(self._data, mmap.mmap):
            with suppress(BufferError):
                self._data.close()

    def array(self, entry: Entry) -> NDArray[Any]:
        """The values of a tensor: read-only, in the machine's byte order, bfloat16 as float32."""
        storage = entry.storage
        code = np.dtype(entry.type.code).newbyteorder("<" if self._little else ">")
        if prod(entry.shape) == 0:
            flat: NDArray[Any] = np.empty(0, code)
            view = flat.reshape(entry.shape)
        else:
            data = storage.data() if callable(storage.data) else storage.data
            assert data is not None
            count = storage.nbytes // code.itemsize
            flat = np.frombuffer(data, code, count, storage.start)
            view = np.lib.stride_tricks.as_strided(
                flat[entry.offset :],
                entry.shape,
                tuple(s * code.itemsize for s in entry.strides),
                writeable=False,
            )
        if entry.type.name == "bool" and view.size and view.view("u1").max() > 1:
            self._fail("a tensor has booleans other than 0 and 1")
        if entry.type.name == "bfloat16":
            # A bfloat16 is the upper half of a float32.
            return (view.astype("u4") << np.uint32(16)).view("f4")
        return view if code.isnative else view.astype(code.newbyteorder("="))

    # -- the archive -------------------------------------------------------------------------------
    def _read_archive(self) -> Any:
        try:
            # zipfile wants a file; the views below take their bytes from the map.
            file = io.BytesIO(self._data) if isinstance(self._data, bytes) else _Window(self._data)
            with zipfile.ZipFile(file) as archive:
                return self._read_members(archive)
        except FileFormatError:
            raise
        except _ZIP_ERRORS as error:
            self._fail(f"damaged archive: {' '.join(str(error).split())}")

    def _read_members(self, archive: zipfile.ZipFile) -> Any:
        members = {info.filename: info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            self._fail("a member of the archive comes twice")
        pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            self._fail("a zip file, but not one of torch.save: it has no data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        if root + "constants.pkl" in members:
            self._fail("a TorchScript program; save the model's state_dict() with torch.save")
        info = members[pickles[0]]
        if info.file_size > MAX_PICKLE:
            self._fail(f"a pickle of {info.file_size} bytes, over the limit of {MAX_PICKLE}")
        if root + "byteorder" in members and members[root + "byteorder"].file_size < 10:
            self._little = archive.read(root + "byteorder") != b"big"
        storages: dict[str, Storage] = {}

        def persistent(pid: Any) -> Storage:
            if not isinstance(pid, tuple) or len(pid) != 5:
                self._fail("a persistent id that is no storage")
            key, storage = self._storage(pid, storages)
            member = members.get(f"{root}data/{key}")
            if member is None:
                self._fail(f"the archive lacks storage {key!r}")
            if member.file_size < storage.nbytes:
                self._fail(
                    f"storage {key!r} needs {storage.nbytes} bytes, "
                    f"the archive has {member.file_size}"
                )
            if storage.data is None:
                self._locate(archive, member, storage)
            return storage

        return unpickle(io.BytesIO(archive.read(info)), self._name, _ALLOWED, persistent)

    def _locate(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, storage: Storage) -> None:
        """Where a storage's bytes are: in the file itself, or to be inflated."""
        if member.flag_bits & 1:
            self._fail(f"member {member.filename!r} is encrypted")
        if member.compress_type != zipfile.ZIP_STORED:
            # Nothing torch writes, but archives get packed again. Inflated now: the file may go.
            with archive.open(member) as stream:
                content = stream.read(storage.nbytes)
            if len(content) < storage.nbytes:
                self._fail(f"member {member.filename!r} is shorter than it says")
            storage.data = content
            return
        head = self._data[member.header_offset : member.header_offset + 30]
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            self._fail(f"damaged archive: member {member.filename!r} is not where it should be")
        lengths = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        storage.start = member.header_offset + 30 + lengths
        storage.data = self._data
        if storage.start + storage.nbytes > len(self._data):
            self._fail(f"truncated: member {member.filename!r} goes past the end")

    # -- the sequence of pickles -------------------------------------------------------------------
    def _read_legacy(self) -> Any:
        source: Source = io.BytesIO(self._data) if isinstance(self._data, bytes) else self._data
        storages: dict[str, Storage] = {}

        def persistent(pid: Any) -> Storage:
            if not isinstance(pid, tuple) or len(pid) != 6:
                self._fail("a persistent id that is no storage")
            if pid[5] is not None:
                self._fail("views of storages, as torch before 0.4 wrote; save it anew")
            return self._storage(pid[:5], storages)[1]

        def none(pid: Any) -> Any:
            self._fail("a persistent id outside the object")

        def read(what: Callable[[Any], Any] = none) -> Any:
            return unpickle(source, self._name, _ALLOWED, what)

        # The magic number opens the file: an object pickled by itself is not torch's.
        if read() != LEGACY_MAGIC or read() != LEGACY_PROTOCOL:
            self._fail("a pickle, but not one of torch.save")
        system = read()
        self._little = not isinstance(system, dict) or system.get("little_endian") is not False
        tree = read(persistent)
        keys = read()
        if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(storages):
            self._fail("its list of storages does not match its tensors")
        at = source.tell()
        for key in keys:
            storage = storages[str(key)]
            count = int.from_bytes(self._data[at : at + 8], "little")
            storage.data, storage.start = self._data, at + 8
            at += 8 + storage.nbytes
            if at > len(self._data):
                self._fail(f"truncated: storage {key!r} goes past the end")
            if count != storage.count:
                self._fail(f"storage {key!r} has {count} elements, its tensors say {storage.count}")
        return tree

    # -- both --------------------------------------------------------------------------------------
    def _storage(self, pid: tuple[Any, ...], known: dict[str, Storage]) -> tuple[str, Storage]:
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(dtype, DType) or not isinstance(key, str | int):
            self._fail("a persistent id that is no storage")
        if type(count) is not int or not 0 <= count < 2**60:
            self._fail(f"a storage of {count!r} elements")
        key = str(key)
        storage = known.setdefault(key, Storage(dtype, count))
        if (storage.dtype, storage.count) != (dtype, count):
            self._fail(f"storage {key!r} is described in two ways")
        return key, storage

    def _fail(self, cause: str) -> NoReturn:
        raise FileFormatError(f"{self._name}: {cause}")


class _Window(io.RawIOBase):
    """A map as the file object that zipfile wants: mmap lacks seekable() before Python 3.13."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, len(self._data))[whence]
        if at < 0:
            raise OSError("seek before the start")
        self._at = at
        return at

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else self._at + size
        block = self._data[self._at : end]
        self._at += len(block)
        return block


def read_torch(path: PathLike) -> TorchFile:
    """Open a file of torch.save and check all of it. Raises FileFormatError with file and cause."""
    return TorchFile(map_file(path), str(path))


# -- what pickles may name -----------------------------------------------------------------------


def _naturals(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= MAX_RANK
        and all(type(v) is int and 0 <= v < 2**60 for v in value)
    )


def _tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any, dtype: DType | None = None
) -> Entry:
    """torch._utils._rebuild_tensor_v2: checks that every element lies in the storage."""
    if not isinstance(storage, Storage) or type(offset) is not int or offset < 0:
        raise ValueError("a tensor without storage")
    if not _naturals(shape) or not _naturals(strides) or len(shape) != len(strides):
        raise ValueError(f"a tensor of shape {shape!r} with strides {strides!r}")
    kind = dtype or storage.dtype
    size = prod(shape)
    if size:
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if (last + 1) * kind.itemsize > storage.nbytes:
            raise ValueError(
                f"a tensor of shape {shape!r} reaches element {last} of a storage of "
                f"{storage.nbytes // kind.itemsize}"
            )
        if size * kind.itemsize > max(storage.nbytes, MAX_EXPANDED):
            raise ValueError(f"a tensor of shape {shape!r} in {storage.nbytes} bytes")
    elif prod(n for n in shape if n) >= 2**60:
        raise ValueError(f"a tensor of shape {shape!r}")
    return Entry(storage, kind, offset, shape, strides)


def _tensor_v3(
    storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any,
    *rest: Any,
) -> Entry:  # fmt: skip
    """torch._utils._rebuild_tensor_v3: bytes, and a dtype beside them."""
    if not isinstance(dtype, DType):
        raise ValueError("a tensor without dtype")
    return _tensor(storage, offset, shape, strides, dtype=dtype)


def _parameter(data: Any, *rest: Any) -> Entry:
    if not isinstance(data, Entry):
        raise ValueError("a parameter without tensor")
    return data


def _ordered(items: Any = ()) -> dict[Any, Any]:
    if not isinstance(items, list | tuple) or not all(
        isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str | int)
        for item in items
    ):
        raise ValueError("an OrderedDict that is no list of pairs")
    return dict(items)


def _set(items: Any = ()) -> set[Any]:
    if not isinstance(items, list | tuple) or not all(
        isinstance(v, str | int | float | bytes | None) for v in items
    ):
        raise ValueError("a set of other than plain values")
    return set(items)


def _size(items: Any = ()) -> tuple[Any, ...]:
    if not isinstance(items, list | tuple):
        raise ValueError("a Size that is no tuple")
    return tuple(items)


_ALLOWED: dict[str, Any] = {
    "torch._utils._rebuild_tensor_v2": Maker(_tensor),
    "torch._utils._rebuild_tensor_v3": Maker(_tensor_v3),
    "torch._utils._rebuild_tensor": Maker(_tensor),
    "torch._utils._rebuild_parameter": Maker(_parameter),
    "torch._utils._rebuild_parameter_with_state": Maker(_parameter),
    "torch.storage.UntypedStorage": _UNTYPED,
    "torch.Size": Maker(_size),
    "collections.OrderedDict": Maker(_ordered),
    **{f"{module}.set": Maker(_set) for module in ("builtins", "__builtin__")},
    **{f"torch.{name}": dtype for name, dtype in _DTYPES.items()},
    **{
        f"{module}.{name}": _DTYPES[dtype]
        for module in ("torch", "torch.cuda")
        for name, dtype in _STORAGES.items()
    },
}


def _named_entries(tree: Any, file: str) -> Iterator[tuple[str, Entry]]:
    """Every tensor with the keys that lead to it. Refuses trees without end and equal names."""
    seen: set[str] = set()
    nodes = 0
    open_ids: set[int] = set()

    def walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Entry]]:
        nonlocal nodes
        nodes += 1
        if nodes > MAX_NODES or len(path) > MAX_DEPTH or id(value) in open_ids:
            raise FileFormatError(f"{file}: its containers nest without end")
        if isinstance(value, Entry):
            name = ".".join(path)
            if not path:
                raise FileFormatError(f"{file}: holds one tensor without a name, not a state")
            if name in seen:
                raise FileFormatError(f"{file}: two tensors are named {name!r}")
            seen.add(name)
            yield name, value
            return
        children: Any = ()
        if isinstance(value, dict):
            children = value.items()
        elif isinstance(value, list | tuple):
            children = enumerate(value)
        if not children:
            return
        open_ids.add(id(value))
        for key, child in children:
            yield from walk(child, (*path, str(key)))
        open_ids.discard(id(value))

    return walk(tree, ())
