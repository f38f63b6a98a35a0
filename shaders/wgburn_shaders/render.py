"""The strict template renderer: WGSL files with jinja2, where an undefined name is an error.

Owns: the delimiters, the loading of `templates/`, the one cached environment. Must not know what a
kernel computes. jinja2 is imported at the first render, so that importing this package stays cheap.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def _source(name: str) -> str:
    """Text of a template, read through importlib.resources so that a zipped package works too."""
    from importlib import resources  # costs 15 ms: not at import

    folder = resources.files("wgburn_shaders") / "templates"
    path = folder / name
    if "/" in name or "\\" in name or not path.is_file():
        known = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".wgsl"))
        raise LookupError(f"no WGSL template named {name!r}; there are: {', '.join(known)}")
    return path.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    # `{{ }}` collides with nested WGSL braces, hence `${ }`; `{%` and `{#` can't occur in WGSL.
    return Environment(
        loader=FunctionLoader(_source),
        undefined=StrictUndefined,
        autoescape=False,
        variable_start_string="${",
        variable_end_string="}",
        block_start_string="{%",
        block_end_string="%}",
        comment_start_string="{#",
        comment_end_string="#}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **context: Any) -> str:
    """Render `templates/<template>`; an undefined name raises jinja2.UndefinedError."""
    return _environment().get_template(template).render(**context)
