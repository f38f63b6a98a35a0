"""Errors of the runtime layer, which wgburn turns into its own. Owns: exception classes only."""

from __future__ import annotations


class RuntimeLayerError(RuntimeError):
    """Base of every error the runtime raises on purpose."""


class DriverError(RuntimeLayerError):
    """WebGPU refused a call: validation, internal error, wrong use of a handle."""


class LimitError(DriverError):
    """A request breaks a limit of the device; the message names limit, value and maximum."""


class ProgramError(DriverError):
    """A WGSL program does not compile; the message names the program and the offending line."""


class OutOfMemoryError(DriverError):
    """The device has no room for a buffer."""


class DeviceLostError(DriverError):
    """The device is gone (destroyed, reset, unplugged); open a new one."""


class AdapterUnavailableError(DriverError):
    """No adapter fits the request; the message says what was wanted and what to install or use."""


class SyncUnavailableError(RuntimeLayerError):
    """A blocking call was made where blocking is impossible; the message names the async call."""
