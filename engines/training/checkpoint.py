"""A training run on disk while it runs: written whole or not at all, read back exactly."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from engines.training.errors import TrainingError
from engines.training.options import TrainOptions

FILE = "training-state.pt"


def save_state(folder: Path, options: TrainOptions, state: dict[str, Any]) -> None:
    """Replace the folder's state by `state` (tensors, numbers and containers of them)."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{FILE}.tmp"
    torch.save({"options": asdict(options), **state}, temporary)
    temporary.replace(folder / FILE)


def load_state(folder: Path, options: TrainOptions, device: torch.device) -> dict[str, Any] | None:
    """The state to go on from; None where the folder has none.

    Raises:
        TrainingError: it is broken, or of a run with other options.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        held = dict(state.pop("options"))
    except Exception as error:
        raise TrainingError(f"{path}: {error}", "Delete it to begin anew") from None
    ours = asdict(options)
    changed = sorted(k for k in ours.keys() | held.keys() if ours.get(k) != held.get(k))
    if changed:
        raise TrainingError(
            f"{path} is of a run with another {', '.join(changed)}",
            "Give the same options, another --out, or delete it",
        )
    return state


def clear_state(folder: Path) -> None:
    """The run is complete: only its result is kept."""
    (folder / FILE).unlink(missing_ok=True)
