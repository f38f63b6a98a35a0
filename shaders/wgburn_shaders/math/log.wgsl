// The logarithm family.

// x = 2^e * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
struct WbLog {
    f: f32,
    e: f32,
}

fn wb_log_split(x: f32) -> WbLog {
    let raw = bitcast<u32>(x);
    // A subnormal is its mantissa times 2^-149; read as an integer it survives flushing.
    let subnormal = raw < 0x00800000u;
    let bits = select(raw, bitcast<u32>(f32(raw)), subnormal);
    let e = i32(bits - 0x3f3504f3u) >> 23u;
    let m = bitcast<f32>(bits - (bitcast<u32>(e) << 23u));
    return WbLog(m - 1.0, f32(e) - select(0.0, 149.0, subnormal));
}

// log(1 + f) on the range of WbLog; minimax, relative error 2^-27.
fn wb_log_poly(f: f32) -> f32 {
    var p = fma(-0.0764022693, f, 0.127703086);
    p = fma(p, f, -0.131621957);
    p = fma(p, f, 0.142007351);
    p = fma(p, f, -0.166230604);
    p = fma(p, f, 0.200012594);
    p = fma(p, f, -0.250008285);
    p = fma(p, f, 0.333333313);
    return fma(f * f, fma(f, p, -0.5), f);
}

// The result of a logarithm of x for the arguments that have no ordinary one.
fn wb_log_special(result: f32, x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    var r = select(result, x, bits == 0x7f800000u);
    r = select(r, wb_bits(0xff800000u), magnitude == 0u);
    return select(r, wb_nan(), bits > 0x80000000u || magnitude > 0x7f800000u);
}

fn wb_log(x: f32) -> f32 {
    let s = wb_log_split(x);
    let t = fma(s.e, -0.000212194440, wb_log_poly(s.f));
    return wb_log_special(fma(s.e, 0.693359375, t), x);
}

fn wb_log2(x: f32) -> f32 {
    let s = wb_log_split(x);
    // log2(e) = 1 + 0.4426...: the leading term keeps its rounding.
    let t = wb_log_poly(s.f);
    return wb_log_special(s.e + fma(t, 0.442695041, t), x);
}

fn wb_log10(x: f32) -> f32 {
    let s = wb_log_split(x);
    let t = fma(s.e, 4.60503907e-6, wb_log_poly(s.f) * 0.434294492);
    return wb_log_special(fma(s.e, 0.301025390625, t), x);
}

fn wb_log1p(x: f32) -> f32 {
    let u = wb_pin(1.0 + x);
    let bits = bitcast<u32>(u);
    let e = i32(bits - 0x3f3504f3u) >> 23u;
    let m = bitcast<f32>(bits - (bitcast<u32>(e) << 23u));
    // What rounding 1 + x lost, exactly, brought to the scale of m.
    let lost = select(x - (u - 1.0), 1.0 - (u - x), x >= 1.0);
    let f = fma(lost, bitcast<f32>(u32(max(127 - e, 0)) << 23u), m - 1.0);
    let t = fma(f32(e), -0.000212194440, wb_log_poly(f));
    var result = fma(f32(e), 0.693359375, t);
    let raw = bitcast<u32>(x);
    let magnitude = raw & 0x7fffffffu;
    result = select(result, wb_bits(0xff800000u), raw == 0xbf800000u);
    result = select(result, wb_nan(), raw > 0xbf800000u);
    // Tiny arguments are their own result, with their sign; so are +inf and NaN.
    let own = magnitude < 0x33000000u || raw == 0x7f800000u || magnitude > 0x7f800000u;
    return select(result, x, own);
}

fn wb_softplus(x: f32) -> f32 {
    let result = max(x, 0.0) + wb_log1p(wb_exp(-wb_abs(x)));
    return select(result, x, wb_isnan(x));
}

fn wb_asinh(x: f32) -> f32 {
    let a = wb_abs(x);
    // From 2^28 on asinh is log(2a), and a * a must not overflow.
    let big = a > 268435456.0;
    let b = select(a, 1.0, big);
    let z = b * b;
    let argument = select(b + z / (1.0 + sqrt(1.0 + z)), a, big);
    let result = wb_log1p(argument) + select(0.0, 0.693147182, big);
    return select(wb_with_sign(result, x), x, wb_isnan(x));
}

fn wb_acosh(x: f32) -> f32 {
    let big = x > 268435456.0;
    let t = select(x, 2.0, big) - 1.0;
    let argument = select(t + wb_sqrt(t * (t + 2.0)), x, big);
    let result = wb_log1p(argument) + select(0.0, 0.693147182, big);
    return select(result, wb_nan(), x < 1.0 || wb_isnan(x));
}

fn wb_atanh(x: f32) -> f32 {
    let a = wb_abs(x);
    let inside = select(a, 0.5, !(a < 1.0));
    let result = 0.5 * wb_log1p((inside + inside) / (1.0 - inside));
    let bits = bitcast<u32>(a);
    let signed_result = wb_with_sign(select(result, wb_inf(), bits == 0x3f800000u), x);
    return select(signed_result, wb_nan(), bits > 0x3f800000u);
}
