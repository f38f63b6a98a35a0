{# Stable order along the last axis of [rows, length], as positions in the row.
   blocks: 0 = x. Runs of "size" elements are ordered, each by a bitonic network in workgroup memory;
           a workgroup takes several short runs.
   merge:  0 = x, 1 = positions with ordered runs of P.run -> ordered runs of 2 * P.run. Each element
           finds its new place by a binary search in the neighbouring run.
   Equal elements keep their order; NaN counts as the largest; -0 equals 0. #}
// An unsigned number in the order of the values.
fn key(v: ${ acc }) -> u32 {
{% if acc == "f32" %}
    let bits = bitcast<u32>(v);
    let sign = bits >> 31u;
    var k = select(bits | 0x80000000u, ~bits, sign == 1u);
    if (bits == 0x80000000u) { k = 0x80000000u; }
    if ((bits & 0x7fffffffu) > 0x7f800000u) { k = 0xffffffffu; }
{% elif acc == "i32" %}
    let k = bitcast<u32>(v) ^ 0x80000000u;
{% else %}
    let k = v;
{% endif %}
    return ${ "~k" if descending else "k" };
}

{% if what == "blocks" %}
{% set total = [size, 512] | max %}
var<workgroup> keys: array<u32, ${ total }>;
var<workgroup> places: array<u32, ${ total }>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let first_run = (wid.x + wid.y * nwg.x) * ${ total // size }u;
{% for r in range(total // 256) %}
    let e${ r } = lid + ${ 256 * r }u;
    let run${ r } = first_run + e${ r } / ${ size }u;
    let at${ r } = run${ r } % P.per_row * ${ size }u + e${ r } % ${ size }u;
    let off${ r } = run${ r } / P.per_row * P.length + at${ r };
    let valid${ r } = run${ r } < P.runs && at${ r } < P.length;
    // What lies behind the end of a row has the largest key and the largest place.
    var key${ r } = 0xffffffffu;
    if (valid${ r }) { key${ r } = key(ld0(off${ r })); }
    keys[e${ r }] = key${ r };
    places[e${ r }] = at${ r };
{% endfor %}
    workgroupBarrier();
    for (var span = 2u; span <= ${ size }u; span <<= 1u) {
        for (var step = span >> 1u; step > 0u; step >>= 1u) {
{% for r in range(total // 512) %}
            {
                let pair = lid + ${ 256 * r }u;
                let i = pair / step * 2u * step + pair % step;
                let j = i + step;
                let a = keys[i];
                let b = keys[j];
                let after = a > b || (a == b && places[i] > places[j]);
                if (after == ((i & ${ size - 1 }u & span) == 0u)) {
                    keys[i] = b;
                    keys[j] = a;
                    let place = places[i];
                    places[i] = places[j];
                    places[j] = place;
                }
            }
{% endfor %}
            workgroupBarrier();
        }
    }
{% for r in range(total // 256) %}
    if (valid${ r }) { st0(off${ r }, i32(places[e${ r }])); }
{% endfor %}
}
{% else %}
@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let index = (wid.x + wid.y * nwg.x) * 64u + lid;
    if (index >= P.total) { return; }
    let row = index / P.length * P.length;
    let at = index - row;
    let place = ld1(index);
    let mine = key(ld0(row + u32(place)));
    let own = at / P.run;
    let left = (own & 1u) == 0u;
    let first = min(select(own - 1u, own + 1u, left) * P.run, P.length);
    let end = min(first + P.run, P.length);
    // How many of the other run come before this element: of equals, those of the left run.
    var low = first;
    var high = end;
    while (low < high) {
        let middle = (low + high) / 2u;
        let other = key(ld0(row + u32(ld1(row + middle))));
        if (other < mine || (other == mine && !left)) { low = middle + 1u; } else { high = middle; }
    }
    let start = (own & ~1u) * P.run;
    st0(row + start + (at - own * P.run) + (low - first), place);
}
{% endif %}
