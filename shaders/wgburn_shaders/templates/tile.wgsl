{# Register tile: the parts that every heavy kernel is composed of. A thread owns tm x tn outputs in
   the scalars c<row>_<column>. Rows and columns of a thread lie wy and wx
   apart, so neighbouring lanes read neighbouring columns. #}

{# Workgroup id, linear over a grid that may be folded to two dimensions; drops the padded tail. #}
{% macro head() %}
    let group = wid.x + wid.y * nwg.x;
    if (group >= P.groups) { return; }
{% endmacro %}

{% macro zero(name, tm, tn, acc) %}
{% for i in range(tm) %}{% for j in range(tn) %}
    var ${ name }${ i }_${ j } = ${ acc }(0);
{% endfor %}{% endfor %}
{% endmacro %}

{# One step of the inner product with a<row> and b<column> in scope. #}
{% macro step(tm, tn, acc) %}
{% for i in range(tm) %}{% for j in range(tn) %}
{% if acc == "f32" %}
    c${ i }_${ j } = fma(a${ i }, b${ j }, c${ i }_${ j });
{% else %}
    c${ i }_${ j } += a${ i } * b${ j };
{% endif %}
{% endfor %}{% endfor %}
{% endmacro %}

{# Two-level sums keep long inner products accurate: c is a short partial sum, t the total. #}
{% macro flush(tm, tn, acc) %}
{% for i in range(tm) %}{% for j in range(tn) %}
    t${ i }_${ j } += c${ i }_${ j };
    c${ i }_${ j } = ${ acc }(0);
{% endfor %}{% endfor %}
{% endmacro %}

{# Stores the tile: row<i> / col<j> are compared with the limits, offsets are out<i> + pix<j>. #}
{% macro store(name, tm, tn, rows, cols, acc, rolled) %}
{% if rolled %}
    // What is stored is long: one copy of it in a loop, not one for every output of the tile.
    var values = array<${ acc }, ${ tm * tn }>({% for i in range(tm) %}{% for j in range(tn) %}${ name }${ i }_${ j }, {% endfor %}{% endfor %});
    var tile_rows = array<u32, ${ tm }>({% for i in range(tm) %}row${ i }, {% endfor %});
    var tile_outs = array<u32, ${ tm }>({% for i in range(tm) %}out${ i }, {% endfor %});
    var tile_cols = array<u32, ${ tn }>({% for j in range(tn) %}col${ j }, {% endfor %});
    var tile_pixels = array<u32, ${ tn }>({% for j in range(tn) %}pix${ j }, {% endfor %});
    for (var t = 0u; t < ${ tm * tn }u; t++) {
        let i = t / ${ tn }u;
        let j = t % ${ tn }u;
        if (tile_rows[i] < ${ rows } && tile_cols[j] < ${ cols }) {
            st0(tile_outs[i] + tile_pixels[j], values[t]);
        }
    }
{% else %}
{% for i in range(tm) %}
    if (row${ i } < ${ rows }) {
{% for j in range(tn) %}
        if (col${ j } < ${ cols }) { st0(out${ i } + pix${ j }, ${ name }${ i }_${ j }); }
{% endfor %}
    }
{% endfor %}
{% endif %}
{% endmacro %}
