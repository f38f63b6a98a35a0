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

{# Stores the tile: row<i> / col<j> are compared with the limits, offsets are out<i> + pix<j>.
   rolled: the store is in the text once, in loops that move the next output to a fixed place. (An index into an
   array of outputs would put all of them into memory: lavapipe compiles that for 10 s.) #}
{% macro store(name, tm, tn, rows, cols, acc, rolled) %}
{% if rolled %}
{% for i in range(tm) %}
    var next_row${ i } = row${ i };
    var next_out${ i } = out${ i };
{% endfor %}
{% for j in range(tn) %}
    var next_col${ j } = col${ j };
    var next_pix${ j } = pix${ j };
{% endfor %}
    for (var i = 0u; i < ${ tm }u; i++) {
        for (var j = 0u; j < ${ tn }u; j++) {
            if (next_row0 < ${ rows } && next_col0 < ${ cols }) {
                st0(next_out0 + next_pix0, ${ name }0_0);
            }
            let this_col = next_col0;
            let this_pix = next_pix0;
{% for j in range(tn - 1) %}
            ${ name }0_${ j } = ${ name }0_${ j + 1 };
            next_col${ j } = next_col${ j + 1 };
            next_pix${ j } = next_pix${ j + 1 };
{% endfor %}
            next_col${ tn - 1 } = this_col;
            next_pix${ tn - 1 } = this_pix;
        }
{% for i in range(tm - 1) %}
        next_row${ i } = next_row${ i + 1 };
        next_out${ i } = next_out${ i + 1 };
{% for j in range(tn) %}
        ${ name }${ i }_${ j } = ${ name }${ i + 1 }_${ j };
{% endfor %}
{% endfor %}
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
