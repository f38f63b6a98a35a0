"""Registers the browser rig, in the process that has a browser to drive."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "emscripten":
    from browser.rig.plugin import Browsers

    def pytest_configure(config: pytest.Config) -> None:
        config.pluginmanager.register(Browsers(config), "wgburn-browsers")
