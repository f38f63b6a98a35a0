"""Gradients of functions and switches of the grad mode: grad, value_and_grad, no_grad, checkpoint.

Owns: turning a function of tensors into a function of gradients. Sits beside `tensor` in the
layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..core.dtype import DType
from ..core.errors import DTypeError, GradError
from ..core.shape import Shape
from ..ops.elementwise import copy
from ..tensor import bridge
from ..tensor.tensor import Tensor
from . import engine
from .tape import GradFn, Leaf, Rule, mode, next_seq


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
        found, outer = _gradients(value, variables)
        if not outer:
            # Nothing else wants gradients: results are constants, plain where the arguments were.
            face = any(t._ad for t in _tensors((args, kwargs)))
            value, aux = _constant(value, face), _constant(aux, face)
            found = [_constant(g, face) for g in found]
        grads = iter(found)
        result = [_map(new[n], lambda t: next(grads)) for n in nums]
        gradient = result[0] if isinstance(argnums, int) else tuple(result)
        return ((value, aux) if has_aux else value), gradient

    return inner


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _tensors(item)


def _constant(tree: Any, ad: bool) -> Any:
    """The tensors of a tree off the tape; anything else as it is."""
    if isinstance(tree, Tensor):
        return bridge.wrap(Tensor, tree._node, ad)
    if isinstance(tree, dict):
        return {k: _constant(v, ad) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return type(tree)(_constant(v, ad) for v in tree)
    return tree


def _gradients(value: Tensor, variables: list[Tensor]) -> tuple[list[Tensor], bool]:
    """Gradients of the variables, and whether anything outside may want gradients of them."""
    seed = engine.seed_of(value, None, "grad")
    seed = value.ones_of(value.shape) if seed is None else seed
    if value._fn is None:
        return [v.zeros_of(v.shape) for v in variables], False
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
    return out, outer


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


class _Shaped(NamedTuple):
    shape: Shape
    dtype: DType


class _Outside:
    """A place on the tape that a checkpointed function reads besides its arguments.

    As much of a tensor as GradFn asks for.
    """

    __slots__ = ("_fn", "_node", "_version")

    def __init__(self, fn: Any, shape: Shape, dtype: DType, version: int = 0) -> None:
        self._fn = fn
        self._node = _Shaped(shape, dtype)
        self._version = version


def _outside(root: Any, start: int, arguments: set[int]) -> list[_Outside]:
    """What the tape under `root` reads that was there before op number `start`."""
    found: dict[int, _Outside] = {}
    seen: set[int] = set()
    stack = [root]
    while stack:
        fn = stack.pop()
        if id(fn) in seen:
            continue
        seen.add(id(fn))
        for p, shape, dtype in zip(fn.parents or (), fn.shapes, fn.dtypes, strict=False):
            if p is None or id(p) in arguments or id(p) in found:
                continue
            if type(p) is GradFn and p.seq > start:
                stack.append(p)
            elif type(p) is GradFn:
                found[id(p)] = _Outside(p, shape, dtype)
            elif (t := p.tensor()) is not None:
                found[id(p)] = _Outside(p, shape, dtype, t._version)
    return list(found.values())


def checkpoint(f: Callable[..., Any], *xs: Tensor) -> Any:
    """f(*xs) without keeping what its gradient needs; backward runs f again (same random numbers).

    f must return one tensor and be free of effects. Gradients reach `xs` and whatever else f reads,
    such as parameters.
    """
    if not mode.enabled or not xs:
        return f(*xs)
    backend = xs[0]._node.backend
    stream = (backend.stream.seed, backend.stream.offset)
    start = next_seq()
    first = [x.detach() if x._fn is None else _variable(x.detach()) for x in xs]
    out = f(*first)
    if not isinstance(out, Tensor):
        raise GradError(f"checkpoint: the function returned {type(out).__name__}, not a tensor")
    if out._fn is None:
        return out
    # Nothing of this tape was computed or kept yet: it only shows what f reads besides xs.
    others = _outside(out._fn, start, {id(v._fn) for v in first})

    def rule(c: Any, g: Any) -> tuple[Any, ...]:
        for o in others:
            if type(o._fn) is Leaf:
                o._fn.check_version("checkpoint", o._version)
        connected = mode.enabled
        now = backend.stream.seed, backend.stream.offset
        backend.stream.seed, backend.stream.offset = stream
        try:
            with enable_grad():
                inputs = [_again(t, connected) for t in c.ins[: len(xs)]]
                again = f(*inputs)
        finally:
            backend.stream.seed, backend.stream.offset = now
        places = [*[v._fn for v in inputs], *[o._fn for o in others]]
        grads = engine.run(
            Tensor._made,
            [again._fn],
            [g],
            retain=True,
            create_graph=connected,
            only={id(fn): fn for fn in places if fn is not None},
            beyond=False,
        )
        return tuple(grads.get(id(fn), (None, None))[1] for fn in places)

    every = tuple(range(len(xs)))
    inputs: tuple[Any, ...] = (*xs, *others)
    node = out._node
    out = Tensor(node, True)
    out._fn = GradFn(Rule("checkpoint", rule, (every,) * len(inputs)), node, inputs)
    bridge.hold(out)
    bridge.hold(out._fn)
    return out


def _again(t: Tensor, connected: bool) -> Tensor:
    """An input of a second run: at its own place on the tape, which goes on only if `connected`."""
    if t._fn is None:
        return t
    return bridge.apply(copy, (t,)) if connected else _variable(t.detach())
