"""wb.dry_run: the memory that a function would need, without running it.

Owns: the report of a rehearsal's memory. Must not know: how memory is laid out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import DTypeError
from ..device.backend import MemoryReport
from .rehearsal import rehearsed, run


def dry_run(fn: Callable[..., Any]) -> Callable[..., MemoryReport]:
    """A function that plans what `fn` does and returns a MemoryReport; nothing is launched.

    `wb.dry_run(step)(x, y)` compiles no kernel and makes no buffer. The report says what the
    device would hold after the call (`in_use`, `reserved`) and at most during it (`peak_in_use`,
    `peak_reserved`, bytes), today's tensors included. The device's next pages get the sizes that
    were found, so the real call reserves about what it needs at once. Parameters, optimizer state,
    statistics and random streams stay as they were. With work on several devices the report is of
    one of them. Raises DeviceError for a read inside `fn`, whose value does not exist, and
    for a dry run inside it; OutOfMemoryError never: compare `peak_reserved` with what there is.
    """
    if not callable(fn):
        raise DTypeError(f"dry_run takes a function; got {type(fn).__name__}")

    def planned(*args: Any, **kwargs: Any) -> MemoryReport:
        with rehearsed(fn, args, kwargs) as rehearsals:
            held = run(rehearsals, fn, args, kwargs)
            # The device that has work; none has, the first that was named.
            busy = next((r for r in rehearsals if r.plans), rehearsals[0])
            report = busy.backend.rehearsed(busy.paper)
            del held  # counted until here: the caller of the real thing holds it too
        return report

    return planned
