"""A pickle reader that can build data and nothing else.

Owns: the pickle machine over plain containers and scalars. Must not know: torch, tensors, files.

Python's own unpickler calls what a stream names. This one has no way to import or to call
anything: a name that is not in the caller's table ends the reading, before anything is built of it.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..core.errors import FileFormatError

#: What a name in the stream stands for: a maker called with the pickled arguments, or plain data.
Globals = Mapping[str, Any]
#: Opcodes of a stream; more than any real state has, and few enough to bound the time.
MAX_STEPS = 50_000_000

SCALARS = (str, int, float, bool, bytes, type(None))
_MARK = object()


class Source(Protocol):
    """What a stream is read from: a file, mapped or not."""

    def read(self, size: int = ..., /) -> bytes: ...
    def readline(self) -> bytes: ...
    def tell(self) -> int: ...


class Maker:
    """An allowed callable. Only these are ever called, and only by REDUCE."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


class Refused(FileFormatError):
    """The stream asks for more than data."""


def unpickle(
    source: Source,
    name: str,
    allowed: Globals,
    persistent: Callable[[Any], Any],
) -> Any:
    """The object of the next pickle in `source`; stops right behind it.

    `allowed` maps "module.name" to a Maker or to data, `persistent` gives the object of a
    persistent id. Raises FileFormatError, naming the global where one is refused.
    """
    machine = _Machine(name, allowed, persistent)
    try:
        for opcode, argument, _ in pickletools.genops(source):  # type: ignore[arg-type]
            if machine.step(opcode.name, argument):
                return machine.result()
    except FileFormatError:
        raise
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        cause = " ".join(str(error).split())[:200]
        raise FileFormatError(f"{name}: damaged pickle: {cause}") from error
    raise FileFormatError(f"{name}: damaged pickle: it does not end")


def _key(value: Any) -> Any:
    """A value that may be hashed: hashing what a stream nests could go as deep as it likes."""
    flat = value if type(value) is tuple else (value,)
    if not all(isinstance(v, SCALARS) for v in flat):
        raise ValueError(f"{type(value).__name__} as a key")
    return value


class _Machine:
    """The stack, the marks and the memo of one pickle."""

    def __init__(self, name: str, allowed: Globals, persistent: Callable[[Any], Any]) -> None:
        self.name = name
        self.allowed = allowed
        self.persistent = persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.steps = 0

    def step(self, op: str, argument: Any) -> bool:
        """Do one instruction; True at the end of the pickle."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise ValueError(f"more than {MAX_STEPS} instructions")
        if op == "STOP":
            return True
        if op in _CONSTANTS:
            self.stack.append(_CONSTANTS[op])
        elif op in _LITERALS:
            self.stack.append(argument)
        elif op in _ACTIONS:
            _ACTIONS[op](self)
        elif op in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.top()
        elif op in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif op == "GLOBAL":
            self.stack.append(self.find(*argument.split(" ", 1)))
        elif op not in ("PROTO", "FRAME"):
            raise Refused(f"{self.name}: refused: its pickle uses {op}, which can run code")
        return False

    def result(self) -> Any:
        (value,) = self.stack
        return value

    def top(self) -> Any:
        if self.stack[-1] is _MARK:
            raise ValueError("a mark where a value belongs")
        return self.stack[-1]

    def pop(self) -> Any:
        value = self.top()
        del self.stack[-1]
        return value

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def find(self, module: Any, attribute: Any) -> Any:
        what = f"{module}.{attribute}"
        if what not in self.allowed:
            shown = what if len(what) <= 120 else what[:120] + "..."
            raise Refused(
                f"{self.name}: refused: its pickle asks for {shown!r}, and only tensors, "
                "containers and plain values are read"
            )
        return self.allowed[what]

    # -- instructions that do more than push -------------------------------------------------------
    def mark(self) -> None:
        self.stack.append(_MARK)

    def discard(self) -> None:
        del self.stack[-1]

    def discard_to_mark(self) -> None:
        self.since_mark()

    def duplicate(self) -> None:
        self.stack.append(self.top())

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.top()

    def new_list(self) -> None:
        self.stack.append([])

    def new_dict(self) -> None:
        self.stack.append({})

    def new_set(self) -> None:
        self.stack.append(set())

    def marked_list(self) -> None:
        self.stack.append(self.since_mark())

    def marked_tuple(self) -> None:
        self.stack.append(tuple(self.since_mark()))

    def marked_dict(self) -> None:
        items = self.since_mark()
        self.stack.append({})
        self.put(items)

    def marked_frozenset(self) -> None:
        self.stack.append(frozenset(_key(v) for v in self.since_mark()))

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def append(self) -> None:
        self.extend([self.pop()])

    def appends(self) -> None:
        self.extend(self.since_mark())

    def extend(self, values: Sequence[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise ValueError(f"append to {type(target).__name__}")
        target.extend(values)

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.put([key, value])

    def set_items(self) -> None:
        self.put(self.since_mark())

    def put(self, items: Sequence[Any]) -> None:
        target = self.top()
        if type(target) is not dict or len(items) % 2:
            raise ValueError(f"items for {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def add_items(self) -> None:
        values = self.since_mark()
        target = self.top()
        if type(target) is not set:
            raise ValueError(f"elements for {type(target).__name__}")
        target.update(_key(v) for v in values)

    def named(self) -> None:
        attribute, module = self.pop(), self.pop()
        self.stack.append(self.find(module, attribute))

    def reduce(self) -> None:
        arguments, maker = self.pop(), self.pop()
        if not isinstance(maker, Maker) or type(arguments) is not tuple:
            raise Refused(
                f"{self.name}: refused: its pickle calls {type(maker).__name__}, which is data"
            )
        self.stack.append(maker.make(*arguments))

    def build(self) -> None:
        # Attributes that torch hangs on its dicts (_metadata): nothing here reads them.
        self.pop()
        if type(self.top()) is not dict:
            raise Refused(
                f"{self.name}: refused: its pickle sets attributes of {type(self.top()).__name__}"
            )

    def persistent_id(self) -> None:
        self.stack.append(self.persistent(self.pop()))


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8".split()
)
_ACTIONS: dict[str, Callable[[_Machine], None]] = {
    "MARK": _Machine.mark,
    "POP": _Machine.discard,
    "POP_MARK": _Machine.discard_to_mark,
    "DUP": _Machine.duplicate,
    "MEMOIZE": _Machine.memoize,
    "EMPTY_LIST": _Machine.new_list,
    "EMPTY_DICT": _Machine.new_dict,
    "EMPTY_SET": _Machine.new_set,
    "EMPTY_TUPLE": lambda machine: machine.tuple_of(0),
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
    "LIST": _Machine.marked_list,
    "TUPLE": _Machine.marked_tuple,
    "DICT": _Machine.marked_dict,
    "FROZENSET": _Machine.marked_frozenset,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "ADDITEMS": _Machine.add_items,
    "STACK_GLOBAL": _Machine.named,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent_id,
}
