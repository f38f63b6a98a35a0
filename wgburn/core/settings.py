"""Which values a setting may have, as pydantic models.

Owns: types, ranges and conversions from text. Must not know: where a value came from. Only .config
imports this module, and only when there is a value to check.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .config import DEFAULTS, MEMORY_DEFAULTS, AutotuneLevel

_SIZE = re.compile(r"(\d+)\s*(B|KB|KiB|MB|MiB|GB|GiB)?", re.IGNORECASE)
_UNITS = {
    "b": 1,
    "kb": 10**3,
    "kib": 2**10,
    "mb": 10**6,
    "mib": 2**20,
    "gb": 10**9,
    "gib": 2**30,
}


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _level(value: Any) -> Any:
    # pydantic would read True as 1; a debug level of True is a mistake.
    if isinstance(value, bool):
        raise ValueError("not a level")
    return value


def _byte_size(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("not a size")
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("not a size")
        return int(match[1]) * _UNITS[(match[2] or "b").lower()]
    return value


class MemorySettings(BaseModel):
    """The [memory] table."""

    model_config = ConfigDict(extra="forbid")

    max_bytes: Annotated[Annotated[int, Field(gt=0)] | None, BeforeValidator(_byte_size)] = (
        MEMORY_DEFAULTS["max_bytes"]
    )


class Settings(BaseModel):
    """Every setting."""

    model_config = ConfigDict(extra="forbid")

    fuse: bool = DEFAULTS["fuse"]
    debug: Annotated[int, BeforeValidator(_level), Field(ge=0, le=4)] = DEFAULTS["debug"]
    autotune: Annotated[AutotuneLevel, BeforeValidator(_lower)] = DEFAULTS["autotune"]
    device: (
        Annotated[str, Field(pattern=r"^(best|cpu|wgpu(:\d+)?|remote:wss?://\S+?)(\+autodiff)?$")]
        | None
    ) = DEFAULTS["device"]
    environment: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = DEFAULTS[
        "environment"
    ]
    memory: MemorySettings = MemorySettings()


def check(name: str, value: Any) -> Any:
    """The value of setting `name` in its own type. Raises pydantic's ValueError if not allowed."""
    if name.startswith("memory."):
        key = name.removeprefix("memory.")
        return getattr(MemorySettings.model_validate({key: value}), key)
    return getattr(Settings.model_validate({name: value}), name)
