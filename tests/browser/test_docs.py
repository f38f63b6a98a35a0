"""The worker in docs/browser.md runs as it stands, with the addresses of local files put in."""

from __future__ import annotations

import json
import re
import time

import pytest
from browser.rig.chromium import Chromium, find_chromium

from web.local import ROOT, Site, assets, pure_wheels, wheel

pytestmark = pytest.mark.slow

PAGE = b"""<!doctype html><link rel="icon" href="data:,"><script type="module">
const worker = new Worker('./worker.mjs', { type: 'module' });
worker.onmessage = ({ data }) => { globalThis.said = data; };
</script>"""


def test_the_worker_of_the_guide_trains() -> None:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    text = (ROOT / "docs" / "browser.md").read_text()
    (code,) = re.findall(r"```js\n(.*?)```", text, re.DOTALL)
    assert len(code.strip().splitlines()) <= 25
    name, data = wheel()
    assert name in code, "the guide names another wheel than the one that is built"
    address = re.search(r"'(https://\S+/)pyodide.mjs'", code)
    assert address is not None
    code = code.replace(address[1], "/assets/pyodide/")
    wheels = ", ".join(json.dumps(path) for path in pure_wheels("jinja2", "markupsafe"))
    code = code.replace("'jinja2'", wheels)
    site = Site(
        {
            "/index.html": PAGE,
            "/worker.mjs": code.encode(),
            f"/{name}": data,
            "/assets/": assets(),
        }
    )
    try:
        with Chromium() as chromium:
            page = chromium.open(f"{site.url}/")
            end = time.monotonic() + 180
            said = None
            while said is None and time.monotonic() < end:
                time.sleep(0.3)
                said = chromium.evaluate(page, "globalThis.said")
                while not chromium.events.empty():
                    event = chromium.events.get()
                    assert event.level != "error", event.text
    finally:
        site.close()
    match = re.fullmatch(r"(\S+): loss ([\d.]+)", str(said))
    assert match and match[1] == "cpu+autodiff"  # SwiftShader is no hardware
    assert float(match[2]) < 1e-2
