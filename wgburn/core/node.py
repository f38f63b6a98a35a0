"""The lazy graph: nodes that describe a value, and stores that hold one.

Owns: `Node`, `Store` and how a node is recorded. Must not know: what an op means, which backend a
node will run on, or that gradients exist.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from .dtype import DType

Number = bool | int | float


class Store:
    """A realised value: a device's buffer and how the value lies in it.

    `layout` is None for a dense row-major value at the start of the buffer, else (strides, offset)
    in elements. `sig` is the structural part (what a plan may depend on); the offset is a slot.
    `lasting`: the buffer is one of the device's weights, which lie in pages of their own.
    """

    __slots__ = ("buf", "layout", "sig", "bounds", "lasting", "__weakref__")

    def __init__(
        self,
        buf: Any,
        shape: tuple[int, ...],
        dtype: DType,
        layout: tuple[tuple[int, ...], int] | None = None,
        bounds: tuple[int, int] | None = None,
        lasting: bool = False,
    ) -> None:
        self.buf = buf
        self.lasting = lasting
        self.layout = layout
        self.sig = (shape, dtype, None if layout is None else layout[0])
        # Smallest and largest element where the host knows them (indices made from host data).
        self.bounds = bounds


class Unread:
    """The buffer of a value that a rehearsal planned and never computed; `held` is the memory it
    would have, on paper."""

    __slots__ = ("held",)

    def __init__(self, held: Any = None) -> None:
        self.held = held

    @property
    def page(self) -> Any:
        return self.held.page

    @property
    def lasting(self) -> bool:
        return bool(self.held.lasting)


class OpLike(Protocol):
    """What a node needs of an op."""

    name: str


class Backend(Protocol):
    """What a node needs of the device it lives on."""

    name: str
    recorded: int
    record_limit: int

    def flush(self) -> None: ...


class Node:
    """One value of the graph: an op on other nodes, or a store.

    `attrs` is structure (hashable, part of a plan's key); `dyn` holds numbers that a plan takes as
    slots. A realised node has a store and no sources.
    """

    __slots__ = (
        "op",
        "srcs",
        "attrs",
        "dyn",
        "shape",
        "dtype",
        "backend",
        "store",
        "error",
        "lasting",
        "__weakref__",
    )

    def __init__(
        self,
        op: Any,
        srcs: tuple[Node, ...],
        attrs: Any,
        dyn: tuple[Number, ...],
        shape: tuple[int, ...],
        dtype: DType,
        backend: Any,
        store: Store | None = None,
    ) -> None:
        self.op = op
        self.srcs = srcs
        self.attrs = attrs
        self.dyn = dyn
        self.shape = shape
        self.dtype = dtype
        self.backend = backend
        self.store = store
        self.error: BaseException | None = None
        self.lasting = False  # the value is a weight: see Store

    def realised(self, store: Store) -> None:
        """Take the computed value and let go of everything it was computed from."""
        self.store = store
        self.srcs = ()
        self.dyn = ()

    def __repr__(self) -> str:
        what = "store" if self.store is not None else self.op.name
        return f"Node({what}, {self.shape}, {self.dtype.name})"


def leaf(store: Store, shape: tuple[int, ...], dtype: DType, backend: Any) -> Node:
    """A node that is a value already."""
    return Node(None, (), None, (), shape, dtype, backend, store)


class Pending:
    """What a backend has to realise: weak references to the holders of unrealised nodes.

    A holder (a tensor, or a gradient rule with saved values) yields its nodes through
    `held_nodes()`. A holder that died needs nothing: its value is never computed.
    """

    __slots__ = ("refs",)

    def __init__(self) -> None:
        self.refs: list[weakref.ref[Any]] = []

    def add(self, holder: Any) -> None:
        self.refs.append(weakref.ref(holder))

    def nodes(self) -> list[Node]:
        """Unrealised nodes that somebody holds, in order of recording, each once."""
        seen: set[int] = set()
        out: list[Node] = []
        keep: list[weakref.ref[Any]] = []
        # A parameter is noted anew in every step, once is enough. (Compared by identity: weak
        # references would compare their tensors.)
        for ref in {id(ref): ref for ref in self.refs}.values():
            holder = ref()
            if holder is None:
                continue
            pending = False
            for node in holder.held_nodes():
                if node.store is None:
                    pending = True
                    if id(node) not in seen:
                        seen.add(id(node))
                        out.append(node)
            if pending:
                keep.append(ref)
        self.refs = keep
        return out
