"""The one writer of the tracking store. A plain class; the farm wraps it in a Ray actor.

Every run carries the tag `specfarm.unit`; logging the same unit again (after a resume, or when the
whole store is written anew from the ledger) updates its run and never makes a second one.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from farm.report.markdown import render_markdown
from farm.report.plot import plot_candidates, plot_report
from farm.report.table import report_text
from farm.results import CampaignReport, CandidateResult
from farm.tracking import view
from farm.tracking.project import Projection, project_campaign, project_candidate
from farm.tracking.store import ensure_experiment, open_client
from settings.errors import SpecfarmError

if TYPE_CHECKING:
    from mlflow.entities import Run

UNIT = "specfarm.unit"
_PARENT = "mlflow.parentRunId"


class TrackingError(SpecfarmError):
    """The tracker was used out of order."""


class Tracker:
    """Shows campaigns in the MLflow store below `root` (created at first use)."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._client = open_client(self._root)
        self._setting = ""
        self._experiment = ""
        self._campaign_id = ""
        self._campaign_run = ""

    def start_campaign(self, setting: str, campaign_id: str) -> str:
        """Opens (or finds again) the campaign's run and makes it the current one.

        Returns:
            its MLflow run id.
        """
        self._experiment = ensure_experiment(
            self._client, self._root, setting, view.experiment_tags()
        )
        note = view.note(setting, self._experiment)
        ensure_experiment(self._client, self._root, setting, {"mlflow.note.content": note})
        self._setting, self._campaign_id = setting, campaign_id
        tags = {UNIT: campaign_id, "specfarm.kind": "campaign"}
        run = self._find(campaign_id) or self._create(campaign_id, tags)
        self._campaign_run = cast(str, run.info.run_id)
        self._client.update_run(self._campaign_run, status="RUNNING")
        return self._campaign_run

    def log_candidate(
        self, result: CandidateResult, bench: Path | Mapping[str, Any] | None = None
    ) -> str:
        """Shows one verdict of the current campaign.

        Args:
            bench: the client-side benchmark's result (its file or its JSON), kept as `bench.json`.

        Returns:
            the MLflow run id.

        Raises:
            TrackingError: no campaign was started.
        """
        if not self._campaign_run:
            raise TrackingError(
                f"candidate {result.candidate_id} belongs to no campaign yet",
                "Call start_campaign(setting, campaign_id) first",
            )
        projection = project_candidate(self._campaign_id, result)
        run_id = self._write(projection, {_PARENT: self._campaign_run})
        texts = {"patch.diff": result.patch, "verdict.json": _json(asdict(result))}
        if isinstance(bench, Path):
            texts["bench.json"] = bench.read_text()
        elif bench is not None:
            texts["bench.json"] = _json(bench)
        self._artifacts(run_id, texts, lambda png: plot_candidates((result,), png))
        self._client.set_terminated(run_id, "FAILED" if projection.failed else "FINISHED")
        return run_id

    def log_campaign(self, report: CampaignReport) -> str:
        """Shows the campaign's own numbers and files; call it as often as the report changes.

        Does not log the report's candidates (see `log_report`), but brings up to date those it has
        runs of: what is known only of all together (shrunken ratios). Returns the MLflow run id.
        """
        if (report.setting, report.campaign_id) != (self._setting, self._campaign_id):
            self.start_campaign(report.setting, report.campaign_id)
        run_id = self._campaign_run = self._write(project_campaign(report), {})
        texts = {
            "report.json": _json(report.to_json()),
            "result.md": render_markdown(report),
            "verdicts.txt": report_text(report, width=120),
        }
        self._artifacts(run_id, texts, lambda png: plot_report(report, png))
        for projection in (project_candidate(report.campaign_id, c) for c in report.candidates):
            if self._find(projection.unit) is not None:
                self._write(projection, {_PARENT: run_id})
        return run_id

    def log_report(self, report: CampaignReport) -> str:
        """The whole campaign from its report: its run and one nested run a candidate."""
        run_id = self.log_campaign(report)
        for candidate in report.candidates:
            self.log_candidate(candidate)
        return run_id

    def finish_campaign(self, ok: bool = True) -> None:
        """Closes the current campaign's run as FINISHED, or as KILLED when it was interrupted."""
        if self._campaign_run:
            self._client.set_terminated(self._campaign_run, "FINISHED" if ok else "KILLED")

    def _find(self, unit: str) -> Run | None:
        quoted = unit.replace("'", "")
        runs = self._client.search_runs([self._experiment], f"tags.`{UNIT}` = '{quoted}'")
        return runs[0] if runs else None

    def _create(self, name: str, tags: dict[str, str]) -> Run:
        return self._client.create_run(
            self._experiment, start_time=_now_ms(), run_name=name, tags=tags
        )

    def _write(self, projection: Projection, tags: dict[str, str]) -> str:
        """Creates or updates the unit's run; one batched call for all its numbers."""
        from mlflow.entities import Metric, Param, RunTag

        run = self._find(projection.unit)
        if run is not None and any(
            projection.params.get(key, value) != value for key, value in run.data.params.items()
        ):
            # Parameters are write-once: another identity under the same unit is another run.
            self._client.delete_run(run.info.run_id)
            run = None
        wanted = {**projection.tags, **tags, UNIT: projection.unit}
        if run is None:
            run = self._create(projection.name, {UNIT: projection.unit, **tags})
        now, old = _now_ms(), run.data
        self._client.log_batch(
            run.info.run_id,
            metrics=[
                Metric(key, value, now, 0)
                for key, value in projection.metrics.items()
                if old.metrics.get(key) != value
            ],
            params=[
                Param(key, value)
                for key, value in projection.params.items()
                if key not in old.params
            ],
            tags=[
                RunTag(key, value) for key, value in wanted.items() if old.tags.get(key) != value
            ],
        )
        return cast(str, run.info.run_id)

    def _artifacts(self, run_id: str, texts: dict[str, str], plot: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                (Path(folder) / name).write_text(text)
            plot(Path(folder) / "ratios.png")
            self._client.log_artifacts(run_id, os.fspath(folder))


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, default=str) + "\n"


def _now_ms() -> int:
    return int(time.time() * 1000)
