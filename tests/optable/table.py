"""From a record of the op table to its cases.

Owns: which generator serves which record. Must not know: devices. An op that nothing here knows has
no cases, which the runner reports as a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wgburn.ops.record import Op

from . import elementwise, indexed, kernels, movement, reductions
from .case import Case

Maker = Callable[[Op], Iterable[Case]]

#: Records whose cases the kind alone does not give.
SPECIAL: dict[str, Maker] = {
    "where": elementwise.where_cases,
    "cast": elementwise.cast_cases,
    "pad": movement.pad_cases,
    "cat": movement.cat_cases,
    "const": movement.const_cases,
    "iota": movement.iota_cases,
    "random_bits": movement.random_cases,
    "random_uniform": movement.random_cases,
    "random_normal": movement.random_cases,
    "cumsum": reductions.scan_cases,
    "cumprod": reductions.scan_cases,
    "linear_scan": reductions.linear_cases,
    "cummax_index": reductions.running_position_cases,
    "cummin_index": reductions.running_position_cases,
    "matmul": kernels.matmul_cases,
    "conv": kernels.conv_cases,
    "conv_input_grad": kernels.conv_cases,
    "conv_weight_grad": kernels.conv_cases,
    "max_pool": kernels.pool_cases,
    "max_pool_index": kernels.pool_cases,
    "avg_pool": kernels.pool_cases,
    "max_pool_grad": kernels.pool_grad_cases,
    "avg_pool_grad": kernels.pool_grad_cases,
    "gather": indexed.index_cases,
    "index_select": indexed.index_cases,
    "scatter": indexed.index_cases,
    "scatter_add": indexed.index_cases,
    "scatter_prod": indexed.index_cases,
    "scatter_amax": indexed.index_cases,
    "scatter_amin": indexed.index_cases,
    "index_add": indexed.index_cases,
    "index_copy": indexed.index_cases,
    "sort_blocks": indexed.sort_cases,
    "sort_merge": indexed.sort_cases,
}
KINDS: dict[str, Maker] = {
    "elementwise": elementwise.cases,
    "reduce": reductions.cases,
    "view": movement.view_cases,
}


def cases_of(op: Op) -> list[Case]:
    """Every case of a record; none for one that the test does not know."""
    make: Any = SPECIAL.get(op.name) or KINDS.get(op.kind)
    return list(make(op)) if make is not None else []
