"""Every record of the op table on every device: one test an op and device, many cases in each."""

from __future__ import annotations

from typing import Any

import pytest

import wgburn as wb
from wgburn.ops.table import TABLE

from .runner import run_op
from .table import cases_of

#: One of each family, for `pytest -m quick`.
QUICK = {"add", "exp", "where", "sum", "permute", "slice", "matmul", "conv", "gather", "cumsum"}

_PARAMETERS = [
    pytest.param(name, device, marks=[pytest.mark.quick] if name in QUICK else [])
    for device in ("cpu", "wgpu")
    for name in sorted(TABLE)
]


@pytest.mark.parametrize("name, op_device", _PARAMETERS, indirect=["op_device"])
def test_op(name: str, op_device: wb.Device, cpu: wb.Device, record_property: Any) -> None:
    """Shapes, dtypes, values, gradients and second derivatives of one record."""
    op = TABLE[name]
    outcome = run_op(op, cases_of(op), op_device, cpu)
    record_property("optable", outcome.report())
    assert not outcome.failures, "\n".join(outcome.failures)
