"""The Tensor: a handle on a node, its device face and its place on the tape.

Owns: reading values, autodiff entry points, in-place assignment, operators. Methods by theme are in
the mixins of this package. Must not know: backends beyond their interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ..autodiff import engine
from ..autodiff.tape import Leaf, mode
from ..core import dtype as dt
from ..core import journal
from ..core.dtype import DType, dtype_of
from ..core.errors import DTypeError, GradError, ShapeError, ValueRangeError
from ..core.node import Node, leaf
from ..device.device import Device, as_device
from ..ops.record import Op
from . import bridge
from .arithmetic import Arithmetic
from .indexing import Indexing
from .linalg import Linalg
from .movement import Movement
from .pointwise import Pointwise
from .rearrange import Rearrange
from .reduction import Reduction
from .scatter import Scatter
from .sorting import Sorting
from .statistics import Statistics


class Tensor(
    Pointwise,
    Arithmetic,
    Statistics,
    Sorting,
    Reduction,
    Rearrange,
    Movement,
    Scatter,
    Indexing,
    Linalg,
):
    """An n-dimensional array on a device, made by wb.tensor, wb.zeros, ... and by ops.

    Computed when it is read.
    """

    __slots__ = ("__weakref__", "_ad", "_fn", "_node", "_requires", "_version", "grad", "name")
    __array_priority__ = 1000

    def __init__(self, node: Node, ad: bool) -> None:
        self._node = node
        self._ad = ad
        self._fn: Any = None
        self._requires = False
        self._version = 0
        self.grad: Tensor | None = None
        self.name: str | None = None

    @staticmethod
    def _plain(node: Node, ad: bool) -> Tensor:
        return Tensor(node, ad)

    @staticmethod
    def _made(node: Node, fn: Any) -> Tensor:
        """A tensor for a node at a place on the tape (what gradient rules see)."""
        t = Tensor(node, True)
        t._fn = fn
        if node.store is None:
            node.backend.pending.refs.append(ref(t))
        return t

    def held_nodes(self) -> tuple[Node, ...]:
        return (self._node,)

    def _coerce(self, value: Any) -> Tensor | None:
        """Arrays, lists and numpy scalars as constants on this tensor's device; else None."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, np.generic):
            return bridge.constant(
                Tensor,
                value.item(),
                dt.promote_scalar(self.dtype, value.item()),
                self._node.backend,
            )
        if isinstance(value, (np.ndarray, list, tuple)):
            from .creation import tensor

            return tensor(value, device=self.device)
        return None

    def apply(
        self, op: Op, others: tuple[Tensor, ...] = (), attrs: Any = None, dyn: tuple[Any, ...] = ()
    ) -> Tensor:
        """Record a primitive with this tensor as its first input."""
        return bridge.apply(op, (self, *others), attrs, dyn)

    # -- what it is -------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self._node.shape

    @property
    def dtype(self) -> DType:
        return self._node.dtype

    @property
    def device(self) -> Device:
        return Device(self._node.backend, self._ad)

    @property
    def ndim(self) -> int:
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """Number of elements (numpy's size; torch's `numel()`; `x.shape` gives the dimensions)."""
        n = 1
        for s in self._node.shape:
            n *= s
        return n

    def numel(self) -> int:
        return self.size

    def dim(self) -> int:
        return len(self._node.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values on the host."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise ShapeError("iteration over a tensor without dimensions")
        return (self[i] for i in range(self.shape[0]))

    def __hash__(self) -> int:
        return id(self)

    def label(self) -> str:
        """How errors name it."""
        return f"parameter {self.name!r}" if self.name else f"tensor {self.shape}"

    # -- reading ----------------------------------------------------------------------------------
    def _realise(self) -> None:
        node = self._node
        if node.store is None:
            node.backend.realise((node,))

    def numpy(self) -> NDArray[Any]:
        """The values as a fresh array. Computes what is pending; raises what computing raised."""
        self._realise()
        node = self._node
        node.backend.check_open()
        node.backend.check_read(node.store)
        return node.backend.run_sync(node.backend.to_host(node.store, node.shape, node.dtype))

    async def numpy_async(self) -> NDArray[Any]:
        """`numpy()` for programs that must not block (a browser without stack switching)."""
        node = self._node
        if node.store is None:
            await node.backend.realise_async((node,))
        node.backend.check_open()
        node.backend.check_read(node.store)
        return await node.backend.to_host(node.store, node.shape, node.dtype)

    def item(self) -> Any:
        """The only element as a Python number. Raises ShapeError when there are more."""
        if self.size != 1:
            raise ShapeError(f"item: tensor of shape {self.shape} has {self.size} elements, not 1")
        return self.numpy().reshape(()).item()

    async def item_async(self) -> Any:
        """`item()` for programs that must not block."""
        if self.size != 1:
            raise ShapeError(f"item: tensor of shape {self.shape} has {self.size} elements, not 1")
        return (await self.numpy_async()).reshape(()).item()

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        a = self.numpy()
        return a if dtype is None else a.astype(dtype)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """A copy on the host, for torch.from_dlpack, np.from_dlpack and their like."""
        return self.numpy().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return np.empty(0).__dlpack_device__()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueRangeError(
                f"the truth of a tensor of shape {self.shape} is ambiguous; use any() or all()"
            )
        return bool(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DTypeError(f"only an integer tensor is an index, got {self.dtype.name}")
        return int(self.item())

    def __repr__(self) -> str:
        values = np.array2string(
            self.numpy(), separator=", ", precision=4, threshold=100, prefix="tensor("
        )
        tail = (
            "" if self.dtype in (dt.float32, dt.bool_, dt.int32) else f", dtype={self.dtype.name}"
        )
        if self._node.backend.kind != "cpu" or self._ad:
            tail += f", device={self.device}"
        if self.requires_grad:
            tail += ", requires_grad=True" if self.is_leaf else f", grad_fn=<{self._fn.name}>"
        return f"tensor({values}{tail})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else repr(self)

    # -- device and dtype -------------------------------------------------------------------------
    def to(self, *args: Any, device: Any = None, dtype: Any = None) -> Tensor:
        """Move (`t.to(dev)`), convert (`t.to(wb.float16)`), or both. Itself where nothing changes.

        Moving to another device computes the value and crosses the host; gradients follow.
        Raises DTypeError where the device lacks the dtype.
        """
        for a in args:
            if isinstance(a, Tensor):
                device, dtype = a.device, a.dtype
            elif isinstance(a, Device) or (isinstance(a, str) and a not in _DTYPE_NAMES):
                device = a
            else:
                dtype = a
        out: Tensor = self
        if dtype is not None:
            out = bridge.cast(out, dtype_of(dtype))
        if device is not None:
            out = out._move(as_device(device))
        return out

    def _move(self, device: Device) -> Tensor:
        if device.backend is self._node.backend:
            if device.is_autodiff == self._ad:
                return self
            out = Tensor(self._node, device.is_autodiff)
            if device.is_autodiff:
                out._fn = self._fn
                if self._requires and out._fn is None:
                    out.requires_grad_()
            if self._node.store is None:
                self._node.backend.pending.refs.append(ref(out))
            return out
        from .transfer import move

        return move(self, device)

    def cpu(self) -> Tensor:
        return self.to(Device.cpu())

    def float(self) -> Tensor:
        return bridge.cast(self, dt.float32)

    def half(self) -> Tensor:
        return bridge.cast(self, dt.float16)

    def double(self) -> Tensor:
        return bridge.cast(self, dt.float64)

    def int(self) -> Tensor:
        return bridge.cast(self, dt.int32)

    def bool(self) -> Tensor:
        return bridge.cast(self, dt.bool_)

    def astype(self, dtype: Any) -> Tensor:
        return bridge.cast(self, dtype_of(dtype))

    type = astype

    # -- autodiff ---------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> Any:
        """True where gradients flow (on an autodiff device), or were asked for."""
        return self._fn is not None or self._requires

    @property
    def is_leaf(self) -> Any:
        return self._fn is None or type(self._fn) is Leaf

    def requires_grad_(self, requires_grad: Any = True) -> Tensor:
        """Make this a leaf whose `.grad` backward fills. Raises DTypeError unless it is a float.

        On a plain device the wish is noted and takes effect after `.to(device.autodiff())`.
        """
        if requires_grad and not self.dtype.is_float:
            raise DTypeError(
                f"requires_grad_: only floats have gradients, this tensor is {self.dtype.name}"
            )
        if not self.is_leaf:
            if requires_grad:
                return self
            raise GradError("requires_grad_(False) on the result of an op; use detach()")
        self._requires = bool(requires_grad)
        self._fn = Leaf(self) if requires_grad and self._ad else None
        return self

    def detach(self) -> Tensor:
        """The same value as a constant."""
        return bridge.wrap(Tensor, self._node, self._ad)

    def backward(
        self, gradient: Tensor | None = None, retain_graph: Any = False, create_graph: Any = False
    ) -> None:
        """Add the gradient of this tensor to `.grad` of every leaf it came from.

        The tape is freed unless `retain_graph`; a second call raises GradError. Raises GradError on
        a plain device and for a tensor of more than one element without `gradient`.
        """
        if not self._ad:
            raise GradError(
                f"backward on plain device {self.device}: it records no gradients; create the "
                "model and its inputs on device.autodiff(), or use wb.grad(f)"
            )
        if self._fn is None:
            raise GradError(
                "backward: this tensor does not depend on any leaf that requires a gradient "
                "(nn.Parameter, or a float tensor after requires_grad_())"
            )
        if gradient is not None:
            found = bridge.operand(self, gradient, "backward")
            if found is None:
                raise DTypeError(f"backward: gradient is a {type(gradient).__name__}, not a tensor")
            gradient = bridge.cast(found, self.dtype)
        seed = engine.seed_of(self, gradient, "backward")
        if seed is None:
            seed = self.ones_of(self.shape)
        grads = engine.run(
            Tensor._made,
            [self._fn],
            [seed],
            retain=bool(retain_graph) or bool(create_graph),
            create_graph=bool(create_graph),
        )
        for fn, g in grads.values():
            t = fn.tensor()
            if t is not None:
                # A gradient is a plain constant unless a graph of it was asked for.
                g = g if create_graph else g.detach()
                if journal.active():
                    journal.note(partial(setattr, t, "grad", t.grad))
                t.grad = g if t.grad is None else t.grad + g

    # -- in place ---------------------------------------------------------------------------------
    def _assign(self, value: Tensor) -> Tensor:
        """Take another value: the handle moves on, what was recorded before keeps the old one."""
        node = value._node
        if node.shape != self._node.shape or node.dtype is not self._node.dtype:
            raise ShapeError(
                f"in-place update of {self.label()}: {self.shape} {self.dtype.name} cannot take "
                f"{node.shape} {node.dtype.name}"
            )
        if journal.active():
            journal.note(partial(self._restore, self._node, self._version, self._fn, self._ad))
        self._node = node
        self._version += 1
        if node.store is None:
            node.backend.pending.refs.append(ref(self))
        if type(self._fn) is not Leaf:
            self._fn = value._fn if mode.enabled else None
            self._ad = self._ad or value._ad
        return self

    def _restore(self, node: Node, version: Any, fn: Any, ad: Any) -> None:
        self._node, self._version, self._fn, self._ad = node, version, fn, ad
        if node.store is None:
            node.backend.pending.refs.append(ref(self))

    def _inplace(self, value: Tensor, op: str) -> Tensor:
        if type(self._fn) is Leaf and mode.enabled:
            raise GradError(
                f"{op} on {self.label()}, a leaf that requires a gradient; do it under wb.no_grad()"
            )
        return self._assign(bridge.cast(value, self.dtype).expand(self.shape))

    def copy_(self, other: Any) -> Tensor:
        """Take the values of a tensor, array or number (broadcast to this shape)."""
        found = bridge.operand(self, other, "copy_")
        if found is None:
            raise DTypeError(f"copy_: cannot read {type(other).__name__} as a tensor")
        return self._inplace(found.to(self.device), "copy_")

    def zero_(self) -> Tensor:
        return self._inplace(self.zeros_of(self.shape), "zero_")

    def fill_(self, value: Any) -> Tensor:
        return self.copy_(value)

    def add_(self, other: Any, alpha: Any = 1) -> Tensor:
        return self._inplace(self + (other * alpha if alpha != 1 else other), "add_")

    def sub_(self, other: Any) -> Tensor:
        return self._inplace(self - other, "sub_")

    def mul_(self, other: Any) -> Tensor:
        return self._inplace(self * other, "mul_")

    def div_(self, other: Any) -> Tensor:
        return self._inplace(self / other, "div_")

    def clamp_(self, min: Any = None, max: Any = None) -> Tensor:
        return self._inplace(self.clamp(min, max), "clamp_")

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self._assign(value)

    # -- pickling (by value, on the same kind of device) -------------------------------------------
    def __reduce__(self) -> Any:
        return _unpickle, (self.numpy(), self.dtype.name, str(self.device), self._requires)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if not self.is_leaf:
            raise GradError("deepcopy of the result of an op; detach() it first")
        out = type(self).__new__(type(self))
        Tensor.__init__(out, self._node, self._ad)
        out.name = self.name
        if self._node.store is None:
            self._node.backend.pending.refs.append(ref(out))
        if self._requires:
            out.requires_grad_()
        memo[id(self)] = out
        return out


_DTYPE_NAMES = frozenset(d.name for d in dt.ALL) | {"bool", "half", "float", "double"}


def _unpickle(values: NDArray[Any], dtype: str, device: str, requires: bool) -> Tensor:
    from .creation import tensor

    out = tensor(values, dtype=dtype, device=device)
    return out.requires_grad_() if requires else out


def eval(*tensors: Any) -> None:
    """Compute tensors (lists, dicts of them) now, and everything else pending on their devices.

    Submits the work; reading a value waits for it, `device.synchronize()` waits for all.
    """
    for backend, nodes in _by_backend(tensors).items():
        backend.realise(nodes)


async def eval_async(*tensors: Any) -> None:
    """`eval` for programs that must not block while programs compile."""
    for backend, nodes in _by_backend(tensors).items():
        await backend.realise_async(nodes)


def _by_backend(tree: Any) -> dict[Any, list[Node]]:
    out: dict[Any, list[Node]] = {}
    stack: list[Any] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, Tensor):
            out.setdefault(item._node.backend, []).append(item._node)
        elif isinstance(item, dict):
            stack.extend(reversed(list(item.values())))
        elif isinstance(item, (list, tuple)):
            stack.extend(reversed(item))
    return out


def from_store(store: Any, shape: Sequence[int], dtype: DType, device: Device) -> Tensor:
    """A tensor for a value that exists."""
    return Tensor(leaf(store, tuple(shape), dtype, device.backend), device.is_autodiff)


__all__ = ["Tensor", "eval", "eval_async", "from_store"]
