// The exponential family. Polynomials are minimax fits on the reduced range.

// p * 2^n for a positive normal p, by adding to the exponent: no intermediate can overflow. Results
// below the normal range become 0.
fn wb_scale2(p: f32, n: i32) -> f32 {
    let bits = bitcast<u32>(p);
    let exponent = i32(bits >> 23u) + n;
    let scaled = bitcast<f32>(bits + (bitcast<u32>(n) << 23u));
    return select(select(scaled, wb_inf(), exponent > 254), 0.0, exponent < 1);
}

// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, relative error of e^r - 1 below 2^-26.
fn wb_exp_poly(r: f32) -> f32 {
    return fma(fma(fma(fma(0.00138824864, r, 0.00836669188), r, 0.0416672044), r, 0.16666542), r,
        0.49999997);
}

// x - n * ln(2). The product with the short head of ln(2) is exact for |n| < 2^14.
fn wb_exp_reduce(x: f32, n: f32) -> f32 {
    return fma(n, 0.000212194440, x - wb_pin(n * 0.693359375));
}

// e^(x + tail) * 2^shift for a tail much smaller than 1; not for NaN.
fn wb_exp_scaled(x: f32, tail: f32, shift: i32) -> f32 {
    let inside = clamp(x, -200.0, 200.0);
    let n = round(inside * 1.44269502);
    let r = wb_exp_reduce(inside, n) + tail;
    return wb_scale2(1.0 + fma(r * r, wb_exp_poly(r), r), i32(n) + shift);
}

fn wb_exp(x: f32) -> f32 {
    return select(wb_exp_scaled(x, 0.0, 0), x, wb_isnan(x));
}

fn wb_exp2(x: f32) -> f32 {
    let inside = clamp(x, -300.0, 300.0);
    let n = round(inside);
    let r = (inside - n) * 0.693147182;
    return select(wb_scale2(1.0 + fma(r * r, wb_exp_poly(r), r), i32(n)), x, wb_isnan(x));
}

fn wb_expm1(x: f32) -> f32 {
    let inside = clamp(x, -30.0, 88.75);
    let n = round(inside * 1.44269502);
    let r = wb_exp_reduce(inside, n);
    // Half the result, since 2^128 is no float: 2^(n-1) * (e^r - 1) + (2^(n-1) - 1/2).
    let half_power = bitcast<f32>(u32(i32(n) + 126) << 23u);
    let half = fma(half_power, fma(r * r, wb_exp_poly(r), r), half_power - 0.5);
    let result = select(half + half, wb_inf(), x > 88.7228394);
    // Tiny arguments are their own result, with their sign.
    let magnitude = bitcast<u32>(x) & 0x7fffffffu;
    return select(result, x, magnitude < 0x33000000u || magnitude > 0x7f800000u);
}

fn wb_sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + wb_exp(-x));
}

fn wb_sinh(x: f32) -> f32 {
    let a = wb_abs(x);
    // Below 1 the odd series, relative error 2^-34; above, no cancellation is left.
    let z = a * a;
    let series = fma(a * z, fma(fma(fma(2.81695134e-6, z, 0.000198361595), z, 0.0083333496), z,
        0.166666672), a);
    let half = wb_exp_scaled(a, 0.0, -1);
    let result = select(half - 0.25 / half, series, a < 1.0);
    return select(wb_with_sign(result, x), x, wb_isnan(x));
}

fn wb_cosh(x: f32) -> f32 {
    let half = wb_exp_scaled(wb_abs(x), 0.0, -1);
    return select(half + 0.25 / half, x, wb_isnan(x));
}

// tanh(x) / x as a rational function of x^2 up to 9.02, where tanh rounds to 1; error 2^-25. All
// coefficients are positive, so nothing cancels, and it costs less than an exponential.
fn wb_tanh(x: f32) -> f32 {
    let a = min(wb_abs(x), 9.02);
    let z = a * a;
    let p = fma(fma(fma(fma(1.33191691e-8, z, 2.05835588e-5), z, 0.00349403961), z, 0.133797223), z,
        0.999999979);
    let q = fma(fma(fma(fma(7.76206139e-7, z, 0.000328310085), z, 0.0258710928), z, 0.467130376), z,
        1.0);
    let result = select(min(a * (p / q), 1.0), 1.0, a >= 9.02);
    return select(wb_with_sign(result, x), x, wb_isnan(x));
}
