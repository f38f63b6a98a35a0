"""Position encodings: sinusoidal (added) and rotary (turns queries and keys)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.errors import ShapeError
from ..device.device import as_device
from ..tensor.creation import tensor
from ..tensor.movement import cat, stack
from ..tensor.tensor import Tensor
from . import functional as F
from .module import Module


def _angles(size: int, max_len: int, base: float) -> NDArray[np.float64]:
    """[max_len, size / 2]: position times a frequency that falls geometrically."""
    frequency = base ** (-np.arange(0, size, 2) / size)
    return np.outer(np.arange(max_len), frequency)


def _constant(values: NDArray[np.float64], device: object) -> Tensor:
    return tensor(values.astype(np.float32), device=as_device(device).inner())


class PositionalEncoding(Module):
    """Adds sines (even places) and cosines (odd places) of the position to [N, L, d_model]."""

    def __init__(
        self, d_model: int, max_len: int = 5000, dropout: float = 0.0, device: object = None
    ) -> None:
        super().__init__()
        angles = _angles(d_model, max_len, 10000.0)
        table = np.empty((max_len, d_model))
        table[:, 0::2] = np.sin(angles)
        table[:, 1::2] = np.cos(angles)[:, : d_model // 2]
        self.d_model, self.max_len, self.dropout = d_model, max_len, dropout
        self.register_buffer("pe", _constant(table, device), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        length = input.shape[-2]
        if input.shape[-1] != self.d_model or length > self.max_len:
            raise ShapeError(
                f"PositionalEncoding({self.d_model}, max_len={self.max_len}): input {input.shape} "
                f"must be [*, L, {self.d_model}] with L at most {self.max_len}"
            )
        out: Tensor = F.dropout(input + self.pe[:length], self.dropout, self.training)
        return out

    def extra_repr(self) -> str:
        return f"{self.d_model}, max_len={self.max_len}"


class RotaryEncoding(Module):
    """Turns pairs of [*, L, dim] by angles that grow with the position.

    interleaved: pairs are neighbours (x0, x1), ...; else (x0, x[dim / 2]), ... as in Llama's
    weights.
    """

    def __init__(
        self,
        dim: int,
        max_len: int = 5000,
        base: float = 10000.0,
        interleaved: bool = True,
        device: object = None,
    ) -> None:
        super().__init__()
        if dim % 2:
            raise ShapeError(f"RotaryEncoding: dim={dim} must be even, it turns pairs")
        self.dim, self.max_len, self.base, self.interleaved = dim, max_len, base, interleaved
        angles = _angles(dim, max_len, base)
        self.register_buffer("cos", _constant(np.cos(angles), device), persistent=False)
        self.register_buffer("sin", _constant(np.sin(angles), device), persistent=False)

    def forward(self, input: Tensor, offset: int = 0) -> Tensor:
        """The first row is at position `offset`."""
        length = input.shape[-2]
        if input.shape[-1] != self.dim or offset + length > self.max_len:
            raise ShapeError(
                f"RotaryEncoding({self.dim}, max_len={self.max_len}): input {input.shape} at "
                "offset "
                f"{offset} must be [*, L, {self.dim}] and end at {self.max_len} at most"
            )
        cos, sin = self.cos[offset : offset + length], self.sin[offset : offset + length]
        half = self.dim // 2
        if self.interleaved:
            pairs = input.reshape((*input.shape[:-1], half, 2))
            a, b = pairs.unbind(-1)
            turned: Tensor = stack([a * cos - b * sin, a * sin + b * cos], -1)
            return turned.reshape(input.shape)
        a, b = input.split(half, -1)
        out: Tensor = cat([a * cos - b * sin, a * sin + b * cos], -1)
        return out

    def extra_repr(self) -> str:
        return f"{self.dim}, max_len={self.max_len}, base={self.base}"
