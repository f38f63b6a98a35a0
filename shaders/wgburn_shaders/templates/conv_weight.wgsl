{# Weight gradient of a convolution as an implicit matrix product.
   Rows: output channels of one group. Columns: (input channel of the group, kernel position), dense as the weight is.
   Inner dimension: units (image, leading output pixels, segment of the last dimension), then pixels of the segment;
   each unit is summed apart when `flush`. With `split` a workgroup sums some units and writes a partial plane.
   Inputs: 0 = gradient [n, o, *os], 1 = x [n, c, *s], both by strides. #}
{% import "tile.wgsl" as tile %}
{% set dims = range(kernel|length) %}
{% set last = kernel|length - 1 %}
@compute @workgroup_size(${ wx * wy }, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
${ tile.head() }
    let tile_n = group % P.tiles_n;
    let tile_m = (group / P.tiles_n) % P.tiles_m;
    let plane = group / P.tiles_n / P.tiles_m;
{% if grouped %}
    let channel_group = plane % P.channel_groups;
{% else %}
    let channel_group = 0u;
{% endif %}
{% if split %}
    let part = plane${ " / P.channel_groups" if grouped else "" };
    let u_begin = part * P.u_chunk;
    let u_end = min(u_begin + P.u_chunk, P.units);
{% else %}
    let u_begin = 0u;
    let u_end = P.units;
{% endif %}
    let lane_x = lid % P.wx;
    let lane_y = lid / P.wx;
{% for i in range(tm) %}
    let row${ i } = (tile_m * ${ tm }u + ${ i }u) * P.wy + lane_y;
    let out${ i } = (plane * P.rows + row${ i }) * P.cols;
    let g${ i } = P.g_off + (channel_group * P.rows + min(row${ i }, P.rows - 1u)) * P.g_sc;
{% endfor %}
{% for j in range(tn) %}
    let col${ j } = (tile_n * ${ tn }u + ${ j }u) * P.wx + lane_x;
    let pix${ j } = col${ j };
    var rest${ j } = min(col${ j }, P.cols - 1u);
{% for d in dims|reverse %}
    let k${ j }_${ d } = rest${ j } % ${ kernel[d] }u * ${ dilation[d] }u;
    rest${ j } /= ${ kernel[d] }u;
{% endfor %}
{% if padded %}
    let x${ j } = P.x_off + (channel_group * P.depth + rest${ j }) * P.x_sc;
{% for d in dims %}
    let at${ j }_${ d } = i32(k${ j }_${ d }) - i32(P.pad${ d });
{% endfor %}
{% else %}
    let x${ j } = P.x_off + (channel_group * P.depth + rest${ j }) * P.x_sc
{%- for d in dims %} + k${ j }_${ d } * P.x_s${ d }{% endfor %};
{% endif %}
{% endfor %}
${ tile.zero("c", tm, tn, acc) }
{% if flush %}
${ tile.zero("t", tm, tn, acc) }
{% endif %}
    for (var unit = u_begin; unit < u_end; unit++) {
    let q_begin = unit % P.segments * P.segment;
    let q_end = min(q_begin + P.segment, P.out${ last });
    var rest = unit / P.segments;
{% for d in range(last)|reverse %}
    let q_${ d } = rest % P.out${ d };
    rest /= P.out${ d };
{% endfor %}
    var gq = rest * P.g_sn + q_begin * P.g_s${ last }
{%- for d in range(last) %} + q_${ d } * P.g_s${ d }{% endfor %};
{% if padded %}
{% for j in range(tn) %}
    var inside${ j } = true;
    var xu${ j } = x${ j } + rest * P.x_sn;
{% for d in range(last) %}
    let p${ j }_${ d } = u32(i32(q_${ d } * ${ stride[d] }u) + at${ j }_${ d });
    inside${ j } = inside${ j } && p${ j }_${ d } < P.n${ d };
    xu${ j } += p${ j }_${ d } * P.x_s${ d };
{% endfor %}
{% endfor %}
{% else %}
    var xq = rest * P.x_sn + q_begin * ${ stride[last] }u * P.x_s${ last }
{%- for d in range(last) %} + q_${ d } * ${ stride[d] }u * P.x_s${ d }{% endfor %};
{% endif %}
    for (var q = q_begin; q < q_end; q++) {
{% for i in range(tm) %}
        let a${ i } = ld0(g${ i } + gq);
{% endfor %}
        gq += P.g_s${ last };
{% for j in range(tn) %}
{% if padded %}
        let e${ j } = u32(i32(q * ${ stride[last] }u) + at${ j }_${ last });
        let ok${ j } = inside${ j } && e${ j } < P.n${ last };
        let v${ j } = ld1(select(x${ j }, xu${ j } + e${ j } * P.x_s${ last }, ok${ j }));
        let b${ j } = select(${ acc }(0), v${ j }, ok${ j });
{% else %}
        let b${ j } = ld1(x${ j } + xq);
{% endif %}
{% endfor %}
{% if not padded %}
        xq += ${ stride[last] }u * P.x_s${ last };
{% endif %}
${ tile.step(tm, tn, acc) }
    }
{% if flush %}
${ tile.flush(tm, tn, acc) }
{% endif %}
    }
${ tile.store("t" if flush else "c", tm, tn, "P.rows", "P.cols", acc, rolled) }
}
