"""The op table on a browser's WebGPU, in a worker: the cases that tests/optable runs natively."""

from typing import Any

import pytest
from optable.runner import run_op
from optable.table import cases_of

import wgburn as wb
from wgburn.ops.table import TABLE

pytestmark = pytest.mark.browser(context="worker", seconds=180)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_op(name: str, wgpu: wb.Device, cpu: wb.Device, record_property: Any) -> None:
    """Shapes, dtypes, values and gradients of one record."""
    outcome = run_op(TABLE[name], cases_of(TABLE[name]), wgpu, cpu)
    record_property("optable", outcome.report() | {"device": "wgpu in a browser"})
    assert not outcome.failures, "\n".join(outcome.failures)
