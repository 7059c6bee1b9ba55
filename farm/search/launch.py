"""A campaign on Ray: cluster, actors, tracker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ray

from farm.campaign.observer import Observer, Observers
from farm.cluster import in_job, ray_folder, start_ray
from farm.ledger import Campaign, Ledger
from farm.ray_leftovers import forget_cluster, reap_clusters, record_cluster
from farm.ray_sessions import clear_sessions
from farm.results import CampaignReport, CandidateResult
from farm.search.lock_watch import LockWatch
from farm.search.session import claim, run_campaign
from farm.tracking.store import tracking_root
from farm.workers.ray_workers import RayWorkers
from settings.loading import load_setting
from settings.paths import data_root


class TrackerActor:
    """MLflow's only writer. Every call carries the whole record, so a repeated one is harmless."""

    def __init__(self, root: Any) -> None:
        from farm.tracking.tracker import Tracker

        self._tracker = Tracker(root)

    def candidate(
        self, setting: str, campaign: str, result: CandidateResult, recording: Any
    ) -> None:
        self._tracker.start_campaign(setting, campaign)
        self._tracker.log_candidate(result, recording)

    def report(self, report: CampaignReport) -> None:
        self._tracker.log_campaign(report)

    def finish(self, setting: str, campaign: str, ok: bool) -> None:
        self._tracker.start_campaign(setting, campaign)
        self._tracker.finish_campaign(ok)


class TrackingObserver:
    """Sends events to the tracker actor without waiting; `drain` waits for all of them."""

    def __init__(self, row: Campaign) -> None:
        self._setting, self._campaign = load_setting(row.setting).name, row.id
        self._actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=1)(
            TrackerActor
        ).remote(_tracking_root())
        self._pending: list[Any] = []

    def phase(self, name: str, units: int) -> None:
        """Not tracked."""

    def message(self, text: str) -> None:
        """Not tracked."""

    def candidate(self, result: CandidateResult, recording: dict[str, object] | None) -> None:
        self._pending.append(
            self._actor.candidate.remote(self._setting, self._campaign, result, recording)
        )

    def report(self, report: CampaignReport) -> None:
        self._pending.append(self._actor.report.remote(report))

    def close(self, ok: bool) -> list[str]:
        """Waits for the tracker; returns what it could not show (never fatal: the ledger is the
        truth, the tracking store a projection of it)."""
        self._pending.append(self._actor.finish.remote(self._setting, self._campaign, ok))
        problems = []
        for reference in self._pending:
            try:
                ray.get(reference, timeout=120)
            except ray.exceptions.RayError as error:
                problems.append(str(error).strip().splitlines()[-1])
        ray.kill(self._actor)
        return problems


def _tracking_root() -> Path:
    """Inside a job the checkout is a copy that Ray deletes: the data folder outlives it."""
    if in_job() and "SPECFARM_MLRUNS" not in os.environ:
        return data_root() / "mlruns"
    return tracking_root()


def run_with_ray(
    ledger: Ledger, row: Campaign, observer: Observer, address: str | None
) -> CampaignReport:
    """Starts or joins Ray, runs the campaign there, closes everything it opened."""
    claim(ledger, row)
    observer.message("starting Ray" if address is None else f"joining Ray at {address}")
    reap_clusters()
    clear_sessions(ray_folder())
    start_ray(address)
    if address is None:
        record_cluster()
    try:
        tracking = TrackingObserver(row)
        ok = False
        try:
            with LockWatch(observer.message):
                report = run_campaign(ledger, row, Observers([observer, tracking]), RayWorkers)
            ok = True
        finally:
            for problem in tracking.close(ok):
                observer.message(f"tracking: {problem}")
    finally:
        ray.shutdown()
        forget_cluster()
    return report
