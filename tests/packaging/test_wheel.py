"""The wheel: every program of the tree, line for line, without its comments."""

import ast
import io
import tokenize
import zipfile
from pathlib import Path

import pytest

from web.local import wheel

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT, ROOT / "shaders", ROOT / "runtime", ROOT / "environment")


@pytest.fixture(scope="module")
def archive():
    return zipfile.ZipFile(io.BytesIO(wheel()[1]))


def test_programs_are_those_of_the_tree_without_comments(archive):
    names = [n for n in archive.namelist() if n.endswith(".py")]
    assert len(names) == len(set(names)) > 150
    for name in names:
        text = archive.read(name).decode()
        (source,) = [f / name for f in FOLDERS if (f / name).exists()]
        own, other = ast.parse(text), ast.parse(source.read_text(encoding="utf-8"))
        # With the numbers of lines and columns.
        assert ast.dump(own, include_attributes=True) == ast.dump(other, include_attributes=True)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        assert not [t for t in tokens if t.type == tokenize.COMMENT], name


def test_what_is_no_program_is_as_it_was(archive):
    kept = [n for n in archive.namelist() if n.endswith((".wgsl", ".mjs", "py.typed"))]
    assert len(kept) > 20
    for name in kept:
        (source,) = [f / name for f in FOLDERS if (f / name).exists()]
        assert archive.read(name) == source.read_bytes()
