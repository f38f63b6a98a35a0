"""The journal of a rehearsal: how to undo what a function did to values that outlive it.

Owns: one list of undo actions a thread, present only while a rehearsal (wb.explain) runs. Must not
know: what the actions do. Whoever changes something lasting calls `note`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Journal(threading.local):
    undo: list[Callable[[], None]] | None = None


_journal = _Journal()


def active() -> bool:
    """Whether a rehearsal is running in this thread."""
    return _journal.undo is not None


def note(undo: Callable[[], None]) -> None:
    """Remember how to undo a change, if a rehearsal is running."""
    if _journal.undo is not None:
        _journal.undo.append(undo)


def start() -> None:
    """Begin a rehearsal."""
    _journal.undo = []


def finish() -> None:
    """End it, undoing the last change first."""
    actions, _journal.undo = _journal.undo or [], None
    for undo in reversed(actions):
        undo()
