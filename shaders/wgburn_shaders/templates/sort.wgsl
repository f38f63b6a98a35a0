{# Stable order along the last axis of [rows, length], as positions in the row.
   blocks: 0 = x. Runs of 2^P.levels elements are ordered, each by a bitonic network in workgroup memory;
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
var<workgroup> keys: array<u32, ${ block }>;
var<workgroup> places: array<u32, ${ block }>;

// Where an element of the workgroup is in its row (x) and in memory (y), and whether there is one (z).
fn locate(first_run: u32, e: u32) -> vec3<u32> {
    let run = first_run + (e >> P.levels);
    let at = ((run % P.per_row) << P.levels) + (e & ((1u << P.levels) - 1u));
    return vec3(at, run / P.per_row * P.length + at, select(0u, 1u, run < P.runs && at < P.length));
}

@compute @workgroup_size(${ lanes }, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let first_run = (wid.x + wid.y * nwg.x) * (${ block }u >> P.levels);
    for (var e = lid; e < ${ block }u; e += ${ lanes }u) {
        let place = locate(first_run, e);
        // What lies behind the end of a row has the largest key and the largest place.
        var k = 0xffffffffu;
        if (place.z != 0u) { k = key(ld0(place.y)); }
        keys[e] = k;
        places[e] = place.x;
    }
    workgroupBarrier();
    for (var level = 1u; level <= P.levels; level++) {
        // Runs of 2^level go up and down in turn; the last level has one run, which goes up.
        let direction = (1u << level) & ((1u << P.levels) - 1u);
        for (var half = level; half > 0u; half--) {
            let step = 1u << (half - 1u);
            for (var pair = lid; pair < ${ block // 2 }u; pair += ${ lanes }u) {
                let i = ((pair >> (half - 1u)) << half) + (pair & (step - 1u));
                let j = i + step;
                let a = keys[i];
                let b = keys[j];
                let after = a > b || (a == b && places[i] > places[j]);
                if (after == ((i & direction) == 0u)) {
                    keys[i] = b;
                    keys[j] = a;
                    let place = places[i];
                    places[i] = places[j];
                    places[j] = place;
                }
            }
            workgroupBarrier();
        }
    }
    for (var e = lid; e < ${ block }u; e += ${ lanes }u) {
        let place = locate(first_run, e);
        if (place.z != 0u) { st0(place.y, i32(places[e])); }
    }
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
