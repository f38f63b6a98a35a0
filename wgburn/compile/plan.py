"""The plan: launches over numbered slots, what their parameters are made of, where outputs are.

Owns: `Plan`, access modes of bindings, filling parameter blocks. Must not know: nodes,
tensors, drivers. A plan holds no buffer and no number, so it can be cached, replayed, exported and
sent away.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgburn_runtime.driver import PARAMS_ALIGN
from wgburn_runtime.memory import Request
from wgburn_runtime.queue import Launch, LaunchList, Window
from wgburn_runtime.scratch import Spot

from ..core.dtype import DType
from .affine import ZERO, Num
from .place import lives, place
from .program import Step, opened


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
    """Slots: the leaves first, then what a run allocates for outputs (`requests`); what lives only
    while it runs has its place in scratch pages (`launches.regions`)."""

    launches: LaunchList
    leaves: int
    requests: tuple[Request, ...]
    outputs: tuple[OutputSlot, ...]
    template: bytes  # parameter blocks with every number of the plan filled in
    floats: tuple[NDArray[np.int64], tuple[int, ...]]  # word numbers, number slots
    words: tuple[tuple[int, str, Num], ...]  # word number, type, integer from slots
    steps: tuple[Step, ...]  # for people: explain, debug output
    bases: tuple[int, ...] = ()  # leaf slots whose place in their page is a number of the plan

    def asked(self, lasting: Sequence[bool]) -> Sequence[Request]:
        """What a run allocates, where `lasting` says which outputs are weights."""
        if not any(lasting):
            return self.requests
        weights = {o.slot for o, mine in zip(self.outputs, lasting, strict=True) if mine}
        return [r._replace(lasting=k + self.leaves in weights) for k, r in enumerate(self.requests)]

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


@dataclass(frozen=True)
class Weights:
    """What of a plan's memory are weights: leaf slots in pages of their own, and numbers of buffers
    that stand for the whole page of a leaf slot (`windows`), with what they hold."""

    slots: frozenset[int] = frozenset()
    windows: Mapping[int, int] = field(default_factory=dict)
    bases: tuple[int, ...] = ()


def build(
    steps: Sequence[Step],
    sizes: dict[int, int],
    leaves: int,
    outputs: Sequence[OutputSlot],
    max_groups: int,
    label: str,
    weights: Weights,
) -> Plan:
    """A plan from steps over the plan's buffer numbers (0..leaves-1 are leaf slots)."""
    steps = [s for s in steps if s.groups]
    kept = sorted({o.slot for o in outputs if o.slot >= leaves})
    slot_of = {b: b for b in range(leaves)}
    slot_of.update({b: leaves + k for k, b in enumerate(kept)})
    inner = {b: n for b, n in sizes.items() if b not in slot_of}
    placement = place(lives([s.buffers for s in steps], inner))
    regions: list[Spot | Window] = list(placement.spots.values())
    slot_of.update({b: -1 - k for k, b in enumerate(placement.spots)})
    for b, leaf in weights.windows.items():
        regions.append(Window(leaf))
        slot_of[b] = -len(regions)
    template, floats, words, offsets = _blocks(steps)
    programs: dict[Any, int] = {}
    launches = []
    steps = [replace(s, program=opened(s.program, _modes(s, leaves, kept, weights))) for s in steps]
    for s, offset in zip(steps, offsets, strict=True):
        number = programs.setdefault(s.program, len(programs))
        # As even a rectangle as holds all workgroups: those beyond only find that out.
        y = -(-s.groups // max_groups)
        grid = (-(-s.groups // y), y, 1)
        launches.append(Launch(number, tuple(slot_of[b] for b in s.buffers), grid, offset))
    outs = tuple(
        OutputSlot(slot_of[o.slot], o.shape, o.dtype, o.strides, o.offset) for o in outputs
    )
    list_ = LaunchList(
        tuple(programs), tuple(launches), len(template), label, tuple(regions), placement.pages
    )
    requests = tuple(Request(sizes[b], False, _label(outputs, b)) for b in kept)
    return Plan(list_, leaves, requests, outs, template, floats, words, tuple(steps), weights.bases)


def _label(outputs: Sequence[OutputSlot], buffer: int) -> str:
    o = next(o for o in outputs if o.slot == buffer)
    return f"{o.dtype.name}{list(o.shape)}"


def _modes(s: Step, leaves: int, kept: Sequence[int], weights: Weights) -> list[bool]:
    """Which bindings are read_write. Values share pages, and a page that a launch writes cannot be
    bound read-only beside: so everything is read_write but weights, and these too where the launch
    stores what may be a weight (an update in place, or a result that stays)."""
    own = [b in weights.slots or b in weights.windows for b in s.buffers]
    written = [mode == "w" for mode in s.program.access]
    stores = any(
        (w and (b < leaves or mine)) or b in kept
        for b, mine, w in zip(s.buffers, own, written, strict=True)
    )
    return [w or stores or not mine for mine, w in zip(own, written, strict=True)]
