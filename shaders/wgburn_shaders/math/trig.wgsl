// Circular functions, for every finite argument, and their inverses.

// A non-negative angle as q quarter turns plus r, |r| <= pi/4. Only q modulo 4 counts.
struct WbAngle {
    r: f32,
    q: u32,
}

// Leading bits of 2/pi, 32 a word, behind one word of zeros.
fn wb_two_over_pi(word: u32) -> u32 {
    switch word {
        case 1u: { return 0xa2f9836eu; }
        case 2u: { return 0x4e441529u; }
        case 3u: { return 0xfc2757d1u; }
        case 4u: { return 0xf534ddc0u; }
        case 5u: { return 0xdb629599u; }
        case 6u: { return 0x3c439041u; }
        case 7u: { return 0xfe5163abu; }
        default: { return 0u; }
    }
}

// Arguments from 200 up: x = M * 2^E times the 96 bits of 2/pi that reach from 2^(1-E) down, in
// integers, so that whole turns drop out at the top. The first two bits are q, the rest a fraction.
fn wb_angle_large(x: f32) -> WbAngle {
    let bits = bitcast<u32>(x);
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    // E - 2 + 32: the bit of the table (with its zero word) where the window starts.
    let start = min((bits >> 23u) - 120u, 134u);
    let word = start >> 5u;
    let shift = start & 31u;
    let t0 = wb_two_over_pi(word);
    let t1 = wb_two_over_pi(word + 1u);
    let t2 = wb_two_over_pi(word + 2u);
    let t3 = wb_two_over_pi(word + 3u);
    let w0 = (t0 << shift) | ((t1 >> 1u) >> (31u - shift));
    let w1 = (t1 << shift) | ((t2 >> 1u) >> (31u - shift));
    let w2 = (t2 << shift) | ((t3 >> 1u) >> (31u - shift));
    let middle = mantissa * w1;
    let p1 = middle + wb_mulhi(mantissa, w2);
    let carry = select(0u, 1u, p1 < middle);
    let p0 = mantissa * w0 + wb_mulhi(mantissa, w1) + carry;
    var high = (p0 << 2u) | (p1 >> 30u);
    var low = p1 << 2u;
    // A fraction above one half belongs to the next quarter, from below.
    let up = (high >> 31u) == 1u;
    high = select(high, ~high + select(0u, 1u, low == 0u), up);
    low = select(low, 0u - low, up);
    let fraction = fma(f32(low), 5.421010862427522e-20, f32(high) * 2.3283064365386963e-10);
    let r = fraction * 1.57079637;
    return WbAngle(select(r, -r, up), (p0 >> 30u) + select(0u, 1u, up));
}

fn wb_angle(x: f32) -> WbAngle {
    if (x >= 200.0) {
        return wb_angle_large(x);
    }
    let n = round(x * 0.636619747);
    // pi/2 in three parts; n has 7 bits, so the first two products are exact.
    var r = x - wb_pin(n * 1.570770263671875);
    r = r - wb_pin(n * 2.6063062250614166e-5);
    return WbAngle(fma(n, -6.07710063e-11, r), u32(n));
}

// Minimax on |r| <= pi/4: errors below 2^-28.
fn wb_sin_poly(r: f32) -> f32 {
    let z = r * r;
    return fma(r * z, fma(fma(-0.000195149565, z, 0.00833215844), z, -0.166666552), r);
}

fn wb_cos_poly(r: f32) -> f32 {
    let z = r * r;
    return fma(z, fma(z, fma(fma(2.44327839e-5, z, -0.0013887313), z, 0.0416666456), -0.5), 1.0);
}

fn wb_sin(x: f32) -> f32 {
    let angle = wb_angle(wb_abs(x));
    let magnitude = select(wb_sin_poly(angle.r), wb_cos_poly(angle.r), (angle.q & 1u) != 0u);
    let sign = ((angle.q & 2u) << 30u) ^ (bitcast<u32>(x) & 0x80000000u);
    return select(wb_nan(), bitcast<f32>(bitcast<u32>(magnitude) ^ sign), wb_isfinite(x));
}

fn wb_cos(x: f32) -> f32 {
    let angle = wb_angle(wb_abs(x));
    let magnitude = select(wb_cos_poly(angle.r), wb_sin_poly(angle.r), (angle.q & 1u) != 0u);
    let sign = ((angle.q + 1u) & 2u) << 30u;
    return select(wb_nan(), bitcast<f32>(bitcast<u32>(magnitude) ^ sign), wb_isfinite(x));
}

fn wb_tan(x: f32) -> f32 {
    let angle = wb_angle(wb_abs(x));
    let s = wb_sin_poly(angle.r);
    let c = wb_cos_poly(angle.r);
    let odd = (angle.q & 1u) != 0u;
    let result = select(s, -c, odd) / select(c, s, odd);
    return select(wb_nan(), wb_with_sign(result, x), wb_isfinite(x));
}

// asin(z) for 0 <= z <= 1/2, relative error 2^-27.
fn wb_asin_poly(z: f32) -> f32 {
    let y = z * z;
    let p = fma(fma(fma(fma(0.0422259383, y, 0.0241466593), y, 0.0454765446), y, 0.0749525279), y,
        0.166667536);
    return fma(z * y, p, z);
}

fn wb_asin(x: f32) -> f32 {
    let a = wb_abs(x);
    let far = a > 0.5;
    // asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2))
    let p = wb_asin_poly(select(a, sqrt(max(0.5 - 0.5 * a, 0.0)), far));
    let result = select(p, 1.57079637 - (p + p + 4.371139e-8), far);
    return select(wb_with_sign(result, x), wb_nan(), bitcast<u32>(a) > 0x3f800000u);
}

fn wb_acos(x: f32) -> f32 {
    let a = wb_abs(x);
    let far = a > 0.5;
    let p = wb_asin_poly(select(a, sqrt(max(0.5 - 0.5 * a, 0.0)), far));
    let near_result = 1.57079637 - (wb_with_sign(p, x) + 4.371139e-8);
    let far_result = select(p + p, 3.14159274 - (p + p + 8.742278e-8), x < 0.0);
    return select(select(near_result, far_result, far), wb_nan(), bitcast<u32>(a) > 0x3f800000u);
}

// atan(z) for 0 <= z <= 1, relative error 2^-26.
fn wb_atan_poly(z: f32) -> f32 {
    let y = z * z;
    var p = fma(0.00292064599, y, -0.0163677428);
    p = fma(p, y, 0.0432115644);
    p = fma(p, y, -0.0755218938);
    p = fma(p, y, 0.106659934);
    p = fma(p, y, -0.142110527);
    p = fma(p, y, 0.199937731);
    p = fma(p, y, -0.333331525);
    return fma(z * y, p, z);
}

fn wb_atan(x: f32) -> f32 {
    let a = wb_abs(x);
    let far = a > 1.0;
    let p = wb_atan_poly(select(a, 1.0 / max(a, 1.0), far));
    let result = select(p, 1.57079637 - (p + 4.371139e-8), far);
    return select(wb_with_sign(result, x), x, wb_isnan(x));
}

fn wb_atan2(y: f32, x: f32) -> f32 {
    let ax = bitcast<u32>(x) & 0x7fffffffu;
    let ay = bitcast<u32>(y) & 0x7fffffffu;
    let big = max(ax, ay);
    let small = min(ax, ay);
    // Brought to where a reciprocal is a normal number. Two subnormals are in the ratio of their
    // bits, whether the device flushes them or not.
    let big_f = bitcast<f32>(big);
    let up = select(1.0, 1.8446744e19, big_f < 1.0e-18);
    let scale = select(up, 5.9604644775390625e-8, big_f > 1.0e30);
    let subnormal = big < 0x00800000u;
    let over = select(bitcast<f32>(small) * scale, f32(small), subnormal);
    let under = select(big_f * scale, f32(max(big, 1u)), subnormal);
    var t = select(over / under, 0.0, big == 0x7f800000u);
    t = select(t, 1.0, small == 0x7f800000u);
    var p = wb_atan_poly(t);
    p = select(p, 1.57079637 - (p + 4.371139e-8), ay > ax);
    p = select(p, 3.14159274 - (p + 8.742278e-8), (bitcast<u32>(x) >> 31u) == 1u);
    return select(wb_with_sign(p, y), wb_nan(), wb_unordered(x, y));
}
