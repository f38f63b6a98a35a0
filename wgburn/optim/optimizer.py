"""Optimizer: parameter groups, state, and a step that is computed whole or not at all.

Owns: what optimizers share. A step records new values of all parameters and states, then realises
everything held in one plan; every number in it is a slot, so all steps run the same plan.
Must not know: any update rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from sys import getrefcount
from typing import Any

import numpy as np

from ..autodiff.functional import enable_grad, no_grad
from ..core import journal
from ..core.errors import DTypeError, StateDictError, ValueRangeError
from ..core.node import Node, leaf
from ..ops.source import const
from ..tensor.bridge import slot_of, wrap
from ..tensor.creation import tensor
from ..tensor.tensor import Tensor
from .copied import Copied

Group = dict[str, Any]
State = dict[str, Any]


def zeros_beside(p: Tensor, value: float = 0.0) -> Tensor:
    """Zeros (or `value`) of a parameter's shape that exist already, so that a first step looks
    like every other.
    """
    backend = p._node.backend
    store = backend.from_host(np.full(p.shape, value, p.dtype.np), p.dtype, lasting=True)
    return Tensor(leaf(store, p.shape, p.dtype, backend), False)


def check(
    name: str, value: float, low: float, high: float | None = None, open_high: bool = False
) -> None:
    """Raise ValueRangeError unless low <= value <= high (< high)."""
    if not value >= low or (high is not None and (value >= high if open_high else value > high)):
        limit = (
            f"at least {low}" if high is None else f"{low} to {'below ' if open_high else ''}{high}"
        )
        raise ValueRangeError(f"{name}={value} must be {limit}")


#: References to a state's tensor before the step that nobody else holds: what was before and what
#: the step started from, a variable and getrefcount's own.
STATE_REFS = 4


class _Undo:
    """What a step changed, to put it back."""

    def __init__(self) -> None:
        self.parameters: list[tuple[Tensor, Node, int]] = []
        #: The state, what was in it before the step, and what the step started from.
        self.states: list[tuple[State, State, State]] = []

    def back(self) -> None:
        for p, node, version in self.parameters:
            p._node, p._version = node, version
        for state, before, _ in self.states:
            state.clear()
            state.update(before)


class Optimizer:
    """Base of optimizers: subclasses give `start(group, p)` and `update(group, p, grad, state)`.

    `elementwise`: `update` does the same to every parameter of a group, element by element, and its
    state holds tensors and numbers. A subclass that looks at shapes or names leaves it False.
    """

    elementwise = False

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        if isinstance(params, Tensor):
            raise DTypeError(
                f"{type(self).__name__}: params is one tensor; pass a list of parameters, e.g. "
                "model.parameters()"
            )
        self.defaults = defaults
        self.state: dict[Tensor, State] = {}
        self.param_groups: list[Group] = []
        #: The numbers of the group whose update is being recorded.
        self._slots: dict[tuple[str, float, Any, Any], Any] = {}
        given = list(params)
        if not given:
            raise ValueRangeError(
                f"{type(self).__name__}: no parameters to train; the model has none, or the "
                "iterator was used up"
            )
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Group) -> None:
        """Train more parameters, with settings of their own where given."""
        new = dict(group)
        params = new["params"]
        new["params"] = [params] if isinstance(params, Tensor) else list(params)
        seen = {id(p) for g in self.param_groups for p in g["params"]}
        for p in new["params"]:
            if not isinstance(p, Tensor):
                raise DTypeError(
                    f"{type(self).__name__}: {type(p).__name__} is no parameter; pass "
                    "model.parameters()"
                )
            if not p.is_leaf:
                raise ValueRangeError(
                    f"{type(self).__name__}: {p.label()} is the result of an op and cannot be "
                    "trained"
                )
            if id(p) in seen:
                raise ValueRangeError(f"{type(self).__name__}: {p.label()} is given twice")
            seen.add(id(p))
        for name, value in self.defaults.items():
            new.setdefault(name, value)
        self.check_group(new)
        self.param_groups.append(new)

    # -- for subclasses ---------------------------------------------------------------------------
    def check_group(self, group: Group) -> None:
        """Raise ValueRangeError for settings that make no sense."""

    def start(self, group: Group, p: Tensor) -> State:
        """State of a parameter before its first step."""
        return {}

    def slot(self, name: str, value: float, like: Tensor) -> Any:
        """A number of an update as a slot of the plan even where it is 0, 1 or -1, so that a
        schedule passing them keeps the plan. A group's parameters share it: numbers of one name
        are one slot unless they differ (the corrections of a parameter that began later).
        """
        backend, dtype = like._node.backend, like.dtype
        key = (name, value, dtype, backend)
        found = self._slots.get(key)
        if found is None:
            node = Node(const, (), slot_of(dtype), (float(value),), (), dtype, backend)
            found = self._slots[key] = Tensor(node, False)
        return found

    def update(self, group: Group, p: Any, grad: Any, state: State) -> Any:
        """The parameter's next value;
        new tensors and counts go into `state` (replaced, not changed in place).
        """
        raise NotImplementedError

    # -- use --------------------------------------------------------------------------------------
    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    old, p.grad = p.grad, None if set_to_none else p.grad.zeros_of(p.grad.shape)
                    journal.note(partial(setattr, p, "grad", old))
                    journal.drop(old)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, and compute all that is pending on their
        devices.

        Where computing fails, parameters and state are as before the step and the error is raised.
        """
        loss, undo = self._begin(closure)
        journal.note(undo.back)
        try:
            for backend, nodes in self._record(undo).items():
                backend.realise(nodes, alone=True)
            for backend, (nodes, updates) in self._changed(undo).items():
                backend.realise(nodes, updates)
        except BaseException:
            undo.back()
            raise
        return loss

    async def step_async(self, closure: Callable[[], Any] | None = None) -> Any:
        """`step` for programs that must not block while kernels compile."""
        loss, undo = self._begin(closure)
        try:
            for backend, nodes in self._record(undo).items():
                await backend.realise_async(nodes, alone=True)
            for backend, (nodes, updates) in self._changed(undo).items():
                await backend.realise_async(nodes, updates)
        except BaseException:
            undo.back()
            raise
        return loss

    def _begin(self, closure: Callable[[], Any] | None) -> tuple[Any, _Undo]:
        if closure is None:
            return None, _Undo()
        with enable_grad():
            return closure(), _Undo()

    def _record(self, undo: _Undo) -> dict[Any, list[Node]]:
        """Record the step. Returns, per device, fresh parameters that nobody has computed. Computed
        first, they leave the first step's plan the same as that of all later ones."""
        fresh: dict[Any, list[Node]] = {}
        with no_grad():
            for group in self.param_groups:
                self._slots = {}
                copies: dict[Any, Copied] = {}
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state.setdefault(p, {})
                    before = dict(state)
                    if p._node.store is None:
                        fresh.setdefault(p._node.backend, []).append(p._node)
                    if not state:
                        state.update(self.start(group, p))
                    undo.states.append((state, before, dict(state)))
                    value = self._updated(group, p, state, copies)
                    undo.parameters.append((p, p._node, p._version))
                    p._assign(value)
        self._slots = {}
        return fresh

    def _updated(self, group: Group, p: Tensor, state: State, copies: dict[Any, Copied]) -> Tensor:
        """The next value of a parameter, and its state: recorded by `update` for the first
        parameter of a kind, copied for the others."""
        grad = p.grad
        assert grad is not None
        if not self.elementwise:
            return self.update(group, p.detach(), grad.detach(), state)  # type: ignore[no-any-return]
        node = p._node
        kind: list[Any] = [p._ad, node.shape == ()]
        inputs = []
        for name, value in (("", p), ("grad", grad), *state.items()):
            if isinstance(value, Tensor):
                n = value._node
                inputs.append(n)
                kind += (name, n.backend, n.dtype, value._ad)
            else:
                kind += (name, value)
        key = tuple(kind)
        copied = copies.get(key)
        if copied is None or not copied.fits or any(n.shape != node.shape for n in inputs):
            new: Tensor = self.update(group, p.detach(), grad.detach(), state)
            if copied is None:
                tensors = [v for v in state.values() if isinstance(v, Tensor)]
                outputs = [new._node, *[v._node for v in tensors]]
                copies[key] = Copied(inputs, outputs, (new._ad, dict(state)))
            return new
        ad, like = copied.flags
        made = iter(copied.on(inputs))
        new = Tensor(next(made), ad)
        state.clear()
        for name, value in like.items():
            if isinstance(value, Tensor):
                value = wrap(Tensor, next(made), value._ad)
            state[name] = value
        return new

    @staticmethod
    def _changed(undo: _Undo) -> dict[Any, tuple[list[Node], list[tuple[Node, Node]]]]:
        """Per device the new values to compute, and the (old, new) pairs among them."""
        out: dict[Any, tuple[list[Node], list[tuple[Node, Node]]]] = {}

        def add(new: Node, old: Node | None) -> None:
            nodes, updates = out.setdefault(new.backend, ([], []))
            nodes.append(new)
            if old is not None:
                updates.append((old, new))

        for p, node, _ in undo.parameters:
            add(p._node, node)
        for state, _, started in undo.states:
            for name, value in state.items():
                if isinstance(value, Tensor):
                    old = started.get(name)
                    if isinstance(old, Tensor) and getrefcount(old) <= STATE_REFS:
                        add(value._node, old._node)
                    else:  # it begins with this step, or somebody holds what it was
                        value._node.backend.keep(value._node)
                        add(value._node, None)
        return out

    # -- states -----------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """torch's layout: {"state": {number: {...}}, "param_groups": [{..., "params":
        [numbers]}]}.

        The tensors in it keep their values when training goes on (torch's change with it).
        """
        number: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                number.setdefault(id(p), len(number))
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {number[id(p)]: dict(s) for p, s in self.state.items() if s}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state and the groups' settings. Raises StateDictError, with nothing loaded."""
        name = type(self).__name__
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
            raise StateDictError(
                f"{name}.load_state_dict needs a dict with 'state' and 'param_groups'"
            )
        groups = state_dict["param_groups"]
        sizes, own = (
            [len(g["params"]) for g in groups],
            [len(g["params"]) for g in self.param_groups],
        )
        if sizes != own:
            raise StateDictError(
                f"{name}.load_state_dict: the state has groups of {sizes} parameters, this "
                f"optimizer {own}"
            )
        by_number = {
            i: p
            for theirs, ours in zip(groups, self.param_groups, strict=True)
            for i, p in zip(theirs["params"], ours["params"], strict=True)
        }
        loaded: dict[Tensor, State] = {}
        for i, values in state_dict["state"].items():
            if i not in by_number:
                raise StateDictError(
                    f"{name}.load_state_dict: the state is for parameter {i}, of which there is "
                    "none"
                )
            p = by_number[i]
            loaded[p] = {key: self._landed(p, key, value) for key, value in values.items()}
            for value in loaded[p].values():
                if isinstance(value, Tensor):
                    value._node.backend.keep(value._node)
        for theirs, ours in zip(groups, self.param_groups, strict=True):
            ours.update({k: v for k, v in theirs.items() if k != "params"})
        self.state = loaded

    def _landed(self, p: Tensor, key: str, value: Any) -> Any:
        if key == "step":
            return int(value)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        shape = tuple(value.shape)
        if shape != p.shape:
            raise StateDictError(
                f"{type(self).__name__}.load_state_dict: {key} of {p.label()} is {shape}, the "
                f"parameter {p.shape}"
            )
        if isinstance(value, Tensor):
            return value.detach().to(p.device.inner()).to(p.dtype)
        return tensor(np.asarray(value), dtype=p.dtype, device=p.device.inner())

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {v}" for k, v in sorted(group.items()) if k != "params"]
        return "\n".join([*lines, ")"])


__all__ = ["Group", "Optimizer", "State", "check", "zeros_beside"]
