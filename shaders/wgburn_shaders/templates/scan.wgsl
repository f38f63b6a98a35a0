{# Running sum or product along the middle of [outer, length, inner], from either end.
   serial:    a thread a row. workgroup: 256 lanes a row, in blocks of 1024 elements with a carry. #}
{% set one = "1" if what == "prod" else "0" %}
{% set op = "*" if what == "prod" else "+" %}
fn offset(base: u32, i: u32) -> u32 {
    return base + ${ "(P.length - 1u - i)" if reverse else "i" } * P.inner;
}

{% if kind == "serial" %}
@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = (wid.x + wid.y * nwg.x) * 64u + lid;
    if (row >= P.rows) { return; }
    let base = row / P.inner * P.length * P.inner + row % P.inner;
    var total = ${ acc }(${ one });
    for (var i = 0u; i < P.length; i++) {
        total = total ${ op } ld0(offset(base, i));
        st0(offset(base, i), total);
    }
}
{% else %}
var<workgroup> totals: array<${ acc }, 256>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * nwg.x;
    if (row >= P.rows) { return; }
    let base = row / P.inner * P.length * P.inner + row % P.inner;
    var carry = ${ acc }(${ one });
    for (var block = 0u; block < P.length; block += 1024u) {
        let first = block + lid * 4u;
{% for r in range(4) %}
        var v${ r } = ${ acc }(${ one });
        if (first + ${ r }u < P.length) { v${ r } = ld0(offset(base, first + ${ r }u)); }
{% if r > 0 %}
        v${ r } = v${ r - 1 } ${ op } v${ r };
{% endif %}
{% endfor %}
        var total = v3;
        totals[lid] = total;
        workgroupBarrier();
{% for step in (1, 2, 4, 8, 16, 32, 64, 128) %}
        if (lid >= ${ step }u) { total = totals[lid - ${ step }u] ${ op } total; }
        workgroupBarrier();
        totals[lid] = total;
        workgroupBarrier();
{% endfor %}
        var before = carry;
        if (lid > 0u) { before = carry ${ op } totals[lid - 1u]; }
{% for r in range(4) %}
        if (first + ${ r }u < P.length) {
            st0(offset(base, first + ${ r }u), before ${ op } v${ r });
        }
{% endfor %}
        carry = carry ${ op } totals[255];
        workgroupBarrier();
    }
}
{% endif %}
