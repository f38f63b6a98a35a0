"""Settings: one object, `config`, read from code, WGBURN_* variables, wgburn.toml and defaults.

Owns: where settings come from and which source wins. Must not know: what a setting does. Reading a
default imports nothing; pydantic (in .settings) is loaded only when there is a value to check.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import FileFormatError, ValueRangeError

AutotuneLevel = Literal["off", "minimal", "balanced", "full"]

PREFIX = "WGBURN_"
FILE_NAME = "wgburn.toml"

#: Settings and their defaults; `memory` is a table of its own. .settings has the allowed values.
DEFAULTS: Mapping[str, Any] = {
    "fuse": True,
    "debug": 0,
    "autotune": "balanced",
    "device": None,
    "environment": None,
}
MEMORY_DEFAULTS: Mapping[str, Any] = {"max_bytes": None}

#: Allowed values in words, for error messages.
ALLOWED: Mapping[str, str] = {
    "fuse": "1, 0, true or false",
    "debug": "an integer from 0 to 4",
    "autotune": "off, minimal, balanced or full",
    "device": "best, cpu, wgpu or wgpu:N",
    "environment": "a name of letters, digits, '.', '_' and '-'",
    "memory.max_bytes": "a number of bytes, or a size such as 512MiB or 2GiB",
}


class Memory(Mapping[str, Any]):
    """The [memory] table, as attributes and as a mapping. `max_bytes`: what a WebGPU device that is
    opened later takes at most; None: what there is."""

    if TYPE_CHECKING:
        max_bytes: int | None

    def __init__(self, config: Config) -> None:
        self.__dict__["_config"] = config

    def __getattr__(self, name: str) -> Any:
        if name not in MEMORY_DEFAULTS:
            known = ", ".join(MEMORY_DEFAULTS)
            raise AttributeError(f"no setting memory.{name}; there is {known}")
        return self._config._value(f"memory.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._config._set(f"memory.{name}", value)

    def __getitem__(self, name: str) -> Any:
        if name not in MEMORY_DEFAULTS:
            raise KeyError(name)
        return self._config._value(f"memory.{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(MEMORY_DEFAULTS)

    def __len__(self) -> int:
        return len(MEMORY_DEFAULTS)

    def __repr__(self) -> str:
        return repr(dict(self))


class Config:
    """All settings. `config.fuse` is a plain attribute once the sources were read (on first use).

    Assigning checks the value and beats every other source; `reload()` reads the variables and the
    file again, `reset()` also forgets what code assigned, `override()` assigns for a while.
    """

    if TYPE_CHECKING:
        fuse: bool
        debug: int
        autotune: AutotuneLevel
        device: str | None
        environment: str | None
        memory: Memory
        _outer: dict[str, tuple[Any, str]]

    def __init__(self) -> None:
        self.__dict__["_code"] = {}

    # Called only for names that are not in the instance yet: before the sources were read.
    def __getattr__(self, name: str) -> Any:
        if name not in DEFAULTS and name not in ("memory", "_outer"):
            known = ", ".join([*DEFAULTS, "memory"])
            raise AttributeError(f"no setting {name!r}; there is {known}")
        self._publish(_read_sources())
        return self.__dict__[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._set(name, value)

    def __dir__(self) -> list[str]:
        return [*DEFAULTS, "memory", "reload", "reset", "override", "source", "as_dict"]

    def reload(self) -> None:
        """Read the variables and wgburn.toml again; what code assigned stays."""
        self._publish(_read_sources())

    def reset(self) -> None:
        """Forget what code assigned; the other sources are read again on next use."""
        code = self.__dict__["_code"]
        self.__dict__.clear()
        code.clear()
        self.__dict__["_code"] = code

    @contextmanager
    def override(self, **settings: Any) -> Iterator[Config]:
        """Assign settings inside a `with` block; memory settings as memory={"max_bytes": ...}."""
        before = dict(self.__dict__["_code"])
        try:
            for name, value in settings.items():
                if name == "memory":
                    if not isinstance(value, Mapping):
                        raise ValueRangeError(
                            f"wb.config.memory is {value!r}; give a dict such as "
                            '{"max_bytes": "512MiB"}'
                        )
                    for key, item in value.items():
                        self._set(f"memory.{key}", item)
                else:
                    self._set(name, value)
            yield self
        finally:
            self.__dict__["_code"] = before
            self._publish(self._outer)

    def source(self, name: str) -> str:
        """Where a setting comes from: "code", a variable, the path of a wgburn.toml, "default"."""
        self._check_name(name)
        if name in self.__dict__["_code"]:
            return "code"
        return self._outer[name][1] if name in self._outer else "default"

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, memory settings as "memory.NAME"."""
        return {name: self._value(name) for name in _all_names()}

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self.as_dict().items())})"

    def _check_name(self, name: str) -> None:
        if name not in ALLOWED:
            raise AttributeError(f"no setting {name!r}; there is {', '.join(_all_names())}")

    def _set(self, name: str, value: Any) -> None:
        self._check_name(name)
        outer = self._outer  # a broken variable or file is reported before the new value counts
        self.__dict__["_code"][name] = _checked(name, value, f"wb.config.{name}")
        self._publish(outer)

    def _value(self, name: str) -> Any:
        if name in self.__dict__["_code"]:
            return self.__dict__["_code"][name]
        return self._outer[name][0] if name in self._outer else _default(name)

    def _publish(self, outer: dict[str, tuple[Any, str]]) -> None:
        self.__dict__["_outer"] = outer
        self.__dict__["memory"] = Memory(self)
        for name in DEFAULTS:
            self.__dict__[name] = self._value(name)


def _all_names() -> list[str]:
    return [*DEFAULTS, *(f"memory.{key}" for key in MEMORY_DEFAULTS)]


def _default(name: str) -> Any:
    table, _, key = name.rpartition(".")
    return MEMORY_DEFAULTS[key] if table else DEFAULTS[name]


def _checked(name: str, value: Any, where: str) -> Any:
    from .settings import check  # pydantic only when there is a value to check

    try:
        return check(name, value)
    except ValueError:
        shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
        raise ValueRangeError(f"{where} is {shown}; allowed: {ALLOWED[name]}") from None


def _read_sources() -> dict[str, tuple[Any, str]]:
    """Values from wgburn.toml, overlaid by the variables, each with its source."""
    found: dict[str, tuple[Any, str]] = {}
    path = find_file(Path.cwd())
    if path is not None:
        for name, value in _flatten(_parse(path), path):
            found[name] = (_checked(name, value, f"{path}: {name}"), str(path))
    for name in _all_names():
        variable = PREFIX + name.replace(".", "_").upper()
        text = os.environ.get(variable)
        if text is not None and text.strip():
            found[name] = (_checked(name, text.strip(), variable), variable)
    return found


def find_file(start: Path) -> Path | None:
    """The nearest wgburn.toml in `start` or a folder above it."""
    for folder in (start, *start.parents):
        path = folder / FILE_NAME
        if path.is_file():
            return path
    return None


def _parse(path: Path) -> dict[str, Any]:
    import tomllib  # not at import: most programs have no such file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        cause = " ".join(str(error).split())
        raise FileFormatError(f"{path}: not readable as TOML: {cause}") from error


def _flatten(table: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if key == "memory" and isinstance(value, Mapping):
            for inner, item in value.items():
                yield _known(f"memory.{inner}", path), item
        else:
            yield _known(key, path), value


def _known(name: str, path: Path) -> str:
    if name not in ALLOWED:
        raise FileFormatError(f"{path}: unknown setting {name!r}; known: {', '.join(_all_names())}")
    return name


#: The settings of this process.
config = Config()
