{# Pooling over the last dimensions of [planes, *n]: one thread an output element.
   max:       0 = x -> the largest of each window (NaN wins; what lies outside counts as -inf)
   argmax:    0 = x -> its flat position in the plane as i32 (the first one, or the first NaN)
   max_grad:  0 = gradient of the windows, 1 = positions from argmax -> gradient of x
   avg:       0 = x -> mean of each window
   avg_grad:  0 = gradient of the windows -> gradient of x
   The gradients gather: each position of x sums over the windows that cover it, in a fixed order; where windows are
   disjoint that is one at most, found without a search. #}
{% set dims = range(kernel|length) %}
{% set gathers = what in ("max_grad", "avg_grad") %}
{% set side = "n" if gathers else "out" %}

{# Elements a window counts, as torch does: it ends at the padded edge, and may leave padding out. #}
{% macro divisor(window) %}
    var count = 1;
{% for d in dims %}
    let lo${ d } = i32(${ window }${ d } * ${ stride[d] }u) - i32(P.pad${ d });
    let hi${ d } = min(lo${ d } + ${ kernel[d] }, i32(P.n${ d } + P.pad${ d }));
{% if include_pad %}
    count *= hi${ d } - lo${ d };
{% else %}
    count *= min(hi${ d }, i32(P.n${ d })) - max(lo${ d }, 0);
{% endif %}
{% endfor %}
    let divisor = f32(max(count, 1));
{% endmacro %}

{% macro is_nan(v) %}(bitcast<u32>(${ v }) & 0x7fffffffu) > 0x7f800000u{% endmacro %}

@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let index = (wid.x + wid.y * nwg.x) * 64u + lid;
    if (index >= P.total) { return; }
    var rest = index;
{% for d in dims|reverse %}
    let q${ d } = rest % P.${ side }${ d };
    rest /= P.${ side }${ d };
{% endfor %}
{% if gathers %}
    let base = rest * P.windows;
{% if what == "max_grad" %}
    let here = i32(index - rest * P.plane);
{% endif %}
    var sum = ${ acc }(0);
{% for d in dims %}
{% if disjoint %}
    let s${ d } = q${ d } + P.pad${ d };
    let w${ d } = s${ d } / ${ stride[d] }u;
    let k${ d } = s${ d } - w${ d } * ${ stride[d] }u;
    if (w${ d } < P.out${ d }
{%- if dilation[d] > 1 %} && k${ d } % ${ dilation[d] }u == 0u{% endif %}
{%- if reach[d] < stride[d] %} && k${ d } < ${ reach[d] }u{% endif %}) {
{% else %}
    for (var k${ d } = 0u; k${ d } < ${ kernel[d] }u; k${ d }++) {
    let s${ d } = i32(q${ d } + P.pad${ d }) - i32(k${ d } * ${ dilation[d] }u);
    let w${ d } = u32(max(s${ d }, 0)) / ${ stride[d] }u;
    if (i32(w${ d } * ${ stride[d] }u) != s${ d } || w${ d } >= P.out${ d }) { continue; }
{% endif %}
{% endfor %}
    let at = base + ${ flat_window };
{% if what == "max_grad" %}
    if (ld1(at) == here) { sum += ld0(at); }
{% else %}
${ divisor("w") }
    sum += ld0(at) / divisor;
{% endif %}
{% for d in dims %}
    }
{% endfor %}
    st0(index, sum);
{% else %}
    let base = rest * P.plane;
{% if what == "avg" %}
    var sum = 0.0;
{% else %}
    var best = ${ "bitcast<f32>(P.lowest)" if acc == "f32" else "P.lowest" };
    var best_at = 0u;
    var found = false;
{% endif %}
{% for d in dims %}
    for (var k${ d } = 0u; k${ d } < ${ kernel[d] }u; k${ d }++) {
    let s${ d } = u32(i32(q${ d } * ${ stride[d] }u + k${ d } * ${ dilation[d] }u) - i32(P.pad${ d }));
    if (s${ d } >= P.n${ d }) { continue; }
{% endfor %}
    let at = ${ flat_source };
    let v = ld0(base + at);
{% if what == "avg" %}
    sum += v;
{% else %}
{% if acc == "f32" %}
    if (!found || (!(${ is_nan("best") }) && (v > best || ${ is_nan("v") }))) {
{% else %}
    if (!found || v > best) {
{% endif %}
        best = v;
        best_at = at;
        found = true;
    }
{% endif %}
{% for d in dims %}
    }
{% endfor %}
{% if what == "avg" %}
${ divisor("q") }
    st0(index, sum / divisor);
{% elif what == "max" %}
    st0(index, best);
{% else %}
    st0(index, i32(best_at));
{% endif %}
{% endif %}
}
