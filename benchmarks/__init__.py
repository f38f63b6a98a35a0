"""Benchmarks: the same works on wgburn's devices and on other systems, side by side in one run."""
