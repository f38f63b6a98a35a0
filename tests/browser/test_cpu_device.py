"""`import wgburn` and the cpu device in Pyodide: the wheel needs nothing that a browser lacks."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytestmark = pytest.mark.browser


def test_import_loads_nothing_that_belongs_to_one_platform():
    import wgburn as wb

    assert wb.__version__
    absent = {"wgpu", "cffi", "rich", "click", "wgburn_runtime.native"}
    assert not absent & set(sys.modules)


def test_cpu_device_computes():
    import wgburn as wb

    device = wb.Device.cpu()
    a = wb.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    np.testing.assert_allclose((a @ a.T).numpy(), [[5, 14], [14, 50]])
