"""Moving values between devices: through the host, with gradients that move back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..autodiff.tape import GradFn, Rule, mode
from ..core import dtype as dt
from ..core.errors import ValueRangeError
from ..device.device import Device

if TYPE_CHECKING:
    from .tensor import Tensor


def _landing(t: Any, device: Device) -> dt.DType:
    """The dtype a value has on a device: its own, or 32 bits where the device lacks 64."""
    narrow = {dt.int64: dt.int32, dt.float64: dt.float32}
    d: dt.DType = t.dtype
    if d not in device.backend.dtypes:
        d = narrow.get(d, d)
    device.backend.check_dtype(d, "to")
    return d


def _landed(t: Any, host: Any, d: dt.DType, device: Device) -> Any:
    from .tensor import from_store

    bounds = None
    if host.dtype.kind in "iu" and host.size:
        bounds = (int(host.min()), int(host.max()))
        info = np.iinfo(d.np)
        if bounds[0] < info.min or bounds[1] > info.max:
            bad = bounds[0] if bounds[0] < info.min else bounds[1]
            raise ValueRangeError(
                f"to {device}: {bad} does not fit {d.name}, which the device has for {t.dtype.name}"
            )
    store = device.backend.from_host(np.ascontiguousarray(host, d.np).reshape(t.shape), d)
    store.bounds = bounds
    out = from_store(store, t.shape, d, device)
    if t._fn is not None and mode.enabled and device.is_autodiff:
        home = t.device
        out._fn = GradFn(Rule("to", lambda c, g: (g.to(home),)), out._node, (t,))
    elif t._requires and t._fn is None and device.is_autodiff:
        out.requires_grad_()
    return out


def move(t: Tensor, device: Device) -> Any:
    """Compute, copy to the host and on to another device. int64 narrows with a range check."""
    d = _landing(t, device)
    return _landed(t, t.numpy(), d, device)


async def move_async(t: Tensor, device: Device) -> Any:
    """`move` for programs that must not block."""
    d = _landing(t, device)
    return _landed(t, await t.numpy_async(), d, device)
