"""Gradients of functions and switches of the grad mode: grad, value_and_grad, no_grad, checkpoint.

Owns: turning a function of tensors into a function of gradients. Sits beside `tensor` in the
layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import DTypeError, GradError
from ..ops.elementwise import copy
from ..tensor import bridge
from ..tensor.tensor import Tensor
from . import engine
from .tape import GradFn, Leaf, Rule, Saved, mode


class set_grad_enabled:
    """Context manager and decorator that switches recording of gradients."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = bool(enabled)
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(mode.enabled)
        mode.enabled = self._enabled

    def __exit__(self, *exc: object) -> None:
        mode.enabled = self._before.pop()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with set_grad_enabled(self._enabled):
                return fn(*args, **kwargs)

        return inner


def no_grad() -> set_grad_enabled:
    """`with wb.no_grad():` (or as a decorator) results are constants."""
    return set_grad_enabled(False)


def enable_grad() -> set_grad_enabled:
    """The opposite of no_grad, within it."""
    return set_grad_enabled(True)


def is_grad_enabled() -> bool:
    return mode.enabled


def _map(tree: Any, fn: Callable[[Tensor], Any]) -> Any:
    if isinstance(tree, Tensor):
        return fn(tree)
    if isinstance(tree, dict):
        return {k: _map(v, fn) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return (
            type(tree)(*[_map(v, fn) for v in tree])
            if hasattr(tree, "_fields")
            else type(tree)(_map(v, fn) for v in tree)
        )
    raise DTypeError(
        f"grad: argument holds {type(tree).__name__}; only tensors and containers of them are "
        "differentiated"
    )


def _variable(t: Tensor) -> Tensor:
    """The argument at its own place on the tape, still connected to where it came from."""
    if not t.dtype.is_float:
        raise DTypeError(f"grad: only floats have gradients, the argument is {t.dtype.name}")
    if t._fn is not None:
        with enable_grad():
            return bridge.apply(copy, (t,))
    out = Tensor(t._node, True)
    if t._node.store is None:
        bridge.hold(out)
    out._fn = Leaf(out)
    return out


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function giving (f(...), gradient of f's scalar result by argument(s) `argnums`).

    Arguments may be tensors or lists/dicts of them. Composable: gradients of gradients work, on
    plain devices too. With has_aux f returns (result, anything). Raises GradError for a non-scalar
    result.
    """
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(f)
    def inner(*args: Any, **kwargs: Any) -> Any:
        variables: list[Tensor] = []

        def make(t: Tensor) -> Tensor:
            v = _variable(t)
            variables.append(v)
            return v

        new = list(args)
        for n in nums:
            new[n] = _map(args[n], make)
        with enable_grad():
            out = f(*new, **kwargs)
        value, aux = out if has_aux else (out, None)
        if not isinstance(value, Tensor):
            raise GradError(f"grad: the function returned {type(value).__name__}, not a tensor")
        found = _gradients(value, variables)
        grads = iter(found)
        result = [_map(new[n], lambda t: next(grads)) for n in nums]
        gradient = result[0] if isinstance(argnums, int) else tuple(result)
        return ((value, aux) if has_aux else value), gradient

    return inner


def _gradients(value: Tensor, variables: list[Tensor]) -> list[Tensor]:
    seed = engine.seed_of(value, None, "grad")
    seed = value.ones_of(value.shape) if seed is None else seed
    if value._fn is None:
        return [v.zeros_of(v.shape) for v in variables]
    only = {id(v._fn): v._fn for v in variables}
    order = engine.collect([value._fn])
    # Whatever else the result depends on may want gradients of these gradients.
    outer = any(type(fn) is Leaf and id(fn) not in only for fn in order)
    outer = outer or any(type(v._fn) is GradFn for v in variables)
    grads = engine.run(
        Tensor._made, [value._fn], [seed], retain=outer, create_graph=outer, only=only
    )
    out = []
    for v in variables:
        _, g = grads.get(id(v._fn), (None, None))
        out.append(v.zeros_of(v.shape) if g is None else g)
    return out


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The gradient function of a scalar function: see value_and_grad. has_aux: (gradient, aux)."""
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def inner(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return inner


def gradient_of(
    outputs: Tensor,
    inputs: Sequence[Tensor],
    gradient: Tensor | None = None,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> tuple[Tensor | None, ...]:
    """Gradients of one output by tensors on its tape, None where unused (torch.autograd.grad)."""
    if outputs._fn is None:
        raise GradError(
            "gradient_of: the output does not depend on anything that requires a gradient"
        )
    if any(t._fn is None for t in inputs):
        raise GradError(
            "gradient_of: an input does not require a gradient; call requires_grad_() before use"
        )
    seed = engine.seed_of(outputs, gradient, "gradient_of")
    seed = outputs.ones_of(outputs.shape) if seed is None else seed
    keep = create_graph if retain_graph is None else retain_graph
    grads = engine.run(
        Tensor._made,
        [outputs._fn],
        [seed],
        retain=keep,
        create_graph=create_graph,
        only={id(t._fn): t._fn for t in inputs},
    )
    return tuple(grads.get(id(t._fn), (None, None))[1] for t in inputs)


def checkpoint(f: Callable[..., Any], *xs: Tensor) -> Any:
    """f(*xs) without keeping what its gradient needs; backward runs f again (same random numbers).

    f must return one tensor and be free of effects. Gradients reach `xs` and parameters that f
    uses.
    """
    backend = xs[0]._node.backend
    stream = (backend.stream.seed, backend.stream.offset)
    with no_grad():
        out = f(*xs)
    if not isinstance(out, Tensor):
        raise GradError(f"checkpoint: the function returned {type(out).__name__}, not a tensor")
    if not mode.enabled or not xs[0]._ad:
        return out

    def rule(c: Any, g: Any) -> tuple[Any, ...]:
        now = (backend.stream.seed, backend.stream.offset)
        backend.stream.seed, backend.stream.offset = stream
        variables = [_variable(t.detach()) if t.dtype.is_float else t.detach() for t in c.ins]
        try:
            with enable_grad():
                again = f(*variables)
        finally:
            backend.stream.seed, backend.stream.offset = now
        if again._fn is None:
            return (None,) * len(variables)
        grads = engine.run(Tensor._made, [again._fn], [g], retain=False, create_graph=False)
        mine = {id(v._fn): i for i, v in enumerate(variables) if v._fn is not None}
        got: list[Any] = [None] * len(variables)
        for key, (fn, gx) in grads.items():
            if key in mine:
                got[mine[key]] = gx
            elif (t := fn.tensor()) is not None:
                t.grad = gx.detach() if t.grad is None else t.grad + gx
        return tuple(got)

    every = tuple(range(len(xs)))
    out = out.detach()
    out._ad = True
    out._fn = GradFn(Rule("checkpoint", rule, (every,) * len(xs)), out._node, xs)
    out._fn.saved = out._fn.saved or {
        i: Saved(x._node, x._fn, x._version) for i, x in enumerate(xs)
    }
    bridge.hold(out._fn)
    return out
