"""search, resume, status, report, promote."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from farm.campaign.options import SearchOptions, parse_duration
from farm.cli.terminal import terminal, wide_console
from farm.ledger import Ledger, Unit
from farm.report.markdown import render_markdown
from farm.results import report_from_json
from farm.search.plan import describe_plan
from farm.search.session import new_campaign, open_ledger
from settings.errors import SpecfarmError
from settings.loading import load_setting

SettingName = Annotated[str, typer.Argument(help="a folder name below settings/, or a path")]
CampaignId = Annotated[str, typer.Argument(help="a campaign id or its beginning")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of a table")]
Address = Annotated[
    str | None, typer.Option(help="a Ray cluster to join (auto, host:port); default: a local one")
]


def register(app: typer.Typer) -> None:
    for command in (search, resume, status, report, promote):
        app.command()(command)


def search(
    setting: SettingName,
    rounds: Annotated[int, typer.Option(help="rounds of propose, measure, merge")] = 1,
    budget: Annotated[str, typer.Option(help="wall clock for the search: 90s, 30m, 2h")] = "22m",
    explorers: Annotated[str, typer.Option(help="comma-separated names")] = "memory",
    workers: Annotated[int, typer.Option(help="GPUs to measure on at once")] = 1,
    canaries: Annotated[int, typer.Option(help="planted candidates mixed in (at most 6)")] = 2,
    address: Address = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the plan, run nothing")] = False,
    as_json: Json = False,
) -> int:
    """Search for a faster lossless engine; ends with a verdict table and the exported winner."""
    loaded = load_setting(setting)
    options = SearchOptions(
        rounds=rounds,
        budget_s=parse_duration(budget, "--budget"),
        explorers=tuple(name.strip() for name in explorers.split(",") if name.strip()),
        canaries=canaries,
        workers=workers,
    )
    plan = describe_plan(loaded, options)
    if dry_run:
        print(json.dumps(plan.to_json()) if as_json else plan.text())
        return 0
    from farm.search.launch import run_with_ray

    ledger = open_ledger()
    row = new_campaign(ledger, setting, options)
    observer = terminal(as_json)
    observer.message(f"campaign {row.id} (if killed: specfarm resume {row.id})")
    observer.message(plan.headline())
    observer.show(run_with_ray(ledger, row, observer, address))
    return 0


def resume(campaign: CampaignId, address: Address = None, as_json: Json = False) -> int:
    """Go on with a campaign that was killed or stopped; finished units are not repeated."""
    from farm.search.launch import run_with_ray

    ledger = open_ledger()
    row = ledger.campaign(campaign)
    if row.options.get("kind") == "certify":
        raise SpecfarmError(
            f"campaign {row.id} runs a certificate again",
            f"Go on with it: specfarm certify {row.setting}",
        )
    observer = terminal(as_json)
    stored = ledger.report(row.id)
    if row.status == "finished" and stored is not None:
        observer.message(f"campaign {row.id} is finished; nothing to resume")
        observer.show(report_from_json(stored))
        return 0
    done = sum(unit.status == "done" for unit in ledger.units(row.id))
    observer.message(f"resuming campaign {row.id}: {done} finished units are kept")
    observer.show(run_with_ray(ledger, row, observer, address))
    return 0


def status(
    campaign: Annotated[str | None, typer.Argument(help="default: list all campaigns")] = None,
    as_json: Json = False,
) -> int:
    """List campaigns, or one campaign's units as the ledger has them."""
    ledger = open_ledger()
    if campaign is None:
        return _list_campaigns(ledger, as_json)
    row = ledger.campaign(campaign)
    units = ledger.units(row.id)
    if as_json:
        for unit in units:
            print(json.dumps(_unit_json(unit)))
        return 0
    table = Table(title=f"{row.id}  {row.setting}  {row.status}")
    for column in ("unit", "status", "attempts", "seconds", "error"):
        table.add_column(column)
    for unit in units:
        seconds = "" if unit.ended is None else f"{unit.ended - unit.started:.0f}"
        name = f"{unit.phase}:{unit.subject}"
        table.add_row(name, unit.status, str(unit.attempts), seconds, escape(unit.error or ""))
    wide_console().print(table)
    return 0


def _list_campaigns(ledger: Ledger, as_json: bool) -> int:
    rows = ledger.campaigns()
    if as_json:
        for row in rows:
            print(json.dumps(row.__dict__))
        return 0
    table = Table(title="campaigns")
    for column in ("id", "setting", "status", "started"):
        table.add_column(column)
    for row in rows:
        started = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(row.created))
        table.add_row(row.id, row.setting, row.status, started)
    wide_console().print(table if rows else "no campaigns yet; start one: specfarm search SETTING")
    return 0


def _unit_json(unit: Unit) -> dict[str, object]:
    return {key: value for key, value in unit.__dict__.items() if key != "result"}


def report(
    campaign: CampaignId,
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="as a Markdown page")] = False,
) -> int:
    """Print a campaign's verdict table."""
    ledger = open_ledger()
    row = ledger.campaign(campaign)
    stored = ledger.report(row.id)
    if stored is None:
        raise SpecfarmError(
            f"campaign {row.id} is {row.status} and has no report yet",
            f"Look at `specfarm status {row.id}` or run `specfarm resume {row.id}`",
        )
    found = report_from_json(stored)
    if markdown:
        print(render_markdown(found))
    else:
        terminal(as_json).show(found)
    return 0


def promote(
    campaign: CampaignId,
    checkout: Annotated[Path | None, typer.Option(help="default: this checkout")] = None,
) -> int:
    """Copy the campaign's exported winner into settings/<name>/final of a checkout."""
    from farm.search.finish import promote_campaign

    target = promote_campaign(open_ledger(), campaign, checkout)
    print(f"promoted into {target}")
    return 0
