"""Commands whose errors are one line and an exit status, not a traceback.

Owns: how an exception becomes a message. Used by `wgburn` and by the examples.
"""

from __future__ import annotations

from typing import Any

import click

from ..core.errors import WgburnError


def one_line(error: BaseException) -> str:
    """What to tell a user; an error nobody foresaw keeps its type, and says how to see more."""
    text = " ".join(str(error).split())
    if isinstance(error, WgburnError | OSError | ImportError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text} (--debug shows where)"


class _OneLine(click.Command):
    """Mixed into a command: needs an option --debug, which lets the traceback through."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(one_line(error)) from error


class Command(_OneLine):
    """A single command with one-line errors."""


class Group(_OneLine, click.Group):
    """A group of commands with one-line errors."""


debug_option = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
