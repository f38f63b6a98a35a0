"""One browser with Pyodide, numpy, the wgburn wheel and the tests loaded.

Owns: what is served and loaded, talking to Python in the browser, timeouts. Must not know: pytest
items (see `plugin`), protocol details (see `chromium`).
"""

from __future__ import annotations

import contextlib
import io
import json
import queue
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from web.local import LOCKED, ROOT, Site, assets, pure_wheels, wheel

from .chromium import SWIFTSHADER, BrowserError, Chromium, Event

WEB = Path(__file__).with_name("web")
FOLDER = "/home/pyodide/wgburn"  # where the tests lie in the browser's file system
LOAD_SECONDS = 120.0
#: Pure wheels that every session loads: what wgburn needs, and pytest. Others come when asked for.
PURE = ("jinja2", "markupsafe", "pytest", "pluggy", "iniconfig", "pygments")
#: What the browser offers. Without the flags headless Chromium has navigator.gpu but no adapter; no
#: flag takes navigator.gpu away, but a page that is not secure does not have it.
WEBGPU = ("swiftshader", "no-adapter", "insecure")


def pack(folders: tuple[str, ...]) -> bytes:
    """pyproject.toml and folders of the repository, as a zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.write(ROOT / "pyproject.toml", "pyproject.toml")
        for folder in folders:
            for path in sorted((ROOT / folder).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(ROOT).as_posix())
    return out.getvalue()


class Session:
    """A browser that runs Python. `context`: "worker" or "page"; `webgpu`: one of WEBGPU."""

    def __init__(
        self,
        context: str = "worker",
        webgpu: str = "swiftshader",
        packages: tuple[str, ...] = (),
        folders: tuple[str, ...] = ("tests", "examples"),
    ) -> None:
        name, data = wheel()
        pure = pure_wheels(*PURE, *packages)
        named = [name for name in packages if not pure_wheels(name)]
        config = {
            "packages": [*LOCKED, "packaging", *named, *pure],
            "wheel": f"/rig/{name}",
            "folder": FOLDER,
        }
        self.site = Site(
            {
                "/assets/": assets(),
                f"/rig/{name}": data,
                "/rig/config.json": json.dumps(config).encode(),
                "/rig/files.zip": pack(folders),
                "/rig/": WEB,
            }
        )
        self.context = context
        self.log: list[str] = []
        self.errors: list[str] = []  # console errors and uncaught exceptions, taken by the plugin
        self.times: dict[str, float] = {}
        self._target = ""
        self._chromium: Chromium | None = None
        try:
            self._chromium = Chromium(SWIFTSHADER if webgpu == "swiftshader" else ())
            url = self.site.url
            if webgpu == "insecure":
                url = url.replace("127.0.0.1", "insecure.test")
            self.page = self.chromium.open(f"{url}/rig/index.html?context={context}")
            if context == "page":
                self._target = self.page
            for message in self.messages(LOAD_SECONDS):
                if message["type"] == "ready":
                    self.times = message["times"]
                    break
        except BaseException:
            self.close()
            raise

    @property
    def chromium(self) -> Chromium:
        assert self._chromium is not None
        return self._chromium

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def messages(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What the browser reports, as it comes; BrowserError if nothing came for `seconds`."""
        while True:
            deadline = time.monotonic() + seconds
            message = None
            while message is None:
                message = self._next(deadline, seconds)
            if message["type"] == "broken":
                raise BrowserError(f"the rig broke in the browser:\n{message['text']}{self.tail()}")
            yield message

    def _next(self, deadline: float, seconds: float) -> dict[str, Any] | None:
        try:
            left = deadline - time.monotonic()
            event = self.chromium.events.get(timeout=max(left, 0.001))
        except queue.Empty:
            raise BrowserError(f"no word from the browser for {seconds:g} s{self.tail()}") from None
        if event.kind == "report":
            message: dict[str, Any] = json.loads(event.text)
            if message["type"] != "log":
                return message
            self.log.append(message["text"])
            return None
        self._note(event)
        return None

    def _note(self, event: Event) -> None:
        if event.kind == "gone":
            raise BrowserError(f"{event.text}{self.tail()}")
        if event.kind == "worker":
            self._target = self._target or event.session
            return
        line = f"{event.level}: {event.text}"
        self.log.append(line)
        if event.level in ("error", "assert"):
            self.errors.append(line)

    def tail(self, lines: int = 30) -> str:
        """The last lines of everything printed and logged, for failure messages."""
        return "\n".join(["", "-- browser log --", *self.log[-lines:]]) if self.log else ""

    def python(self, code: str, timeout: float = 120) -> Any:
        """Run Python in the browser; the last expression must be None, a number or a string."""
        expression = f"globalThis.rig.python({json.dumps(code)})"
        try:
            return self.chromium.evaluate(self._target, expression, timeout)
        finally:
            while not self.chromium.events.empty():
                self._next(time.monotonic(), 0)

    def start_tests(self, nodeids: list[str]) -> None:
        """Begin to run tests; their reports come through `messages`."""
        request = json.dumps(json.dumps(nodeids))
        self.chromium.evaluate(self._target, f"void globalThis.rig.tests({request})")

    def js_heap(self) -> int:
        """Bytes of JavaScript heap in use after a collection."""
        self.chromium.call("HeapProfiler.collectGarbage", session=self._target)
        usage = self.chromium.call("Runtime.getHeapUsage", session=self._target)
        return int(usage["usedSize"])

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.site.close)
            if self._chromium is not None:
                stack.callback(self._chromium.close)
