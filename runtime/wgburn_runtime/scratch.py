"""Memory for values that live only while a list of launches runs.

Owns: the scratch pages of a device. Must not know: what lies where in them (a launch list says), or
what happens when the device is full (memory.py).

Everything on a device runs in order, so all lists use the same pages: what one leaves there is dead
when the next begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .pool import PageSource, PoolUsage, trusted


class Spot(NamedTuple):
    """A range of a scratch page."""

    page: int  # its number
    offset: int
    size: int


class Scratch:
    """Pages by number; each is as large as the largest list so far needs it."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self.buffers: list[int] = []
        self.sizes: list[int] = []
        self.hints: list[int] = []  # sizes that a dry run found
        self._peak = self._peak_pages = self._peak_need = 0

    def lacks(self, sizes: Sequence[int]) -> int:
        """Bytes that a list's pages need beyond what is there (pages that grow are replaced)."""
        return sum(self._target(k, n) for k, n in enumerate(sizes) if self._have(k) < n)

    def _have(self, k: int) -> int:
        return self.sizes[k] if k < len(self.sizes) else 0

    def _target(self, k: int, size: int) -> int:
        hint = self.hints[k] if k < len(self.hints) else 0
        return max(size, trusted(hint, size))

    def require(self, sizes: Sequence[int]) -> list[int]:
        """Buffers of at least these sizes. Raises OutOfMemoryError, and then has lost nothing but
        the page that was to be replaced."""
        for k, size in enumerate(sizes):
            if self._have(k) >= size:
                continue
            if k < len(self.buffers) and self.buffers[k]:
                # Nothing in it is alive, so the old page goes first and both never coexist.
                self._source.destroy(self.buffers[k])
                self.buffers[k] = self.sizes[k] = 0
            target = self._target(k, size)
            buffer = self._source.create(target)
            while len(self.buffers) <= k:
                self.buffers.append(0)
                self.sizes.append(0)
            self.buffers[k], self.sizes[k] = buffer, target
            self._peak = max(self._peak, sum(self.sizes))
            self._peak_pages = max(self._peak_pages, sum(n > 0 for n in self.sizes))
        self._peak_need = max(self._peak_need, sum(sizes))
        return self.buffers[: len(sizes)]

    def release(self) -> int:
        """Give all pages back; the bytes that were freed."""
        freed = sum(self.sizes)
        for buffer in self.buffers:
            if buffer:
                self._source.destroy(buffer)
        self.buffers, self.sizes = [], []
        return freed

    @property
    def reserved(self) -> int:
        return sum(self.sizes)

    def usage(self) -> PoolUsage:
        pages = sum(n > 0 for n in self.sizes)
        # Between lists nothing is in use.
        return PoolUsage(
            "scratch",
            0,
            0,
            self.reserved,
            self._peak_need,
            self._peak,
            0,
            pages,
            self._peak_pages,
            max(self.sizes, default=0),
            self._peak_need,
        )

    def copy(self, source: PageSource) -> Scratch:
        """The same pages on another source, for planning ahead."""
        other = Scratch(source)
        other.buffers, other.sizes = list(self.buffers), list(self.sizes)
        other._peak, other._peak_pages = self.reserved, sum(n > 0 for n in self.sizes)
        return other
