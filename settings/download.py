"""Everything a setting needs on this machine: `python -m settings.download SETTING ...`."""

from __future__ import annotations

import sys

from settings.disk_space import check_room
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.paths import shared_dir
from settings.prompt_sets import fetch
from settings.provision import Progress
from settings.schema import Setting
from settings.weights import ensure_drafter, ensure_target, present_drafter, present_target

USAGE = "usage: download_models.sh SETTING [SETTING ...]"


def absent_bytes(setting: Setting) -> int:
    """Bytes of weight files that the setting still has to fetch, as far as it states sizes."""
    wanted = (
        (setting.target.checkpoint, present_target),
        (setting.drafter.checkpoint, present_drafter),
    )
    return sum(
        checkpoint.size_bytes or 0
        for checkpoint, present in wanted
        if checkpoint is not None and present(setting) is None
    )


def download(setting: Setting, progress: Progress) -> None:
    """Target, drafter, prompt sets; folders of models go to stdout, one a line.

    Raises:
        ProvisionError: no room for all of it (said before anything is fetched), or not to be had.
    """
    check_room(f"{setting.name}: its weights", absent_bytes(setting), shared_dir())
    print(ensure_target(setting, progress), flush=True)
    drafter = ensure_drafter(setting, progress)
    if drafter is not None:
        print(drafter, flush=True)
    fetch((*setting.prompts.search, *setting.prompts.heldout), progress)


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when all is there, 2 with a remedy when not."""
    names = sys.argv[1:] if arguments is None else arguments
    if not names or names[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr)
        return 0 if names else 2
    try:
        for name in names:
            download(load_setting(name), lambda line: print(line, file=sys.stderr, flush=True))
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
