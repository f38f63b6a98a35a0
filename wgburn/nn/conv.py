"""Convolution layers in 1 to 3 dimensions, and their transposes."""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import ShapeError, ValueRangeError
from ..tensor.creation import empty
from . import functional as F
from . import init
from .functional.checks import per_dim
from .module import Module
from .parameter import Parameter

_PADDINGS = ("zeros", "reflect", "replicate", "circular")


class _Conv(Module):
    n = 0
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        output_padding: Any,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        name, n = type(self).__name__, self.n
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{name}: {in_channels} input and {out_channels} output channels must both be "
                f"divisible by groups={groups}"
            )
        if padding_mode not in _PADDINGS[: 1 if self.transposed else None]:
            raise ValueRangeError(
                f"{name}: padding_mode {padding_mode!r}; use {', '.join(_PADDINGS)}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = per_dim(name, "kernel_size", kernel_size, n)
        self.stride = per_dim(name, "stride", stride, n)
        self.padding = padding if isinstance(padding, str) else per_dim(name, "padding", padding, n)
        self.dilation = per_dim(name, "dilation", dilation, n)
        self.output_padding = per_dim(name, "output_padding", output_padding, n)
        self.groups = groups
        self.padding_mode = padding_mode
        outer, inner = (
            (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        )
        self.weight = Parameter(
            empty((outer, inner // groups, *self.kernel_size), dtype=dtype, device=device)
        )
        self.register_parameter(
            "bias", Parameter(empty(out_channels, dtype=dtype, device=device)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
            init.uniform_(self.bias, -bound, bound)

    def _padded(self, input: Any) -> tuple[Any, Any]:
        """The input and the padding that is left to the convolution."""
        if self.padding_mode == "zeros":
            return input, self.padding
        if isinstance(self.padding, str):
            total = [
                d * (k - 1) if self.padding == "same" else 0
                for d, k in zip(self.dilation, self.kernel_size, strict=True)
            ]
            widths = [(t // 2, t - t // 2) for t in total]
        else:
            widths = [(p, p) for p in self.padding]
        flat = [w for pair in reversed(widths) for w in pair]
        return F.pad(input, flat, self.padding_mode), 0

    def extra_repr(self) -> str:
        out = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        out += f", stride={self.stride}"
        if self.padding != (0,) * self.n:
            out += f", padding={self.padding!r}"
        if self.dilation != (1,) * self.n:
            out += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.n:
            out += f", output_padding={self.output_padding}"
        if self.groups != 1:
            out += f", groups={self.groups}"
        if self.bias is None:
            out += ", bias=False"
        return out if self.padding_mode == "zeros" else f"{out}, padding_mode={self.padding_mode}"


class _Forward(_Conv):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            0,
            device,
            dtype,
        )

    def forward(self, input: Any) -> Any:
        conv = (F.conv1d, F.conv2d, F.conv3d)[self.n - 1]
        input, padding = self._padded(input)
        return conv(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Forward):
    """Convolution of [N, C, L]; padding may be "same" or "valid"."""

    n = 1


class Conv2d(_Forward):
    """Convolution of [N, C, H, W]; padding may be "same" or "valid"."""

    n = 2


class Conv3d(_Forward):
    """Convolution of [N, C, D, H, W]; padding may be "same" or "valid"."""

    n = 3


class _Transposed(_Conv):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            output_padding,
            device,
            dtype,
        )

    def forward(self, input: Any, output_size: Any = None) -> Any:
        """output_size: the spatial size wanted, where stride leaves several possible."""
        conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.n - 1]
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        return conv(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _extra(self, input: Any, output_size: Any) -> tuple[int, ...]:
        want = tuple(output_size)[-self.n :]
        least: tuple[int, ...] = tuple(
            (s - 1) * st - 2 * p + d * (k - 1) + 1
            for s, st, p, d, k in zip(
                input.shape[-self.n :],
                self.stride,
                per_dim(type(self).__name__, "padding", self.padding, self.n),
                self.dilation,
                self.kernel_size,
                strict=True,
            )
        )
        if len(want) != self.n or any(
            not m <= w < m + s for w, m, s in zip(want, least, self.stride, strict=True)
        ):
            raise ShapeError(
                f"{type(self).__name__}: output_size {want} is not reached from input "
                f"{input.shape}: sizes are "
                f"{least} to {tuple(m + s - 1 for m, s in zip(least, self.stride, strict=True))}"
            )
        return tuple(w - m for w, m in zip(want, least, strict=True))


class ConvTranspose1d(_Transposed):
    """Transposed convolution of [N, C, L]."""

    n = 1


class ConvTranspose2d(_Transposed):
    """Transposed convolution of [N, C, H, W]."""

    n = 2


class ConvTranspose3d(_Transposed):
    """Transposed convolution of [N, C, D, H, W]."""

    n = 3
