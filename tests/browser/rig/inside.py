"""The rig's half inside Pyodide: runs pytest and sends every report out.

Owns: the inner pytest session. Must not know: how reports travel (one JavaScript function takes
strings), or what the tests test.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

ARGUMENTS = (
    "--capture=sys",
    "--override-ini=addopts=",
    "--import-mode=importlib",
    "--strict-markers",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:faulthandler",
    "--quiet",
    "--no-header",
    "--no-summary",
)


class Inside:
    """Pytest plugin: only the wanted items run; coroutine tests run to their end."""

    def __init__(self, wanted: list[str], send: Callable[[dict[str, Any]], None]) -> None:
        self.wanted = wanted
        self.send = send
        self.config: pytest.Config

    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.send({"type": "collect", "nodeid": report.nodeid, "text": str(report.longrepr)})

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in self.wanted if name in found]
        missing = [name for name in self.wanted if name not in found]
        self.send({"type": "collected", "missing": missing})

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        from pyodide.ffi import run_sync

        names = pyfuncitem._fixtureinfo.argnames
        run_sync(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.send({"type": "start", "nodeid": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.send({"type": "report", "nodeid": report.nodeid, "report": data})


def run(request: str) -> None:
    """Run the items of a JSON list of node ids; the session's end is a report too."""
    import js

    def send(message: dict[str, Any]) -> None:
        js.wgburnReport(json.dumps(message, default=str))

    wanted = json.loads(request)
    files = list(dict.fromkeys(name.split("::")[0] for name in wanted))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    status = pytest.main([*ARGUMENTS, *files], plugins=[Inside(wanted, send)])
    send({"type": "end", "status": int(status)})
