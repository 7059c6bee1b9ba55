"""inspect-drafter: the modules and tensors of a parallel drafter, published or in a folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from farm.cli.terminal import wide_console
from farm.native_code import make_importable
from settings.errors import SpecfarmError

if TYPE_CHECKING:
    from native_engine.drafters.describe import Description

_BYTES = 2  # a parameter, in BF16 as all of them are published


def register(app: typer.Typer) -> None:
    app.command("inspect-drafter")(inspect_drafter)


def inspect_drafter(
    drafter: Annotated[
        str, typer.Argument(metavar="NAME|DIR", help="a published name, or a checkpoint's folder")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables")] = False,
) -> int:
    """A drafter's modules, tensors and parameter count; a folder's headers are checked."""
    make_importable()
    from native_engine.drafters.describe import checked_folder, describe
    from native_engine.drafters.published import published, published_names
    from native_engine.errors import NativeEngineError

    facts: dict[str, Any] = {"drafter": drafter}
    try:
        if drafter not in published_names() and Path(drafter).is_dir():
            found = checked_folder(Path(drafter))
        else:
            known = published(drafter)
            found = describe(known.config)
            facts |= {"repository": known.repository, "revision": known.revision or "not known"}
            facts |= {"target": known.target, "unsettled": list(known.unsettled)}
    except NativeEngineError as error:
        raise SpecfarmError(str(error)) from error
    facts |= _facts(found)
    if as_json:
        tensors = [{"name": name, "shape": list(shape)} for name, shape in found.shapes.items()]
        print(json.dumps({"event": "drafter", **facts, "tensors": tensors}))
    else:
        _show(facts, found.shapes)
    return 0


def _facts(found: Description) -> dict[str, Any]:
    config = found.config
    return {
        "kind": config.kind,
        "parameters": found.parameters,
        "tensor_count": len(found.shapes),
        "bytes_bf16": found.parameters * _BYTES,
        "block_size": config.block_size,
        "draft_tokens": config.max_drafts,
        "taps": list(config.taps),
    }


def _show(facts: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """One line a fact, then one a module and one a tensor; equal ones of all layers share it."""
    for key, value in facts.items():
        for item in value if key == "unsettled" else [value]:
            print(f"{key.replace('_', ' ')}: {f'{item:,}' if isinstance(item, int) else item}")
    modules: dict[str, tuple[int, int]] = {}
    tensors: dict[tuple[str, str], tuple[int, int]] = {}
    for tensor, shape in shapes.items():
        name = re.sub(r"^layers\.\d+", "layers.*", tensor)
        module = ".".join(name.split(".")[: 3 if name.startswith("layers") else 1])
        _add(modules, module, math.prod(shape))
        _add(tensors, (name, " x ".join(map(str, shape))), math.prod(shape))
    _table(
        ("module", "tensors", "parameters"), [((name,), *sums) for name, sums in modules.items()]
    )
    _table(
        ("tensor", "shape", "count", "parameters"), [(key, *sums) for key, sums in tensors.items()]
    )


def _add(sums: dict[Any, tuple[int, int]], key: Any, parameters: int) -> None:
    count, total = sums.get(key, (0, 0))
    sums[key] = count + 1, total + parameters


def _table(columns: Sequence[str], rows: Sequence[tuple[tuple[str, ...], int, int]]) -> None:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in ("module", "tensor") else "right")
    for key, count, parameters in rows:
        table.add_row(*key, str(count), f"{parameters:,}")
    print()
    wide_console().print(table)
