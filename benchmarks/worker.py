"""A process that times works on one system: asked on stdin, answers on stdout, a JSON line each.

    {"open": [SYSTEM, DEVICE]}             -> {"label": ...}
    {"prepare": WORK}                      -> {"first_ms": ...}
    {"time": WORK, "samples": n}           -> {"ms": [...]}
    any of them, when it fails             -> {"error": ...}

One process a system: none shares threads, memory pools or settings with another. The parent asks
one at a time, so they share the machine's cores only in turn.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .works import by_name

#: Calls before the first timed one: jits record in the second and third.
WARM_UP = 3


class Worker:
    def __init__(self) -> None:
        self.system: Any = None
        self.ready: dict[str, Callable[[], Any]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "open" in request:
            name, device = request["open"]
            self.system = importlib.import_module(f"{__package__}.on_{name}").System(device)
            return {"label": self.system.label}
        if "prepare" in request:
            return {"first_ms": self.prepare(request["prepare"])}
        return {"ms": self.time(request["time"], request["samples"])}

    def prepare(self, name: str) -> float:
        run = self.system.build(name)
        started = time.perf_counter()
        run()
        first = (time.perf_counter() - started) * 1e3
        for _ in range(WARM_UP):
            run()
        self.ready = {name: run}  # one work at a time in memory
        return first

    def time(self, name: str, samples: int) -> list[float]:
        run, inner = self.ready[name], by_name(name).inner
        run()  # another system ran in between: fetch caches and wake threads
        found = []
        for _ in range(samples):
            started = time.perf_counter()
            for _ in range(inner):
                run()
            found.append((time.perf_counter() - started) * 1e3 / inner)
        return found


def main() -> None:
    # Libraries print what they like; the protocol keeps the real stdout for itself.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        try:
            reply = worker.answer(json.loads(line))
        except ModuleNotFoundError as error:
            reply = {"error": f"not installed ({error.name})", "missing": error.name}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
