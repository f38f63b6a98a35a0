"""The op-table test itself: a record with one broken rule has to be reported, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import wgburn as wb
from wgburn.core import dtype as dt
from wgburn.ops.record import NONDIFF, Op
from wgburn.ops.table import TABLE

from .case import Case, fault, plain
from .runner import Outcome, run_op, summary
from .table import cases_of


def _tanh(call: Any, out: Any, x: Any) -> None:
    np.tanh(x * np.asarray(1.001, x.dtype), out=out)


#: What is broken, the op, the rules put in, the device that must see it, words of the report.
PLANTED: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("value", "exp", {"wgsl": "(wb_exp({0}) * 1.00001)"}, "wgpu", "elements wrong"),
    ("text", "exp", {"wgsl": "wb_no_such({0})"}, "wgpu", "wb_no_such"),
    ("value", "tanh", {"numpy": _tanh}, "cpu", "elements wrong"),
    ("NaN", "maximum", {"wgsl": {"f": "select({0}, {1}, {1} > {0})"}}, "wgpu", "nan"),
    ("gradient", "sin", {"grad": lambda c, g: (g * c.ins[0].sin(),)}, "cpu", "differences"),
    ("part of a gradient", "mul", {"grad": lambda c, g: (g * c.ins[1], g)}, "cpu", "differences"),
    ("no gradient", "cos", {"grad": NONDIFF}, "cpu", "differences"),
    ("saved values", "mul", {"saves": ((), ())}, "cpu", "gradient"),
    (
        "second derivative",
        "sin",
        {"grad": lambda c, g: (g * c.ins[0].detach().cos(),)},
        "cpu",
        "second derivative",
    ),
    ("shape", "sum", {"shape": lambda attrs, a: ()}, "cpu", ", says ()"),
    ("shape", "permute", {"shape": lambda attrs, a: a}, "wgpu", "shape is"),
    ("dtype", "argmax", {"dtype": lambda attrs, a: dt.float32}, "cpu", "dtype is float32"),
    ("dtype", "lt", {"dtype": lambda attrs, a, b: a}, "wgpu", "dtype is float32"),
    ("kinds", "sqrt", {"dtypes": "if"}, "cpu", "refuses"),
]


@pytest.mark.parametrize(
    "name, rules, op_device, words",
    [pytest.param(n, r, d, w, id=f"{what}-{n}-{d}") for what, n, r, d, w in PLANTED],
    indirect=["op_device"],
)
def test_a_broken_rule_is_reported(
    name: str, rules: dict[str, Any], op_device: wb.Device, cpu: wb.Device, words: str
) -> None:
    broken = replace(TABLE[name], **rules)
    cases = cases_of(TABLE[name])
    if words == "refuses":
        cases = [c for c in cases if c.check == "raises"]
    outcome = run_op(broken, cases, op_device, cpu)
    assert any(words in line for line in outcome.failures), outcome.failures[:3]
    assert len(outcome.failures) + outcome.passed + sum(outcome.unsupported.values()) == len(cases)


@pytest.mark.parametrize("op_device", ["wgpu"], indirect=True)
def test_a_device_gradient_is_compared_with_the_cpu(op_device: wb.Device, cpu: wb.Device) -> None:
    """Right on the cpu and wrong on the device: only the comparison of the two can tell."""

    def rule(c: Any, g: Any) -> Any:
        wrong = 1.001 if c.ins[0].device.kind == "wgpu" else 1.0
        return (g * c.ins[0].cos() * wrong,)

    broken = replace(TABLE["sin"], grad=rule)
    outcome = run_op(broken, cases_of(broken), op_device, cpu)
    assert any("on cpu" in line and "gradient" in line for line in outcome.failures)


def test_an_op_without_cases_fails(cpu: wb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = replace(TABLE["exp"], name="planted")
    monkeypatch.setitem(TABLE, "planted", planted)
    outcome = run_op(planted, cases_of(TABLE["planted"]), cpu, cpu)
    assert outcome.failures and "an op without cases" in outcome.failures[0]


def test_every_record_has_cases_of_its_own_names() -> None:
    """A label names one case, and seeds its random numbers."""
    for op in TABLE.values():
        labels = [c.label for c in cases_of(op)]
        assert labels, f"{op.name}: an op without cases"
        twice = {label for label in labels if labels.count(label) > 1}
        assert not twice, f"{op.name}: {twice}"


@pytest.mark.parametrize(
    "got, want, ok",
    [
        (1.0 + 2**-22, 1.0, True),
        (1.0 + 2**-18, 1.0, False),
        (np.nan, np.nan, True),
        (0.0, np.nan, False),
        (np.inf, 1e39, True),
        (3.4e38, np.inf, False),
        (0.0, 1e-39, True),
        (-0.0, 0.0, True),
        (np.inf, 1.0, False),
    ],
)
def test_comparison(got: float, want: float, ok: bool) -> None:
    case = Case("one", (plain(np.float32(0)),), ref=lambda x: np.float64(want), result="float32")
    assert (fault(case, np.array(got, np.float32), "float32") == "") is ok


def test_unsupported_cases_are_listed_not_skipped() -> None:
    class Backend:
        dtypes = frozenset({dt.float32})

    class Device:
        kind = "wgpu"
        backend = Backend()

    op: Op = TABLE["exp"]
    cases = [c for c in cases_of(op) if c.label in ("float16 values", "float64 values")]
    outcome: Outcome = run_op(op, cases, Device(), Device())  # type: ignore[arg-type]
    assert outcome.unsupported == {"shader-f16": 1, "float64": 1}
    line = summary([outcome.report()])[0]
    assert "1 ops x 2.0 cases = 2: 0 passed, 0 failed, 2 unsupported" in line
    assert "float64 1, shader-f16 1" in line
