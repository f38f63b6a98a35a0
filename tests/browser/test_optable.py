"""Every record of the op table on navigator.gpu: the cases of tests/optable, run inside Pyodide.

What the browser's adapter lacks (f16 on SwiftShader) is counted by feature in the summary.
"""

from __future__ import annotations

from typing import Any

import pytest
from optable.runner import run_op
from optable.table import cases_of

import wgburn as wb
from wgburn.ops.table import TABLE

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", sorted(TABLE))
def test_op(name: str, wgpu: wb.Device, cpu: wb.Device, record_property: Any) -> None:
    """Shapes, dtypes, values, gradients and second derivatives of one record."""
    op = TABLE[name]
    outcome = run_op(op, cases_of(op), wgpu, cpu)
    record_property("optable", {**outcome.report(), "device": "chromium"})
    assert not outcome.failures, "\n".join(outcome.failures)
