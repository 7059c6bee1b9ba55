"""gaps: where a step's time goes, against what the memory allows."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from farm.cli.terminal import wide_console
from farm.cost_model.gaps import CostModel, Gap
from farm.cost_model.step import step_cost
from settings.loading import load_setting


def register(app: typer.Typer) -> None:
    app.command()(gaps)


def gaps(
    setting: Annotated[str, typer.Argument(help="a setting's name or folder")],
    device: Annotated[str | None, typer.Option(help="limits of this device's datasheet")] = None,
    context: Annotated[int, typer.Option(min=1, help="tokens before the step")] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines instead of a table")] = False,
) -> int:
    """Component, limit, measured time, gap, share, and the speed-up if it reached its limit."""
    loaded = load_setting(setting)
    model = step_cost(loaded, device, context)
    rows = [_row(model, gap) for gap in model.gaps]
    total = {"component": "step", "limit_ms": model.limit_ms, "measured_ms": model.measured_ms}
    if as_json:
        for row in (*rows, total):
            print(json.dumps({"event": "gap", **row, "limits": model.limits.origin}))
        return 0
    table = Table(title=f"{loaded.name}: {model.limits.origin}")
    for column in ("component", "MB a step", "limit ms", "ms", "gap ms", "share", "speed-up"):
        table.add_column(column, justify="left" if column == "component" else "right")
    for row in rows:
        table.add_row(
            row["component"],
            f"{row['bytes'] / 1e6:.1f}",
            *(_text(row[key], ".2f") for key in ("limit_ms", "measured_ms", "gap_ms")),
            _text(row["share"], ".0%"),
            _text(row["speed_up"], ".2f"),
        )
    table.add_row("step", "", f"{model.limit_ms:.2f}", _text(model.measured_ms, ".2f"))
    wide_console().print(table)
    return 0


def _row(model: CostModel, gap: Gap) -> dict[str, Any]:
    further = {"gap_ms": gap.gap_ms, "share": model.share(gap), "speed_up": model.speed_up(gap)}
    return {**asdict(gap), **further}


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
