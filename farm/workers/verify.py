"""What a verifier does with a `VerifyJob`: calibrate, or force and judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from engines.answers import Answer, GenerationRequest
from engines.errors import EngineError
from engines.protocol import RowShapes
from engines.registry import engine_driver
from engines.tree_store import TreeStore
from farm.campaign.jobs import VerifyJob, VerifyOutcome
from farm.results import LosslessSummary
from farm.timing_lock import timing_lock
from farm.workers.stock_pool import StockPool
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.schema import Setting
from settings.weights import ensure_target
from verifier.calibration import calibration_from_json, save_calibration
from verifier.core import OpenForcer, VerifierCore, VerifierResult
from verifier.forced import Forcer
from verifier.target_rules import stop_rules
from verifier.verify_outputs import calibration_path

# Rows a pass in which the numeric noise is taken: a full verify step's.
ROW_SHAPES = (8,)
# What the tokens of one screening (a thousand) and of one confirmation (three thousand) can show:
# the margin on the near-tie rate, the test's power, the rarest wrong token seen with 95 %.
SCREEN: dict[str, Any] = {"delta": 0.03, "power": 0.9, "detect_one_in": 250}
CONFIRM: dict[str, Any] = {"power": 0.9, "detect_one_in": 1000}


class VerifyService:
    """Runs jobs one after the other on a pool of resident stock engines."""

    def __init__(self, store: TreeStore | None = None) -> None:
        self._store = store or TreeStore()
        self._pool = StockPool(self._store)

    def run(self, job: VerifyJob) -> VerifyOutcome:
        """Judges or calibrates; a stock engine that fails is an invalid environment, not a verdict.

        Forcing waits while somebody on this machine is timing.
        """
        if job.bundle:
            self._store.import_bundle(job.bundle)
        try:
            with timing_lock(f"forcing for {job.unit}") as waited_s:
                return replace(self._run(job), waited_s=waited_s)
        except (EngineError, SpecfarmError) as error:
            return VerifyOutcome("invalid_environment", str(error))

    def _run(self, job: VerifyJob) -> VerifyOutcome:
        setting = load_setting(job.setting)

        @contextmanager
        def stock(name: str) -> Iterator[Forcer]:
            reference = job.setting if name == setting.name else job.exact_setting or name
            with self._pool.forcer(reference, job.stock_commit) as forcer:
                yield forcer

        calibration = None if job.calibration is None else calibration_from_json(job.calibration)
        core = VerifierCore(
            setting,
            stock,
            stop_rules(ensure_target(setting), setting),
            calibration=calibration,
            **(CONFIRM if job.final else SCREEN),
        )
        if job.calibrate:
            found = core.calibrate(
                answers(job.ar_answers),
                answers(job.stock_answers),
                shapes=self._row_shapes(setting, job),
            )
            save_calibration(found, calibration_path(setting.name))
            return VerifyOutcome(
                "calibrated", "", evidence=found.summary(), calibration=found.to_json()
            )
        exact = () if job.exact_answers is None else answers(job.exact_answers)
        return _outcome(core.verify(answers(job.answers), exact))

    def _row_shapes(self, setting: Setting, job: VerifyJob) -> dict[str, OpenForcer]:
        """Stock itself, reading a prompt as verify steps would; none where its driver cannot."""
        driver = engine_driver(setting.engine.name)
        if not isinstance(driver, RowShapes):
            return {}
        found: dict[str, OpenForcer] = {}
        for rows in ROW_SHAPES:
            tree = self._store.commit_knobs(job.stock_commit, driver.row_shape_knobs(rows))
            found[f"{rows} rows"] = partial(self._pool.forcer, job.setting, tree.commit)
        return found

    def close(self) -> None:
        self._pool.close()


def answers(items: tuple[dict[str, Any], ...]) -> tuple[Answer, ...]:
    """Answers from their JSON (`dataclasses.asdict`)."""
    return tuple(_answer(item) for item in items)


def _answer(item: dict[str, Any]) -> Answer:
    request = dict(item["request"])
    for name in ("prompt_ids", "stop_token_ids", "stop"):
        request[name] = tuple(request[name])
    fields = {
        "request": GenerationRequest(**request),
        "output_ids": tuple(item["output_ids"]),
        "arrivals": tuple((t, n) for t, n in item["arrivals"]),
    }
    return Answer(**{**item, **fields})


def _outcome(result: VerifierResult) -> VerifyOutcome:
    summary = None
    if result.report is not None:
        report, exact = result.report, result.exact_report
        summary = asdict(
            LosslessSummary(
                tokens_checked=report.tokens_checked,
                mismatches=report.mismatches,
                near_ties=report.near_ties,
                worst_gap_ulps=report.worst_gap_ulps,
                first_bad_position=report.first_bad_position,
                exact_checked=None if exact is None else exact.tokens_checked,
                exact_mismatches=None if exact is None else exact.mismatches,
            )
        )
    judgement = result.judgement
    return VerifyOutcome(judgement.status, judgement.reason, summary, judgement.evidence)
