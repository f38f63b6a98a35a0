"""The plan: launches over numbered slots, what their parameters are made of, where outputs are.

Owns: `Plan`, the memory plan of intermediates, filling parameter blocks. Must not know: nodes,
tensors, drivers. A plan holds no buffer and no number, so it can be cached, replayed, exported and
sent away.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgburn_runtime.driver import PARAMS_ALIGN
from wgburn_runtime.queue import Launch, LaunchList

from ..core.dtype import DType
from .affine import ZERO, Num
from .program import Step


@dataclass(frozen=True)
class OutputSlot:
    """Where an output is: a slot, and for a view its strides and offset in elements."""

    slot: int
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None
    offset: Num = ZERO


@dataclass(frozen=True)
class Plan:
    """Slots: the leaves first, then what a run allocates (`sizes`, bytes)."""

    launches: LaunchList
    leaves: int
    sizes: tuple[int, ...]
    outputs: tuple[OutputSlot, ...]
    template: bytes  # parameter blocks with every number of the plan filled in
    floats: tuple[NDArray[np.int64], tuple[int, ...]]  # word numbers, number slots
    words: tuple[tuple[int, str, Num], ...]  # word number, type, integer from slots
    steps: tuple[Step, ...]  # for people: explain, debug output

    def params(self, numbers: Sequence[Any]) -> bytearray:
        """The parameter bytes of one execution."""
        out = bytearray(self.template)
        where, slots = self.floats
        if slots:
            np.frombuffer(out, np.float32)[where] = np.array(
                [numbers[s] for s in slots], np.float64
            ).astype(np.float32)
        if self.words:
            words = np.frombuffer(out, np.uint32)
            for word, _, num in self.words:
                words[word] = int(num.value(numbers)) & 0xFFFFFFFF
        return out


def _blocks(steps: Sequence[Step]) -> tuple[bytes, Any, Any, list[int]]:
    data = bytearray()
    float_words: list[int] = []
    float_slots: list[int] = []
    words: list[tuple[int, str, Num]] = []
    offsets: list[int] = []
    for s in steps:
        data += b"\0" * (-len(data) % PARAMS_ALIGN)
        offsets.append(len(data) if s.params else 0)
        for p in s.params:
            word = len(data) // 4
            if p.slot >= 0:
                if p.type == "f32":
                    float_words.append(word)
                    float_slots.append(p.slot)
                else:
                    words.append((word, p.type, Num(0, ((p.slot, 1),))))
                data += b"\0\0\0\0"
            else:
                value = p.value if isinstance(p.value, Num) else Num(int(p.value or 0))
                if value.terms:
                    words.append((word, p.type, value))
                data += struct.pack("<I", value.const & 0xFFFFFFFF)
    # The last block's binding is as wide as its struct.
    data += b"\0" * (-len(data) % 16)
    return bytes(data), (np.array(float_words, np.int64), tuple(float_slots)), tuple(words), offsets


def _share(
    steps: Sequence[Step], sizes: dict[int, int], kept: set[int], leaves: int
) -> tuple[dict[int, int], list[int]]:
    """The memory plan: intermediates whose lives do not meet share a slot of at least their
    size."""
    last: dict[int, int] = {}
    for k, s in enumerate(steps):
        for b in s.buffers:
            last[b] = k
    slot_of = {b: b for b in range(leaves)}
    slots: list[int] = []
    free: list[int] = []
    for k, s in enumerate(steps):
        for b in s.buffers:
            if b in slot_of:
                continue
            need = sizes[b]
            # The tightest free slot that is large enough, unless it wastes more than half.
            fits = (
                [f for f in free if need <= slots[f] <= max(2 * need, 4096)]
                if b not in kept
                else []
            )
            if fits:
                best = min(fits, key=lambda f: slots[f])
                free.remove(best)
                slot_of[b] = leaves + best
            else:
                slots.append(need)
                slot_of[b] = leaves + len(slots) - 1
        for b in set(s.buffers):
            if b >= leaves and b not in kept and last[b] == k:
                free.append(slot_of[b] - leaves)
    for b in kept:
        if b not in slot_of:
            slots.append(sizes[b])
            slot_of[b] = leaves + len(slots) - 1
    return slot_of, slots


def build(
    steps: Sequence[Step],
    sizes: dict[int, int],
    leaves: int,
    outputs: Sequence[OutputSlot],
    max_groups: int,
    label: str,
) -> Plan:
    """A plan from steps over the plan's buffer numbers (0..leaves-1 are leaf slots)."""
    steps = [s for s in steps if s.groups]
    kept = {o.slot for o in outputs if o.slot >= leaves}
    slot_of, slots = _share(steps, sizes, kept, leaves)
    template, floats, words, offsets = _blocks(steps)
    programs: dict[Any, int] = {}
    launches = []
    for s, offset in zip(steps, offsets, strict=True):
        number = programs.setdefault(s.program, len(programs))
        x = min(s.groups, max_groups)
        launches.append(
            Launch(number, tuple(slot_of[b] for b in s.buffers), (x, -(-s.groups // x), 1), offset)
        )
    outs = tuple(
        OutputSlot(slot_of[o.slot], o.shape, o.dtype, o.strides, o.offset) for o in outputs
    )
    list_ = LaunchList(tuple(programs), tuple(launches), len(template), label)
    return Plan(list_, leaves, tuple(slots), outs, template, floats, words, tuple(steps))
