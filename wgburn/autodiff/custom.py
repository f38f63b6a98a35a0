"""A gradient of one's own for a composite: a closed form instead of the tape of its ops.

Owns: `attach`. Must not know: which composites there are.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from .tape import GradFn, Rule, mode


def recording() -> bool:
    """True where results go on the tape; inside a rule: where gradients of gradients are wanted."""
    return mode.enabled


def attach(
    out: Any, name: str, inputs: tuple[Any, ...], grad: Any, saves: tuple[tuple[int, ...], ...]
) -> Any:
    """Put `out`, computed under no_grad from `inputs`, on the tape; its rule: `grad(context, g)`.

    `saves[i]`: numbers of the inputs (or record.OUT) that the gradient of input i reads. The rule
    returns one gradient or None an input; where recording() it must be built from differentiable
    inputs only.
    """
    if not mode.enabled or all(t._fn is None for t in inputs):
        return out
    fn = GradFn(Rule(name, grad, saves), out._node, inputs)
    out._ad = True
    out._fn = fn
    if fn.saved or fn.out is not None:
        out._node.backend.pending.refs.append(ref(fn))
    return out
