"""What a backend computes while a test runs: one record per realisation."""

from __future__ import annotations

import contextlib
import os
from collections import Counter


class Probe:
    """`ops` counts primitives that were computed, `executions` the plans that ran."""

    def __init__(self):
        self.ops = Counter()
        self.executions = 0

    def clear(self):
        self.ops.clear()
        self.executions = 0


@contextlib.contextmanager
def probing(device):
    """Watch a device. Realisations outside the block are not seen."""
    backend = device.backend
    probe = Probe()
    execute, cached = backend.execute, backend._cached

    def watched_execute(plan, leaves, numbers, lasting=()):
        probe.executions += 1
        return execute(plan, leaves, numbers, lasting)

    def watched_cached(work):
        probe.ops.update(node.op.name for node in work.order if node.store is None)
        return cached(work)

    backend.execute, backend._cached = watched_execute, watched_cached
    try:
        yield probe
    finally:
        del backend.execute, backend._cached


def resident_bytes():
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
