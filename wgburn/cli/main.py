"""The `wgburn` command: its options, and the list of subcommands.

A subcommand is a module of this package with a click command, added below.
"""

from __future__ import annotations

import importlib.metadata

import click

from .errors import Group, debug_option
from .info import info


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"wgburn {importlib.metadata.version('wgburn')}")
        ctx.exit()


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@debug_option
def main(debug: bool) -> None:
    """Deep learning that runs wherever WebGPU runs: native GPUs, browser tabs, plain CPUs."""


main.add_command(info)

if __name__ == "__main__":
    main()
