"""`wgburn info`: what this machine offers, and why something is not available."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from wgburn import DeviceInfo

_PACKAGES = ("numpy", "wgpu", "jinja2", "pydantic", "platformdirs", "click", "rich")
#: Limits worth a line on a terminal; --json has all.
_SHOWN_LIMITS = (
    "maxBufferSize",
    "maxStorageBufferBindingSize",
    "maxStorageBuffersPerShaderStage",
    "minStorageBufferOffsetAlignment",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupStorageSize",
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")
def info(as_json: bool) -> None:
    """Show devices, their features and limits, versions and settings."""
    facts = collect()
    if as_json:
        click.echo(json.dumps(facts, indent=2, sort_keys=True))
    else:
        for line in _lines(facts):
            click.echo(line)


def collect() -> dict[str, Any]:
    """Everything `wgburn info` shows, as plain data."""
    import wgburn as wb

    best = wb.Device.best()
    report = best.memory()
    return {
        "wgburn": importlib.metadata.version("wgburn"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "best": str(best),
        "memory": {"device": str(best), **dataclasses.asdict(report), "table": str(report)},
        "devices": [_device(found) for found in wb.Device.enumerate()],
        "settings": {
            name: {"value": value, "source": wb.config.source(name)}
            for name, value in wb.config.as_dict().items()
        },
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device(found: DeviceInfo) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "index": found.index,
        "name": found.name,
        "backend": found.backend,
        "adapter_type": found.adapter_type,
        "fingerprint": found.fingerprint,
        "available": found.available,
        "reason": found.reason,
        "features": sorted(found.features),
        "limits": dict(found.limits),
    }


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"wgburn {facts['wgburn']}, Python {facts['python']}, {facts['platform']}"
    packages = (f"{name} {found or 'not installed'}" for name, found in facts["packages"].items())
    yield f"packages: {', '.join(packages)}"
    yield f"best device: {facts['best']}"
    for device in facts["devices"]:
        yield ""
        yield from _device_lines(device)
    yield ""
    memory = facts["memory"]
    yield f"memory of {memory['device']} in this process:"
    for line in memory["table"].splitlines():
        yield f"  {line}"
    yield ""
    yield "settings:"
    for name, setting in facts["settings"].items():
        yield f"  {name} = {setting['value']}  ({setting['source']})"


def _device_lines(device: dict[str, Any]) -> Iterator[str]:
    state = "available" if device["available"] else f"NOT AVAILABLE: {device['reason']}"
    place = f"{device['kind']}:{device['index']}" if device["kind"] == "wgpu" else device["kind"]
    yield f"{place}: {device['name'] or 'no adapter'}: {state}"
    if not device["available"]:
        return
    what = [device["backend"], device["adapter_type"], device["fingerprint"]]
    yield f"  {', '.join(part for part in what if part)}"
    if device["features"]:
        yield f"  features: {', '.join(device['features'])}"
    for name in _SHOWN_LIMITS:
        if name in device["limits"]:
            yield f"  {name}: {device['limits'][name]:,}"
