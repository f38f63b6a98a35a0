// The error function, its complement and its inverse.

// erf(x) / x as a rational function of x^2 up to 3.93, where erf rounds to 1; error 2^-25. All its
// coefficients are positive, so nothing cancels, and it needs no exponential: gelu lives on it.
fn wb_erf(x: f32) -> f32 {
    let a = min(wb_abs(x), 3.93);
    let z = a * a;
    var p = fma(2.04197741e-6, z, 0.000284807772);
    p = fma(fma(fma(fma(p, z, 0.0037795727), z, 0.0527901747), z, 0.19078298), z, 1.12837915);
    var q = fma(3.80040996e-5, z, 0.00116520381);
    q = fma(fma(fma(fma(q, z, 0.0149973648), z, 0.114257172), z, 0.502409734), z, 1.0);
    let result = select(min(a * (p / q), 1.0), 1.0, a >= 3.93);
    return select(wb_with_sign(result, x), x, wb_isnan(x));
}

// e^(-a^2) times a polynomial for e^(a^2) erfc(a) in (a - 3) / (a + 3), error 2^-29. a^2 is needed
// to more than 24 bits: the rest beyond the short square goes in as the tail of the exponent.
fn wb_erfc(x: f32) -> f32 {
    let a = min(wb_abs(x), 10.0);
    let s = (a - 3.0) / (a + 3.0);
    var p = fma(5.58639301e-5, s, 2.8758057e-5);
    p = fma(p, s, -0.000594626132);
    p = fma(p, s, 0.000715786265);
    p = fma(p, s, 0.00426891909);
    p = fma(p, s, -0.0243942381);
    p = fma(p, s, 0.0716658559);
    p = fma(p, s, -0.150115782);
    p = fma(p, s, 0.245603798);
    p = fma(p, s, -0.326233564);
    p = fma(p, s, 0.179001151);
    let head = wb_head(a);
    let tail = (head - a) * (head + a);
    let result = wb_exp_scaled(-(head * head), tail, 0) * p;
    return select(select(result, 2.0 - result, x < 0.0), x, wb_isnan(x));
}

// erfinv(x) / x as polynomials in w = -log(1 - x^2) and, in the tails, in its root; errors 2^-23.
fn wb_erfinv(x: f32) -> f32 {
    let a = wb_abs(x);
    let w = -wb_log((1.0 - a) * (1.0 + a));
    var p: f32;
    if (w < 5.0) {
        let t = w - 2.5;
        p = fma(-8.79105677e-9, t, 2.32326443e-8);
        p = fma(p, t, 4.66170661e-7);
        p = fma(p, t, -3.46270485e-6);
        p = fma(p, t, -4.96334769e-6);
        p = fma(p, t, 0.000218344445);
        p = fma(p, t, -0.0012527419);
        p = fma(p, t, -0.00417738687);
        p = fma(p, t, 0.24664028);
        p = fma(p, t, 1.50140941);
    } else {
        let t = sqrt(max(w, 5.0)) - 3.0;
        p = fma(-0.000150346401, t, 7.59379327e-5);
        p = fma(p, t, 0.00127897772);
        p = fma(p, t, -0.00364980148);
        p = fma(p, t, 0.00577181065);
        p = fma(p, t, -0.00762806507);
        p = fma(p, t, 0.0094340397);
        p = fma(p, t, 1.00167429);
        p = fma(p, t, 2.83297706);
    }
    let bits = bitcast<u32>(a);
    let result = wb_with_sign(select(p * a, wb_inf(), bits == 0x3f800000u), x);
    return select(result, wb_nan(), bits > 0x3f800000u);
}
