"""The WGSL math library against float64, on whatever Vulkan adapter there is (lavapipe in CI).

Each function is held to 4 ulp or 1e-6 relative over all exponents and every special value; `-s`
prints what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import wgpu

from wgburn_shaders import library

F32 = np.float32
TINY = 2.0**-126  # results below may flush to zero
ULPS = 4.0
RELATIVE = 1e-6

pytestmark = pytest.mark.quick


TYPES = {"f": "f32", "i": "i32", "u": "u32"}
NUMPY = {"f": np.float32, "i": np.int32, "u": np.uint32, "b": np.uint32}


def kernel(expression: str, kinds: str, out: str) -> str:
    """A program that computes `expression` over x, y, ... (kinds: f, i or u each; out also b)."""
    wgsl, lets = library.link(expression), ""
    for slot, kind in enumerate(kinds):
        wgsl += f"@group(0) @binding({slot}) var<storage, read> in{slot}: array<{TYPES[kind]}>;\n"
        lets += f"    let {'xyzw'[slot]} = in{slot}[i];\n"
    value = f"select(0u, 1u, {expression})" if out == "b" else f"bitcast<u32>({expression})"
    return wgsl + (
        f"@group(0) @binding({len(kinds)}) var<storage, read_write> result: array<u32>;\n"
        "@compute @workgroup_size(64)\n"
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        "    let i = id.x;\n    if (i >= arrayLength(&result)) { return; }\n"
        f"{lets}    result[i] = {value};\n}}\n"
    )


class Gpu:
    """Runs kernels on the first adapter, opened with the spec's default limits."""

    def __init__(self) -> None:
        adapters = wgpu.gpu.enumerate_adapters_sync()
        vulkan = [a for a in adapters if a.info["backend_type"] == "Vulkan"] or adapters
        if not vulkan:
            pytest.skip("no WebGPU adapter on this machine")
        self.device = vulkan[0].request_device_sync()

    def compile(self, code: str) -> None:
        self.device.create_shader_module(code=code)

    def run(
        self, expression: str, *inputs: np.ndarray, kinds: str = "", out: str = "f"
    ) -> np.ndarray:
        words = self.execute(kernel(expression, kinds or "f" * len(inputs), out), inputs)
        return words.view(NUMPY[out])

    def execute(self, wgsl: str, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        count = len(inputs[0])
        device, usage = self.device, wgpu.BufferUsage
        pipeline = device.create_compute_pipeline(
            layout="auto",
            compute={"module": device.create_shader_module(code=wgsl), "entry_point": "main"},
        )
        buffers = [
            device.create_buffer_with_data(data=np.ascontiguousarray(a), usage=usage.STORAGE)
            for a in inputs
        ]
        buffers.append(device.create_buffer(size=4 * count, usage=usage.STORAGE | usage.COPY_SRC))
        group = device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": slot, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                for slot, b in enumerate(buffers)
            ],
        )
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(-(-count // 64))
        compute.end()
        device.queue.submit([encoder.finish()])
        return np.frombuffer(device.queue.read_buffer(buffers[-1]), np.uint32)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu()


_MAGNITUDES = """
    0 1 0.5 1.5 2 2.5 3 10 1e-45 1e-39 1.17549435e-38 3.4028235e38 1e30 8388608 8388609 16777216
    16777217 2147483648 4294967296 3.14159274 1.57079637 88.72283 88.722839 88.8 89.4 89.5 87.33654
    87.34 103.9 0.99999994 1.0000001 inf nan
"""
SPECIALS = np.array([s * float(m) for m in _MAGNITUDES.split() for s in (1, -1)], dtype=F32)


def dense() -> np.ndarray:
    """Every exponent and sign with random mantissas, the specials, and the busy range again."""
    rng = np.random.default_rng(7)
    exponents = np.repeat(np.arange(512, dtype=np.uint32), 96)
    words = (exponents << np.uint32(23)) | rng.integers(0, 1 << 23, exponents.size, dtype=np.uint32)
    busy = np.concatenate(
        [rng.uniform(-1.2, 1.2, 30000), rng.uniform(-12, 12, 30000), rng.uniform(-110, 110, 30000)]
    )
    near_one = 1.0 + rng.uniform(-1, 1, 10000) * 2.0 ** rng.uniform(-24, -1, 10000)
    return np.concatenate([words.view(F32), busy.astype(F32), near_one.astype(F32), SPECIALS])


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """All pairs of specials, random pairs of all exponents, and pairs of like size."""
    rng = np.random.default_rng(11)
    a, b = (g.ravel() for g in np.meshgrid(SPECIALS, SPECIALS))
    words = rng.integers(0, 1 << 32, (2, 40000), dtype=np.uint32).view(F32)
    near = rng.uniform(-30, 30, (2, 40000)).astype(F32)
    whole = np.round(rng.uniform(-9, 9, (2, 5000))).astype(F32)
    return (
        np.concatenate([a, words[0], near[0], whole[0]]),
        np.concatenate([b, words[1], near[1], whole[1]]),
    )


Reference = Callable[..., np.ndarray]


def flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, np.copysign(F32(0), x), x)


def check(name: str, got: np.ndarray, reference: Reference, *inputs: np.ndarray) -> None:
    """Hold `got` (float32) to a float64 reference and print the largest errors.

    A device may read subnormal inputs as zeros: then the reference of the zeros is right as well.
    """
    with np.errstate(all="ignore"):
        want = reference(*(a.astype(np.float64) for a in inputs))
        flushed = reference(*(flush(a).astype(np.float64) for a in inputs))
        good = agrees(got, want)
        error = np.abs(got.astype(np.float64) - want)
        usual = good & np.isfinite(want) & np.isfinite(got) & (np.abs(want) >= TINY)
        ulp = error[usual] / np.spacing(np.abs(want[usual].astype(F32))).astype(np.float64)
        relative = error[usual] / np.abs(want[usual])
        good |= agrees(got, flushed)
    print(f"{name}: max {ulp.max():.2f} ulp, {relative.max():.2e} relative")
    bad = np.flatnonzero(~good)
    rows = [
        f"{tuple(float(a[i]) for a in inputs)}: got {got[i]!r}, want {want[i]!r}" for i in bad[:8]
    ]
    assert bad.size == 0, f"{name}: {bad.size} of {got.size} wrong\n" + "\n".join(rows)


def agrees(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    want32 = want.astype(F32)
    error = np.abs(got.astype(np.float64) - want)
    ulp = error / np.spacing(np.abs(want32)).astype(np.float64)
    good = (ulp <= ULPS) | (error <= RELATIVE * np.abs(want)) | (error <= TINY)
    # Where the exact value is special there is one right answer, sign of zero included.
    exact = ~np.isfinite(want) | (want == 0)
    same = (got.view(np.uint32) == want32.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    # Within rounding of the overflow threshold, infinity and the largest float are both right.
    edge = np.isfinite(want) & (np.abs(want) > 3.402820e38) & (np.abs(got) > 3.402820e38)
    edge &= np.sign(got) == np.sign(want)
    return np.where(exact, same, (good & np.isfinite(got)) | edge)


def each(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.array([function(float(v)) for v in x], np.float64)


def erfinv(x: np.ndarray) -> np.ndarray:
    """By Newton steps on log(erfc), which converges from anywhere in the tail."""

    def one(v: float) -> float:
        a = abs(v)
        if not a < 1.0:
            return math.copysign(math.inf, v) if a == 1.0 else math.nan
        if a < 0.5:
            y = a
            for _ in range(8):
                y -= (math.erf(y) - a) * math.sqrt(math.pi) / 2 * math.exp(y * y)
        else:
            y, target = math.sqrt(-math.log(1 - a)) * 0.9, math.log(1 - a)
            for _ in range(12):
                slope = -2 / math.sqrt(math.pi) * math.exp(-y * y) / math.erfc(y)
                y -= (math.log(math.erfc(y)) - target) / slope
        return math.copysign(y, v)

    return each(one)(x)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "wb_exp": np.exp,
    "wb_exp2": np.exp2,
    "wb_expm1": np.expm1,
    "wb_log": np.log,
    "wb_log2": np.log2,
    "wb_log10": np.log10,
    "wb_log1p": np.log1p,
    "wb_sin": np.sin,
    "wb_cos": np.cos,
    "wb_tan": np.tan,
    "wb_asin": np.arcsin,
    "wb_acos": np.arccos,
    "wb_atan": np.arctan,
    "wb_sinh": np.sinh,
    "wb_cosh": np.cosh,
    "wb_tanh": np.tanh,
    "wb_asinh": np.arcsinh,
    "wb_acosh": np.arccosh,
    "wb_atanh": np.arctanh,
    "wb_sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "wb_softplus": softplus,
    "wb_erf": each(math.erf),
    "wb_erfc": each(math.erfc),
    "wb_erfinv": erfinv,
    "wb_sqrt": np.sqrt,
    "wb_rsqrt": lambda x: 1 / np.sqrt(x),
    "wb_floor": np.floor,
    "wb_round": np.rint,
    "wb_trunc": np.trunc,
    "wb_abs": np.abs,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(gpu: Gpu, name: str) -> None:
    x = dense()
    check(name, gpu.run(f"{name}(x)", x), UNARY[name], x)


@pytest.mark.parametrize("name", ["wb_sin", "wb_cos", "wb_tan"])
def test_angles_next_to_their_zeros(gpu: Gpu, name: str) -> None:
    # The float nearest to each multiple of pi/2 needs the most digits of pi.
    k = np.concatenate([np.arange(1, 20000), 2 ** np.arange(15, 60), 3 ** np.arange(10, 38)])
    x = (k.astype(np.float64) * (np.pi / 2)).astype(F32)
    x = np.concatenate([x, np.nextafter(x, F32(0)), -x, F32([16367173.0 * 2.0**72])])
    check(name, gpu.run(f"{name}(x)", x), UNARY[name], x)


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "wb_atan2": np.arctan2,
    "wb_div": np.divide,
    "wb_hypot": np.hypot,
    "wb_max": np.maximum,
    "wb_min": np.minimum,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(gpu: Gpu, name: str) -> None:
    x, y = pairs()
    if name in ("wb_max", "wb_min"):  # of two zeros of unlike sign either may be returned
        keep = ~((flush(x) == 0) & (flush(y) == 0))
        x, y = x[keep], y[keep]
    check(name, gpu.run(f"{name}(x, y)", x, y), BINARY[name], x, y)


def test_pow(gpu: Gpu) -> None:
    rng = np.random.default_rng(3)
    x, y = pairs()
    # Where the result is an ordinary number: any base, exponents up to overflow.
    base = (2.0 ** rng.uniform(-126, 127, 60000)).astype(F32)
    power = (rng.uniform(-126, 127, 60000) / np.log2(base)).astype(F32)
    near = (1.0 + rng.uniform(-0.5, 1.0, 60000) * 2.0 ** rng.uniform(-20, 0, 60000)).astype(F32)
    with np.errstate(all="ignore"):
        steep = (rng.uniform(-126, 127, 60000) / np.log2(near.astype(np.float64))).astype(F32)
    x, y = np.concatenate([x, base, near]), np.concatenate([y, power, steep])
    check("wb_pow", gpu.run("wb_pow(x, y)", x, y), np.power, x, y)


def same(got: np.ndarray, want: np.ndarray, *inputs: np.ndarray) -> None:
    """Bit for bit, any NaN equal to any other."""
    bad = got.view(np.uint32) != want.view(np.uint32)
    if got.dtype == F32:
        bad &= ~(np.isnan(got) & np.isnan(want))
    where = np.flatnonzero(bad)
    rows = [f"{[a[i] for a in inputs]}: got {got[i]!r}, want {want[i]!r}" for i in where[:8]]
    assert where.size == 0, f"{where.size} of {got.size} wrong\n" + "\n".join(rows)


def test_remainders_are_exact(gpu: Gpu) -> None:
    x, y = pairs()
    with np.errstate(all="ignore"):
        fmod = np.fmod(x, y)
        want = np.where((fmod != 0) & (np.signbit(fmod) != np.signbit(y)), fmod + y, fmod)
    # The sum y + fmod is float arithmetic, which may flush a subnormal.
    normal = (flush(fmod) == fmod) & (flush(y) == y) & (flush(want) == want) | np.isnan(want)
    same(gpu.run("wb_fmod(x, y)", x, y), fmod, x, y)
    got = gpu.run("wb_remainder(x, y)", x, y)
    same(got[normal], want.astype(F32)[normal], x[normal], y[normal])


def test_tests_and_comparisons(gpu: Gpu) -> None:
    x, y = (flush(a) for a in pairs())
    for name, want in {
        "wb_isnan(x)": np.isnan(x),
        "wb_isinf(x)": np.isinf(x),
        "wb_isfinite(x)": np.isfinite(x),
        "wb_lt(x, y)": x < y,
        "wb_le(x, y)": x <= y,
        "wb_gt(x, y)": x > y,
        "wb_ge(x, y)": x >= y,
        "wb_eq(x, y)": x == y,
        "wb_ne(x, y)": x != y,
        "!wb_lt(x, y)": ~(x < y),
        "!wb_eq(x, x)": np.isnan(x),
        "wb_ne(x, x)": np.isnan(x),
    }.items():
        same(gpu.run(name, x, y, out="b"), want.astype(np.uint32), x, y)


def test_sign_and_constants(gpu: Gpu) -> None:
    x = dense()
    with np.errstate(all="ignore"):
        want = np.sign(x) + F32(0)  # of -0.0 it is 0.0
    same(gpu.run("wb_sign(x)", x), want, x)
    assert np.isnan(gpu.run("wb_nan()", x[:64])).all()
    assert (gpu.run("wb_inf()", x[:64]) == np.inf).all()
    assert (gpu.run("-wb_inf()", x[:64]) == -np.inf).all()


def int_pairs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    edge = np.array([0, 1, -1, 2, -2, 3, -3, 7, -7, 2**31 - 1, -(2**31), -(2**31) + 1], np.int64)
    a, b = (g.ravel() for g in np.meshgrid(edge, edge))
    a = np.concatenate([a, rng.integers(-(2**31), 2**31, 3000), rng.integers(-40, 40, 3000)])
    b = np.concatenate([b, rng.integers(-(2**31), 2**31, 3000), rng.integers(-40, 40, 3000)])
    return a, b


def test_integers(gpu: Gpu) -> None:
    a, b = int_pairs()
    divisor = np.where(b == 0, 1, b)
    signed = {
        "wb_idiv_floor_i": np.where(b == 0, 0, a // divisor),
        "wb_imod_floor_i": np.where(b == 0, 0, a % divisor),
        "wb_irem_i": np.where(b == 0, 0, np.fmod(a, divisor)),
    }
    x, y = a.astype(np.int32), b.astype(np.int32)
    for name, want in signed.items():
        same(gpu.run(f"{name}(x, y)", x, y, kinds="ii", out="i"), want.astype(np.int32), x, y)
    ua, ub = a & 0xFFFFFFFF, b & 0xFFFFFFFF
    divisor = np.where(ub == 0, 1, ub)
    x, y = ua.astype(np.uint32), ub.astype(np.uint32)
    for name, want in {
        "wb_idiv_floor_u": np.where(ub == 0, 0, ua // divisor),
        "wb_imod_floor_u": np.where(ub == 0, 0, ua % divisor),
        "wb_irem_u": np.where(ub == 0, 0, ua % divisor),
    }.items():
        same(gpu.run(f"{name}(x, y)", x, y, kinds="uu", out="u"), want.astype(np.uint32), x, y)


def test_integer_powers(gpu: Gpu) -> None:
    a, b = int_pairs()

    def power(x: int, y: int) -> int:
        if y < 0:
            return {1: 1, -1: 1 - 2 * (y & 1)}.get(x, 0)
        return pow(x, y, 1 << 32)

    want = np.array(
        [power(int(x), int(y)) & 0xFFFFFFFF for x, y in zip(a, b, strict=True)], np.uint32
    )
    x, y = a.astype(np.int32), b.astype(np.int32)
    same(gpu.run("wb_ipow_i(x, y)", x, y, kinds="ii", out="u"), want, x, y)
    ua, ub = (a & 0xFFFFFFFF).astype(np.uint32), (b & 0xFFFFFFFF).astype(np.uint32)
    want = np.array([pow(int(x), int(y), 1 << 32) for x, y in zip(ua, ub, strict=True)], np.uint32)
    same(gpu.run("wb_ipow_u(x, y)", ua, ub, kinds="uu", out="u"), want, ua, ub)


def test_conversions_saturate(gpu: Gpu) -> None:
    x = dense()
    with np.errstate(all="ignore"):
        wide = np.where(np.isnan(x), 0, np.trunc(x.astype(np.float64)))
    want = np.clip(wide, -(2.0**31), 2.0**31 - 1).astype(np.int64).astype(np.int32)
    same(gpu.run("wb_f32_to_i32(x)", x, out="i"), want, x)
    want_u = np.clip(wide, 0, 2.0**32 - 1).astype(np.uint64).astype(np.uint32)
    same(gpu.run("wb_f32_to_u32(x)", x, out="u"), want_u, x)


@pytest.mark.parametrize("name", library.functions())
def test_linked_source_compiles_alone(gpu: Gpu, name: str) -> None:
    source = library.link(f"{name}()")
    assert source.count(f"fn {name}(") == 1
    # Building the module validates it; an entry point makes it whole.
    gpu.compile(source + "@compute @workgroup_size(1) fn main() {}")


def test_whole_library_compiles(gpu: Gpu) -> None:
    source = library.link(" ".join(f"{name}()" for name in library.functions()))
    names = [line.split("(")[0] for line in source.splitlines() if line.startswith("fn ")]
    assert len(names) == len(set(names)) == len(library.functions())
    gpu.compile(source + "@compute @workgroup_size(1) fn main() {}")


def test_link_finds_dependencies_in_order_and_once() -> None:
    source = library.link("a = wb_sinh(b) + wb_exp(c);")
    for name in ("wb_exp_poly", "wb_exp_scaled", "wb_inf", "wb_sinh", "wb_exp"):
        assert source.count(f"fn {name}(") == 1
    assert source.index("fn wb_exp_poly(") < source.index("fn wb_exp_scaled(")
    assert source.index("fn wb_exp_scaled(") < source.index("fn wb_sinh(")
    assert "struct WbLog" in library.link("wb_log1p(x) + wb_log2(x)")
    assert library.link("wb_exp(x) + wb_sin(y)") == library.link("wb_sin(y) * wb_exp(x)")
    assert library.link("x + 1.0 // wb_exp(x)") == ""


def test_link_names_what_it_does_not_know() -> None:
    with pytest.raises(KeyError, match=r"wb_expm.*wb_expm1"):
        library.link("wb_expm(x)")
    assert library.link("fn wb_mine(x: f32) -> f32 { return x; } fn f() { wb_mine(1.0); }") == ""
    own = library.link("fn wb_isnan(x: f32) -> bool { return false; } fn f() { wb_exp(1.0); }")
    assert "fn wb_exp(" in own
    assert "fn wb_isnan(" not in own
