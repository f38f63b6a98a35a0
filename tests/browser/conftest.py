"""Registers the browser rig, in the process that has a browser to drive."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

#: What tests find in `worker`.
START = """
import json, numpy as np, wgburn as wb
from pyodide.http import pyfetch
from browser import seed_training, text_training
device = await wb.Device.wgpu_async(limits="default")

async def fetched(path):
    response = await pyfetch(path)
    response.raise_for_status()
    return await response.bytes()
"""

if sys.platform != "emscripten":
    from browser.rig.chromium import find_chromium
    from browser.rig.plugin import Browsers
    from browser.rig.session import Session

    def pytest_configure(config: pytest.Config) -> None:
        config.pluginmanager.register(Browsers(config), "wgburn-browsers")

    @pytest.fixture(scope="session")
    def worker() -> Iterator[Session]:
        """One browser for all modules that run code in it; what they serve they add to its site."""
        if find_chromium() is None:
            pytest.skip("Chromium is not installed")
        with Session() as session:
            session.python(START)
            yield session

    @pytest.fixture(scope="module")
    def chromium(worker: Session) -> Iterator[Session]:
        """The browser, which must not have complained by the end of the module."""
        worker.errors = []
        yield worker
        assert not worker.errors, worker.errors
