"""The page in web/: it lists devices, trains with a live curve, stops, and says what fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from browser.rig.chromium import Chromium, find_chromium

from web.local import Site, page_mounts

pytestmark = pytest.mark.slow


class Page:
    """The page in a browser, seen as a user sees it."""

    def __init__(self, chromium: Chromium, url: str) -> None:
        self.chromium = chromium
        self.session = chromium.open(url)

    def js(self, expression: str):
        return self.chromium.evaluate(self.session, expression)

    def text(self, name: str) -> str:
        return self.js(f"document.getElementById({json.dumps(name)}).textContent")

    def wait(self, state: str, seconds: float = 120) -> str:
        """The status line once the page is in a state."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.js("document.getElementById('status')?.dataset.state") == state:
                return self.text("status")
            time.sleep(0.3)
        raise AssertionError(f"not {state}: {self.text('status')}\n{self.text('log')}")

    def train(self, device: str, steps: int = 0, batch: int = 64) -> None:
        # The address says how many steps; it is read at the start, not when the page loads.
        self.js(f"history.replaceState(null, '', '?steps={steps}')")
        for name, value in {"device": device, "batch": str(batch)}.items():
            self.js(f"document.getElementById({name!r}).value = {json.dumps(value)}")
        self.js("document.getElementById('start').click()")

    def errors(self) -> list[str]:
        found = []
        while not self.chromium.events.empty():
            event = self.chromium.events.get()
            if event.level == "error":
                found.append(event.text)
        return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    site = Site(page_mounts())
    yield site
    site.close()


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[Page]:
    """Loaded once: what a training leaves behind is there when the next one starts."""
    with Chromium() as chromium:
        page = Page(chromium, f"{site.url}/")
        assert page.wait("ready").startswith("ready on WebGPU")
        yield page


def test_trains_on_webgpu_and_on_the_cpu(page: Page) -> None:
    for device in ("wgpu:0", "cpu"):
        page.train(device, steps=4, batch=32)
        assert page.wait("busy") is not None
        assert page.wait("ready").startswith("done after 4 steps")
        assert page.text("step") == "4/4"
        assert 0 < float(page.text("loss")) < 4
        assert float(page.text("rate")) > 0
        assert page.text("test").endswith("%")
        assert page.js("document.querySelectorAll('#digits figure').length") == 36
    log = page.text("log")
    print(log)
    assert "4 steps of 32" in log
    assert "wgpu:0" in log and "first step" in log
    assert page.errors() == []


def test_stops_when_told(page: Page) -> None:
    page.train("cpu")
    page.wait("busy")
    while page.text("step") == "–":
        time.sleep(0.1)
    page.js("document.getElementById('stop').click()")
    assert page.wait("ready").startswith("stopped after")
    assert page.errors() == []


def test_without_webgpu_it_trains_on_the_cpu_and_says_why(site: Site) -> None:
    with Chromium(()) as chromium:
        page = Page(chromium, f"{site.url}/")
        assert page.wait("ready") == "ready on CPU (numpy)"
        assert "no adapter" in page.text("log")
        page.train("cpu", steps=2)
        page.wait("busy")
        assert page.wait("ready").startswith("done after 2 steps")
