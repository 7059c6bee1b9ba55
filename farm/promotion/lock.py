"""`engine.lock`: which tree a final folder makes, from what, judged by which harness."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from farm.promotion.errors import PromotionError

LOCK = "engine.lock"
_HEAD = "# Written by a search; the certificate beside it says why. Do not edit.\n"


@dataclass(frozen=True)
class EngineLock:
    """`stock.bundle` holds `stock_commit` (tree `stock_tree`); the patches in order lead to
    `final_tree`. Hashes are hex; `created` is UTC, ISO 8601."""

    setting: str
    engine: str
    stock_tree: str
    stock_commit: str
    final_tree: str
    final_commit: str
    harness: str
    created: str
    schema_version: int = 1

    def to_toml(self) -> str:
        # A JSON string or integer is a valid TOML one.
        return _HEAD + "".join(f"{k} = {json.dumps(v)}\n" for k, v in asdict(self).items())


def read_lock(folder: Path) -> EngineLock:
    """The lock in a final folder.

    Raises:
        PromotionError: no such file, not TOML, or a key is missing, unknown or of a wrong type.
    """
    path = folder / LOCK
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise PromotionError(
            f"{folder} holds no {LOCK}", "Run a search, or promote a campaign, first"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PromotionError(f"{path} is not TOML: {error}", "Promote the campaign again") from None
    for field in fields(EngineLock):
        wanted: type = int if field.name == "schema_version" else str
        if not isinstance(data.get(field.name), wanted):
            raise PromotionError(
                f"{path}: {field.name} is missing or no {wanted.__name__}",
                "Promote the campaign again",
            )
    unknown = sorted(set(data) - {field.name for field in fields(EngineLock)})
    if unknown:
        raise PromotionError(f"{path}: unknown key {unknown[0]}", "Promote the campaign again")
    return EngineLock(**data)
