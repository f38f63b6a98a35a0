// x^y as C99 has it.

// A number in two parts, head + tail, the head short enough for exact products.
struct WbPair {
    head: f32,
    tail: f32,
}

// log2 of the positive finite number with these bits, to about 2^-32 relative.
fn wb_log2_pair(raw: u32) -> WbPair {
    let subnormal = raw < 0x00800000u;
    let bits = select(raw, bitcast<u32>(f32(raw)), subnormal);
    let m = (bits & 0x7fffffu) | 0x800000u;
    // The mantissa against the nearest of 1, 3/2 and 2, as integers in units of 2^-24.
    let above = m >= 0xddb3d8u;
    let middle = m >= 0x9cc471u && !above;
    let mi = select(m << 1u, m, above);
    let ci = select(0x1000000u, 0x1800000u, middle);
    let e = i32(bits >> 23u) - 127 - select(0, 149, subnormal) + select(0, 1, above);
    // s = (m - c) / (m + c), |s| < 0.102, in two parts: quotient, then what it left.
    let sum = mi + ci;
    let over = f32(i32(mi) - i32(ci));
    let under = f32(sum);
    let quotient = over / under;
    let s_head = wb_head(quotient);
    let exact = wb_pin(s_head * f32(sum & 0xffffc000u));
    let s_tail = ((over - exact) - s_head * f32(sum & 0x3fffu)) / under;
    // atanh(s) = s + s^3 * p(s^2)
    let z = quotient * quotient;
    let cubic = quotient * z * fma(fma(0.145068452, z, 0.199986815), z, 0.333333343);
    let rest = s_tail + cubic;
    let t_head = wb_head(s_head + rest);
    let t_tail = rest - wb_pin(t_head - s_head);
    // times 2 / ln(2), plus log2(c) and the exponent
    let p_head = wb_pin(t_head * 2.884765625);
    let c_tail = select(0.0, 1.56322119e-6, middle);
    let p_tail = fma(t_tail, 2.88539004, t_head * 0.000624456792) + c_tail;
    let base = f32(e) + select(0.0, 0.5849609375, middle);
    let head = wb_head(base + (p_head + p_tail));
    let tail = wb_pin(wb_pin(base - head) + p_head) + p_tail;
    return WbPair(head, tail);
}

fn wb_pow(x: f32, y: f32) -> f32 {
    let ux = bitcast<u32>(x);
    let uy = bitcast<u32>(y);
    let ax = ux & 0x7fffffffu;
    let ay = uy & 0x7fffffffu;
    let l = wb_log2_pair(ax);
    // Beyond 2^32 every base but 1 over- or underflows, and 1 stays 1.
    let yc = clamp(select(y, 0.0, ay > 0x7f800000u), -4294967296.0, 4294967296.0);
    let y_head = wb_head(yc);
    let z_head = wb_pin(y_head * l.head);
    let z_tail = fma(yc - y_head, l.head, yc * l.tail);
    let n = round(clamp(z_head + z_tail, -300.0, 300.0));
    let r = clamp(wb_pin(z_head - n) + z_tail, -1.0, 1.0) * 0.693147182;
    var result = wb_scale2(1.0 + fma(r * r, wb_exp_poly(r), r), i32(n));
    // Zero and infinity as a base: 0 or infinity.
    let base_inf = ax == 0x7f800000u;
    let grows = base_inf == ((uy >> 31u) == 0u);
    result = select(result, select(0.0, wb_inf(), grows), ax == 0u || base_inf);
    // A negative base wants an integer y, and an odd one keeps the sign.
    let whole = ay >= 0x4b000000u || trunc(y) == y;
    let odd = whole && ay < 0x4b800000u && (i32(clamp(yc, -16777216.0, 16777216.0)) & 1) != 0;
    let negative = (ux >> 31u) == 1u;
    result = select(result, -result, negative && odd);
    result = select(result, wb_nan(), negative && !whole && ax != 0u && !base_inf);
    result = select(result, wb_nan(), max(ax, ay) > 0x7f800000u);
    return select(result, 1.0, ay == 0u || ux == 0x3f800000u);
}
