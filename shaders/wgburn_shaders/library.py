"""The WGSL library: finds which of its functions a kernel uses and returns their source.

Owns: reading `math/*.wgsl`, and the rule that a kernel gets each function it needs once, with all
that function needs in turn. Must not know: tensors, ops, devices, or how kernels are written.

A library file holds only top-level `fn wb_*`, `struct Wb*` and `const WB_*` declarations. A kernel
just calls `wb_exp(x)`; the renderer puts `link(body)` in front of it.
"""

from __future__ import annotations

import difflib
import functools
import re
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOP_LEVEL = re.compile(r"\b(fn|struct|const)\s+([A-Za-z_]\w*)")
# A name after a dot is a member of something, never ours.
_OUR_NAME = re.compile(r"(?<![\w.])(?:wb_\w+|Wb\w+|WB_\w+)")
_CALL = re.compile(r"(?<![\w.])(wb_\w+)\s*\(")
_DEFINED = re.compile(r"\b(?:fn|struct|const|let|var(?:\s*<[^>]*>)?|override|alias)\s+(\w+)")


class Declaration(NamedTuple):
    """One top-level declaration of the library, without comments."""

    name: str
    source: str
    uses: tuple[str, ...]  # other names of the library, in order of first use


def _strip_comments(source: str) -> str:
    return _COMMENT.sub(" ", source)


def _end_of_declaration(source: str, start: int, kind: str) -> int:
    """The index just behind a declaration: its `;`, or the brace that closes it."""
    if kind == "const":
        return source.index(";", start) + 1
    depth = 0
    for match in re.compile(r"[{}]").finditer(source, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    raise SyntaxError(f"WGSL library: unbalanced braces after {source[start : start + 60]!r}")


def _parse(source: str) -> dict[str, str]:
    """Name -> text of every top-level declaration of one file."""
    source = _strip_comments(source)
    found: dict[str, str] = {}
    position = 0
    while match := _TOP_LEVEL.search(source, position):
        position = _end_of_declaration(source, match.start(), match.group(1))
        text = source[match.start() : position]
        lines = [line.rstrip() for line in text.splitlines()]
        found[match.group(2)] = "\n".join(line for line in lines if line)
    return found


@functools.cache
def declarations() -> dict[str, Declaration]:
    """Everything the library declares, by name."""
    texts: dict[str, str] = {}
    from importlib import resources  # costs 15 ms: not at import

    folder = resources.files("wgburn_shaders") / "math"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".wgsl"):
            for name, text in _parse(file.read_text(encoding="utf-8")).items():
                if name in texts:
                    raise SyntaxError(f"WGSL library: {name} is declared twice ({file.name})")
                texts[name] = text
    result: dict[str, Declaration] = {}
    for name, text in texts.items():
        used = dict.fromkeys(_OUR_NAME.findall(text))
        used.pop(name, None)
        if missing := [use for use in used if use not in texts]:
            raise SyntaxError(f"WGSL library: {name} uses {missing[0]}, which nothing declares")
        result[name] = Declaration(name, text, tuple(used))
    return result


def functions() -> list[str]:
    """The names of all library functions, sorted."""
    return sorted(name for name in declarations() if name.startswith("wb_"))


@functools.lru_cache(maxsize=1024)
def _linked(names: tuple[str, ...], own: frozenset[str]) -> str:
    library = declarations()
    ordered: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in ordered or name in own:
            return
        for use in library[name].uses:
            visit(use)
        ordered[name] = library[name].source

    for name in names:
        visit(name)
    return "".join(source + "\n" for source in ordered.values())


@functools.lru_cache(maxsize=512)
def link(body: str) -> str:
    """The source of every library function `body` uses, dependencies first, each once.

    Names that the body defines itself are left to it. Equal sets of names give equal text whatever
    their order in the body, so that kernels stay cacheable. Raises KeyError for a call to a `wb_`
    function that exists nowhere.
    """
    library = declarations()
    code = _strip_comments(body)
    own = frozenset(_DEFINED.findall(code))
    for name in _CALL.findall(code):
        if name not in library and name not in own:
            close = difflib.get_close_matches(name, functions(), n=4, cutoff=0.5)
            hint = f"; close matches: {', '.join(close)}" if close else ""
            raise KeyError(f"the WGSL library has no function {name}{hint}")
    used = sorted({name for name in _OUR_NAME.findall(code) if name in library} - own)
    return _linked(tuple(used), own.intersection(library))
