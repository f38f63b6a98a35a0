"""Runs the cases of one op on one device and says what was wrong.

Owns: building operands, batching cases into one realisation, values, gradients against finite
differences (cpu) or against the cpu (other devices), second derivatives. Must not know: what the
cases are made of, drivers, pytest. Imports numpy and wgburn only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import wgburn as wb
from wgburn.autodiff.functional import gradient_of
from wgburn.core.dtype import dtype_of
from wgburn.core.node import Node
from wgburn.ops.record import NonDiff, Op
from wgburn.tensor import bridge
from wgburn.tensor.tensor import Tensor

from .case import FEATURE, Array, Case, fault, rng

#: Directions along which derivatives are compared with finite differences.
DIRECTIONS = 2


@dataclass
class Outcome:
    """What came of an op's cases on a device."""

    op: str
    device: str
    cases: int = 0
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    unsupported: Counter[str] = field(default_factory=Counter)

    def judge(self, case: Case, trouble: str) -> None:
        if trouble:
            self.failures.append(f"{self.op} [{case.label}] on {self.device}: {trouble}")
        else:
            self.passed += 1

    def report(self) -> dict[str, Any]:
        """Plain data, as it travels with a test report."""
        return {
            "op": self.op,
            "device": self.device,
            "cases": self.cases,
            "passed": self.passed,
            "failed": len(self.failures),
            "unsupported": dict(self.unsupported),
        }


def run_op(op: Op, cases: Sequence[Case], device: wb.Device, cpu: wb.Device) -> Outcome:
    """Every case of an op. `cpu` computes the gradients that other devices are compared with."""
    out = Outcome(op.name, "wgpu" if device.kind == "wgpu" else device.kind, len(cases))
    if not cases:
        out.failures.append(
            f"{op.name}: an op without cases; say in tests/optable what it should compute"
        )
        return out
    have = {d.np.name for d in device.backend.dtypes}
    run: list[Case] = []
    for case in cases:
        lacking = sorted(FEATURE[d] for d in case.dtypes - have if d in FEATURE)
        if lacking and not (case.check == "grad"):
            out.unsupported[lacking[0]] += 1
        else:
            run.append(case)
    _values(op, [c for c in run if c.check == "value"], device, out)
    for case in run:
        if case.check == "raises":
            out.judge(case, _raises(op, case, device))
        elif case.check == "none":
            out.judge(case, _constant(op, case, device))
    grads = [c for c in run if c.check == "grad"]
    if device.kind == "cpu":
        for case in grads:
            out.judge(case, _guarded(_finite_differences, op, case, device))
    else:
        _against_cpu(op, grads, device, cpu, out)
    return out


def _guarded(check: Any, *args: Any) -> str:
    try:
        return str(check(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# -- building -------------------------------------------------------------------------------------


def _tensor(a: Array, device: wb.Device) -> Tensor:
    return wb.tensor(a, dtype=a.dtype.name, device=device)


def _number(a: Array, device: wb.Device) -> Tensor:
    return bridge.constant(Tensor, a.item(), dtype_of(a.dtype), device.backend)


def _operands(case: Case, bases: dict[int, Tensor], stored: list[Tensor] | None) -> list[Tensor]:
    return [i.steps_on(bases[i.of if i.of >= 0 else k], stored) for k, i in enumerate(case.inputs)]


def _bases(case: Case, device: wb.Device) -> dict[int, Tensor]:
    return {
        k: _number(i.base, device) if i.number else _tensor(i.base, device)
        for k, i in enumerate(case.inputs)
        if i.of < 0
    }


def call(op: Op, case: Case, operands: Sequence[Tensor], device: wb.Device) -> Tensor:
    """The primitive itself, as the bridge records it."""
    if operands:
        return bridge.apply(op, tuple(operands), case.attrs, case.dyn)
    shape, dtype = op.shape(case.attrs), op.dtype(case.attrs)
    node = Node(op, (), case.attrs, case.dyn, shape, dtype, device.backend)
    return bridge.wrap(Tensor, node, device.is_autodiff)


def _realise(tensors: Iterable[Tensor]) -> None:
    """All at once; what one of them raises is raised again where it is read."""
    try:
        wb.eval(list(tensors))
    except Exception:
        pass  # whoever reads it sees it


# -- values ---------------------------------------------------------------------------------------


def _values(op: Op, cases: Sequence[Case], device: wb.Device, out: Outcome) -> None:
    built: list[tuple[Case, Any]] = []
    stored: list[Tensor] = []
    for case in cases:
        try:
            built.append((case, _operands(case, _bases(case, device), stored)))
        except Exception as error:
            built.append((case, error))
    if stored:
        _realise(stored)
    results: list[tuple[Case, Any]] = []
    for case, operands in built:
        try:
            if isinstance(operands, Exception):
                raise operands
            results.append((case, call(op, case, operands, device)))
        except Exception as error:
            results.append((case, error))
    _realise(t for _, t in results if isinstance(t, Tensor))
    for case, t in results:
        out.judge(case, _guarded(_value, case, t))


def _value(case: Case, t: Any) -> str:
    if isinstance(t, Exception):
        raise t
    got = t.numpy()
    if got.shape != t.shape or got.dtype != t.dtype.np:
        return f"reads as {got.shape} {got.dtype}, says {t.shape} {t.dtype.name}"
    return fault(case, got, t.dtype.name)


def _raises(op: Op, case: Case, device: wb.Device) -> str:
    assert case.error is not None
    try:
        call(op, case, _operands(case, _bases(case, device), None), device).numpy()
    except case.error:
        return ""
    except Exception as error:
        return f"raised {type(error).__name__} ({error}), must raise {case.error.__name__}"
    return f"raised nothing, must raise {case.error.__name__}"


def _constant(op: Op, case: Case, device: wb.Device) -> str:
    """A record whose gradient rule is NONDIFF leaves no trace on the tape."""
    ad = device.autodiff()
    bases = {
        k: (t.requires_grad_() if t.dtype.is_float else t) for k, t in _bases(case, ad).items()
    }
    result = call(op, case, _operands(case, bases, None), ad)
    return "the result requires a gradient though the op has none" if result.requires_grad else ""


# -- gradients ------------------------------------------------------------------------------------


class _Derivatives:
    """The scalar sum(op(x) * w), its gradient, and the gradient of sum(gradient * u)."""

    def __init__(self, op: Op, case: Case, device: wb.Device, dtype: str) -> None:
        self.op, self.case, self.device, self.dtype = op, case, device.autodiff(), dtype
        random = rng(f"{op.name} {case.label}")
        self.start = {
            k: i.base.astype(dtype) if i.base.dtype.kind == "f" else i.base
            for k, i in enumerate(case.inputs)
            if i.of < 0
        }
        self.names = [k for k in case.wrt if case.inputs[k].of < 0]
        shape = op.shape(case.attrs, *[i.value.shape for i in case.inputs])
        self.weight = random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape)
        self.mixing = {
            k: random.uniform(0.5, 1.5, self.start[k].shape)
            * random.choice([-1.0, 1.0], self.start[k].shape)
            for k in self.names
        }
        self.random = random

    def leaves(self, at: dict[int, Array], weight: Array) -> tuple[dict[int, Tensor], Tensor]:
        made = {k: _tensor(a, self.device) for k, a in at.items()}
        for k in self.names:
            made[k].requires_grad_()
        return made, _tensor(weight.astype(self.dtype), self.device).requires_grad_()

    def value(self, leaves: dict[int, Tensor], weight: Tensor) -> Tensor:
        out = call(self.op, self.case, _operands(self.case, leaves, None), self.device)
        return (out * weight).sum()

    def first(self, leaves: dict[int, Tensor], weight: Tensor, create: bool) -> list[Tensor]:
        value = self.value(leaves, weight)
        got = gradient_of(
            value, [leaves[k] for k in self.names], create_graph=create, retain_graph=create
        )
        return [
            leaves[k].zeros_of(leaves[k].shape) if g is None else g
            for k, g in zip(self.names, got, strict=True)
        ]

    def mixed(self, leaves: dict[int, Tensor], weight: Tensor) -> Tensor:
        """The gradient as one number: sum(gradient * u)."""
        total: Any = None
        for k, g in zip(self.names, self.first(leaves, weight, True), strict=True):
            part = (g * _tensor(self.mixing[k].astype(self.dtype), self.device)).sum()
            total = part if total is None else total + part
        return total

    def second(self, leaves: dict[int, Tensor], weight: Tensor) -> list[Array]:
        total = self.mixed(leaves, weight)
        inputs = [leaves[k] for k in self.names] + [weight]
        if not total.requires_grad:
            return [np.zeros(t.shape, self.dtype) for t in inputs]
        got = gradient_of(total, inputs)
        return [
            np.zeros(t.shape, self.dtype) if g is None else g.numpy()
            for t, g in zip(inputs, got, strict=True)
        ]

    def shifted(self, by: list[Array], sign: float) -> tuple[dict[int, Array], Array]:
        at = dict(self.start)
        for k, d in zip(self.names, by, strict=False):
            at[k] = at[k] + sign * self.case.step * d
        weight = self.weight
        if len(by) > len(self.names):
            weight = weight + sign * self.case.step * by[-1]
        return at, weight

    def slope(self, scalar: Any, by: list[Array]) -> float:
        """Central difference of scalar(leaves, weight) along `by`."""
        high = scalar(*self.leaves(*self.shifted(by, 1.0))).item()
        low = scalar(*self.leaves(*self.shifted(by, -1.0))).item()
        return float((high - low) / (2 * self.case.step))

    def compare(self, scalar: Any, grads: list[Array], what: str, shapes: list[Any]) -> str:
        for _ in range(DIRECTIONS):
            by = [self.random.standard_normal(s) for s in shapes]
            fd = self.slope(scalar, by)
            terms = [
                float((g.astype(np.float64) * d).sum()) for g, d in zip(grads, by, strict=True)
            ]
            size = sum(
                float(np.abs(g.astype(np.float64) * d).sum())
                for g, d in zip(grads, by, strict=True)
            )
            if not abs(sum(terms) - fd) <= self.case.fd * (1.0 + size):
                return (
                    f"{what} along a direction is {sum(terms):.9g}, finite differences say {fd:.9g}"
                )
        return ""


def _finite_differences(op: Op, case: Case, device: wb.Device) -> str:
    d = _Derivatives(op, case, device, "float64")
    leaves, weight = d.leaves(d.start, d.weight)
    tensors = d.first(leaves, weight, False)
    for k, g in zip(d.names, tensors, strict=True):
        if g.shape != leaves[k].shape or g.dtype is not leaves[k].dtype:
            return f"gradient of input {k} is {g.shape} {g.dtype.name}, not {leaves[k].shape}"
    grads = [g.numpy() for g in tensors]
    shapes = [d.start[k].shape for k in d.names]
    trouble = d.compare(d.value, grads, "gradient", shapes)
    if trouble or case.orders < 2:
        return trouble
    second = d.second(*d.leaves(d.start, d.weight))
    return d.compare(d.mixed, second, "second derivative", [*shapes, d.weight.shape])


def _against_cpu(
    op: Op, cases: Sequence[Case], device: wb.Device, cpu: wb.Device, out: Outcome
) -> None:
    """Gradients in float32 beside the cpu's in float64."""
    built: list[tuple[Case, Any]] = []
    for case in cases:
        try:
            d = _Derivatives(op, case, device, "float32")
            built.append((case, d.first(*d.leaves(d.start, d.weight), False)))
        except Exception as error:
            built.append((case, error))
    _realise(t for _, ts in built if isinstance(ts, list) for t in ts)
    for case, tensors in built:
        out.judge(case, _guarded(_one_against_cpu, op, case, cpu, tensors))


def _one_against_cpu(op: Op, case: Case, cpu: wb.Device, tensors: Any) -> str:
    if isinstance(tensors, Exception):
        raise tensors
    d = _Derivatives(op, case, cpu, "float64")
    # The same float32 numbers, so that only the arithmetic differs.
    at = {k: a.astype(np.float32).astype(a.dtype) for k, a in d.start.items() if k in d.names}
    leaves, weight = d.leaves(d.start | at, d.weight.astype(np.float32).astype(np.float64))
    for k, mine, theirs in zip(d.names, tensors, d.first(leaves, weight, False), strict=True):
        got, want = mine.numpy().astype(np.float64), theirs.numpy()
        if got.shape != want.shape:
            return f"gradient of input {k} is {got.shape}, on cpu {want.shape}"
        if mine.dtype.name != "float32":
            return f"gradient of input {k} is {mine.dtype.name}, not float32"
        if not got.size:
            continue
        error = np.abs(got - want)
        limit = case.close * (np.abs(want) + np.sqrt(np.mean(want * want)) + 1e-30)
        if not (error <= limit).all():
            bad = np.unravel_index(np.argmax(np.nan_to_num(error - limit, nan=np.inf)), want.shape)
            at = tuple(map(int, bad))
            return f"gradient of input {k} at {at} is {got[bad]!r}, on cpu {want[bad]!r}"
    return ""


def differentiable(op: Op) -> bool:
    """Whether the record has a gradient rule."""
    return callable(op.grad) and not isinstance(op.grad, NonDiff)


def summary(reports: Iterable[dict[str, Any]]) -> list[str]:
    """One line a device from the outcomes' reports."""
    found: dict[str, list[dict[str, Any]]] = {}
    for r in reports:
        found.setdefault(r["device"], []).append(r)
    lines = []
    for device, rs in sorted(found.items()):
        lacking: Counter[str] = Counter()
        for r in rs:
            lacking.update(r["unsupported"])
        total = sum(r["cases"] for r in rs)
        ops = len({r["op"] for r in rs})
        by = ", ".join(f"{k} {n}" for k, n in sorted(lacking.items())) or "none"
        lines.append(
            f"op table on {device}: {ops} ops x {total / max(ops, 1):.1f} cases = {total}: "
            f"{sum(r['passed'] for r in rs)} passed, {sum(r['failed'] for r in rs)} failed, "
            f"{sum(lacking.values())} unsupported (by feature: {by})"
        )
    return lines
