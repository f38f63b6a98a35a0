"""The driver for native GPUs. Only this package imports wgpu, and only when somebody imports it."""

from .driver import NativeDriver

__all__ = ["NativeDriver"]
