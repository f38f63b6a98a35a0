"""Kernel builders: from a hashable spec to WGSL, from sizes to parameters and a grid."""

from wgburn_shaders.kernels.body import KernelBody

__all__ = ["KernelBody"]
