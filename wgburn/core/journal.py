"""The journal of a rehearsal: how to undo what a function did to values that outlive it.

Owns: one list of undo actions a thread, and the values that only the journal holds on to, present
only while a rehearsal (wb.explain, wb.dry_run) runs. Must not know: what the actions do. Whoever
changes something lasting calls `note`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _Journal(threading.local):
    undo: list[Callable[[], None]] | None = None
    dropped: list[Any]


_journal = _Journal()


def active() -> bool:
    """Whether a rehearsal is running in this thread."""
    return _journal.undo is not None


def note(undo: Callable[[], None]) -> None:
    """Remember how to undo a change, if a rehearsal is running."""
    if _journal.undo is not None:
        _journal.undo.append(undo)


def drop(value: Any) -> None:
    """Remember that the function lets go of a value, which lives on only to be put back."""
    if _journal.undo is not None:
        _journal.dropped.append(value)


def take_dropped() -> list[Any]:
    """What was dropped since the last call."""
    found, _journal.dropped = _journal.dropped, []
    return found


def start() -> None:
    """Begin a rehearsal."""
    _journal.undo = []
    _journal.dropped = []


def finish() -> None:
    """End it, undoing the last change first."""
    actions, _journal.undo = _journal.undo or [], None
    _journal.dropped = []
    for undo in reversed(actions):
        undo()
