// What floats are made of: special values, tests and comparisons by bits.
//
// Compilers may assume that NaN and infinity never occur, and may reorder float arithmetic. So
// special values are told by their bits, and what must keep its rounding goes through wb_pin.

// A call is never a constant expression, so this is the way to write a non-finite constant.
fn wb_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn wb_nan() -> f32 {
    return wb_bits(0x7fc00000u);
}

fn wb_inf() -> f32 {
    return wb_bits(0x7f800000u);
}

// Clears the last mantissa bit. Callers use it where that bit is known to be 0 or not to matter: no
// compiler can see that, so it can neither fuse nor reorder arithmetic across the call.
fn wb_pin(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffffffeu);
}

// The leading 11 mantissa bits: its product with a factor of 12 bits is exact and may be pinned.
fn wb_head(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xffffe000u);
}

fn wb_isnan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn wb_isinf(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn wb_isfinite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
}

fn wb_unordered(a: f32, b: f32) -> bool {
    return max(bitcast<u32>(a) & 0x7fffffffu, bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u;
}

fn wb_lt(a: f32, b: f32) -> bool {
    return (a < b) && !wb_unordered(a, b);
}

fn wb_le(a: f32, b: f32) -> bool {
    return (a <= b) && !wb_unordered(a, b);
}

fn wb_gt(a: f32, b: f32) -> bool {
    return (a > b) && !wb_unordered(a, b);
}

fn wb_ge(a: f32, b: f32) -> bool {
    return (a >= b) && !wb_unordered(a, b);
}

fn wb_eq(a: f32, b: f32) -> bool {
    return (a == b) && !wb_unordered(a, b);
}

fn wb_ne(a: f32, b: f32) -> bool {
    return !(a == b) || wb_unordered(a, b);
}

fn wb_max(a: f32, b: f32) -> f32 {
    return select(select(max(a, b), b, wb_isnan(b)), a, wb_isnan(a));
}

fn wb_min(a: f32, b: f32) -> f32 {
    return select(select(min(a, b), b, wb_isnan(b)), a, wb_isnan(a));
}

fn wb_abs(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
}

// magnitude (sign bit clear) with the sign of `sign`.
fn wb_with_sign(magnitude: f32, sign: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(magnitude) ^ (bitcast<u32>(sign) & 0x80000000u));
}

fn wb_sign(x: f32) -> f32 {
    let one = select(wb_with_sign(1.0, x), 0.0, (bitcast<u32>(x) & 0x7fffffffu) == 0u);
    return select(one, x, wb_isnan(x));
}
