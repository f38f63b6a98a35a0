"""Speed of the heavy kernels alone, through the harness of their tests. Prints medians only.

python benchmarks/kernels.py [matmul] [conv]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kernel_harness import Launch, device

from wgburn_shaders.kernels import conv, matmul
from wgburn_shaders.kernels.body import Tile


def report(name: str, flops: float, launch: Launch) -> None:
    ms = launch.median_ms()
    print(f"{name:44s} {ms:9.2f} ms {flops / ms / 1e6:8.2f} GFLOP/s", flush=True)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def bench_matmul(software: bool) -> None:
    for n in (512, 1024):
        for tile in (None, Tile(8, 8, 8, 8), Tile(4, 4, 8, 8), Tile(8, 16, 8, 1)):
            a, b, out = random(n, n), random(n, n), np.zeros((n, n), np.float32)
            spec, splits = matmul.choose("f32", (), n, n, n, tile, software)
            values = matmul.launch(spec, (), n, n, n, (n, 1), (n, 1), splits=splits)
            label = f"matmul {n} tile {spec.tm}x{spec.tn} lanes {spec.wx}x{spec.wy}"
            report(label, 2 * n**3, Launch(matmul.build(spec), [a, b], out, *values))


def bench_conv(software: bool) -> None:
    n, kernel, one = 64, (3, 3), (1, 1)
    for c, o, size in ((1, 64, (28, 28)), (64, 64, (13, 13))):
        out = (size[0] - 2, size[1] - 2)
        sizes = conv.ConvSizes(n, c, o, size, out, (0, 0))
        x, w, g = random(n, c, *size), random(o, c, *kernel), random(n, o, *out)
        flops = 2 * n * o * c * 9 * out[0] * out[1]
        work = {
            conv.FORWARD: ([x, w], g.shape),
            conv.INPUT_GRAD: ([g, w], x.shape),
            conv.WEIGHT_GRAD: ([g, x], w.shape),
        }
        for kind, (inputs, shape) in work.items():
            spec, splits = conv.choose(kind, "f32", kernel, one, one, sizes, None, software)
            result = np.zeros((splits, *shape), np.float32)
            values = conv.launch(spec, sizes, splits=splits)
            label = f"conv {c}->{o} {kind} tile {spec.tm}x{spec.tn} splits {splits}"
            report(label, flops, Launch(conv.build(spec), inputs, result, *values))


if __name__ == "__main__":
    info = device().adapter.info
    print("#", info["device"])
    software = info["adapter_type"].upper() == "CPU"
    wanted = sys.argv[1:] or ["matmul", "conv"]
    if "matmul" in wanted:
        bench_matmul(software)
    if "conv" in wanted:
        bench_conv(software)
