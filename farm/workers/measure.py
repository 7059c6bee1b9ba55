"""What a device does with a `MeasureJob`: launch, warm, time interleaved, answer exactly, stop."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

from engines.answers import GenerationRequest
from engines.engine_process import EngineProcess
from engines.errors import (
    BadRequest,
    EngineCrashed,
    EngineError,
    EngineProtocolError,
    EngineTimeout,
    TreeRefused,
)
from engines.launcher import launch
from engines.tree_store import TreeStore
from farm.bench.errors import MeasurementError
from farm.bench.modes import measure
from farm.bench.plan import plan_measurement
from farm.bench.recording import Recording
from farm.bench.stopping import LOSER, SequentialStop
from farm.bench.warm import WarmUp, warm
from farm.campaign.jobs import ArmSpec, MeasureJob, MeasureOutcome
from farm.timing_lock import timing_lock
from settings.errors import SpecfarmError
from settings.hardware import hardware
from settings.loading import load_setting
from settings.schema import Setting
from settings.weights import ensure_target

_WARM_TOKENS = 16
# Plan for every prompt and for repeats as long as the budget lasts: the budget ends it.
_ANY_ANSWER_S = 0.5


class _ArmError(Exception):
    """An engine error, and whose it was."""

    def __init__(self, label: str, error: EngineError) -> None:
        super().__init__(str(error))
        self.label = label
        self.error = error


def run_measure_job(job: MeasureJob, store: TreeStore | None = None) -> MeasureOutcome:
    """Never raises for what a candidate does: its failures are outcomes that name it.

    The timing lock is held from the first launch to the last stop, so nothing else of any
    campaign on this machine runs meanwhile.
    """
    began = time.monotonic()
    waited_s = 0.0
    store = store or TreeStore()
    setting = load_setting(job.setting)
    try:
        for bundle in job.bundles:
            store.import_bundle(bundle)
        with timing_lock(f"measuring {job.unit}") as waited_s:
            outcome = _measure(job, setting, store)
    except _ArmError as failure:
        outcome = MeasureOutcome(_status(failure.error), failure.label, str(failure.error))
    except MeasurementError as error:
        outcome = MeasureOutcome("malformed", job.subject, str(error))
    except SpecfarmError as error:
        outcome = MeasureOutcome("invalid_environment", None, str(error))
    return replace(outcome, seconds=time.monotonic() - began, waited_s=waited_s)


def _status(error: EngineError) -> str:
    if isinstance(error, EngineTimeout):
        return "timeout"
    if isinstance(error, EngineProtocolError | BadRequest):
        return "malformed"
    if isinstance(error, EngineCrashed):
        text = str(error).lower()
        return "out_of_memory" if "out of memory" in text or "memoryerror" in text else "crashed"
    if isinstance(error, TreeRefused):
        return "crashed"
    return "invalid_environment"


def _measure(job: MeasureJob, setting: Setting, store: TreeStore) -> MeasureOutcome:
    with ExitStack() as stack:
        engines = {
            arm.label: stack.enter_context(_launched(arm, setting, store)) for arm in job.arms
        }
        warmed = {label: _warm(label, engine, job, setting) for label, engine in engines.items()}
        recording = _timed(job, setting, engines)
    clear_loser = any(LOSER in note for note in recording.notes)
    exact = None
    if job.exact_setting is not None and job.exact_requests and not clear_loser:
        exact = _exact_answers(job, store)
    return MeasureOutcome(
        "ok",
        recording=recording.to_json(),
        exact_answers=exact,
        clear_loser=clear_loser,
        warm={label: asdict(found) for label, found in warmed.items()},
    )


@contextmanager
def _blaming(label: str) -> Iterator[None]:
    try:
        yield
    except EngineError as error:
        raise _ArmError(label, error) from error


@contextmanager
def _launched(arm: ArmSpec, setting: Setting, store: TreeStore) -> Iterator[EngineProcess]:
    """A serving engine for `arm`, stopped at the end whatever happened."""
    served = setting
    if arm.engine != setting.engine.name:
        served = setting.model_copy(
            update={"engine": setting.engine.model_copy(update={"name": arm.engine})}
        )
    model = ensure_target(setting)
    with _blaming(arm.label):
        tree = store.checkout(arm.commit)
        engine = launch(
            served, arm.arm, tree, arm.tree_hash, model, cpus=_cpus(setting.hardware.threads)
        )
    try:
        yield engine
    finally:
        engine.stop()


def _cpus(threads: int) -> tuple[int, ...] | None:
    """The machine's last cores for the engines (arms take turns there), the rest for the client;
    None where there are too few to part them."""
    available = sorted(os.sched_getaffinity(0))
    return tuple(available[-threads:]) if len(available) > threads else None


def _warm(label: str, engine: EngineProcess, job: MeasureJob, setting: Setting) -> WarmUp:
    """Warms on half of a real prompt, which no timed request asks: short rounds, so that twelve of
    them are cheap."""
    last = job.requests[-1]
    half = last.prompt_ids[: max(1, len(last.prompt_ids) // 2)]
    limit = min(_WARM_TOKENS, last.max_new_tokens)
    requests = [replace(last, id="warm", prompt_ids=half, max_new_tokens=limit)]
    with _blaming(label):
        return warm(engine, requests, max_rounds=setting.measurement.warm_rounds_max)


def _timed(
    job: MeasureJob,
    setting: Setting,
    engines: Mapping[str, EngineProcess],
) -> Recording:
    on_gpu = hardware(setting.hardware.gpu).is_gpu
    stop = None
    if job.stop_losers:
        stop = SequentialStop(
            job.subject, job.denominator, setting.measurement.estimator, winners=False
        )
    plan = plan_measurement(
        setting.measurement,
        answer_s=_ANY_ANSWER_S,
        arms=len(engines),
        seconds=job.seconds,
        available_prompts=len(job.requests),
        seed=job.seed,
        pause_idle=not on_gpu,
        stop=stop,
    )
    if job.every_prompt:
        plan = replace(plan, fewest_prompts=plan.prompts)
    try:
        return measure(engines, job.requests, plan)
    except EngineError as error:
        raise _ArmError(_culprit(engines, job), error) from error


def _culprit(engines: Mapping[str, EngineProcess], job: MeasureJob) -> str:
    """The arm whose process is gone; else the subject (stock serves others all day)."""
    gone = [label for label, engine in engines.items() if not engine.is_running()]
    return gone[0] if gone else job.subject


def _exact_answers(job: MeasureJob, store: TreeStore) -> list[dict[str, Any]]:
    """The subject's tree on the exact twin, untimed."""
    assert job.exact_setting is not None
    setting = load_setting(job.exact_setting)
    spec = next(arm for arm in job.arms if arm.label == job.subject)
    found = []
    with _launched(spec, setting, store) as engine, _blaming(spec.label):
        client = engine.client()
        for request in job.exact_requests:
            answer = client.generate(_as_exact(request, setting))
            found.append(asdict(answer) | {"arrivals": (), "meta": {}})
    return found


def _as_exact(request: GenerationRequest, setting: Setting) -> GenerationRequest:
    return replace(request, max_new_tokens=setting.decoding.max_new_tokens)
