"""What WGBURN_DEBUG prints of a new plan."""

import pytest

import wgburn as wb

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4])
def test_levels(wgpu, capsys, level):
    x = wb.ones(3, 4 + level, device=wgpu)
    wgpu.synchronize()
    capsys.readouterr()
    before = wb.config.debug
    wb.config.debug = level
    try:
        (x.exp() * 7 + level).sum(0).numpy()
        wgpu.synchronize()
        text = capsys.readouterr().err
        (x.exp() * 7 + level).sum(0).numpy()
    finally:
        wb.config.debug = before
    assert capsys.readouterr().err == ""  # a known plan is not printed again
    assert (text == "") == (level == 0)
    assert ("1 kernels" in text) == (level >= 1)
    assert ("exp" in text) == (level >= 2)
    assert ("@compute" in text) == (level >= 3)
    assert ("grid" in text) == (level >= 4)
