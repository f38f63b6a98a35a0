{# Indexing along the middle of [outer, length, inner]. Negative indices count from the end, and every
   index is clamped, so nothing outside is ever touched.
   gather:       0 = x, 1 = index [outer, count, inner]    -> x[o, index[o, i, k], k]
   index_select: 0 = x, 1 = index [count]                  -> x[o, index[i], k]
   scatter_*:    0 = source, 1 = index, both [outer, count, inner]         -> combined by index
   index_*:      0 = source [outer, count, inner], 1 = index [count]       -> combined by index
   where * is add, set (the last one wins), prod, amax or amin. They start from 2 = base
   [outer, length, inner]; additions without one start from zeros. They write every output element
   once and combine in order of the index: no atomics, no second launch. #}
{% set scatters = what.startswith("scatter_") %}
{% set indexed = what in ("index_add", "index_set") %}
{% set how = what.split("_")[1] %}
{% macro combine(sum, value) -%}
{% if how == "add" %}${ sum } += ${ value };{% elif how == "set" %}${ sum } = ${ value };
{%- elif how == "prod" %}${ sum } *= ${ value };
{%- else %}${ sum } = ${ ("wb_" if acc == "f32" else "") ~ how[1:] }(${ sum }, ${ value });{% endif %}
{%- endmacro %}
fn row_at(off: u32) -> u32 {
    let i = ld1(off);
    return u32(clamp(select(i, i + i32(P.length), i < 0), 0, i32(P.length) - 1));
}

{% if indexed %}
// One bit a source row: whether it falls on the row of this workgroup.
var<workgroup> matches: array<u32, 64>;

{% endif %}
@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * nwg.x;
{% if indexed %}
    if (group >= P.groups) { return; }
    let row = group % P.length;
    let lane = (group / P.length) * ${ 64 * span }u + lid;
    let lanes = P.outer * P.inner;
{% for r in range(span) %}
    let j${ r } = lane + ${ 64 * r }u;
    let o${ r } = j${ r } / P.inner;
    let out${ r } = (o${ r } * P.length + row) * P.inner + j${ r } % P.inner;
    let src${ r } = o${ r } * P.count * P.inner + j${ r } % P.inner;
    var sum${ r } = ${ acc }(0);
{% if has_base %}
    if (j${ r } < lanes) { sum${ r } = ld2(out${ r }); }
{% endif %}
{% endfor %}
    for (var block = 0u; block < P.count; block += 2048u) {
        var bits = 0u;
        let first = block + lid * 32u;
        let stop = min(first + 32u, P.count);
        for (var i = first; i < stop; i++) {
            bits |= select(0u, 1u << (i - first), row_at(i) == row);
        }
        matches[lid] = bits;
        workgroupBarrier();
        let words = min(64u, (P.count - block + 31u) / 32u);
        for (var word = 0u; word < words; word++) {
            var found = matches[word];
            while (found != 0u) {
                let i = block + word * 32u + countTrailingZeros(found);
                found &= found - 1u;
{% for r in range(span) %}
                if (j${ r } < lanes) { ${ combine("sum" ~ r, "ld0(src" ~ r ~ " + i * P.inner)") } }
{% endfor %}
            }
        }
        workgroupBarrier();
    }
{% for r in range(span) %}
    if (j${ r } < lanes) { st0(out${ r }, sum${ r }); }
{% endfor %}
{% else %}
    let index = group * 64u + lid;
    if (index >= P.total) { return; }
    let k = index % P.inner;
{% if scatters %}
    let row = (index / P.inner) % P.length;
    let first = index / P.inner / P.length * P.count * P.inner + k;
    var sum = ${ "ld2(index)" if has_base else acc ~ "(0)" };
    // Four at a time: the number of trips of a loop is bounded on some devices.
    let fours = P.count / 4u;
    var at = first;
    for (var i = 0u; i < fours; i++) {
{% for r in range(4) %}
        if (row_at(at) == row) { ${ combine("sum", "ld0(at)") } }
        at += P.inner;
{% endfor %}
    }
    for (var i = fours * 4u; i < P.count; i++) {
        if (row_at(at) == row) { ${ combine("sum", "ld0(at)") } }
        at += P.inner;
    }
    st0(index, sum);
{% else %}
    let i = (index / P.inner) % P.count;
    let o = index / P.inner / P.count;
    let row = row_at(${ "index" if what == "gather" else "i" });
    st0(index, ld0((o * P.length + row) * P.inner + k));
{% endif %}
{% endif %}
}
