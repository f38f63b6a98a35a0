"""Module: a tree of parameters, buffers and modules with torch's habits.

Owns: registration, walking the tree, moving it, printing it. Must not know: what any module
computes.
States (state_dict, load_state_dict) are in `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..core import journal
from ..core.dtype import dtype_of
from ..core.errors import DTypeError
from ..device.device import Device, as_device
from ..tensor.tensor import Tensor
from . import state as states
from .parameter import Parameter


class Handle:
    """What registering a hook returns: remove() takes it away again."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks = hooks
        self._hook = hook
        hooks.append(hook)

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


class Module:
    """Base of every layer and model: assign parameters and modules as attributes, write
    forward().
    """

    training: bool

    def __init__(self) -> None:
        put = self.__dict__
        put["_parameters"] = {}
        put["_buffers"] = {}
        put["_modules"] = {}
        put["_counters"] = {}
        put["_not_saved"] = set()
        put["_before"] = []
        put["_after"] = []
        put["training"] = True

    # -- calling ----------------------------------------------------------------------------------
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward(); write one")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._before or self._after):
            return self.forward(*args, **kwargs)
        for hook in tuple(self._before):
            found = hook(self, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
        out = self.forward(*args, **kwargs)
        for hook in tuple(self._after):
            found = hook(self, args, out)
            out = out if found is None else found
        return out

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """hook(module, args) before forward; what it returns (unless None) replaces args."""
        return Handle(self._before, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> Handle:
        """hook(module, args, output) after forward;
        what it returns (unless None) replaces the output.
        """
        return Handle(self._after, hook)

    # -- registration -----------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_parameters" not in own:
            if isinstance(value, (Parameter, Module)):
                raise AttributeError(
                    f"{type(self).__name__}.{name}: call super().__init__() before assigning "
                    "parameters or modules"
                )
            own[name] = value
        elif isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif name in own["_parameters"]:
            if value is not None:
                raise TypeError(
                    f"{type(self).__name__}.{name} is a parameter and cannot be "
                    f"{type(value).__name__}; "
                    "assign nn.Parameter(...), or copy_ a value into it under wb.no_grad()"
                )
            own["_parameters"][name] = None
        elif name in own["_modules"]:
            if value is not None:
                raise TypeError(
                    f"{type(self).__name__}.{name} is a module and cannot be {type(value).__name__}"
                )
            own["_modules"][name] = None
        elif name in own["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a buffer and cannot be {type(value).__name__}"
                )
            if journal.active():
                journal.note(partial(own["_buffers"].__setitem__, name, own["_buffers"][name]))
            own["_buffers"][name] = value
        elif name in own["_counters"]:
            own["_counters"][name] = int(value)
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Called only for what is no plain attribute.
        own = self.__dict__
        for kind in ("_parameters", "_modules", "_buffers", "_counters"):
            found = own.get(kind)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        own = self.__dict__
        for kind in ("_parameters", "_modules", "_buffers", "_counters"):
            if name in own[kind]:
                del own[kind][name]
                own["_not_saved"].discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        own = self.__dict__
        return sorted(
            {
                *super().__dir__(),
                *own["_parameters"],
                *own["_modules"],
                *own["_buffers"],
                *own["_counters"],
            }
        )

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise KeyError(
                f"{type(self).__name__}: {name!r} is no name for an attribute (text without '.')"
            )

    def _forget(self, name: str, kind: str) -> None:
        """A name has one meaning: the latest."""
        self._check_name(name)
        own = self.__dict__
        own.pop(name, None)
        for other in ("_parameters", "_modules", "_buffers", "_counters"):
            if other != kind:
                own[other].pop(name, None)
        own["_not_saved"].discard(name)

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """Add a parameter; None says that there is none, but might be."""
        if value is not None and not isinstance(value, Parameter):
            raise TypeError(
                f"register_parameter({name!r}): {type(value).__name__} is no nn.Parameter"
            )
        self._forget(name, "_parameters")
        self._parameters[name] = value
        if value is not None and value.name is None:
            value.name = name

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that moves with the module and isn't trained;
        in state_dict() if persistent.
        """
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"register_buffer({name!r}): {type(value).__name__} is no tensor")
        self._forget(name, "_buffers")
        self._buffers[name] = value
        if not persistent:
            self._not_saved.add(name)

    def register_counter(self, name: str, value: int = 0) -> None:
        """Add an integer that lives on the host and is a 0-d tensor in state_dict()."""
        self._forget(name, "_counters")
        self._counters[name] = value

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child under a name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"add_module({name!r}): {type(module).__name__} is no nn.Module")
        self._forget(name, "_modules")
        self._modules[name] = module
        if module is not None:
            for _ in self.named_parameters():  # names grow with the tree
                pass

    register_module = add_module

    # -- walking ----------------------------------------------------------------------------------
    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen: set[int] = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        return (child for _, child in self.named_children())

    def named_modules(
        self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module (named by the prefix) and all below, parents first."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        if remove_duplicate:
            memo.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(
                    memo, f"{prefix}.{name}" if prefix else name, remove_duplicate
                )

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def _named(
        self, kind: str, prefix: str, recurse: bool, once: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(None, prefix, once) if recurse else iter([(prefix, self)])
        for path, module in modules:
            for name, value in module.__dict__[kind].items():
                if value is None or (once and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter), each parameter once."""
        for path, p in self._named("_parameters", prefix, recurse, remove_duplicate):
            # The longest path is the one seen from the root of the model.
            if p.name is None or len(path) > len(p.name):
                p.name = path
            yield path, p

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, path: str) -> Module:
        """The module at a dotted path; "" is this one. Raises AttributeError."""
        found: Any = self
        for name in path.split(".") if path else ():
            found = found._modules.get(name)
            if found is None:
                raise AttributeError(f"{type(self).__name__} has no module {path!r}")
        return found  # type: ignore[no-any-return]

    def get_parameter(self, path: str) -> Parameter:
        owner, _, name = path.rpartition(".")
        found = self.get_submodule(owner)._parameters.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no parameter {path!r}")
        return found  # type: ignore[no-any-return]

    def apply(self, fn: Callable[[Module], Any]) -> Any:
        """fn on every module, children first. Returns self."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # -- states -----------------------------------------------------------------------------------
    def state_dict(self, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Parameters and buffers by torch's names.
        The values are those of now: training on leaves them.
        """
        return states.collect(self, prefix, keep_vars)

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> states.IncompatibleKeys:
        """Take the values of a state (tensors, numpy arrays, or anything with __array__).

        Raises StateDictError naming every missing, unexpected and ill-shaped entry at once (with
        strict=False only ill-shaped ones); nothing is loaded then.
        """
        return states.load(self, state_dict, strict)

    # -- modes, moving ----------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Any:
        """Training mode for this module and all below (dropout, batch statistics). Returns self."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Any:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for p in self.parameters():
            if p.grad is not None:
                journal.note(partial(setattr, p, "grad", p.grad))
                p.grad = None if set_to_none else p.grad.zeros_of(p.grad.shape)

    def to(self, *args: Any, device: Any = None, dtype: Any = None) -> Any:
        """Move to a device, convert floating parameters and buffers to a dtype, or both. Returns
        self.

        Parameters stay the same objects, so an optimizer keeps them. Nothing moves when one can't.
        """
        for a in args:
            if isinstance(a, Tensor):
                device, dtype = a.device, a.dtype
            elif isinstance(a, Device) or (isinstance(a, str) and not _names_dtype(a)):
                device = a
            else:
                dtype = a
        dev = None if device is None else as_device(device)
        want = None if dtype is None else dtype_of(dtype)
        if want is not None and not want.is_float:
            raise DTypeError(f"{type(self).__name__}.to: parameters are floats, {want.name} is not")

        def moved(t: Tensor) -> Tensor:
            t = t.detach()
            if want is not None and t.dtype.is_float:
                t = t.to(want)
            return t if dev is None else t.to(dev)

        parameters = [
            (p, moved(p), None if p.grad is None else moved(p.grad)) for p in self.parameters()
        ]
        buffers = [
            (module, name, moved(b))
            for module in self.modules()
            for name, b in module._buffers.items()
            if b is not None
        ]
        for p, value, grad in parameters:
            p.rehome(value)
            p.grad = grad
        for module, name, value in buffers:
            module._buffers[name] = value
        return self

    def cpu(self) -> Any:
        return self.to(Device.cpu())

    def float(self) -> Any:
        return self.to("float32")

    def half(self) -> Any:
        return self.to("float16")

    def double(self) -> Any:
        return self.to("float64")

    # -- printing ---------------------------------------------------------------------------------
    def extra_repr(self) -> str:
        """What stands between the brackets of a printed layer."""
        return ""

    def __repr__(self) -> str:
        lines = [
            f"({name}): " + repr(child).replace("\n", "\n  ")
            for name, child in self._modules.items()
        ]
        name, extra = type(self).__name__, self.extra_repr()
        if not lines:
            return f"{name}({extra})"
        head = [extra] if extra else []
        return f"{name}(\n  " + "\n  ".join(head + lines) + "\n)"


def _names_dtype(text: str) -> bool:
    try:
        dtype_of(text)
    except DTypeError:
        return False
    return True
