"""The tracking store: where it lies, and a client that writes straight to its SQLite file.

`<root>/mlflow.db` holds experiments, runs, metrics, parameters and tags; `<root>/artifacts/` holds
the files. MLflow stores artifact locations as absolute URIs, so a moved store keeps its numbers
but loses sight of its files.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from settings.paths import checkout_root

if TYPE_CHECKING:
    from mlflow import MlflowClient


def tracking_root() -> Path:
    """`$SPECFARM_MLRUNS`, else `mlruns/` of the checkout.

    Take it before a Ray job starts and pass it in: inside a job the code runs from a temporary copy
    of the checkout that Ray deletes.
    """
    return Path(os.environ.get("SPECFARM_MLRUNS") or checkout_root() / "mlruns").resolve()


def store_uri(root: Path) -> str:
    """The SQLAlchemy address of the store in `root`."""
    return f"sqlite:///{root.resolve()}/mlflow.db"


def open_client(root: Path) -> MlflowClient:
    """A client on the store in `root`; folder and schema are created at first use (seconds)."""
    root.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    # MLflow reads both at import.
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=store_uri(root))


def ensure_experiment(client: MlflowClient, root: Path, name: str, tags: dict[str, str]) -> str:
    """The id of experiment `name`: created, or restored from the trash, and given `tags`."""
    found = client.get_experiment_by_name(name)
    if found is None:
        location = (root.resolve() / "artifacts" / name).as_uri()
        experiment_id = cast(str, client.create_experiment(name, artifact_location=location))
        present: dict[str, str] = {}
    else:
        experiment_id, present = cast(str, found.experiment_id), dict(found.tags)
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(experiment_id)
    for key, value in tags.items():
        if present.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)
    return experiment_id
