"""certify: a promoted engine's certificate, run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from farm.campaign.options import parse_duration
from farm.cli.terminal import terminal
from farm.promotion.certification import Certification, Outcome
from farm.report import words
from farm.results import RatioInterval
from settings.errors import SpecfarmError

SettingName = Annotated[str, typer.Argument(help="a folder name below settings/, or a path")]
_ROWS = (
    ("final over stock", "final_to_stock"),
    ("final over AR", "final_to_ar"),
    ("stock over AR", "stock_to_ar"),
    ("A/A, stock over stock", "aa"),
)
_COUNTS = (
    ("tokens forced", "tokens_checked"),
    ("mismatches", "mismatches"),
    ("near-ties", "near_ties"),
    ("FP32-exact tokens", "exact_checked"),
    ("FP32 mismatches", "exact_mismatches"),
)


def register(app: typer.Typer) -> None:
    app.command()(certify)


def certify(
    setting: SettingName,
    folder: Annotated[
        Path | None, typer.Option(help="the promoted engine; default: settings/<name>/final")
    ] = None,
    checkout: Annotated[
        Path | None, typer.Option(help="the clone whose settings/<name>/final is meant")
    ] = None,
    seconds: Annotated[
        str | None,
        typer.Option(help="timed per launch of final and stock: 30s, 2m; default: by the setting"),
    ] = None,
    fresh_prompts: Annotated[
        bool,
        typer.Option(
            "--fresh-prompts/--same-prompts", help="time new prompts, or the certificate's"
        ),
    ] = True,
    other_hardware: Annotated[
        bool, typer.Option("--other-hardware", help="on other hardware than certified; revokes not")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the plan, run nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines instead of a table")] = False,
) -> int:
    """Check a promoted engine's certificate and measure it again; exit code 1 unless it passes."""
    from farm.search.certify_target import CertifyOrder, certify_target

    timed = None if seconds is None else parse_duration(seconds, "--seconds")
    if timed is not None and timed < 1:
        raise SpecfarmError(f"--seconds: {seconds} times nothing", "Give at least 1s")
    target = certify_target(setting, folder, checkout)
    from farm.search.certify import certify as run_again
    from farm.search.certify_plan import describe

    order = CertifyOrder(target, timed, fresh_prompts, other_hardware)
    if dry_run:
        plan = describe(order)
        print(json.dumps(plan.to_json()) if as_json else plan.text())
        return 0
    found = run_again(order, terminal(as_json))
    if as_json:
        print(json.dumps({"event": "certification", **found.to_json()}))
    else:
        show(found, Console(highlight=False))
    return 0 if found.outcome is Outcome.PASS else 1


def show(found: Certification, console: Console) -> None:
    """Both sets of numbers side by side, then the verdict."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("", "certificate", "here"):
        table.add_column(name, overflow="fold")
    ours = found.ours or {}
    for name, key in _ROWS:
        table.add_row(name, _ratio(found.theirs.get(key)), _ratio(ours.get(key)))
    table.add_row("A/A floor", _number(found.theirs, "aa_floor"), _number(ours, "aa_floor"))
    theirs_lossless, ours_lossless = found.theirs.get("lossless"), ours.get("lossless")
    for name, key in _COUNTS:
        table.add_row(name, _number(theirs_lossless, key), _number(ours_lossless, key))
    table.add_row("CPU", _cpu(found.theirs.get("machine")), _cpu(found.here.get("machine")))
    table.add_row("date", str(found.theirs.get("created")), found.date)
    console.print()
    console.print(f"{found.setting}: final tree {found.final_tree}")
    console.print(table)
    console.print(f"[bold]{found.outcome.value}[/]: {escape(found.reason)}", soft_wrap=True)


def _ratio(data: Any) -> str:
    try:
        return words.ratio(RatioInterval(**data))
    except TypeError:
        return words.NOT_MEASURED


def _number(data: Any, key: str) -> str:
    value = data.get(key) if isinstance(data, dict) else None
    if value is None:
        return words.NOT_MEASURED
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _cpu(machine: Any) -> str:
    facts = machine if isinstance(machine, dict) else {}
    return str(facts.get("gpus") or facts.get("cpu") or words.NOT_MEASURED)
