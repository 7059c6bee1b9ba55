"""The `specfarm` program: registers the commands, turns errors into exit codes.

Exit codes: 0 ok, 1 a negative verdict, 2 a usage or environment error (with its remedy).
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import sys

import typer

from farm.cli import (
    certify_command,
    engine_commands,
    gaps_command,
    inspect_drafter_command,
    inspection_commands,
    search_commands,
)
from settings.errors import SpecfarmError

# Newer releases of typer carry their own copy of click, older ones import it.
_click = importlib.import_module(typer.BadParameter.__module__)

app = typer.Typer(
    name="specfarm",
    help="Find a faster inference engine for one deployment that commits exactly the tokens its "
    "target would choose.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
search_commands.register(app)
engine_commands.register(app)
certify_command.register(app)
inspection_commands.register(app)
inspect_drafter_command.register(app)
gaps_command.register(app)


def main() -> None:
    """Entry point of `specfarm` and `python -m farm`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command line; returns its exit code, never raises for a user's mistake."""
    try:
        result = app(arguments, standalone_mode=False)
    except SpecfarmError as error:
        return _fail(str(error), "--json" in arguments)
    except _click.NoArgsIsHelpError as error:
        print(error.format_message())
        return 2
    except _click.UsageError as error:
        return _fail(f"{error.format_message()} (see specfarm --help)", "--json" in arguments)
    except (typer.Abort, KeyboardInterrupt):
        print("specfarm: stopped; a campaign goes on with: specfarm resume", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, sqlite3.Error) as error:
        remedy = "Check that the data folder (SPECFARM_DATA) can be written and has room"
        return _fail(f"{type(error).__name__}: {error}. {remedy}", "--json" in arguments)
    return result if isinstance(result, int) else 0


def _fail(message: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"event": "error", "message": message}))
    print(f"specfarm: {message}", file=sys.stderr)
    return 2
