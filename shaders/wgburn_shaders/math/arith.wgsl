// Division, roots, remainders, rounding and conversion of floats.

// IEEE division for normal operands and all special ones. WGSL promises nothing for divisors above
// 2^126, whose reciprocal is subnormal, so both sides are made smaller there.
fn wb_div(a: f32, b: f32) -> f32 {
    let scale = select(1.0, 0.0625, wb_abs(b) > 2.1267648e37);
    return (a * scale) / (b * scale);
}

fn wb_sqrt(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    // Zeros, +inf and NaN are their own roots; a root made as x * inverseSqrt(x) would lose them.
    let own = (bits & 0x7fffffffu) == 0u || bits == 0x7f800000u || wb_isnan(x);
    let root = select(sqrt(wb_abs(x)), x, own);
    return select(root, wb_nan(), bits > 0x80000000u);
}

fn wb_rsqrt(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    var root = inverseSqrt(wb_abs(x));
    root = select(root, 0.0, bits == 0x7f800000u);
    root = select(root, wb_with_sign(wb_inf(), x), (bits & 0x7fffffffu) == 0u);
    return select(root, wb_nan(), bits > 0x80000000u || wb_isnan(x));
}

// sqrt(a * a + b * b), scaled so that neither square overflows or vanishes. Infinity wins over NaN.
fn wb_hypot(a: f32, b: f32) -> f32 {
    let bits = max(bitcast<u32>(a) & 0x7fffffffu, bitcast<u32>(b) & 0x7fffffffu);
    let big = bits > 0x5d800000u; // 2^60
    let small = bits < 0x21800000u; // 2^-60
    let scale = select(select(1.0, 1.1805916e21, small), 8.4703295e-22, big);
    let back = select(select(1.0, 8.4703295e-22, small), 1.1805916e21, big);
    let x = a * scale;
    let y = b * scale;
    let result = select(wb_sqrt(x * x + y * y) * back, wb_nan(), wb_unordered(a, b));
    return select(result, wb_inf(), wb_isinf(a) || wb_isinf(b));
}

fn wb_floor(x: f32) -> f32 {
    return floor(x);
}

// Halves go to the even neighbour.
fn wb_round(x: f32) -> f32 {
    return round(x);
}

fn wb_trunc(x: f32) -> f32 {
    return trunc(x);
}

// C's fmod, exact for every pair: a long division of the mantissas, eight bits a turn.
fn wb_fmod(x: f32, y: f32) -> f32 {
    let ux = bitcast<u32>(x) & 0x7fffffffu;
    let uy = bitcast<u32>(y) & 0x7fffffffu;
    if (ux >= 0x7f800000u || uy > 0x7f800000u || uy == 0u) {
        return wb_nan();
    }
    if (ux < uy) {
        return x;
    }
    // Subnormals have the exponent of the smallest normal number and no hidden bit.
    let ex = max(ux >> 23u, 1u);
    let ey = max(uy >> 23u, 1u);
    let my = select((uy & 0x7fffffu) | 0x800000u, uy, uy < 0x800000u);
    var rest = select((ux & 0x7fffffu) | 0x800000u, ux, ux < 0x800000u) % my;
    var steps = ex - ey;
    while (steps > 0u && rest != 0u) {
        let step = min(steps, 8u);
        rest = (rest << step) % my;
        steps -= step;
    }
    // rest * 2^(ey - 150): as an integer for subnormal results, by its exponent otherwise.
    let exact = bitcast<u32>(f32(rest));
    let exponent = i32(exact >> 23u) + i32(ey) - 150;
    let normal = exact + (bitcast<u32>(i32(ey) - 150) << 23u);
    let subnormal = rest << min(ey - 1u, 23u);
    return wb_with_sign(bitcast<f32>(select(normal, subnormal, exponent < 1 || rest == 0u)), x);
}

// Python's % for floats: the sign of y, except that a zero keeps the sign of x (as torch does).
fn wb_remainder(x: f32, y: f32) -> f32 {
    let rest = wb_fmod(x, y);
    let opposite = ((bitcast<u32>(rest) ^ bitcast<u32>(y)) >> 31u) == 1u;
    let zero = (bitcast<u32>(rest) & 0x7fffffffu) == 0u;
    return select(rest, rest + y, opposite && !zero && !wb_isnan(rest));
}

// Towards zero; out of range goes to the nearest end, NaN to 0.
fn wb_f32_to_i32(x: f32) -> i32 {
    let inside = i32(clamp(select(x, 0.0, wb_isnan(x)), -2147483648.0, 2147483520.0));
    return select(inside, 2147483647, wb_ge(x, 2147483648.0));
}

fn wb_f32_to_u32(x: f32) -> u32 {
    let inside = u32(clamp(select(x, 0.0, wb_isnan(x)), 0.0, 4294967040.0));
    return select(inside, 0xffffffffu, wb_ge(x, 4294967296.0));
}
