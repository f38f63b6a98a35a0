"""Headless Chromium as a child process, driven through its debugging pipe.

Owns: flags, the process group and its end, the protocol's calls and events. Must not know: Pyodide,
pytest, what a page does. The pipe needs no port and no websocket; when this process dies, the pipe
closes and Chromium ends by itself.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # Nothing but localhost exists for this browser.
    "--no-proxy-server",
    "--host-resolver-rules=MAP insecure.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
SWIFTSHADER = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
#: The pipe's descriptors must be 3 and 4 in the browser. Out of the way first: they may be 4 and 3.
LAUNCH = """
import os, sys
into, out = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
into, out = os.dup(into), os.dup(out)
os.dup2(into, 3)
os.dup2(out, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
BINDING = "wgburnReport"  # a function of the page and its workers: one string to this process


class BrowserError(RuntimeError):
    """Chromium could not be started, died, or refused a call."""


class Event(NamedTuple):
    kind: str  # "report" | "console" | "exception" | "worker" | "gone"
    session: str
    text: str
    level: str = ""


def find_chromium() -> str | None:
    """The browser to use: $WGBURN_TEST_CHROMIUM, or the first one on the path."""
    override = os.environ.get("WGBURN_TEST_CHROMIUM")
    if override:
        return override
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for path in map(shutil.which, names) if path), None)


class Chromium:
    """A running browser. Use as a context manager; leaving it kills the whole process group."""

    def __init__(self, flags: tuple[str, ...] = SWIFTSHADER) -> None:
        binary = find_chromium()
        if binary is None:
            raise BrowserError("no Chromium: install it, or set WGBURN_TEST_CHROMIUM to a browser")
        self.events: queue.Queue[Event] = queue.Queue()
        self._ids = itertools.count(1)
        self._replies: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._profile = tempfile.mkdtemp(prefix="wgburn-chromium-")
        command = (binary, *FLAGS, f"--user-data-dir={self._profile}", *flags)
        child_in, to_child = os.pipe()
        from_child, child_out = os.pipe()
        launcher = (sys.executable, "-S", "-c", LAUNCH, str(child_in), str(child_out))
        self._stderr = (Path(self._profile) / "stderr.txt").open("wb")
        self._process = subprocess.Popen(
            (*launcher, *command, "about:blank"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=(child_in, child_out),
            start_new_session=True,
        )
        os.close(child_in)
        os.close(child_out)
        self._to_child = os.fdopen(to_child, "wb", buffering=0)
        self._from_child = os.fdopen(from_child, "rb", buffering=0)
        self._reader = threading.Thread(target=self._read, daemon=True, name="chromium")
        self._reader.start()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- protocol ---------------------------------------------------------------------------------
    def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        session: str = "",
        timeout: float = 30,
    ) -> dict[str, Any]:
        """One command of the debugging protocol and its result."""
        number = self._send(method, params, session, wanted=True)
        try:
            reply = self._replies[number].get(timeout=timeout)
        except queue.Empty:
            raise BrowserError(f"Chromium gave no answer to {method} in {timeout:g} s") from None
        finally:
            del self._replies[number]
        if "error" in reply:
            raise BrowserError(f"{method}: {reply['error'].get('message')}")
        result: dict[str, Any] = reply["result"]
        return result

    def _send(
        self, method: str, params: dict[str, Any] | None, session: str, wanted: bool = False
    ) -> int:
        message: dict[str, Any] = {"id": next(self._ids), "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        if wanted:
            self._replies[message["id"]] = queue.Queue()
        try:
            with self._lock:
                self._to_child.write(json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserError(f"Chromium is gone: {self.stderr_tail()}") from error
        number: int = message["id"]
        return number

    def _read(self) -> None:
        pending = b""
        while True:
            try:
                chunk = self._from_child.read(1 << 16)
            except (OSError, ValueError):
                chunk = b""
            if not chunk:
                break
            *messages, pending = (pending + chunk).split(b"\0")
            for message in messages:
                with contextlib.suppress(BrowserError):
                    self._handle(json.loads(message))
        gone = {"error": {"message": "Chromium ended"}}
        for reply in list(self._replies.values()):
            reply.put(gone)
        self.events.put(Event("gone", "", "Chromium ended"))

    def _handle(self, message: dict[str, Any]) -> None:
        if "id" in message:
            reply = self._replies.get(message["id"])
            if reply is not None:
                reply.put(message)
            return
        session = message.get("sessionId", "")
        params = message.get("params", {})
        method = message["method"]
        if method == "Runtime.bindingCalled":
            self.events.put(Event("report", session, params["payload"]))
        elif method == "Runtime.consoleAPICalled":
            words = (str(arg.get("value", arg.get("description", ""))) for arg in params["args"])
            self.events.put(Event("console", session, " ".join(words), params["type"]))
        elif method == "Log.entryAdded":
            entry = params["entry"]
            text = f"{entry['text']} {entry.get('url', '')}".strip()
            self.events.put(Event("console", session, text, entry["level"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            self.events.put(Event("exception", session, text, "error"))
        elif method == "Target.attachedToTarget" and params["targetInfo"]["type"] == "worker":
            worker = params["sessionId"]
            self._prepare(worker)
            self.events.put(Event("worker", worker, params["targetInfo"]["url"]))
            self._send("Runtime.runIfWaitingForDebugger", None, worker)
        elif method in ("Inspector.targetCrashed", "Target.targetCrashed"):
            self.events.put(Event("gone", session, "the page crashed"))

    def _prepare(self, session: str) -> None:
        for method, params in (
            ("Runtime.enable", None),
            ("Log.enable", None),
            ("Runtime.addBinding", {"name": BINDING}),
            ("Target.setAutoAttach", ATTACH),
        ):
            self._send(method, params, session)

    # -- pages ------------------------------------------------------------------------------------
    def open(self, url: str) -> str:
        """A new page on `url`; returns its session for `call` and `evaluate`."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        session: str = self.call("Target.attachToTarget", attach)["sessionId"]
        self._prepare(session)
        self.call("Inspector.enable", session=session)
        self.call("Page.enable", session=session)
        self.call("Page.navigate", {"url": url}, session)
        return session

    def evaluate(self, session: str, expression: str, timeout: float = 30) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        reply = self.call("Runtime.evaluate", params, session, timeout)
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            lines = (line for line in text.splitlines() if "pyodide.asm." not in line)
            raise BrowserError("\n".join(lines))
        return reply["result"].get("value")

    # -- end --------------------------------------------------------------------------------------
    def stderr_tail(self, size: int = 1500) -> str:
        with contextlib.suppress(OSError):
            return Path(self._stderr.name).read_text(errors="replace")[-size:]
        return ""

    def kill(self) -> None:
        """End every process of the browser; whoever waits for a word of it is told."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill every process of the browser and remove its profile."""
        self.kill()
        self._process.wait(timeout=20)
        self._reader.join(timeout=20)
        for file in (self._to_child, self._from_child, self._stderr):
            file.close()
        shutil.rmtree(self._profile, ignore_errors=True)


ATTACH = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
