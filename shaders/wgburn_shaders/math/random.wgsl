// Counter-based random numbers: Philox4x32-10. philox.py is the same arithmetic in numpy; the two
// must stay equal bit for bit.

// High 32 bits of the 64-bit product; WGSL has no wider integer, so it is put together from halves.
fn wb_mulhi(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let low = a0 * b0;
    let mid = a1 * b0 + (low >> 16u);
    let mid2 = a0 * b1 + (mid & 0xffffu);
    return a1 * b1 + (mid >> 16u) + (mid2 >> 16u);
}

fn wb_philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    for (var round = 0u; round < 10u; round++) {
        let high0 = wb_mulhi(0xD2511F53u, c.x);
        let high1 = wb_mulhi(0xCD9E8D57u, c.z);
        c = vec4<u32>(high1 ^ c.y ^ k.x, 0xCD9E8D57u * c.z, high0 ^ c.w ^ k.y, 0xD2511F53u * c.x);
        k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

// Word `index` of the stream (offset, seed). Four neighbours share one block: a kernel that makes
// four numbers an invocation calls wb_philox once instead.
fn wb_random_bits(
    index: u32, offset_lo: u32, offset_hi: u32, seed_lo: u32, seed_hi: u32
) -> u32 {
    let counter = vec4<u32>(index >> 2u, 0u, offset_lo, offset_hi);
    let block = wb_philox(counter, vec2<u32>(seed_lo, seed_hi));
    let pair = select(block.xy, block.zw, (index & 2u) != 0u);
    return select(pair.x, pair.y, (index & 1u) != 0u);
}

// [0, 1) in steps of 2^-24: every value is exact, and 1 is never reached.
fn wb_uniform(bits: u32) -> f32 {
    return f32(bits >> 8u) * 5.9604644775390625e-8;
}

// Box-Muller. The first number is never 0; the angle is reduced exactly, as an integer.
fn wb_normal(bits_a: u32, bits_b: u32) -> f32 {
    let radius = sqrt(-2.0 * wb_log(f32((bits_a >> 8u) + 1u) * 5.9604644775390625e-8) + 0.0);
    let turn = bits_b >> 8u;
    let quarter = (turn + 0x200000u) >> 22u;
    let r = f32(i32(turn) - i32(quarter << 22u)) * 3.74507039e-7;
    let magnitude = select(wb_cos_poly(r), wb_sin_poly(r), (quarter & 1u) != 0u);
    let sign = ((quarter + 1u) & 2u) << 30u;
    return radius * bitcast<f32>(bitcast<u32>(magnitude) ^ sign);
}
