"""docs/torch_names.md says the truth: every name in it exists, and none that both packages have is
missing."""

from __future__ import annotations

import re

import pytest

from scripts import torch_names as names


def test_every_name_of_the_page_exists() -> None:
    rows = re.findall(r"^\| (torch\S*) \| (wb\S*) \|", names.PAGE.read_text("utf-8"), re.M)
    assert len(rows) > 500
    for theirs, ours in rows:
        names.resolve(ours)
        names.resolve(theirs)


def test_the_page_is_up_to_date() -> None:
    had = set(names.PAGE.read_text("utf-8").splitlines())
    now = set(names.page().splitlines())
    # The count in the introduction follows from the rows.
    missing = sorted(line for line in now - had if line.startswith("| torch"))
    gone = sorted(line for line in had - now if line.startswith("| torch"))
    assert not missing and not gone, f"run scripts/torch_names.py: new {missing}, gone {gone}"
    assert names.PAGE.read_text("utf-8") == names.page()


def test_remarks_are_about_names_that_exist() -> None:
    for ours in names.REMARKS:
        names.resolve(ours)
    with pytest.raises(AttributeError):
        names.resolve("wb.no_such_name")
