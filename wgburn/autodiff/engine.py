"""Runs the tape backward.

Owns: the order of gradient rules, accumulation, what is freed. Must not know: ops' rules, devices.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from ..core.errors import GradError, ShapeError
from .tape import Context, GradFn, Leaf, check_rule, mode


def collect(roots: Sequence[Any], stop: Container[int] = ()) -> list[Any]:
    """Every fn reachable from the roots, youngest first: after all that read its result.

    Fns whose id is in `stop` are not walked through.
    """
    seen: set[int] = set()
    out: list[Any] = []
    stack = [r for r in roots if r is not None]
    while stack:
        fn = stack.pop()
        if id(fn) in seen:
            continue
        seen.add(id(fn))
        out.append(fn)
        if type(fn) is GradFn and id(fn) not in stop:
            if fn.parents is None:
                raise GradError(
                    f"backward through {fn.name} a second time: its saved values were freed "
                    "by the first; call backward(retain_graph=True) the first time"
                )
            stack.extend([p for p in fn.parents if p is not None])
    out.sort(key=lambda f: f.seq, reverse=True)
    return out


def run(
    make: Any,
    roots: Sequence[Any],
    seeds: Sequence[Any],
    *,
    retain: bool,
    create_graph: bool,
    only: dict[int, Any] | None = None,
    beyond: bool = True,
) -> dict[int, tuple[Any, Any]]:
    """Propagate `seeds` (tensors, gradients of the roots' fns) to the leaves.

    Returns (fn, gradient) by id of the leaf's fn (of `only`'s fns when given). `make(node, fn)`
    builds a tensor. Without `beyond` the walk ends at `only`'s fns.
    """
    order = collect(roots, () if beyond or only is None else only)
    grads: dict[int, Any] = {}
    for root, seed in zip(roots, seeds, strict=True):
        grads[id(root)] = seed if id(root) not in grads else grads[id(root)] + seed
    wanted = _leads_to(order, only) if only is not None else None
    result: dict[int, tuple[Any, Any]] = {}
    before = mode.enabled
    mode.enabled = create_graph
    try:
        for fn in order:
            g = grads.pop(id(fn), None)
            if only is not None and id(fn) in only:
                result[id(fn)] = (fn, g)
                if not beyond:
                    continue
            if type(fn) is Leaf:
                if only is None and g is not None:
                    result[id(fn)] = (fn, g)
                continue
            if g is None or (wanted is not None and id(fn) not in wanted):
                continue
            _step(make, fn, g, grads, wanted)
    finally:
        mode.enabled = before
    if not retain:
        for fn in order:
            if type(fn) is GradFn:
                fn.release()
    return result


def _leads_to(order: list[Any], only: dict[int, Any]) -> set[int]:
    """Ids of fns from which one of `only` can be reached (excluding where nothing is asked)."""
    reach: set[int] = set()
    for fn in reversed(order):
        if id(fn) in only:
            reach.add(id(fn))
        if (
            type(fn) is GradFn
            and fn.parents
            and any(p is not None and id(p) in reach for p in fn.parents)
        ):
            reach.add(id(fn))
    return reach


def _step(make: Any, fn: GradFn, g: Any, grads: dict[int, Any], wanted: set[int] | None) -> None:
    rule = check_rule(fn)
    out = rule(Context(fn, make), g)
    parents = fn.parents
    assert parents is not None
    for i, (parent, pg) in enumerate(zip(parents, out, strict=True)):
        if parent is None or pg is None or (wanted is not None and id(parent) not in wanted):
            continue
        if pg.shape != fn.shapes[i]:
            pg = pg.sum_to(fn.shapes[i])
        if pg.dtype is not fn.dtypes[i]:
            pg = pg.to(fn.dtypes[i])
        key = id(parent)
        had = grads.get(key)
        grads[key] = pg if had is None else had + pg


def seed_of(loss: Any, gradient: Any, what: str) -> Any:
    """The gradient to start from: the one given, or None for ones. Raises GradError, ShapeError."""
    if gradient is not None:
        if gradient.shape != loss.shape:
            raise ShapeError(
                f"{what}: gradient {gradient.shape} must have the shape of the output, {loss.shape}"
            )
        return gradient
    if loss.size != 1:
        raise GradError(
            f"{what} starts at a tensor of shape {loss.shape}; reduce it first (loss.mean()) or "
            "pass gradient="
        )
    return None
