"""pytest in this process, results from the browser: an item per test, as collected here.

Owns: which items go to which browser, matching their reports, timeouts, console errors. Must not
know: how the browser is driven. A module marked `pytest.mark.browser` is collected here (so it must
import without a browser) and run there. Arguments of the mark: context="worker" | "page",
webgpu=one of `session.WEBGPU`, packages=(names,), seconds=limit a test.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from web.local import LocalError

from .chromium import BrowserError, find_chromium
from .session import Session

TEST_SECONDS = 120.0


class Kind(NamedTuple):
    """Items of one kind share a browser."""

    context: str
    webgpu: str
    packages: tuple[str, ...]


def kind_of(item: pytest.Item) -> Kind | None:
    mark = item.get_closest_marker("browser")
    if mark is None:
        return None
    return Kind(
        mark.kwargs.get("context", "worker"),
        mark.kwargs.get("webgpu", "swiftshader"),
        tuple(mark.kwargs.get("packages", ())),
    )


class Browsers:
    """The pytest plugin. One browser lives at a time; items are ordered by kind."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._kind: Kind | None = None
        self._session: Session | None = None
        self._stream: Iterator[dict[str, Any]] | None = None
        self._missing: set[str] = set()
        self._collect_errors: list[str] = []
        self._left: dict[Kind, list[str]] = {}
        self._seconds: dict[Kind, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        mine = [item for item in items if kind_of(item)]
        kinds = list(dict.fromkeys(kind_of(item) for item in mine))
        mine.sort(key=lambda item: kinds.index(kind_of(item)))
        items[:] = [item for item in items if not kind_of(item)] + mine

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            kind = kind_of(item)
            if kind:
                self._left.setdefault(kind, []).append(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        kind = kind_of(item)
        if kind is None:
            return None
        started = time.monotonic()
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._run(item, kind):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if nextitem is None or kind_of(nextitem) != kind:
            self.close()
        spent = time.monotonic() - started
        self._seconds[kind] = self._seconds.get(kind, 0.0) + spent
        return True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for kind, seconds in self._seconds.items():
            where = ", ".join((kind.context, kind.webgpu, *kind.packages))
            terminalreporter.write_line(f"in Chromium ({where}): {seconds:.1f} s")
        if len(self._seconds) > 1:
            total = sum(self._seconds.values())
            terminalreporter.write_line(f"in Chromium, together: {total:.1f} s")

    def _run(self, item: pytest.Item, kind: Kind) -> list[pytest.TestReport]:
        if find_chromium() is None:
            if os.environ.get("WGBURN_TEST_REQUIRE_BROWSER"):
                return [self._made(item, "failed", "Chromium is not installed")]
            reason = "Skipped: Chromium is not installed"
            return [self._made(item, "skipped", (str(item.path), 0, reason))]
        mark = item.get_closest_marker("browser")
        assert mark is not None
        seconds = float(mark.kwargs.get("seconds", TEST_SECONDS))
        try:
            self._open(kind)
            return self._reports(item, seconds)
        except (BrowserError, LocalError) as error:
            self.close()  # the next item gets a fresh browser
            return [self._made(item, "failed", str(error))]
        finally:
            names = self._left[kind]
            if item.nodeid in names:
                names.remove(item.nodeid)

    def _open(self, kind: Kind) -> None:
        if self._session is not None and self._kind == kind:
            return
        self.close()
        self._kind = kind
        self._session = Session(kind.context, kind.webgpu, kind.packages)
        self._missing.clear()
        self._collect_errors.clear()
        self._session.start_tests(self._left[kind])

    def _reports(self, item: pytest.Item, seconds: float) -> list[pytest.TestReport]:
        session = self._session
        assert session is not None
        reports: list[pytest.TestReport] = []
        if item.nodeid not in self._missing:
            for message in session.messages(seconds):
                kind = message["type"]
                if kind == "collect":
                    self._collect_errors.append(f"{message['nodeid']}: {message['text']}")
                elif kind == "collected":
                    self._missing.update(message["missing"])
                    if item.nodeid in self._missing:
                        break
                elif kind == "report" and message["nodeid"] == item.nodeid:
                    reports.append(self._restored(message["report"]))
                    if reports[-1].when == "teardown":
                        break
                elif kind == "end":
                    raise BrowserError(f"the browser never ran {item.nodeid}{session.tail()}")
        if not reports:
            why = "\n".join(self._collect_errors) or "not collected there"
            return [self._made(item, "failed", f"the browser did not run this test: {why}")]
        errors, session.errors = session.errors, []
        return self._with_console(reports, errors)

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

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def pytest_unconfigure(self) -> None:
        self.close()
