"""The whole op table: importing this module fills `TABLE` with every record."""

from __future__ import annotations

from . import conv, elementwise, index, matmul, movement, pool, reduce, scan, sort, source
from .record import TABLE, Op

__all__ = [
    "TABLE",
    "Op",
    "conv",
    "elementwise",
    "index",
    "matmul",
    "movement",
    "pool",
    "reduce",
    "scan",
    "sort",
    "source",
]
