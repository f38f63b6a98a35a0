"""Weights wherever they are: one file or many, of either format, read tensor by tensor.

Owns: telling formats apart by their content, indexes of shards, choosing and renaming. Must not
know: our tensors, devices, what is inside a format.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..core.errors import FileFormatError
from .files import Data, PathLike, map_file
from .safetensors import LazyFile
from .torchfile import TorchFile

#: Which tensors: a leading part of the name, a pattern found in it, a test, or the names.
Keys = str | re.Pattern[str] | Callable[[str], bool] | Collection[str]
#: New names: see `renamed`.
Rename = (
    Mapping[str, str]
    | tuple[str | re.Pattern[str], str]
    | Sequence[tuple[str | re.Pattern[str], str]]
    | Callable[[str], str | None]
)
#: Files of a folder that hold or list all weights, best first.
FOLDER_NAMES = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
#: Bytes of an index of shards.
MAX_INDEX = 100_000_000


class Weights(Mapping[str, NDArray[Any]]):
    """Arrays by name, read when asked for. Names and shapes are known without reading values."""

    def __init__(self, path: str, homes: Mapping[str, tuple[Mapping[str, Any], str]]) -> None:
        self._path = path
        self._homes = homes

    def entry(self, name: str) -> Any:
        """dtype and shape (and more, by format) of a tensor."""
        file, inside = self._homes[name]
        return file.entry(inside)  # type: ignore[attr-defined]

    def __getitem__(self, name: str) -> NDArray[Any]:
        file, inside = self._homes[name]
        array: NDArray[Any] = file[inside]
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def __repr__(self) -> str:
        return f"Weights({self._path!r}, {len(self)} tensors)"

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files; arrays already read stay valid."""
        for file in {id(file): file for file, _ in self._homes.values()}.values():
            file.close()  # type: ignore[attr-defined]

    def renamed(self, rename: Rename | None) -> Weights:
        """The same tensors under other names.

        A dict maps whole names, or leading parts that end with a dot ({"bert.": ""}; the longest
        wins). A (pattern, replacement) pair, or several in order, is a regular expression for
        re.sub. A callable gives the new name, or None to leave a tensor out.
        """
        if rename is None:
            return self
        change = _renamer(rename)
        homes: dict[str, tuple[Mapping[str, Any], str]] = {}
        clashes = []
        for name, home in self._homes.items():
            new = change(name)
            if new is None:
                continue
            if not isinstance(new, str):
                raise FileFormatError(f"{self._path}: rename gives {new!r} for {name!r}: no name")
            if new in homes:
                clashes.append(f"{new!r} (also from {name!r})")
            homes[new] = home
        if clashes:
            raise FileFormatError(
                f"{self._path}: renaming gives one name to several tensors: {', '.join(clashes)}"
            )
        return Weights(self._path, homes)

    def only(self, keys: Keys | None) -> Weights:
        """The tensors that `keys` chooses: see Keys. Exact names that are missing are an error."""
        if keys is None:
            return self
        test = _chooser(keys, self)
        homes = {name: home for name, home in self._homes.items() if test(name)}
        return Weights(self._path, homes)


def open_weights(path: PathLike) -> Weights:
    """Open weights lazily, whatever their format: the content decides, not the name.

    Reads safetensors, torch's .pt/.pth/.bin (both formats, without torch, executing nothing), an
    index of shards of either, or a folder with one of these. Raises FileFormatError.
    """
    place = Path(path)
    if place.is_dir():
        found = [place / name for name in FOLDER_NAMES if (place / name).is_file()]
        if not found:
            raise FileFormatError(f"{path}: a folder with none of {', '.join(FOLDER_NAMES)}")
        place = found[0]
    data = map_file(place)
    name = os.fspath(place)
    if bytes(data[:9]).lstrip()[:1] == b"{":
        index = _index(data, name)
        if index is not None:
            return Weights(name, _shards(index, place))
    file = _open(data, name)
    return Weights(name, {key: (file, key) for key in file})


def _open(data: Data, name: str) -> LazyFile | TorchFile:
    head = bytes(data[:9])
    if head[:4] == b"PK\x03\x04" or (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05"):
        # A safetensors header of that very length would be told from a pickle by its brace.
        if head[8:9] != b"{":
            return TorchFile(data, name)
    return LazyFile(data, name)


def _index(data: Data, name: str) -> dict[str, str] | None:
    """weight_map of an index: tensor to file name. None where the data is no JSON index."""
    if data[8:9] == b"{" and data[4:8] == b"\0\0\0\0":
        return None  # a safetensors file whose length starts with the byte of a brace
    if len(data) > MAX_INDEX:
        raise FileFormatError(f"{name}: {len(data)} bytes are too many for an index of shards")
    try:
        content = json.loads(bytes(data[:]).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        cause = " ".join(str(error).split())
        raise FileFormatError(f"{name}: damaged index of shards: {cause}") from None
    table = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        raise FileFormatError(f"{name}: JSON without a weight_map of tensor names to files")
    return table


def _shards(index: Mapping[str, str], place: Path) -> dict[str, tuple[Mapping[str, Any], str]]:
    """Every tensor with the open shard it is in; whatever is wrong is told at once."""
    files: dict[str, LazyFile | TorchFile] = {}
    wrong = []
    for shard in dict.fromkeys(index.values()):
        # A shard lies beside its index: an index from elsewhere must not reach other folders.
        if shard in ("", ".", "..") or set(shard) & set("/\\:\0"):
            wrong.append(f"{shard!r} is no plain file name")
            continue
        path = place.with_name(shard)
        if not path.is_file():
            wrong.append(f"shard {shard} is missing")
            continue
        files[shard] = _open(map_file(path), str(path))
    for tensor, shard in index.items():
        if shard in files and tensor not in files[shard]:
            wrong.append(f"{shard} lacks tensor {tensor!r}")
    if wrong:
        raise FileFormatError(f"{place}: {'; '.join(wrong)}")
    return {tensor: (files[shard], tensor) for tensor, shard in index.items()}


def _chooser(keys: Keys, weights: Weights) -> Callable[[str], bool]:
    if isinstance(keys, str):
        return lambda name: name.startswith(keys)
    if isinstance(keys, re.Pattern):
        return lambda name: keys.search(name) is not None
    if callable(keys):
        return lambda name: bool(keys(name))
    wanted = set(keys)
    missing = [key for key in keys if key not in weights]
    if missing:
        raise FileFormatError(f"{weights._path}: holds no {', '.join(map(repr, missing))}")
    return lambda name: name in wanted


def _renamer(rename: Rename) -> Callable[[str], str | None]:
    if isinstance(rename, Mapping):
        starts = sorted((k for k in rename if k.endswith(".")), key=len, reverse=True)

        def by_table(name: str) -> str:
            if name in rename:
                return rename[name]
            for start in starts:
                if name.startswith(start):
                    return rename[start] + name[len(start) :]
            return name

        return by_table
    if callable(rename):
        return rename
    one = isinstance(rename, tuple) and len(rename) == 2 and isinstance(rename[1], str)
    pairs: Any = [rename] if one else list(rename)

    def by_pattern(name: str) -> str:
        for pattern, replacement in pairs:
            name = re.sub(pattern, replacement, name)
        return name

    return by_pattern
