"""`python -m benchmarks NAME`: the benchmarks, from the repository's folder."""

from __future__ import annotations

import json
import sys

import click

from wgburn.cli.errors import Group, debug_option

from . import seed as seed_module
from .works import GROUPS


def _listed(known: tuple[str, ...] | None = None):
    """A callback that splits a comma-separated option and checks its parts."""

    def split(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        for part in parts:
            if known is not None and part not in known:
                raise click.BadParameter(f"{part!r} is not one of {', '.join(known)}")
        return parts

    return split


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@debug_option
def main(debug: bool) -> None:
    """Benchmarks of wgburn."""


@main.command()
@click.option("--device", "devices", default="cpu", show_default=True, callback=_listed())
@click.option(
    "--against",
    "peers",
    default="",
    callback=_listed(("torch", "tinygrad")),
    help="Peers to compare with: torch, tinygrad. Those not installed are named.",
)
@click.option(
    "--works", "groups", default=",".join(GROUPS), show_default=True, callback=_listed(GROUPS)
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")
def seed(devices: list[str], peers: list[str], groups: list[str], as_json: bool) -> None:
    """Time matmul, elementwise, MLP, CNN and transformer steps, beside peers in the same run."""

    def tell(line: str) -> None:
        click.echo(line, err=as_json)

    found = []
    failed = False
    try:
        for work, results, runners in seed_module.run(devices, peers, groups, tell):
            failed = failed or any(results[r.name].error for r in runners if not r.is_peer)
            if as_json:
                found.append(seed_module.as_data(work, results, runners))
                continue
            for line in seed_module.lines(work, results, runners):
                tell(line)
    except seed_module.Failed as failure:
        raise click.ClickException(str(failure)) from failure
    if as_json:
        click.echo(json.dumps(found, indent=2))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
