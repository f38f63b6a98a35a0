"""Sequences of several lengths: padded together, with the lengths beside them.

Owns: PackedSequence and the functions by torch's names. Must not know: layers. Unlike torch's, a
packed sequence keeps the padded tensor, so any order of lengths does and nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import ShapeError, ValueRangeError
from ...tensor.creation import tensor
from ...tensor.movement import stack


class PackedSequence:
    """A padded batch and the length of each sequence."""

    def __init__(self, padded: Any, lengths: Sequence[int], batch_first: bool) -> None:
        self.padded = padded
        self.lengths = tuple(lengths)
        self.batch_first = batch_first

    @property
    def shape(self) -> tuple[int, ...]:
        return self.padded.shape  # type: ignore[no-any-return]

    def masks(self) -> Any:
        """[L, N, 1]: true while a sequence lasts; None where all fill the batch."""
        steps = self.padded.shape[1 if self.batch_first else 0]
        if all(n == steps for n in self.lengths):
            return None
        lasts = np.arange(steps)[:, None] < np.array(self.lengths)[None]
        return tensor(lasts[..., None], device=self.padded.device.inner())

    def with_padded(self, padded: Any) -> PackedSequence:
        return PackedSequence(padded, self.lengths, self.batch_first)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.with_padded(self.padded.to(*args, **kwargs))


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """A batch [L, N, *] (batch_first: [N, L, *]) with the length of each sequence.

    Raises ValueRangeError for a length of 0 or beyond L, and with enforce_sorted unless they fall.
    """
    found = [int(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]
    if input.ndim < 2:
        raise ShapeError(f"pack_padded_sequence: input {input.shape} must be [L, N, *]")
    n, steps = (input.shape[0], input.shape[1]) if batch_first else input.shape[1::-1]
    if len(found) != n:
        raise ShapeError(f"pack_padded_sequence: {len(found)} lengths for {n} sequences")
    if any(not 1 <= k <= steps for k in found):
        raise ValueRangeError(f"pack_padded_sequence: lengths {found} must be 1 to {steps}")
    if enforce_sorted and found != sorted(found, reverse=True):
        raise ValueRangeError(
            f"pack_padded_sequence: lengths {found} do not fall; pass enforce_sorted=False"
        )
    longest = max(found)
    return PackedSequence(input.narrow(1 if batch_first else 0, 0, longest), found, batch_first)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """(padded batch, lengths as int32). Places beyond a sequence's end are padding_value."""
    out = sequence.padded
    masks = sequence.masks()
    if sequence.batch_first != batch_first:
        out = out.transpose(0, 1)
    if masks is not None:
        masks = masks.transpose(0, 1) if batch_first else masks
        masks = masks.reshape((*out.shape[:2], *[1] * (out.ndim - 2)))
        out = masks.where(out, padding_value)
    steps = out.shape[1 if batch_first else 0]
    if total_length is not None:
        if total_length < steps:
            raise ValueRangeError(
                f"pad_packed_sequence: total_length={total_length} is below {steps}"
            )
        widths = [(0, 0)] * out.ndim
        widths[1 if batch_first else 0] = (0, total_length - steps)
        out = out.pad_constant(widths, padding_value)
    return out, tensor(list(sequence.lengths), device=out.device.inner())


def pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0
) -> Any:
    """Sequences [L_i, *] as one batch, the shorter ones filled up."""
    longest = max(s.shape[0] for s in sequences)
    padded = []
    for s in sequences:
        widths = [(0, longest - s.shape[0])] + [(0, 0)] * (s.ndim - 1)
        padded.append(s.pad_constant(widths, padding_value))
    return stack(padded, 0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences [L_i, *] packed."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)
