"""torch's name for what acts on many gradients at once, and for padded sequences."""

from . import rnn
from .clip import clip_grad_norm_, clip_grad_value_, get_total_norm

__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "rnn"]
