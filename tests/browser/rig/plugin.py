"""pytest in this process, results from the browser: an item per test, as collected here.

Owns: which items go to which browser, matching their reports, timeouts, console errors. Must not
know: how the browser is driven. A module marked `pytest.mark.browser` is collected here (so it must
import without a browser) and run there. Arguments of the mark: context="worker" | "page",
webgpu=one of `session.WEBGPU`, packages=(names,), seconds=limit a test.

Loading Pyodide and running Python in it keep one processor busy, so the browsers of marked tests
run beside the tests of this folder that drive a browser themselves: they start with the first of
those, and pytest collects what came of them afterwards.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from web.local import LocalError

from .chromium import BrowserError, find_chromium
from .session import Session

TEST_SECONDS = 120.0
FOLDER = Path(__file__).resolve().parents[1]


class Kind(NamedTuple):
    """Items of one kind share a browser."""

    context: str
    webgpu: str
    packages: tuple[str, ...]


class Ran(NamedTuple):
    """What the browser said of one test; no reports: it was not collected there, and why."""

    reports: list[dict[str, Any]]
    console: list[str]
    why: str = ""


class Wanted(NamedTuple):
    nodeid: str
    seconds: float
    ran: Future[Ran]


def kind_of(item: pytest.Item) -> Kind | None:
    mark = item.get_closest_marker("browser")
    if mark is None:
        return None
    return Kind(
        mark.kwargs.get("context", "worker"),
        mark.kwargs.get("webgpu", "swiftshader"),
        tuple(mark.kwargs.get("packages", ())),
    )


class Lane:
    """Runs items in their browsers, kind after kind, one browser at a time, in its own thread.

    Must not know: pytest. Every wanted test gets a result or an exception, whatever happens.
    """

    def __init__(self, plan: dict[Kind, list[Wanted]]) -> None:
        self.seconds: dict[Kind, float] = {}
        self._plan = plan
        self._stopped = False
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="browsers")
        self._thread.start()

    def stop(self) -> None:
        """End the browser, whatever it is doing."""
        with self._lock:
            self._stopped = True
            session = self._session
        if session is not None:
            session.chromium.kill()
        self._thread.join(timeout=30)  # should it hang: the browser ends with this process

    def _run(self) -> None:
        for kind, wanted in self._plan.items():
            started = time.monotonic()
            left = list(wanted)
            while left:
                try:
                    if self._stopped:
                        raise BrowserError("stopped")
                    self._browse(kind, left)
                except (BrowserError, LocalError) as error:
                    left.pop(0).ran.set_exception(error)  # the next one gets a fresh browser
                except BaseException as error:
                    for each in left:
                        each.ran.set_exception(error)
                    left.clear()
            self.seconds[kind] = time.monotonic() - started

    def _browse(self, kind: Kind, left: list[Wanted]) -> None:
        """One browser for as long as it lives; takes what has run off `left`."""
        with Session(kind.context, kind.webgpu, kind.packages) as session:
            try:
                with self._lock:
                    self._session = session
                    if self._stopped:
                        raise BrowserError("stopped")
                session.start_tests([each.nodeid for each in left])
                missing: set[str] = set()
                faults: list[str] = []
                while left:
                    ran = self._next(session, left[0], missing, faults)
                    left.pop(0).ran.set_result(ran)
            finally:
                with self._lock:
                    self._session = None

    @staticmethod
    def _next(session: Session, each: Wanted, missing: set[str], faults: list[str]) -> Ran:
        reports: list[dict[str, Any]] = []
        messages: Iterator[dict[str, Any]] = session.messages(each.seconds)
        while each.nodeid not in missing:
            message = next(messages)
            kind = message["type"]
            if kind == "collect":
                faults.append(f"{message['nodeid']}: {message['text']}")
            elif kind == "collected":
                missing.update(message["missing"])
            elif kind == "report" and message["nodeid"] == each.nodeid:
                reports.append(message["report"])
                if message["report"]["when"] == "teardown":
                    break
            elif kind == "end":
                raise BrowserError(f"the browser never ran {each.nodeid}{session.tail()}")
        if not reports:
            return Ran([], [], "\n".join(faults) or "not collected there")
        console, session.errors = session.errors, []
        return Ran(reports, console)


class Browsers:
    """The pytest plugin: orders the items, starts the lane, makes its results pytest's."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._plan: dict[Kind, list[Wanted]] = {}
        self._ran: dict[str, Future[Ran]] = {}
        self._lane: Lane | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        mine = [item for item in items if kind_of(item)]
        kinds = list(dict.fromkeys(kind_of(item) for item in mine))
        mine.sort(key=lambda item: kinds.index(kind_of(item)))
        rest = [item for item in items if not kind_of(item)]
        # Those that drive a browser come last but for what runs beside them.
        rest.sort(key=lambda item: item.path.is_relative_to(FOLDER))
        items[:] = rest + mine

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            kind = kind_of(item)
            mark = item.get_closest_marker("browser")
            if kind and mark:
                seconds = float(mark.kwargs.get("seconds", TEST_SECONDS))
                wanted = Wanted(item.nodeid, seconds, Future())
                self._plan.setdefault(kind, []).append(wanted)
                self._ran[item.nodeid] = wanted.ran

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        mine = item.nodeid in self._ran
        if self._lane is None and self._plan and (mine or item.path.is_relative_to(FOLDER)):
            if find_chromium() is not None:
                self._lane = Lane(self._plan)
        if not mine:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._run(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        seconds = self._lane.seconds if self._lane else {}
        for kind, spent in seconds.items():
            where = ", ".join((kind.context, kind.webgpu, *kind.packages))
            terminalreporter.write_line(f"in Chromium ({where}): {spent:.1f} s")
        if len(seconds) > 1:
            total = sum(seconds.values())
            terminalreporter.write_line(f"in Chromium, together: {total:.1f} s")

    def _run(self, item: pytest.Item) -> list[pytest.TestReport]:
        if self._lane is None:
            if os.environ.get("WGBURN_TEST_REQUIRE_BROWSER"):
                return [self._made(item, "failed", "Chromium is not installed")]
            reason = "Skipped: Chromium is not installed"
            return [self._made(item, "skipped", (str(item.path), 0, reason))]
        try:
            ran = self._ran[item.nodeid].result()
        except (BrowserError, LocalError) as error:
            return [self._made(item, "failed", str(error))]
        if not ran.reports:
            text = f"the browser did not run this test: {ran.why}"
            return [self._made(item, "failed", text)]
        return self._with_console([self._restored(data) for data in ran.reports], ran.console)

    def _restored(self, data: dict[str, Any]) -> pytest.TestReport:
        hook = self._config.hook.pytest_report_from_serializable
        report: pytest.TestReport = hook(config=self._config, data=data)
        if isinstance(report.longrepr, list):  # a skip's place and reason; JSON has no tuples
            report.longrepr = tuple(report.longrepr)
        report.user_properties = [(name, value) for name, value in report.user_properties]
        return report

    @staticmethod
    def _with_console(
        reports: list[pytest.TestReport], errors: list[str]
    ) -> list[pytest.TestReport]:
        """A console error fails the test during which it came."""
        if errors:
            text = "\n".join(errors)
            main = next((report for report in reports if report.when == "call"), reports[0])
            main.sections.append(("Browser console", text))
            if main.passed:
                main.outcome = "failed"
                main.longrepr = f"console errors in the browser:\n{text}"
        return reports

    @staticmethod
    def _made(item: pytest.Item, outcome: str, longrepr: Any) -> pytest.TestReport:
        return pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome=outcome,  # type: ignore[arg-type]
            longrepr=longrepr,
            when="call",
        )

    def pytest_unconfigure(self) -> None:
        if self._lane is not None:
            self._lane.stop()
