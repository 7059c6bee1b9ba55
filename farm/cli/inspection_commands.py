"""doctor and memory."""

from __future__ import annotations

import json
import shutil
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from explorers.mechanism import load_catalogue
from explorers.memory_explorer import CATALOGUE
from farm.cli.terminal import wide_console
from farm.doctor import checks
from settings.errors import SpecfarmError
from settings.loading import load_setting

Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table")]


def register(app: typer.Typer) -> None:
    app.command()(doctor)
    memory = typer.Typer(no_args_is_help=True, help="The mechanism memory.")
    memory.command("list")(memory_list)
    memory.command("show")(memory_show)
    app.add_typer(memory, name="memory")


def doctor(
    setting: Annotated[str | None, typer.Argument(help="check what this one needs, too")] = None,
    as_json: Json = False,
) -> int:
    """What is installed, what is missing, and how to get it; without SETTING, a line on each."""
    found = checks(None if setting is None else load_setting(setting))
    if as_json:
        for check in found:
            print(json.dumps(check.__dict__))
    else:
        table = Table(title="specfarm doctor")
        for column in ("what", "state", "found", "remedy"):
            table.add_column(column, overflow="fold")
        for check in found:
            style = {"ok": "green", "missing": "red", "note": "yellow"}[check.state]
            state = f"[{style}]{check.state}[/]"
            table.add_row(check.what, state, escape(check.found), escape(check.remedy))
        wide_console().print(table)
    return 2 if any(check.state == "missing" for check in found) else 0


def memory_list(
    setting: Annotated[str | None, typer.Option(help="say which apply to it")] = None,
    as_json: Json = False,
) -> int:
    """All mechanisms of the shipped catalogue."""
    loaded = None if setting is None else load_setting(setting)
    compiler = shutil.which("g++") is not None
    table = Table(title="mechanism memory")
    for column in ("name", "component", "change", "predicted", "applies"):
        table.add_column(column)
    for _, mechanism in load_catalogue(CATALOGUE):
        unmet = None
        if loaded is not None:
            unmet = mechanism.preconditions.unmet(loaded, has_compiler=compiler)
        change = "patch" if mechanism.patch else "knob"
        if as_json:
            row = {**mechanism.model_dump(), "applies": unmet is None, "unmet": unmet}
            print(json.dumps(row))
        applies = "" if loaded is None else (unmet or "yes")
        predicted = f"x{mechanism.predicted.speed_ratio:.2f}"
        table.add_row(mechanism.name, mechanism.component, change, predicted, applies)
    if not as_json:
        wide_console().print(table)
    return 0


def memory_show(
    name: Annotated[str, typer.Argument(help="a mechanism's name")], as_json: Json = False
) -> int:
    """One mechanism: hypothesis, scope, prediction, change."""
    catalogue = {
        mechanism.name: (folder, mechanism) for folder, mechanism in load_catalogue(CATALOGUE)
    }
    if name not in catalogue:
        raise SpecfarmError(f"no mechanism {name!r}", f"Known: {', '.join(sorted(catalogue))}")
    folder, mechanism = catalogue[name]
    patch = mechanism.proposal(folder, "memory").change.patch
    if as_json:
        print(json.dumps({**mechanism.model_dump(), "diff": patch}))
        return 0
    console = wide_console()
    needs = mechanism.preconditions.model_dump(exclude_defaults=True) or "nothing"
    lines = [
        f"{mechanism.name} ({mechanism.component})",
        mechanism.hypothesis,
        f"predicted x{mechanism.predicted.speed_ratio}: {mechanism.predicted.reason}",
        f"needs: {needs}",
    ]
    if mechanism.knobs:
        lines.append(f"engine.toml: {mechanism.knobs}")
    console.print(escape("\n".join(lines)))
    print(patch, end="")
    return 0
