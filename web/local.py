"""What a local page needs: Pyodide's files, the wgburn wheel of this tree, a server on localhost.

Owns: fetching and building those, and a small HTTP server with the headers of cross-origin
isolation. Must not know: what the files contain. Used by web/serve and by the browser tests.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import cache, wraps
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
#: As it was at the start: tests clear wgburn's own variables later.
ENVIRONMENT = dict(os.environ)
#: Packages of Pyodide's own lock file that wgburn needs; the pure wheels come by address.
LOCKED = ("numpy", "pydantic", "platformdirs")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".zip": "application/zip",
}


T = TypeVar("T")


class LocalError(RuntimeError):
    """Something a local page needs could not be made."""


def once(make: Callable[[], T]) -> Callable[[], T]:
    """A cache that two threads may ask first at the same time."""
    lock, cached = threading.Lock(), cache(make)

    @wraps(make)
    def made() -> T:
        with lock:
            return cached()

    return made


@once
def assets() -> Path:
    """The folder of web/fetch_assets, fetched if need be."""
    done = subprocess.run(
        (sys.executable, str(ROOT / "web" / "fetch_assets")),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    if done.returncode:
        raise LocalError(done.stderr.strip() or "web/fetch_assets failed")
    return Path(done.stdout.strip().splitlines()[-1])


@once
def wheel() -> tuple[str, bytes]:
    """The wgburn wheel of this tree: its name and its bytes."""
    with tempfile.TemporaryDirectory(prefix="wgburn-wheel-") as folder:
        if importlib.util.find_spec("hatchling"):
            command: tuple[str, ...] = ("hatchling", "build", "-t", "wheel", "-d", folder)
        else:
            command = ("pip", "wheel", "--quiet", "--no-deps", "-w", folder, str(ROOT))
        done = subprocess.run(
            (sys.executable, "-m", *command), cwd=ROOT, capture_output=True, text=True, timeout=600
        )
        found = list(Path(folder).glob("*.whl"))
        if done.returncode or not found:
            raise LocalError(f"the wheel does not build:\n{done.stdout}{done.stderr}"[-3000:])
        return found[0].name, found[0].read_bytes()


def pure_wheels(*names: str) -> list[str]:
    """Addresses below /assets/ of pure wheels, by the start of their file names."""
    found = sorted((assets() / "pure").glob("*.whl"))
    return [f"/assets/pure/{path.name}" for path in found if path.name.startswith(names)]


def page_mounts() -> dict[str, Path | bytes]:
    """Everything the page of this folder needs, for `Site`."""
    name, data = wheel()
    digits = ROOT / "examples" / "data" / "mnist"
    files = {
        "/page/training.py": "/training.py",
        "/page/models.py": "/models.py",
        **{f"/page/digits/{path.name}": f"/digits/{path.name}" for path in digits.glob("*.gz")},
    }
    config = {
        "pyodide": "/assets/pyodide/",
        "packages": [*LOCKED, *pure_wheels("jinja2", "markupsafe")],
        "wheel": f"/{name}",
        "files": files,
    }
    return {
        "/config.json": json.dumps(config).encode(),
        f"/{name}": data,
        "/models.py": ROOT / "examples" / "models.py",
        "/digits/": digits,
        "/assets/": assets(),
        "/": ROOT / "web",
    }


class Site:
    """Serves `mounts`: a prefix ending in "/" is a folder, any other path one file or bytes."""

    def __init__(self, mounts: Mapping[str, Path | bytes], port: int = 0) -> None:
        self.mounts = dict(mounts)
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                path += "index.html" if path.endswith("/") else ""
                body = site.find(path)
                self.send_response(404 if body is None else 200)
                kind = TYPES.get(Path(path).suffix, "application/octet-stream")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.send_header("Cache-Control", "no-store")
                if self.headers.get("Host", "").startswith("127.0.0.1"):
                    # Elsewhere the page is not secure, and the browser would complain of these.
                    self.send_header("Cross-Origin-Opener-Policy", "same-origin")
                    self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def find(self, path: str) -> bytes | None:
        for prefix, content in self.mounts.items():
            if path != prefix and not (prefix.endswith("/") and path.startswith(prefix)):
                continue
            if isinstance(content, bytes):
                return content
            file = content
            if prefix.endswith("/"):
                file = (content / path.removeprefix(prefix)).resolve()
                if not file.is_relative_to(content.resolve()):
                    return None
            return file.read_bytes() if file.is_file() else None
        return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)
