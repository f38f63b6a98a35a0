"""Modules that hold modules: Sequential, ModuleList, ModuleDict, ParameterList."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..core.errors import IndexRangeError
from .module import Module
from .parameter import Parameter


def _place(what: str, index: int, n: int) -> int:
    if not -n <= index < n:
        raise IndexRangeError(f"{what}: index {index} is out of range for {n} entries")
    return index % n


class Sequential(Module):
    """Modules one after the other: Sequential(a, b) or Sequential({"first": a, "second": b})."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = len(modules) == 1 and isinstance(modules[0], Mapping)
        for name, module in modules[0].items() if named else enumerate(modules):
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return list(self._modules.values())[_place("Sequential", index, len(self))]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[_place("Sequential", index, len(self))], module)

    def append(self, module: Module) -> Sequential:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Sequential:
        for module in modules:
            self.append(module)
        return self


class ModuleList(Module):
    """A list whose entries are children."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ModuleList(list(self._modules.values())[index])
        return self._modules[str(_place("ModuleList", index, len(self)))]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(str(_place("ModuleList", index, len(self))), module)

    def __delitem__(self, index: int) -> None:
        kept = list(self._modules.values())
        del kept[_place("ModuleList", index, len(self))]
        self._modules.clear()
        self.extend(kept)

    def append(self, module: Module) -> ModuleList:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        kept = list(self._modules.values())
        kept.insert(index, module)
        self._modules.clear()
        self.extend(kept)


class ModuleDict(Module):
    """A dictionary whose values are children."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def keys(self) -> Iterable[str]:
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._modules.items()

    def update(self, modules: Mapping[str, Module]) -> None:
        for key, module in modules.items():
            self.add_module(key, module)


class ParameterList(Module):
    """A list of parameters; tensors become parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int) -> Any:
        return self._parameters[str(_place("ParameterList", index, len(self)))]

    def append(self, value: Any) -> ParameterList:
        self.register_parameter(
            str(len(self)), value if isinstance(value, Parameter) else Parameter(value)
        )
        return self

    def extra_repr(self) -> str:
        return ", ".join(f"({n}): {p.shape}" for n, p in self._parameters.items())
