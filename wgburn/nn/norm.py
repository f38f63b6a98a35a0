"""Normalisation layers."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..core import journal
from ..core.errors import ShapeError
from ..tensor.creation import ones, zeros
from . import functional as F
from .module import Module
from .parameter import Parameter


def _add_affine(
    module: Module, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any
) -> None:
    """Parameters that scale by 1 and shift by 0 at first, where wanted."""
    scale = Parameter(ones(shape, dtype=dtype, device=device)) if weight else None
    shift = Parameter(zeros(shape, dtype=dtype, device=device)) if bias else None
    module.register_parameter("weight", scale)
    module.register_parameter("bias", shift)


def _put_back(good: dict[str, Any], name: str, node: Any) -> None:
    if node is None:
        good.pop(name, None)
    else:
        good[name] = node


class _RunningNorm(Module):
    """Parameters a channel, and statistics that follow the batches."""

    dims: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        _add_affine(self, num_features, affine, affine and bias, device, dtype)
        if track_running_stats:
            self.register_buffer(
                "running_mean", zeros(num_features, dtype=dtype, device=device).detach()
            )
            self.register_buffer(
                "running_var", ones(num_features, dtype=dtype, device=device).detach()
            )
            self.register_counter("num_batches_tracked")
        else:
            self.register_buffer("running_mean", None)
            self.register_buffer("running_var", None)
            self.register_buffer("num_batches_tracked", None)
        self.__dict__["_good"] = {}

    def _check(self, input: Any) -> None:
        if input.ndim not in self.dims:
            wanted = " or ".join(map(str, self.dims))
            raise ShapeError(
                f"{type(self).__name__} takes {wanted} dimensions, the input is {input.shape}"
            )
        channels = input.shape[1 if input.ndim == max(self.dims) or len(self.dims) == 1 else 0]
        if channels != self.num_features and self.affine:
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}): input {input.shape} has {channels} "
                "channels"
            )

    def _heal(self) -> None:
        """Statistics that a failed step left without a value go back to the last that had one."""
        good = self.__dict__["_good"]
        for name in ("running_mean", "running_var"):
            t = self._buffers[name]
            if t is None:
                continue
            if t._node.error is not None and name in good:
                t._node = good[name]
            elif t._node.store is not None:
                if journal.active():
                    journal.note(partial(_put_back, good, name, good.get(name)))
                good[name] = t._node

    def _factor(self) -> float:
        """Count the batch; how much it moves the statistics (momentum None: their plain mean)."""
        before = self._counters["num_batches_tracked"]
        journal.note(partial(self._counters.__setitem__, "num_batches_tracked", before))
        seen = self._counters["num_batches_tracked"] = before + 1
        return 1.0 / seen if self.momentum is None else self.momentum

    def __getstate__(self) -> dict[str, Any]:
        # Kept nodes are of this process and device; copies start without.
        return {**self.__dict__, "_good": {}}

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def _check(self, input: Any) -> None:
        if input.ndim not in self.dims:
            wanted = " or ".join(map(str, self.dims))
            raise ShapeError(
                f"{type(self).__name__} takes {wanted} dimensions, the input is {input.shape}"
            )

    def forward(self, input: Any) -> Any:
        self._check(input)
        tracking = self.training and self.track_running_stats
        self._heal()
        factor = self._factor() if tracking else 0.0
        batch = self.training or self.running_mean is None
        use = tracking or not batch
        return F.batch_norm(
            input,
            self.running_mean if use else None,
            self.running_var if use else None,
            self.weight,
            self.bias,
            batch,
            factor,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Over [N, C] or [N, C, L]."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Over [N, C, H, W]."""

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Over [N, C, D, H, W]."""

    dims = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Any) -> Any:
        self._check(input)
        x = input.unsqueeze(0) if input.ndim == min(self.dims) else input
        by_input = self.training or not self.track_running_stats
        tracking = self.training and self.track_running_stats
        self._heal()
        # torch counts no batches here.
        factor = self.momentum if tracking and self.momentum is not None else 0.0
        use = tracking or not by_input
        y = F.instance_norm(
            x,
            self.running_mean if use else None,
            self.running_var if use else None,
            self.weight,
            self.bias,
            by_input,
            factor,
            self.eps,
        )
        return y if x is input else y.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Over [N, C, L] or [C, L]."""

    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Over [N, C, H, W] or [C, H, W]."""

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Over [N, C, D, H, W] or [C, D, H, W]."""

    dims = (4, 5)


class GroupNorm(Module):
    """Over groups of channels of [N, C, *]."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"GroupNorm: {num_channels} channels do not form {num_groups} equal groups"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        _add_affine(self, num_channels, affine, affine and bias, device, dtype)

    def forward(self, input: Any) -> Any:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LayerNorm(Module):
    """Over the last dimensions, which are normalized_shape."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shift = elementwise_affine and bias
        _add_affine(self, self.normalized_shape, elementwise_affine, shift, device, dtype)

    def forward(self, input: Any) -> Any:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class RMSNorm(Module):
    """Divides by the root mean square over the last dimensions, which are normalized_shape."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = (
            Parameter(ones(self.normalized_shape, dtype=dtype, device=device))
            if elementwise_affine
            else None
        )
        self.register_parameter("weight", weight)

    def forward(self, input: Any) -> Any:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )
