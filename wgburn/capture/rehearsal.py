"""Rehearsals: a function runs with computing replaced by planning, and leaves no trace.

Owns: which backends take part, what stands in for computed values, putting everything back. Must
not know: what a rehearsal is for (explain.py, dry_run.py), how plans are made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from sys import getrefcount
from typing import Any
from weakref import ref

from ..compile.graph import Work
from ..core import journal
from ..core.errors import DeviceError
from ..core.node import Node, Unread
from ..device.backend import Backend
from ..tensor.tensor import Tensor


class Rehearsal:
    """Stands in for a backend's execution: plans are made and kept, values are not computed."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.paper = backend.rehearse()
        self.plans: list[Any] = []

    def realise(
        self, nodes: Sequence[Node], plan: Any, work: Work, lasting: Sequence[bool]
    ) -> None:
        """Note a plan and pretend that its outputs exist."""
        self.plans.append(plan)
        for t in journal.take_dropped():
            self._let_go(t)
        stores = self.backend.pretend(plan, work, lasting, self.paper)
        for n, store in zip(nodes, stores, strict=True):
            n.realised(store)

    def _let_go(self, t: Tensor) -> None:
        """Give back, on paper, what a value had that only the journal holds."""
        node = t._node
        store = node.store
        if node.backend is not self.backend or store is None:
            return
        # References: the journal's undo and list, the caller's loop, this call and getrefcount's;
        # the owner above, a name here, getrefcount's.
        alone = getrefcount(t) <= 5 and getrefcount(node) <= 3 and getrefcount(store) <= 3
        if alone and getrefcount(store.buf) <= 2:
            if type(store.buf) is Unread:
                store.buf.held = None
            else:
                self.paper.free(store.buf)


class _Waiting:
    """What a backend had to compute before a rehearsal, to be put back after it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.refs = list(backend.pending.refs)
        # Weakly: an update in place asks whether anybody else holds the old value.
        self.nodes = [(ref(n), n.srcs, n.dyn) for n in backend.pending.nodes()]
        self.stream = backend.stream.seed, backend.stream.offset

    def back(self) -> None:
        for weak, srcs, dyn in self.nodes:
            node = weak()
            if node is not None:
                node.srcs, node.dyn, node.store = srcs, dyn, None
        self.backend.pending.refs = self.refs
        self.backend.stream.seed, self.backend.stream.offset = self.stream


@contextlib.contextmanager
def rehearsed(what: Any, args: Any, kwargs: Any) -> Iterator[list[Rehearsal]]:
    """A time in which no device computes anything; those that the function and its arguments use
    come first.

    Afterwards parameters, optimizer state, gradients, running statistics, random streams and what
    waited to be computed are as they were.
    """
    if journal.active():
        raise DeviceError(
            "wb.explain or wb.dry_run inside a function that is explained or dry-run; call them "
            "one after the other"
        )
    backends = _backends((args, kwargs, what))
    for b in backends:
        b.check_open()
    with contextlib.ExitStack() as locks:
        # Other threads compute when this is over. In one order: two must not block each other.
        for b in sorted(backends, key=id):
            locks.enter_context(b.lock)
        rehearsals = [Rehearsal(b) for b in backends]
        waiting = [_Waiting(b) for b in backends]
        journal.start()
        try:
            for r in rehearsals:
                r.backend.rehearsal = r
            yield rehearsals
        finally:
            for r in rehearsals:
                r.backend.rehearsal = None
            journal.finish()
            for w in waiting:
                w.back()


def run(rehearsals: list[Rehearsal], what: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the function, and plan what it returns and what is held; what it returned."""
    result = what(*args, **kwargs)
    for r in rehearsals:
        wanted = [t._node for t in _tensors(result) if t._node.backend is r.backend]
        r.backend.realise(wanted)
    return result


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        return [t for v in tree.values() for t in _tensors(v)]
    if isinstance(tree, (list, tuple)):
        return [t for v in tree for t in _tensors(v)]
    return []


def _backends(tree: Any) -> list[Backend]:
    """Backends of every tensor, module and device among the arguments, else the default device's;
    then all others that are open, since the function may find them in other ways."""
    from ..device.device import Device, default_device

    found: dict[int, Backend] = {}
    stack = [tree]
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            found[id(item._node.backend)] = item._node.backend
        elif isinstance(item, Device):
            found[id(item.backend)] = item.backend
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif hasattr(item, "parameters"):
            stack.extend(item.parameters())
        elif isinstance(item, Callable):  # type: ignore[arg-type]
            stack.extend(
                c.cell_contents for c in getattr(item, "__closure__", None) or () if _filled(c)
            )
            owner = getattr(item, "__self__", None)
            if owner is not None:
                stack.append(owner)
            stack.extend(
                getattr(item, "__globals__", {}).get(n)
                for n in getattr(getattr(item, "__code__", None), "co_names", ())
            )
        elif hasattr(item, "param_groups"):
            stack.extend(item.param_groups)
    if not found:
        b = default_device().backend
        found[id(b)] = b
    others = [b for b in Backend.alive if id(b) not in found and not b.closed]
    return [*found.values(), *others]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
