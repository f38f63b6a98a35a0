"""A module's state: its tensors by torch's names, out and back in.

Owns: which entries a state has, loading all of it or nothing. Must not know: files, what modules
compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core import dtype as dt
from ..core.errors import StateDictError
from ..tensor.creation import tensor
from ..tensor.tensor import Tensor


class IncompatibleKeys(NamedTuple):
    """What load_state_dict(strict=False) passed over."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Entry(NamedTuple):
    """One value of a state: where it lives. kind: "_parameters", "_buffers" or "_counters"."""

    key: str
    owner: Any
    kind: str
    name: str

    @property
    def value(self) -> Any:
        return self.owner.__dict__[self.kind][self.name]


def entries(module: Any, prefix: str = "") -> Iterator[Entry]:
    """Every entry, in torch's order: a module's parameters, its buffers, then its children's.

    What is shared is there under each of its names.
    """
    for kind in ("_parameters", "_buffers", "_counters"):
        for name, value in module.__dict__[kind].items():
            if value is not None and name not in module._not_saved:
                yield Entry(prefix + name, module, kind, name)
    for name, child in module._modules.items():
        if child is not None:
            yield from entries(child, f"{prefix}{name}.")


def _home(module: Any) -> Any:
    """The device of a module's own tensors; None where it has none."""
    for kind in ("_parameters", "_buffers"):
        for value in module.__dict__[kind].values():
            if value is not None:
                return value.device.inner()
    return None


def collect(module: Any, prefix: str, keep_vars: bool) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    for e in entries(module, prefix):
        if e.kind == "_counters":
            out[e.key] = tensor(e.value, dtype=dt.int32, device=_home(e.owner))
        else:
            out[e.key] = e.value if keep_vars else e.value.detach()
    return out


def _shape(value: Any) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    return tuple(shape) if shape is not None else np.shape(value)


def _array(value: Any) -> Any:
    """A host array of a value that isn't ours;
    tensors of other libraries leave their tape first.
    """
    detach = getattr(value, "detach", None)
    return np.asarray(value if detach is None else detach())


def load(module: Any, state: Any, strict: bool) -> IncompatibleKeys:
    name = type(module).__name__
    if not isinstance(state, Mapping):
        raise StateDictError(
            f"load_state_dict: {name} needs a mapping of names to tensors, got "
            f"{type(state).__name__}; "
            "pass wb.load(path) or another model's state_dict()"
        )
    own = list(entries(module))
    known = {e.key for e in own}
    # States written before torch 0.4.1, and many exports, carry no counters.
    missing = [e.key for e in own if e.key not in state and e.kind != "_counters"]
    unexpected = [key for key in state if key not in known]
    wrong = []
    for e in own:
        if e.key not in state:
            continue
        want = () if e.kind == "_counters" else e.value.shape
        got = _shape(state[e.key])
        if got != want and not (e.kind == "_counters" and got == (1,)):
            wrong.append(f"{e.key} is {got} in the state and {want} in the model")
    _refuse(name, missing if strict else [], unexpected if strict else [], wrong)
    # Every value is converted before the first is taken: a value that fails leaves the module as
    # it was.
    new = [(e, _converted(e, state[e.key])) for e in own if e.key in state]
    for e, value in new:
        if e.kind == "_counters":
            e.owner._counters[e.name] = value
        elif e.kind == "_parameters":
            e.value._assign(value)
        else:
            e.owner._buffers[e.name] = value
    return IncompatibleKeys(missing, unexpected)


def _converted(e: Entry, value: Any) -> Any:
    if e.kind == "_counters":
        return int(np.asarray(_array(value)).reshape(()))
    here: Tensor = e.value
    if isinstance(value, Tensor):
        return value.detach().to(here.device.inner()).to(here.dtype)
    try:
        return tensor(_array(value), dtype=here.dtype, device=here.device.inner())
    except (TypeError, ValueError) as error:
        raise StateDictError(f"load_state_dict: {e.key} cannot be read: {error}") from error


def _refuse(name: str, missing: list[str], unexpected: list[str], wrong: list[str]) -> None:
    parts = []
    if missing:
        parts.append(f"missing: {', '.join(missing)}")
    if unexpected:
        parts.append(f"unexpected: {', '.join(unexpected)}")
    if wrong:
        parts.append(f"of another shape: {', '.join(wrong)}")
    if parts:
        hint = "" if wrong else "; strict=False loads what fits"
        raise StateDictError(
            f"load_state_dict: {name} does not take this state: {'; '.join(parts)}{hint}"
        )
