{# Convolution as an implicit matrix product, forward and input gradient alike.
   Rows: channels of the output in one group. Columns: pixels of the output, of all images. Inner dimension: kernel
   positions (outer loops, where bounds are checked once), then channels of the source (inner loop).
   forward:    output pixel q reads source pixel q * stride - pad + k * dilation;
   input_grad: output pixel q reads source pixel (q + pad - k * dilation) / stride where that divides.
   Inputs: 0 = source [n, c, *s], 1 = weight, both by strides. Output: dense. #}
{% import "tile.wgsl" as tile %}
{% set dims = range(kernel|length) %}
{% set checked = padded or input_grad %}
@compute @workgroup_size(${ wx * wy }, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
${ tile.head() }
    let tile_n = group % P.tiles_n;
{% if grouped %}
    let tile_m = (group / P.tiles_n) % P.tiles_m;
    let channel_group = group / P.tiles_n / P.tiles_m;
{% else %}
    let tile_m = group / P.tiles_n;
    let channel_group = 0u;
{% endif %}
    let first = channel_group * P.rows;
    let src_base = P.src_off + channel_group * P.depth * P.src_sc;
    let w_base = P.w_off + channel_group * P.w_sgroup;
    let lane_x = lid % P.wx;
    let lane_y = lid / P.wx;
{% for i in range(tm) %}
    let row${ i } = (tile_m * ${ tm }u + ${ i }u) * P.wy + lane_y;
    let out${ i } = (first + row${ i }) * P.plane;
    let w${ i } = w_base + min(row${ i }, P.rows - 1u) * P.w_srow;
{% endfor %}
{% for j in range(tn) %}
    let col${ j } = (tile_n * ${ tn }u + ${ j }u) * P.wx + lane_x;
    var rest${ j } = min(col${ j }, P.cols - 1u);
{% for d in dims|reverse %}
    let q${ j }_${ d } = rest${ j } % P.out${ d };
    rest${ j } /= P.out${ d };
{% endfor %}
    let pix${ j } = rest${ j } * P.image + (col${ j } - rest${ j } * P.plane);
{% if checked %}
    let s${ j } = src_base + rest${ j } * P.src_sn;
{% for d in dims %}
{% if input_grad %}
    let at${ j }_${ d } = i32(q${ j }_${ d } + P.pad${ d });
{% else %}
    let at${ j }_${ d } = i32(q${ j }_${ d } * ${ stride[d] }u) - i32(P.pad${ d });
{% endif %}
{% endfor %}
{% else %}
    let s${ j } = src_base + rest${ j } * P.src_sn
{%- for d in dims %} + q${ j }_${ d } * ${ stride[d] }u * P.src_s${ d }{% endfor %};
{% endif %}
{% endfor %}
${ tile.zero("c", tm, tn, acc) }
{% if flush %}
${ tile.zero("t", tm, tn, acc) }
{% endif %}
{% for d in dims %}
    for (var k${ d } = 0u; k${ d } < ${ kernel[d] }u; k${ d }++) {
{% endfor %}
    var wk = 0u{% for d in dims %} + k${ d } * P.w_s${ d }{% endfor %};
{% if checked %}
{% for j in range(tn) %}
    var ok${ j } = true;
    var x${ j } = s${ j };
{% for d in dims %}
{% if input_grad %}
    let p${ j }_${ d } = at${ j }_${ d } - i32(k${ d } * ${ dilation[d] }u);
{% if stride[d] == 1 %}
    ok${ j } = ok${ j } && u32(p${ j }_${ d }) < P.src_n${ d };
    x${ j } += u32(p${ j }_${ d }) * P.src_s${ d };
{% else %}
    let e${ j }_${ d } = u32(max(p${ j }_${ d }, 0)) / ${ stride[d] }u;
    ok${ j } = ok${ j } && i32(e${ j }_${ d } * ${ stride[d] }u) == p${ j }_${ d } && e${ j }_${ d } < P.src_n${ d };
    x${ j } += e${ j }_${ d } * P.src_s${ d };
{% endif %}
{% else %}
    let p${ j }_${ d } = u32(at${ j }_${ d } + i32(k${ d } * ${ dilation[d] }u));
    ok${ j } = ok${ j } && p${ j }_${ d } < P.src_n${ d };
    x${ j } += p${ j }_${ d } * P.src_s${ d };
{% endif %}
{% endfor %}
    x${ j } = select(s${ j }, x${ j }, ok${ j });
{% endfor %}
    if ({% for j in range(tn) %}ok${ j }${ "" if loop.last else " || " }{% endfor %}) {
{% else %}
    let xk = 0u{% for d in dims %} + k${ d } * ${ dilation[d] }u * P.src_s${ d }{% endfor %};
{% for j in range(tn) %}
    let x${ j } = s${ j } + xk;
{% endfor %}
    {
{% endif %}
    var xc = 0u;
    for (var depth = 0u; depth < P.depth; depth++) {
{% for i in range(tm) %}
        let a${ i } = ld1(w${ i } + wk);
{% endfor %}
        wk += P.w_sdepth;
{% for j in range(tn) %}
{% if checked %}
        let b${ j } = select(${ acc }(0), ld0(x${ j } + xc), ok${ j });
{% else %}
        let b${ j } = ld0(x${ j } + xc);
{% endif %}
{% endfor %}
        xc += P.src_sc;
${ tile.step(tm, tn, acc) }
    }
{% if flush %}
${ tile.flush(tm, tn, acc) }
{% endif %}
    }
{% for d in dims %}
    }
{% endfor %}
${ tile.store("t" if flush else "c", tm, tn, "P.rows", "P.cols", acc, rolled) }
}
