"""torch's name for what acts on the gradients of many parameters at once."""

from .clip import clip_grad_norm_, clip_grad_value_, get_total_norm

__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm"]
