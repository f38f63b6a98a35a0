"""Checks a WGSL text against what its ProgramSource claims, without compiling it.

Owns: reading declarations (bindings, entry point, workgroup size and memory, enables) in a text.
Must not know: drivers, or devices beyond their limits and features. It is no compiler: what it
cannot resolve it leaves to the real one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .driver import ProgramSource
from .errors import ProgramError
from .rules import over_limit

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BINDING = re.compile(
    r"@(?:group\s*\(\s*(?P<g1>\w+)\s*\)\s*@binding\s*\(\s*(?P<b1>\w+)\s*\)"
    r"|binding\s*\(\s*(?P<b2>\w+)\s*\)\s*@group\s*\(\s*(?P<g2>\w+)\s*\))"
    r"\s*var\s*<\s*(?P<space>\w+)\s*(?:,\s*(?P<mode>\w+)\s*)?>\s*(?P<name>\w+)"
)
_ENTRY = re.compile(r"(?P<attributes>(?:@\w+\s*(?:\([^)]*\))?\s*)+)fn\s+(?P<name>\w+)")
_WORKGROUP = re.compile(r"@workgroup_size\s*\((?P<sizes>[^)]*)\)")
_CONST = re.compile(r"\bconst\s+(\w+)\s*(?::\s*\w+\s*)?=\s*(\w+)\s*;")
_ENABLE = re.compile(r"\benable\s+([\w\s,]+);")
_SUBGROUP_USE = re.compile(r"\b(?:subgroup|quad)[A-Z]\w*\s*\(|@builtin\s*\(\s*subgroup_\w+")
_F16_USE = re.compile(r"\bf16\b|\b(?:vec|mat)[234](?:x[234])?h\b|\d[.\d]*h\b")
_SHARED = re.compile(r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*([^;=]+);")
_FEATURE_OF = {"f16": "shader-f16", "subgroups": "subgroups"}
_SCALARS = {"f32": 4, "i32": 4, "u32": 4, "f16": 2, "bool": 4}
_SHORTHAND = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}


class _Text(NamedTuple):
    code: str
    constants: dict[str, int]

    def number(self, token: str) -> int | None:
        """An integer literal or a named constant, else None."""
        token = token.strip()
        if token in self.constants:
            return self.constants[token]
        literal = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)[iu]?", token)
        return int(literal.group(1), 0) if literal else None


def _read(wgsl: str) -> _Text:
    code = _COMMENT.sub(" ", wgsl)
    text = _Text(code, {})
    for name, value in _CONST.findall(code):
        number = text.number(value)
        if number is not None:
            text.constants[name] = number
    return text


def check_program(
    program: ProgramSource, limits: Mapping[str, int], features: frozenset[str]
) -> None:
    """Raise ProgramError (or LimitError) where text and claims differ."""
    text = _read(program.wgsl)
    _check_features(program, text, features)
    _check_bindings(program, text)
    _check_entry(program, text)
    _check_shared_memory(program, text, limits)


def _fail(program: ProgramSource, message: str) -> ProgramError:
    return ProgramError(f"program {program.name!r}: {message}")


def _check_features(program: ProgramSource, text: _Text, features: frozenset[str]) -> None:
    missing = program.features - features
    if missing:
        raise _fail(program, f"the device lacks {', '.join(sorted(missing))}")
    enabled = {name.strip() for group in _ENABLE.findall(text.code) for name in group.split(",")}
    for name in sorted(enabled):
        feature = _FEATURE_OF.get(name)
        if feature and feature not in program.features:
            raise _fail(program, f"'enable {name};' but {feature!r} is not in its features")
    # wgpu takes subgroup functions without the directive; browsers do not.
    code = _ENABLE.sub(" ", text.code)
    for name, use in (("subgroups", _SUBGROUP_USE), ("f16", _F16_USE)):
        found = use.search(code)
        if found and name not in enabled:
            raise _fail(program, f"uses {found[0]!r} without 'enable {name};'")


def _check_bindings(program: ProgramSource, text: _Text) -> None:
    found: dict[int, str] = {}
    for match in _BINDING.finditer(text.code):
        group = text.number(match["g1"] or match["g2"])
        binding = text.number(match["b1"] or match["b2"])
        if group != 0 or binding is None:
            raise _fail(program, f"variable {match['name']!r} is not in @group(0) @binding(number)")
        if match["space"] == "uniform":
            letter = "u"
        elif match["space"] == "storage":
            letter = {"read": "r", None: "r", "read_write": "w"}.get(match["mode"], "?")
        else:
            letter = "?"
        if binding in found:
            raise _fail(program, f"@binding({binding}) is declared twice")
        found[binding] = letter
    wanted = dict(enumerate(program.access))
    if program.params_bytes:
        wanted[len(program.access)] = "u"
    if found != wanted:
        raise _fail(
            program,
            f"declares bindings {_words(found)}, but access={program.access!r} and params_bytes="
            f"{program.params_bytes} ask for {_words(wanted)}",
        )


def _words(bindings: Mapping[int, str]) -> str:
    names = {"r": "read", "w": "read_write", "u": "uniform", "?": "unknown"}
    return "[" + ", ".join(f"{i}: {names[bindings[i]]}" for i in sorted(bindings)) + "]"


def _check_entry(program: ProgramSource, text: _Text) -> None:
    for match in _ENTRY.finditer(text.code):
        attributes = match["attributes"]
        if match["name"] != "main" or "@compute" not in attributes:
            continue
        sizes = _WORKGROUP.search(attributes)
        if sizes is None:
            raise _fail(program, "fn main has no @workgroup_size")
        parts = [part for part in sizes["sizes"].split(",") if part.strip()]
        numbers = [text.number(part) for part in parts] + [1] * (3 - len(parts))
        for number, claimed in zip(numbers, program.workgroup, strict=True):
            if number is not None and number != claimed:
                raise _fail(
                    program,
                    f"@workgroup_size({sizes['sizes'].strip()}) but workgroup={program.workgroup}",
                )
        return
    raise _fail(program, "no '@compute ... fn main'")


def _check_shared_memory(program: ProgramSource, text: _Text, limits: Mapping[str, int]) -> None:
    total = 0
    for _name, declared in _SHARED.findall(text.code):
        size = _type_bytes(declared.strip(), text)
        if size is None:  # a struct or a computed length: the real compiler will tell
            return
        total += -(-size // 16) * 16
    name = "maxComputeWorkgroupStorageSize"
    if total > limits[name]:
        raise over_limit(f"program {program.name!r}: workgroup memory", name, total, limits[name])


def _type_bytes(declared: str, text: _Text) -> int | None:
    """Bytes of a WGSL type made of scalars, vectors, atomics and fixed arrays; None if unsure."""
    declared = declared.strip()
    if declared in _SCALARS:
        return _SCALARS[declared]
    vector = re.fullmatch(r"vec([234])(?:<\s*(\w+)\s*>|([fiuh]))", declared)
    if vector:
        scalar = _SCALARS.get(vector[2] or _SHORTHAND[vector[3]])
        lanes = 4 if vector[1] == "3" else int(vector[1])
        return scalar * lanes if scalar else None
    atomic = re.fullmatch(r"atomic\s*<(.+)>", declared)
    if atomic:
        return _type_bytes(atomic[1], text)
    array = re.fullmatch(r"array\s*<(.+),([^,<>]+?),?\s*>", declared)
    if array:
        element, length = _type_bytes(array[1], text), text.number(array[2])
        return element * length if element is not None and length is not None else None
    return None
