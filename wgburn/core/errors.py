"""Public exceptions of wgburn. Owns: exception classes only.

Each error also derives from the builtin a numpy or torch user would catch.
"""

from __future__ import annotations


class WgburnError(Exception):
    """Base of every error wgburn raises on purpose."""


class ShapeError(WgburnError, ValueError):
    """Shapes do not fit an op; the message names the op, the shapes and what would fit."""


class DTypeError(WgburnError, TypeError):
    """An op does not take this dtype, or a device does not have it."""


class ValueRangeError(WgburnError, ValueError):
    """An argument has a value the op cannot use."""


class IndexRangeError(WgburnError, IndexError):
    """An index lies outside the dimension it indexes."""


class DeviceError(WgburnError, RuntimeError):
    """A device is missing, mixed with another, over a limit, or refused a program."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A device has no room for a buffer."""


class DeviceLostError(DeviceError):
    """A device is gone; its tensors cannot be read any more."""


class GradError(WgburnError, RuntimeError):
    """A gradient cannot be computed: plain device, freed tape, changed parameter, no rule."""


class StateDictError(WgburnError, RuntimeError):
    """A state does not fit the module or optimizer it is loaded into; nothing was loaded."""


class FileFormatError(WgburnError, ValueError):
    """A file is missing, damaged, or not of the expected format."""


class SyncUnavailableError(DeviceError):
    """A blocking read where the platform cannot block; the message names the async call."""
