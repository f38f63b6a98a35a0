// Integer division and powers. Division by zero gives 0; overflow wraps.

fn wb_quotient_i(a: i32, b: i32) -> i32 {
    // -2^31 / -1 overflows: negation wraps where the division is undefined.
    let safe = select(b, 1, b == 0 || b == -1);
    return select(select(a / safe, 0 - a, b == -1), 0, b == 0);
}

// C's %: the sign of a.
fn wb_irem_i(a: i32, b: i32) -> i32 {
    return select(a - wb_quotient_i(a, b) * b, 0, b == 0);
}

// Python's //: rounds down.
fn wb_idiv_floor_i(a: i32, b: i32) -> i32 {
    let quotient = wb_quotient_i(a, b);
    return select(quotient, quotient - 1, wb_irem_i(a, b) != 0 && (a ^ b) < 0);
}

// Python's %: the sign of b.
fn wb_imod_floor_i(a: i32, b: i32) -> i32 {
    let rest = wb_irem_i(a, b);
    return select(rest, rest + b, rest != 0 && (a ^ b) < 0);
}

fn wb_idiv_floor_u(a: u32, b: u32) -> u32 {
    return select(a / max(b, 1u), 0u, b == 0u);
}

fn wb_imod_floor_u(a: u32, b: u32) -> u32 {
    return select(a % max(b, 1u), 0u, b == 0u);
}

fn wb_irem_u(a: u32, b: u32) -> u32 {
    return wb_imod_floor_u(a, b);
}

fn wb_ipow_u(a: u32, b: u32) -> u32 {
    var result = 1u;
    var base = a;
    var left = b;
    while (left != 0u) {
        result = select(result, result * base, (left & 1u) != 0u);
        base *= base;
        left >>= 1u;
    }
    return result;
}

// A negative exponent gives the reciprocal cut to an integer: 0 unless a is 1 or -1.
fn wb_ipow_i(a: i32, b: i32) -> i32 {
    let power = bitcast<i32>(wb_ipow_u(bitcast<u32>(a), bitcast<u32>(max(b, 0))));
    let alternating = select(1, -1, (b & 1) != 0);
    let reciprocal = select(select(0, alternating, a == -1), 1, a == 1);
    return select(power, reciprocal, b < 0);
}
