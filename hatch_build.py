"""Builds the wheel from sources without their comments.

Browsers download the wheel, and comments are a twenty-fifth of it. Every line keeps its number, so
tracebacks fit the sources; docstrings stay. The tree, the sdist and editable installs have the
sources as they are.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import tokenize
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def without_comments(source: str) -> str:
    """The same program, line for line."""
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    return "".join(lines)


class WithoutComments(BuildHookInterface[Any]):
    """Replaces the wheel's Python files."""

    folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":  # an editable install
            return
        self.folder = Path(tempfile.mkdtemp(prefix="wgburn-wheel-"))
        replaced = build_data.setdefault("force_include", {})
        for k, file in enumerate(self.build_config.builder.recurse_included_files()):
            if file.path.endswith(".py"):
                own = self.folder / f"{k}.py"
                text = Path(file.path).read_text(encoding="utf-8")
                own.write_text(without_comments(text), encoding="utf-8", newline="\n")
                replaced[str(own)] = file.distribution_path

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
