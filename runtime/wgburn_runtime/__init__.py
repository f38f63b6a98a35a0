"""wgburn_runtime: WebGPU drivers, buffers, programs and launches. Knows no tensor."""
