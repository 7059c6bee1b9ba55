"""The table of all settings in docs/settings.md: `python -m settings.table [--write]`."""

from __future__ import annotations

import sys
from pathlib import Path

from settings.loading import list_settings, load_setting
from settings.paths import checkout_root
from settings.schema import RESOLVE, Checkpoint, Setting

BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
_COLUMNS = ("setting", "target", "drafter", "GPU", "c", "revisions", "licence", "GB", "status")
_SHORT = 8


def docs_file() -> Path:
    return checkout_root() / "docs" / "settings.md"


def settings_table() -> str:
    """Markdown, one row a setting of this checkout; pairs are target / drafter."""
    rows = [_COLUMNS, tuple("---" for _ in _COLUMNS)]
    rows += [_row(load_setting(name)) for name in list_settings()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def table_in() -> str:
    """The table as docs/settings.md has it."""
    return docs_file().read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def _row(setting: Setting) -> tuple[str, ...]:
    drafter = setting.drafter.checkpoint
    both = [setting.target.checkpoint, *([] if drafter is None else [drafter])]
    name: str = setting.drafter.kind
    if setting.drafter.draft_tokens is not None:
        name += f" ({setting.drafter.draft_tokens})"
    return (
        f"`{setting.name}`",
        f"{setting.target.name} {setting.target.weights_dtype}",
        name if drafter is None else f"{drafter.repository or drafter.path} {name}",
        setting.hardware.gpu,
        str(setting.serving.concurrency),
        " / ".join(map(_pin, both)),
        " / ".join(dict.fromkeys(checkpoint.licence for checkpoint in both)),
        " / ".join(map(_size, both)),
        setting.status.replace("_", " "),
    )


def _pin(checkpoint: Checkpoint) -> str:
    if checkpoint.revision == RESOLVE:
        return "at first download"
    pin = checkpoint.revision or checkpoint.sha256 or f"seed {checkpoint.seed}"
    return f"`{pin[:_SHORT]}`" if len(pin) > _SHORT else pin


def _size(checkpoint: Checkpoint) -> str:
    about = "~" if checkpoint.size_from == "derived" else ""
    if not checkpoint.size_bytes:
        return "?"
    gigabytes = checkpoint.size_bytes / 1e9
    return f"{about}{gigabytes:.1f}" if gigabytes >= 0.05 else f"{about}{gigabytes:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or with --write put it into docs/settings.md."""
    if "--write" not in (sys.argv[1:] if arguments is None else arguments):
        print(settings_table(), end="")
        return 0
    text = docs_file().read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    docs_file().write_text(before + BEGIN + settings_table() + END + rest.partition(END)[2])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
