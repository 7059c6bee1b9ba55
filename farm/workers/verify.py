"""What a verifier does with `VerifyJob`s: calibrate, or force and judge."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from engines.answers import Answer, GenerationRequest
from engines.errors import EngineError
from engines.tree_store import TreeStore
from farm.campaign.jobs import VerifyJob, VerifyOutcome
from farm.results import LosslessSummary
from farm.timing_lock import timing_lock
from farm.workers.row_shapes import calibration_sweeps, second_look
from farm.workers.stock_pool import ForcingPool, StockPool
from settings.errors import SpecfarmError
from settings.hardware import hardware
from settings.loading import load_setting
from settings.weights import ensure_target
from verifier.calibration_file import (
    calibration_from_json,
    calibration_to_json,
    save_calibration,
)
from verifier.core import CandidateOutputs, VerifierCore, VerifierResult
from verifier.forced import Forcer
from verifier.target_rules import stop_rules
from verifier.verify_outputs import calibration_path
from verifier.words import thresholds_in_words

# What the tokens of one screening (a thousand) and of one confirmation (three thousand) can show:
# the margin on the near-tie rate, the test's power, the rarest wrong token seen with 95 %.
SCREEN: dict[str, Any] = {"delta": 0.03, "power": 0.9, "detect_one_in": 250}
CONFIRM: dict[str, Any] = {"power": 0.9, "detect_one_in": 1000}


class VerifyService:
    """Runs jobs, one batch after the other, on a pool of stock engines.

    On a CPU the engines stay: an idle one costs only memory. On a GPU they take turns with what is
    measured there: a batch begins with a launch and ends with a stop.
    """

    def __init__(self, store: TreeStore | None = None) -> None:
        self._store = store or TreeStore()
        self._own = StockPool(self._store)

    def run(self, job: VerifyJob) -> VerifyOutcome:
        """`run_many` of one job."""
        return self.run_many([job])[0]

    def run_many(
        self, jobs: Sequence[VerifyJob], pool: ForcingPool | None = None
    ) -> list[VerifyOutcome]:
        """Judges or calibrates; outcomes in order. Candidates that are judged by the same stock and
        rules share one launch of it. A stock engine that fails is an invalid environment, not a
        verdict. Forcing waits while somebody on this machine is timing.

        Args:
            pool: engines to force with instead of this process's own.
        """
        found: dict[str, VerifyOutcome] = {}
        for group in _alike(jobs):
            found |= self._group(group, pool or self._own)
        return [found[job.unit] for job in jobs]

    def _group(self, jobs: Sequence[VerifyJob], pool: ForcingPool) -> dict[str, VerifyOutcome]:
        units = [job.unit for job in jobs]
        try:
            for bundle in {job.bundle for job in jobs if job.bundle}:
                self._store.import_bundle(bundle)
                pool.take_bundle(bundle)
            with timing_lock(f"forcing for {', '.join(units)}") as waited_s:
                try:
                    outcomes = _Batch(jobs[0], self._store, pool).run(jobs)
                finally:
                    if hardware(load_setting(jobs[0].setting).hardware.gpu).is_gpu:
                        pool.release()
        except (EngineError, SpecfarmError) as error:
            outcomes = [VerifyOutcome("invalid_environment", str(error)) for _ in jobs]
            waited_s = 0.0
        found = [replace(outcome, waited_s=waited_s) for outcome in outcomes[:1]] + outcomes[1:]
        return dict(zip(units, found, strict=True))

    def close(self) -> None:
        self._own.release()


def _alike(jobs: Sequence[VerifyJob]) -> list[list[VerifyJob]]:
    """Jobs that one stock launch and one policy serve together; a calibration stands alone."""
    groups: list[list[VerifyJob]] = []
    for job in jobs:
        fitting = next(
            (g for g in groups if not job.calibrate and _rules(g[0]) == _rules(job)), None
        )
        if fitting is None:
            groups.append([job])
        else:
            fitting.append(job)
    return groups


def _rules(job: VerifyJob) -> tuple[Any, ...]:
    return (
        job.setting,
        job.stock_commit,
        job.exact_setting,
        job.calibration,
        job.final,
        job.calibrate,
    )


class _Batch:
    """Jobs alike: `first` stands for what they share."""

    def __init__(self, first: VerifyJob, store: TreeStore, pool: ForcingPool) -> None:
        self._first = first
        self._store = store
        self._pool = pool
        self._setting = load_setting(first.setting)
        calibration = first.calibration
        self._core = VerifierCore(
            self._setting,
            self._stock,
            stop_rules(ensure_target(self._setting), self._setting),
            calibration=None if calibration is None else calibration_from_json(calibration),
            second_look=second_look(self._setting, first, store, pool),
            **(CONFIRM if first.final else SCREEN),
        )

    @contextmanager
    def _stock(self, name: str) -> Iterator[Forcer]:
        first = self._first
        reference = first.setting if name == self._setting.name else first.exact_setting or name
        with self._pool.forcer(reference, first.stock_commit) as forcer:
            yield forcer

    def run(self, jobs: Sequence[VerifyJob]) -> list[VerifyOutcome]:
        if self._first.calibrate:
            return [self._calibrate(self._first)]
        return [_outcome(result) for result in self._core.verify_many([_outputs(j) for j in jobs])]

    def _calibrate(self, job: VerifyJob) -> VerifyOutcome:
        evidence: dict[str, Any] = {
            "unit": job.unit,
            "stock_tree": job.stock_tree,
            "machine": platform.node(),
            "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with calibration_sweeps(self._setting, job, self._store, self._pool) as sweeps:
            sweeps = replace(sweeps, restarted=answers(job.restarted_answers))
            found = self._core.calibrate(
                answers(job.ar_answers), answers(job.stock_answers), evidence, sweeps
            )
        looks = {"screening": SCREEN, "confirmation": CONFIRM, "specfarm verify": {}}
        in_words = thresholds_in_words(self._setting, found, looks)
        found = replace(found, evidence={**evidence, "in_words": in_words})
        save_calibration(found, calibration_path(self._setting))
        return VerifyOutcome(
            "calibrated", "", evidence=found.summary(), calibration=calibration_to_json(found)
        )


def answers(items: Sequence[dict[str, Any]]) -> tuple[Answer, ...]:
    """Answers from their JSON (`dataclasses.asdict`)."""
    return tuple(_answer(item) for item in items)


def _answer(item: dict[str, Any]) -> Answer:
    fields = {
        "request": _request(item["request"]),
        "output_ids": tuple(item["output_ids"]),
        "arrivals": tuple((t, n) for t, n in item["arrivals"]),
    }
    return Answer(**{**item, **fields})


def _request(item: dict[str, Any]) -> GenerationRequest:
    lists = {name: tuple(item[name]) for name in ("prompt_ids", "stop_token_ids", "stop")}
    return GenerationRequest(**{**item, **lists})


def _outputs(job: VerifyJob) -> CandidateOutputs:
    return CandidateOutputs(
        answers(job.answers),
        answers(job.exact_answers or ()),
        verifier_answers=answers(job.verifier_answers),
        verifier_requests=tuple(_request(item) for item in job.verifier_requests),
    )


def _outcome(result: VerifierResult) -> VerifyOutcome:
    summary = None
    if result.report is not None:
        report, exact, hidden = result.report, result.exact_report, result.verifier_report
        summary = asdict(
            LosslessSummary(
                tokens_checked=report.tokens_checked,
                mismatches=report.mismatches,
                near_ties=report.near_ties,
                worst_gap_ulps=report.worst_gap_ulps,
                first_bad_position=report.first_bad_position,
                exact_checked=None if exact is None else exact.tokens_checked,
                exact_mismatches=None if exact is None else exact.mismatches,
                verifier_checked=None if hidden is None else hidden.tokens_checked,
                verifier_mismatches=None if hidden is None else hidden.mismatches,
            )
        )
    judgement = result.judgement
    return VerifyOutcome(judgement.status, judgement.reason, summary, judgement.evidence)
