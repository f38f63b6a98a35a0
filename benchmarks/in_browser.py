"""Times in the browser: loading, issuing launches, transfers. Run: python benchmarks/in_browser.py

Owns: driving the browser and printing. The timed code is in_browser_timed.py and runs in Pyodide,
in a module worker of headless Chromium on its software adapter: compare runs of one machine only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser.rig.session import Session  # noqa: E402

from web.local import wheel  # noqa: E402

PARTS = ("training", "runtime")


def main() -> None:
    context = sys.argv[1] if len(sys.argv) > 1 else "worker"
    name, data = wheel()
    print(f"{'wheel ' + name + ', KB':52} {len(data) / 1000:10.1f}")
    with Session(context, folders=("tests", "examples", "benchmarks")) as browser:
        for part, milliseconds in browser.times.items():
            print(f"{'load ' + part + ', ms':52} {milliseconds:10.1f}")
        browser.python("sys.path.insert(0, wgburn_folder + '/benchmarks')")
        for part in PARTS:
            code = f"import in_browser_timed\nawait in_browser_timed.{part}()"
            for what, value in json.loads(browser.python(code, timeout=900)).items():
                print(f"{what:52} {value:10.2f}")


if __name__ == "__main__":
    main()
