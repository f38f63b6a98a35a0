"""Layers that resize, pad, shuffle and unfold images."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .module import Module


class Upsample(Module):
    """Resizes [N, C, *] to size, or by scale_factor; modes as functional.interpolate."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input: Any) -> Any:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PixelShuffle(Module):
    """[*, C r r, H, W] to [*, C, H r, W r]."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Any) -> Any:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """[*, C, H r, W r] to [*, C r r, H, W]."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Any) -> Any:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleaves the channels of groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Any) -> Any:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Unfold(Module):
    """Windows of [N, C, H, W] as columns [N, C * KH * KW, windows]."""

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Any) -> Any:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Fold(Unfold):
    """Columns added up in an image of output_size."""

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Any) -> Any:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"


class _Pad(Module):
    n = 0
    mode = "constant"

    def __init__(self, padding: Any, value: float = 0.0) -> None:
        super().__init__()
        self.padding = (padding,) * (2 * self.n) if isinstance(padding, int) else tuple(padding)
        self.value = value

    def forward(self, input: Any) -> Any:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return str(self.padding)


class ConstantPad1d(_Pad):
    n = 1


class ConstantPad2d(_Pad):
    n = 2


class ConstantPad3d(_Pad):
    n = 3


class ZeroPad1d(_Pad):
    n = 1


class ZeroPad2d(_Pad):
    n = 2


class ZeroPad3d(_Pad):
    n = 3


class ReflectionPad1d(_Pad):
    n, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    n, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    n, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    n, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    n, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    n, mode = 3, "replicate"


class CircularPad1d(_Pad):
    n, mode = 1, "circular"


class CircularPad2d(_Pad):
    n, mode = 2, "circular"


class CircularPad3d(_Pad):
    n, mode = 3, "circular"
