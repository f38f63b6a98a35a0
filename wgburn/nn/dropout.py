"""Dropout layers: noise in training, nothing in eval()."""

from __future__ import annotations

from typing import Any

from ..core.errors import ValueRangeError
from . import functional as F
from .module import Module


class _Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueRangeError(f"{type(self).__name__}: p={p} must be a probability, 0 to 1")
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout(_Dropout):
    """Zeroes elements with probability p, scales the rest by 1 / (1 - p)."""

    def forward(self, input: Any) -> Any:
        return F.dropout(input, self.p, self.training)


class Dropout1d(_Dropout):
    """Zeroes whole channels of [N, C, L]."""

    def forward(self, input: Any) -> Any:
        return F.dropout1d(input, self.p, self.training)


class Dropout2d(_Dropout):
    """Zeroes whole channels of [N, C, H, W]."""

    def forward(self, input: Any) -> Any:
        return F.dropout2d(input, self.p, self.training)


class Dropout3d(_Dropout):
    """Zeroes whole channels of [N, C, D, H, W]."""

    def forward(self, input: Any) -> Any:
        return F.dropout3d(input, self.p, self.training)
