"""Lanes: which steps of a host plan run on helper threads while the main one goes on.

Owns: what steps cost, who waits for whom, what is handed out and where its result is awaited. Must
not know: threads, numpy rules.

The gradient of a weight is read by the weight's update and nothing else, so the way back to the
layers before need not wait for it. Plans are laid out by walking the steps in their order with a
clock for each lane: a heavy op that is not on the longest way to the end goes to a free helper, and
what reads it is put off until it is there. The order stays otherwise, so that values die as early.

Groups that are walked in blocks are not handed out: two threads that both make short calls wait for
each other at the interpreter lock (elementwise products of 16,384 elements took four times as long
in two threads at once as in one, of 262,144 elements 1.15 times).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from .parts import Threads, multiplications
from .units import WORK

if TYPE_CHECKING:
    from .host import HostStep

#: Estimated microseconds: a million multiplications of a product, a million simple operations of
#: elementwise ops, a million elements that any other op reads or writes; calling an op at all.
PRODUCT, SIMPLE, ELEMENT, CALL = 40.0, 270.0, 500.0, 3.0
#: Microseconds from which handing an op to a helper pays, and up to which it goes there as a whole:
#: larger ones are cut in parts that keep all cores busy.
LEAST, MOST = 200.0, 2500.0


def cost(step: HostStep, shapes: Sequence[tuple[int, ...]]) -> float:
    """Estimated microseconds of a step on one core."""
    total = 0.0
    blocks = -(-step.extent // step.block)
    for n in step.inner:
        size = prod(n.shape)
        total += CALL * blocks
        if n.view or n.name == "const":
            continue
        if n.name == "matmul":
            total += PRODUCT * multiplications(n.shape, shapes[n.srcs[0]]) / 1e6
        elif n.elementwise:
            total += SIMPLE * WORK.get(n.name, 1) * size / 1e6
        else:
            total += ELEMENT * (size + sum(prod(shapes[s]) for s in n.srcs)) / 1e6
    return total


def reads_of(step: HostStep) -> list[int]:
    """The values that a step reads."""
    return [i for i, _ in step.inputs] or [s for n in step.inner for s in n.srcs]


def in_lanes(
    steps: Sequence[HostStep], shapes: Sequence[tuple[int, ...]], threads: Threads
) -> list[HostStep]:
    """The steps in the order in which they begin, some of them `beside`, and with `joins` where the
    result of such a step must be there. `shapes`: of all values."""
    wholes = [cost(s, shapes) for s in steps]
    cores = [threads.number if s.shared or s.cut is not None else 1 for s in steps]
    costs = [c / n for c, n in zip(wholes, cores, strict=True)]
    leaves = [
        LEAST <= whole <= MOST and not s.inputs and threads.divide(s.inner[0].name)
        for s, whole in zip(steps, wholes, strict=True)
    ]
    if not any(leaves):
        return list(steps)
    maker = {o: k for k, s in enumerate(steps) for o in s.outputs}
    before = [sorted({maker[i] for i in reads_of(s) if i in maker}) for s in steps]
    layout = _Layout(costs, wholes, before, leaves, threads.number - 1)
    order, beside = layout.run()
    waited: set[int] = set()
    place = {k: at for at, k in enumerate(order)}
    out = []
    for k in order:
        joins = [b for b in before[k] if b in beside and b not in waited]
        waited.update(joins)
        step = replace(steps[k], joins=tuple(place[b] for b in joins))
        out.append(replace(step, beside=True, cut=None) if k in beside else step)
    return out


class _Layout:
    """The walk over the steps with a clock a lane."""

    def __init__(
        self,
        costs: Sequence[float],
        wholes: Sequence[float],
        before: Sequence[Sequence[int]],
        leaves: Sequence[bool],
        helpers: int,
    ) -> None:
        self.costs, self.wholes = costs, wholes
        self.before, self.leaves = before, leaves
        self.way = self._ways()
        self.now = 0.0
        self.free = [0.0] * helpers
        self.done: dict[int, float] = {}  # when a step's result is there
        self.order: list[int] = []
        self.beside: set[int] = set()

    def _ways(self) -> list[float]:
        """The longest way from the begin of a step to the end."""
        way = list(self.costs)
        for k in reversed(range(len(way))):
            for b in self.before[k]:
                way[b] = max(way[b], self.costs[b] + way[k])
        return way

    def run(self) -> tuple[list[int], set[int]]:
        # What is still to begin, the longest way last.
        longest = sorted(range(len(self.costs)), key=self.way.__getitem__)
        late: list[int] = []
        for k in range(len(self.costs)):
            late = self._begin(late)
            if not self._ready(k):
                late.append(k)
                continue
            while longest and longest[-1] in self.done:
                longest.pop()
            if self.leaves[k] and self.way[k] < self.way[longest[-1]] and self._hand_out(k):
                continue
            self._run(k)
        while late:
            left = self._begin(late)
            if len(left) == len(late):  # the main lane waits for the next result
                self.now = min(t for t in self.done.values() if t > self.now)
            late = left
        return self.order, self.beside

    def _begin(self, late: Sequence[int]) -> list[int]:
        """Run what was put off and can run now; the rest."""
        left = []
        for k in late:
            if self._ready(k):
                self._run(k)
            else:
                left.append(k)
        return left

    def _ready(self, k: int) -> bool:
        return all(self.done.get(b, self.now + 1) <= self.now for b in self.before[k])

    def _run(self, k: int) -> None:
        self.now += self.costs[k]
        self.done[k] = self.now
        self.order.append(k)

    def _hand_out(self, k: int) -> bool:
        """Give a step to the first free helper, unless that begins so late that the main lane
        could have done it meanwhile."""
        h = min(range(len(self.free)), key=self.free.__getitem__)
        start = max(self.now, self.free[h])
        if start - self.now >= self.wholes[k]:
            return False
        self.free[h] = self.done[k] = start + self.wholes[k]
        self.beside.add(k)
        self.order.append(k)
        return True


def lives(steps: Sequence[HostStep], keep: set[int]) -> Mapping[int, tuple[int, ...]]:
    """After which step which values are dead. What a step beside reads lives until it is joined."""
    last: dict[int, int] = {}
    running: dict[int, list[int]] = {}
    for k, s in enumerate(steps):
        for b in s.joins:
            for i in running.pop(b):
                last[i] = k
        if s.beside:
            running[k] = reads_of(s)
        for i in reads_of(s):
            last[i] = k
        for i in s.outputs:
            last.setdefault(i, k)
    for reads in running.values():
        for i in reads:
            last.pop(i, None)
    dead: dict[int, list[int]] = {}
    for i, k in last.items():
        if i not in keep:
            dead.setdefault(k, []).append(i)
    return {k: tuple(v) for k, v in dead.items()}
