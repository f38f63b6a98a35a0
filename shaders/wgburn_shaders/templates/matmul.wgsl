{# C[split, batch, m, n] = sum over a slice of k of A[batch, m, k] * B[batch, k, n]. Operands come by strides
   (0 = broadcast), the output is dense. Edge lanes read a clamped row or column and store nothing.
   register: every thread reads its rows and columns itself. shared: the workgroup stages both
   operands in its memory first, `depth` steps of k at a time. #}
{% import "tile.wgsl" as tile %}
{% set bm = tm * wy %}
{% set bn = tn * wx %}
{# Where lanes lie is a parameter; memory that a workgroup stages has sizes in its type. #}
{% set lanes_x = "%du" % wx if kind == "shared" else "P.wx" %}
{% set lanes_y = "%du" % wy if kind == "shared" else "P.wy" %}
{% if kind == "shared" %}
// One element more a row than is used: lanes that write along k then hit different banks.
var<workgroup> stage_a: array<${ acc }, ${ depth * (bm + 1) }>;
var<workgroup> stage_b: array<${ acc }, ${ depth * (bn + 1) }>;

{# Copies a [depth, extent] slab; lanes run along k where that is contiguous, else along the other axis. #}
{% macro stage(name, load, extent, along_k, base, start, limit, across, down) %}
        for (var e = lid; e < ${ extent * depth }u; e += ${ wx * wy }u) {
{% if along_k %}
            let kk = e % ${ depth }u;
            let side = e / ${ depth }u;
{% else %}
            let kk = e / ${ extent }u;
            let side = e % ${ extent }u;
{% endif %}
            let at = min(${ start } + side, ${ limit } - 1u) * ${ across };
            let v = ${ load }(${ base } + at + min(k + kk, k_end - 1u) * ${ down });
            ${ name }[kk * ${ extent + 1 }u + side] = select(${ acc }(0), v, k + kk < k_end);
        }
{% endmacro %}
{% endif %}
@compute @workgroup_size(${ wx * wy }, 1, 1)
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
    let lane_x = lid % ${ lanes_x };
    let lane_y = lid / ${ lanes_x };
{% for i in range(tm) %}
    let row${ i } = (tile_m * ${ tm }u + ${ i }u) * ${ lanes_y } + lane_y;
    let out${ i } = (plane * P.m + row${ i }) * P.n;
{% if kind == "register" %}
    var pa${ i } = a_base + min(row${ i }, P.m - 1u) * P.a_sm + k_begin * P.a_sk;
{% endif %}
{% endfor %}
{% for j in range(tn) %}
    let col${ j } = (tile_n * ${ tn }u + ${ j }u) * ${ lanes_x } + lane_x;
    let pix${ j } = col${ j };
{% if kind == "register" %}
    let cb${ j } = min(col${ j }, P.n - 1u) * P.b_sn;
{% endif %}
{% endfor %}
{% if kind == "register" %}
    var pb = b_base + k_begin * P.b_sk;
{% endif %}
${ tile.zero("c", tm, tn, acc) }
{% if flush %}
${ tile.zero("t", tm, tn, acc) }
    for (var k0 = k_begin; k0 < k_end; k0 += ${ flush }u) {
    let k_stop = min(k0 + ${ flush }u, k_end);
{% else %}
    let k0 = k_begin;
    let k_stop = k_end;
{% endif %}
{% if kind == "shared" %}
    for (var k = k0; k < k_stop; k += ${ depth }u) {
${ stage("stage_a", "ld0", bm, a_along_k, "a_base", "tile_m * %du" % bm, "P.m", "P.a_sm", "P.a_sk") }
${ stage("stage_b", "ld1", bn, not b_along_n, "b_base", "tile_n * %du" % bn, "P.n", "P.b_sn", "P.b_sk") }
        workgroupBarrier();
        for (var kk = 0u; kk < ${ depth }u; kk++) {
{% for i in range(tm) %}
            let a${ i } = stage_a[kk * ${ bm + 1 }u + lane_y + ${ i * wy }u];
{% endfor %}
{% for j in range(tn) %}
            let b${ j } = stage_b[kk * ${ bn + 1 }u + lane_x + ${ j * wx }u];
{% endfor %}
${ tile.step(tm, tn, acc) }
        }
        workgroupBarrier();
    }
{% else %}
    for (var k = k0; k < k_stop; k++) {
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
{% endif %}
{% if flush %}
${ tile.flush(tm, tn, acc) }
    }
${ tile.store("t", tm, tn, "P.m", "P.n", acc, rolled) }
{% else %}
${ tile.store("c", tm, tn, "P.m", "P.n", acc, rolled) }
{% endif %}
}
