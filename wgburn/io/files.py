"""Opening files: mapped where the platform can, read otherwise.

Owns: how bytes get into reach. Must not know: formats.
"""

from __future__ import annotations

import mmap
import os

from ..core.errors import FileFormatError

PathLike = str | os.PathLike[str]
#: A whole file, addressed like bytes.
Data = mmap.mmap | bytes


def map_file(path: PathLike) -> Data:
    """The content of a file. Raises FileFormatError naming file and cause."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            try:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # an empty file, or a file system that maps nothing
                return file.read()
    except FileNotFoundError:
        raise FileFormatError(f"{name}: no such file") from None
    except OSError as error:
        raise FileFormatError(f"{name}: cannot be read: {error.strerror or error}") from error
