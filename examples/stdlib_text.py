"""Texts for the classifier: passages of Python's standard library, by the area they are about.

The task: given some 60 words of source code, comments and docstrings of a module that was never
seen, say which of four areas the module belongs to: network, text, files or tools. It is what the
triage of bug reports and of patches needs (who knows about this?), it is the size and the kind of
the four-topic news set that text classifiers are usually shown on, and it ships with every Python.
Nobody made the answers up for this purpose: they are where the library itself put the code.

It can't be solved by recognising files: all passages of a file are either for training or for
the test, by a hash of the file's name; what files share, their licences and what was copied from
one to another, is left out of the training. Both halves have as many passages of each area, so that
guessing scores a quarter.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Modules and packages of each area that every supported Python has; missing ones are left out.
AREAS = {
    "network": (
        "asyncio http urllib wsgiref xmlrpc socketserver socket ssl ftplib smtplib imaplib poplib "
        "selectors ipaddress webbrowser"
    ),
    "text": (
        "email html xml json csv plistlib configparser tomllib mailbox mimetypes base64 quopri "
        "textwrap string difflib re gettext locale codecs argparse optparse pprint"
    ),
    "files": (
        "shutil tempfile os posixpath ntpath pathlib genericpath glob fnmatch fileinput filecmp "
        "stat tarfile zipfile zipimport gzip bz2 lzma _compression _pyio pickle pickletools dbm "
        "shelve sqlite3"
    ),
    "tools": (
        "unittest doctest pdb bdb cmd code codeop ast dis inspect tokenize token importlib "
        "compileall py_compile trace traceback profile cProfile pstats timeit tracemalloc "
        "linecache pydoc modulefinder pkgutil runpy symtable pyclbr tabnanny warnings venv "
        "ensurepip"
    ),
}
NAMES = tuple(AREAS)
#: One file in so many is for the test.
HELD_OUT = 5
#: Shorter rests of files are left out.
MIN_WORDS = 24

PAD, UNKNOWN = 0, 1
#: camelCase and snake_case fall into words; digits and signs stand alone, and a ruler is one sign.
_WORD = re.compile(r"([^\w\s])\1{2,}|[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d|[^\w\s]")


@dataclass(frozen=True)
class Passage:
    """Some lines of one file."""

    text: str
    area: int
    file: str


def words(text: str) -> list[str]:
    return [found[1] or found[0].lower() for found in _WORD.finditer(text)]


def without_licences(lines: Sequence[str]) -> Iterator[str]:
    """The lines without those that tell authors, and without blocks of comments with one."""
    for is_comment, block in groupby(lines, key=lambda line: line.startswith("#")):
        kept = list(block)
        owned = ["copyright (" in line.lower() for line in kept]
        if not (is_comment and any(owned)):
            yield from (line for line, drop in zip(kept, owned, strict=True) if not drop)


def files(area: str, root: Path) -> Iterator[Path]:
    for name in AREAS[area].split():
        if (root / name).is_dir():
            for path in sorted((root / name).rglob("*.py")):
                if not {"test", "tests", "__pycache__"} & set(path.relative_to(root).parts):
                    yield path
        elif (root / f"{name}.py").is_file():
            yield root / f"{name}.py"


def is_held_out(name: str) -> bool:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % HELD_OUT == 0


def passages(path: Path, area: int, name: str, length: int) -> Iterator[Passage]:
    """A file cut at the ends of lines into passages of at most `length` words."""
    lines = without_licences(path.read_text(encoding="utf-8", errors="replace").splitlines())
    kept: list[str] = []
    size = 0
    for line in [*lines, None]:
        count = 0 if line is None else len(words(line))
        if kept and (line is None or size + count > length):
            if size >= MIN_WORDS:
                yield Passage("\n".join(kept), area, name)
            kept, size = [], 0
        if line is not None and count:
            kept.append(line)
            size += count


def load(
    length: int, limit: int | None = None, seed: int = 42, root: Path | None = None
) -> tuple[list[Passage], list[Passage]]:
    """Training and test passages: equally many of each area, at most `limit` for training."""
    root = root or Path(sysconfig.get_path("stdlib"))
    groups: list[dict[str, list[list[Passage]]]] = []
    for area, name in enumerate(NAMES):
        split: dict[str, list[list[Passage]]] = {"train": [], "test": []}
        for path in files(name, root):
            label = path.relative_to(root).as_posix()
            cut = list(passages(path, area, label, length))
            split["test" if is_held_out(label) else "train"].append(cut)
        groups.append(split)
    asked = {tuple(words(p.text)) for split in groups for cut in split["test"] for p in cut}
    for split in groups:
        split["train"] = [
            [p for p in cut if tuple(words(p.text)) not in asked] for cut in split["train"]
        ]
    out = []
    for half, most in (("train", limit), ("test", None if limit is None else max(4, limit // 4))):
        pools = [[p for cut in split[half] for p in cut] for split in groups]
        each = min(len(pool) for pool in pools)
        if most is not None:
            each = min(each, max(1, most // len(NAMES)))
        if not each:
            raise FileNotFoundError(f"{root}: the sources of the standard library are not there")
        rng = np.random.default_rng(seed)
        picked = [pool[i] for pool in pools for i in rng.permutation(len(pool))[:each]]
        out.append([picked[i] for i in rng.permutation(len(picked))])
    return out[0], out[1]


class Vocabulary:
    """The most frequent words of the training texts, numbered; the others are one unknown."""

    def __init__(self, listed: Sequence[str]) -> None:
        self.listed = tuple(listed)
        self.number = {word: i + 2 for i, word in enumerate(self.listed)}

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> Vocabulary:
        """At most `size` numbers, with those of padding and the unknown."""
        counts = Counter(word for text in texts for word in words(text))
        # Equal counts in the order of the alphabet: the same texts give the same numbers.
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(ranked[: size - 2])

    def __len__(self) -> int:
        return len(self.listed) + 2

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """[n, length]: cut to `length`, padded at the end."""
        out = np.full((len(texts), length), PAD, np.int32)
        for row, text in zip(out, texts, strict=True):
            numbers = [self.number.get(word, UNKNOWN) for word in words(text)[:length]]
            row[: len(numbers)] = numbers
        return out
