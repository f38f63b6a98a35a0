"""The host's helper threads: they take work from a queue while the thread that asked goes on.

Owns: the threads, jobs, how items are shared. Must not know: plans, ops.

A helper wakes late on a busy machine. So nothing waits for one that has not begun: whoever needs
the result does the work itself.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread

import numpy as np

#: Threads that compute at the same time, this one included; numpy's loops release the interpreter
#: lock.
WORKERS = min(os.cpu_count() or 1, 4) if sys.platform != "emscripten" else 1


class Job:
    """Work that a helper does, or whoever asks for it first."""

    __slots__ = ("_claim", "_done", "_error", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._claim = allocate_lock()
        self._done = allocate_lock()
        self._done.acquire()
        self._error: BaseException | None = None

    def help(self) -> None:
        """Do the work, if nobody has begun it."""
        work = self._taken()
        if work is None:
            return
        try:
            work()
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def drop(self) -> None:
        """See that nobody begins it; where a helper has, wait until it is done. Raises what it
        raised."""
        if self._taken() is None:
            self._wait()

    def join(self) -> None:
        """Have the work done, here if nobody has begun it. Raises what it raised."""
        self.help()
        self._wait()

    def _wait(self) -> None:
        with self._done:
            pass
        if self._error is not None:
            raise self._error

    def _taken(self) -> Callable[[], None] | None:
        """The work for the first who asks; it is let go of, as a job may stay in the queue."""
        if not self._claim.acquire(False):
            return None
        work, self._work = self._work, None
        return work


_jobs: SimpleQueue[Job] = SimpleQueue()
_threads: list[Thread] = []


def _forget() -> None:
    """A forked process has none of the threads: it starts its own."""
    global _jobs
    _jobs = SimpleQueue()
    _threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _serve() -> None:
    np.seterr(all="ignore")  # holds for this thread
    while True:
        _jobs.get().help()


def hand_out(work: Callable[[], None]) -> Job:
    """Let a helper do the work when one is free."""
    if not _threads:
        for k in range(WORKERS - 1):
            _threads.append(Thread(target=_serve, name=f"wgburn-cpu-{k}", daemon=True))
            _threads[-1].start()
    job = Job(work)
    _jobs.put(job)
    return job


def share(items: Sequence[int], work: Callable[[Iterator[int]], None]) -> None:
    """Let the threads draw items until none is left."""
    left = deque(items)

    def mine() -> Iterator[int]:
        while True:
            try:
                item = left.popleft()
            except IndexError:
                return
            yield item

    jobs = [hand_out(lambda: work(mine())) for _ in range(min(WORKERS, len(items)) - 1)]
    try:
        work(mine())
    finally:
        left.clear()  # nothing more after an error
        for job in jobs:
            job.drop()
