"""Parameter: a tensor that a module trains.

Owns: being a leaf where the device records gradients and plain where it does not, keeping its
identity
when it moves. Must not know: modules.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from ..core.errors import DTypeError
from ..core.node import Node
from ..tensor.creation import tensor
from ..tensor.tensor import Tensor


class Parameter(Tensor):
    """A leaf on an autodiff device, a plain value on a plain one.
    `name` is its path in the model.
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor):
            data = tensor(data)
        super().__init__(data._node, data._ad)
        if requires_grad and not data.dtype.is_float:
            raise DTypeError(
                f"Parameter: only floats have gradients, the data is {data.dtype.name}; "
                "pass requires_grad=False or use register_buffer"
            )
        self._hold()
        self.requires_grad_(requires_grad)

    def _hold(self) -> None:
        backend = self._node.backend
        if self._node.store is None:
            backend.pending.refs.append(ref(self))
        backend.keep(self._node)

    def _assign(self, value: Tensor) -> Tensor:
        super()._assign(value)
        value._node.backend.keep(value._node)
        return self

    def __iadd__(self, other: Any) -> Any:
        return self.add_(other)

    def __isub__(self, other: Any) -> Any:
        return self.sub_(other)

    def __imul__(self, other: Any) -> Any:
        return self.mul_(other)

    def __itruediv__(self, other: Any) -> Any:
        return self.div_(other)

    def rehome(self, value: Tensor) -> None:
        """Live where `value` lives, with its value and dtype;
        whoever holds this parameter follows.
        """
        self._node = value._node
        self._version += 1
        self._hold()
        if value._ad != self._ad or not self.dtype.is_float:
            self._ad = value._ad
            self.requires_grad_(self._requires and self.dtype.is_float)

    def restore(self, node: Node, version: int) -> None:
        """Undo an in-place update whose value could not be computed."""
        self._node = node
        self._version = version

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce__(self) -> Any:
        rebuild, args = super().__reduce__()
        return _unpickle, (rebuild, args, self.name)


def _unpickle(rebuild: Any, args: tuple[Any, ...], name: str | None) -> Parameter:
    value = rebuild(*args)
    out = Parameter(value.detach(), args[-1])
    out.name = name
    return out
