{# C[split, batch, m, n] = sum over a slice of k of A[batch, m, k] * B[batch, k, n]. Operands come by strides
   (0 = broadcast), the output is dense. Edge lanes read a clamped row or column and store nothing. #}
{% import "tile.wgsl" as tile %}
@compute @workgroup_size(${ wx }, ${ wy }, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
${ tile.head() }
    var rest = group;
    let tile_n = rest % P.tiles_n;
    rest /= P.tiles_n;
    let tile_m = rest % P.tiles_m;
    rest /= P.tiles_m;
{% if split %}
    let plane = rest;  // split * batch + index in the batch: the order of the partial outputs
    let part = rest / P.batch;
    rest %= P.batch;
    let k_begin = part * P.k_chunk;
    let k_end = min(k_begin + P.k_chunk, P.k);
{% else %}
    let plane = rest;
    let k_begin = 0u;
    let k_end = P.k;
{% endif %}
    var a_base = P.a_off;
    var b_base = P.b_off;
{% for d in range(batch_rank)|reverse %}
{% if d > 0 %}
    let i${ d } = rest % P.n_b${ d };
    rest /= P.n_b${ d };
{% else %}
    let i0 = rest;
{% endif %}
    a_base += i${ d } * P.a_sb${ d };
    b_base += i${ d } * P.b_sb${ d };
{% endfor %}
{% for i in range(tm) %}
    let row${ i } = tile_m * ${ tm * wy }u + lid / ${ wx }u + ${ i * wy }u;
    let out${ i } = (plane * P.m + row${ i }) * P.n;
    var pa${ i } = a_base + min(row${ i }, P.m - 1u) * P.a_sm + k_begin * P.a_sk;
{% endfor %}
{% for j in range(tn) %}
    let col${ j } = tile_n * ${ tn * wx }u + lid % ${ wx }u + ${ j * wx }u;
    let pix${ j } = col${ j };
    let cb${ j } = min(col${ j }, P.n - 1u) * P.b_sn;
{% endfor %}
    var pb = b_base + k_begin * P.b_sk;
${ tile.zero("c", tm, tn, acc) }
{% if flush %}
${ tile.zero("t", tm, tn, acc) }
    for (var k0 = k_begin; k0 < k_end; k0 += ${ flush }u) {
    let k_stop = min(k0 + ${ flush }u, k_end);
    for (var k = k0; k < k_stop; k++) {
{% else %}
    for (var k = k_begin; k < k_end; k++) {
{% endif %}
{% for i in range(tm) %}
        let a${ i } = ld0(pa${ i });
        pa${ i } += P.a_sk;
{% endfor %}
{% for j in range(tn) %}
        let b${ j } = ld1(pb + cb${ j });
{% endfor %}
        pb += P.b_sk;
${ tile.step(tm, tn, acc) }
    }
{% if flush %}
${ tile.flush(tm, tn, acc) }
    }
${ tile.store("t", tm, tn, "P.m", "P.n") }
{% else %}
${ tile.store("c", tm, tn, "P.m", "P.n") }
{% endif %}
}
