"""Files on localhost for the browser under test.

Owns: a small HTTP server with the headers that cross-origin isolation needs. Must not know: what is
in the files.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

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


class Site:
    """Serves `mounts`: a prefix ending in "/" is a folder, any other path one file or bytes."""

    def __init__(self, mounts: Mapping[str, Path | bytes]) -> None:
        self.mounts = dict(mounts)
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
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

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
