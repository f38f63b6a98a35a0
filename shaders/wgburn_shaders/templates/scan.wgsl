{# Running combination of values along the middle of [outer, length, inner], from either end.
   sum, prod: 0 = x -> running sums or products
   linear: 0 = a, 1 = b -> y[i] = a[i] * y[i - 1] + b[i], y[-1] = 0
   max_at, min_at: 0 = x -> where the extremum so far was last met; the first NaN wins, then later ones
   serial:    a thread a row. workgroup: so many lanes a row, in blocks of 4 elements a lane, with a carry. #}
{% if what in ("sum", "prod") %}
alias Value = ${ acc };
const NONE = Value(${ "1" if what == "prod" else "0" });
fn load(off: u32, i: u32) -> Value { return ld0(off); }
fn then(p: Value, q: Value) -> Value { return p ${ "*" if what == "prod" else "+" } q; }
fn store(off: u32, v: Value) { st0(off, v); }
{% elif what == "linear" %}
struct Value { a: ${ acc }, b: ${ acc } }
const NONE = Value(1, 0);
fn load(off: u32, i: u32) -> Value { return Value(ld0(off), ld1(off)); }
fn then(p: Value, q: Value) -> Value { return Value(p.a * q.a, q.a * p.b + q.b); }
fn store(off: u32, p: Value) { st0(off, p.b); }
{% else %}
struct Value { a: ${ acc }, at: u32 }
const NONE = Value(0, 0xffffffffu);
fn load(off: u32, i: u32) -> Value { return Value(ld0(off), i); }
{% if acc == "f32" %}
fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
{% endif %}
fn then(p: Value, q: Value) -> Value {
    if (p.at == NONE.at) { return q; }
    if (q.at == NONE.at) { return p; }
    var later = q.a ${ ">=" if what == "max_at" else "<=" } p.a;
{% if acc == "f32" %}
    if (is_nan(p.a) || is_nan(q.a)) { later = is_nan(q.a); }
{% endif %}
    if (later) { return q; }
    return p;
}
fn store(off: u32, p: Value) { st0(off, i32(p.at)); }
{% endif %}
fn place(base: u32, i: u32) -> u32 {
    return base + ${ "(P.length - 1u - i)" if reverse else "i" } * P.inner;
}

{% if kind == "serial" %}
@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = (wid.x + wid.y * nwg.x) * 64u + lid;
    if (row >= P.rows) { return; }
    let base = row / P.inner * P.length * P.inner + row % P.inner;
    var total = NONE;
    for (var i = 0u; i < P.length; i++) {
        total = then(total, load(place(base, i), i));
        store(place(base, i), total);
    }
}
{% else %}
var<workgroup> totals: array<Value, ${ lanes }>;

@compute @workgroup_size(${ lanes }, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * nwg.x;
    if (row >= P.rows) { return; }
    let base = row / P.inner * P.length * P.inner + row % P.inner;
    var carry = NONE;
    for (var block = 0u; block < P.length; block += ${ 4 * lanes }u) {
        let first = block + lid * 4u;
{% for r in range(4) %}
        var v${ r } = NONE;
        if (first + ${ r }u < P.length) {
            v${ r } = load(place(base, first + ${ r }u), first + ${ r }u);
        }
{% if r > 0 %}
        v${ r } = then(v${ r - 1 }, v${ r });
{% endif %}
{% endfor %}
        var total = v3;
        totals[lid] = total;
        workgroupBarrier();
{% for step in (1, 2, 4, 8, 16, 32, 64, 128) if step < lanes %}
        if (lid >= ${ step }u) { total = then(totals[lid - ${ step }u], total); }
        workgroupBarrier();
        totals[lid] = total;
        workgroupBarrier();
{% endfor %}
        var before = carry;
        if (lid > 0u) { before = then(carry, totals[lid - 1u]); }
{% for r in range(4) %}
        if (first + ${ r }u < P.length) {
            store(place(base, first + ${ r }u), then(before, v${ r }));
        }
{% endfor %}
        carry = then(carry, totals[${ lanes - 1 }]);
        workgroupBarrier();
    }
}
{% endif %}
