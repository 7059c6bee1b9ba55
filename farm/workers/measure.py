"""What a device does with a `MeasureJob`: launch, warm, time interleaved, answer exactly, stop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

from engines.answers import Answer, GenerationRequest
from engines.engine_cpus import engine_cpus
from engines.engine_process import EngineProcess
from engines.errors import (
    BadRequest,
    EngineCrashed,
    EngineError,
    EngineProtocolError,
    EngineTimeout,
    TreeRefused,
)
from engines.http_client import EngineClient
from engines.json_fields import printable
from engines.launcher import launch
from engines.tree_store import TreeStore
from farm.bench.blame import blaming
from farm.bench.modes import measure
from farm.bench.plan import plan_measurement
from farm.bench.recording import Recording
from farm.bench.stopping import LOSER, OUT_OF_REACH, SequentialStop
from farm.campaign.jobs import ArmSpec, MeasureJob, MeasureOutcome
from farm.timing_lock import timing_lock
from farm.workers.probing import CacheProbes, cache_probes, processor_seconds, served_facts, warm_up
from farm.workers.verifier_set import AskedSet, Asking, Generate, ask_verifier_set
from settings.errors import SpecfarmError
from settings.hardware import hardware
from settings.loading import load_setting
from settings.schema import Setting
from settings.weights import ensure_target
from verifier.target_rules import stop_rules

# Plan for every prompt and for repeats as long as the budget lasts: the budget ends it.
_ANY_ANSWER_S = 0.5
_MOST_ERROR_CHARACTERS = 8000
Escaped = dict[str, list[str]]


def run_measure_job(job: MeasureJob, store: TreeStore | None = None) -> MeasureOutcome:
    """Never raises for what a candidate does: its failures are outcomes that name it.

    The timing lock is held from the first launch to the last stop, so nothing else of any
    campaign on this machine runs meanwhile.
    """
    began = time.monotonic()
    waited_s = 0.0
    escaped: Escaped = {}
    store = store or TreeStore()
    setting = load_setting(job.setting)
    try:
        for bundle in job.bundles:
            store.import_bundle(bundle)
        with timing_lock(f"measuring {job.unit}") as waited_s:
            outcome = _measure(job, setting, store, escaped)
    except EngineError as error:
        outcome = MeasureOutcome(_status(error), error.arm, _text(error))
    except SpecfarmError as error:
        outcome = MeasureOutcome("invalid_environment", None, _text(error))
    # What nobody foresaw must not end the campaign; it accepts nothing either.
    except Exception as error:
        text = f"the worker failed on {job.unit}: {type(error).__name__}: {_text(error)}"
        outcome = MeasureOutcome("invalid_environment", None, text)
    seconds = time.monotonic() - began
    return replace(outcome, seconds=seconds, waited_s=waited_s, escaped=escaped)


def _text(error: Exception) -> str:
    """An engine's log and messages are its own words: nothing in them may reach a terminal raw."""
    lines = str(error)[:_MOST_ERROR_CHARACTERS].splitlines()
    return "\n".join(printable(line, _MOST_ERROR_CHARACTERS) for line in lines)


def _status(error: EngineError) -> str:
    """`invalid_environment` where no arm is to blame."""
    if error.arm is None:
        return "invalid_environment"
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


def _measure(
    job: MeasureJob, setting: Setting, store: TreeStore, escaped: Escaped
) -> MeasureOutcome:
    pause_idle = not hardware(setting.hardware.gpu).is_gpu
    with ExitStack() as stack:
        engines = {
            arm.label: stack.enter_context(_launched(arm, setting, store, escaped))
            for arm in job.arms
        }
        rounds = setting.measurement.warm_rounds_max
        warmed = {label: warm_up(label, engine, job, rounds) for label, engine in engines.items()}
        before = processor_seconds(engines)
        recording = _timed(job, setting, engines, pause_idle)
        spent = processor_seconds(engines)
        served = served_facts(engines)
        clear_loser, out_of_reach = (
            any(why in note for note in recording.notes) for why in (LOSER, OUT_OF_REACH)
        )
        dropped = clear_loser or out_of_reach
        probes = CacheProbes()
        if not dropped and _under_test(job):
            probes = cache_probes(job, engines, recording, pause_idle)
        asked = AskedSet()
        if job.verifier_prompts and not dropped:
            asked = _verifier_set(job, setting, engines)
    exact = None
    if job.exact_setting is not None and job.exact_requests and not dropped:
        exact = _exact_answers(job, asked.asking.one_of_each_kind(), store, escaped)
    return MeasureOutcome(
        "ok",
        recording=recording.to_json(),
        exact_answers=exact,
        clear_loser=clear_loser,
        out_of_reach=out_of_reach,
        warm={label: asdict(found) for label, found in warmed.items()},
        verifier_requests=[asdict(request) for request in asked.requests],
        verifier_answers=[_without_times(answer) for answer in asked.answers],
        served=served,
        probes=[asdict(probe) for probe in probes.pairs],
        asked_again=[asdict(answer) for answer in probes.again],
        repeat_trials=[asdict(trial) for trial in probes.trials],
        cpu_s={label: spent[label] - before[label] for label in engines},
    )


@contextmanager
def _launched(
    arm: ArmSpec, setting: Setting, store: TreeStore, escaped: Escaped
) -> Iterator[EngineProcess]:
    """A serving engine for `arm`, stopped at the end whatever happened; what outlived it is noted
    in `escaped`."""
    served = setting
    if arm.engine != setting.engine.name:
        served = setting.model_copy(
            update={"engine": setting.engine.model_copy(update={"name": arm.engine})}
        )
    model = ensure_target(setting)
    with blaming(arm.label):
        tree = store.checkout(arm.commit)
        engine = launch(
            served, arm.arm, tree, arm.tree_hash, model, cpus=engine_cpus(setting.hardware.threads)
        )
        # What was asked of it carries its label already: an error without one is its stopping.
        try:
            with engine:
                yield engine
        finally:
            if engine.escaped:
                escaped.setdefault(arm.label, []).extend(engine.escaped)


def _under_test(job: MeasureJob) -> bool:
    """Whether the subject is a candidate, not stock against itself or AR."""
    return any(s.label == job.subject and s.arm in ("candidate", "final") for s in job.arms)


def _timed(
    job: MeasureJob,
    setting: Setting,
    engines: Mapping[str, EngineProcess],
    pause_idle: bool,
) -> Recording:
    stop = None
    if job.stop_losers:
        stop = SequentialStop(job.subject, job.denominator, setting.measurement.estimator, job.bar)
    plan = plan_measurement(
        setting.measurement,
        answer_s=_ANY_ANSWER_S,
        arms=len(engines),
        seconds=job.seconds,
        available_prompts=len(job.requests),
        seed=job.seed,
        pause_idle=pause_idle,
        stop=stop,
        concurrency=setting.serving.concurrency,
    )
    if job.every_prompt:
        plan = replace(plan, fewest_prompts=plan.prompts)
    return measure(engines, job.requests, plan)


def _exact_answers(
    job: MeasureJob, hidden: Asking, store: TreeStore, escaped: Escaped
) -> list[dict[str, Any]]:
    """The subject's tree on the exact twin, untimed: what only long contexts or crowds make wrong
    shows there without any margin, so verifier-only prompts are asked too."""
    assert job.exact_setting is not None
    setting = load_setting(job.exact_setting)
    spec = next(arm for arm in job.arms if arm.label == job.subject)
    found = []
    with _launched(spec, setting, store, escaped) as engine, blaming(spec.label):
        client = engine.client()
        for request in job.exact_requests:
            found.append(client.generate(_as_exact(request, setting)))
        # Longer than the twin's other answers: one of them may take the time of the whole set.
        seconds = setting.verification.deadline_s
        with EngineClient(engine.url, max(seconds, client.timeout_s)) as patient:
            found += hidden.answered(patient.generate, seconds)
    return [_without_times(answer) for answer in found]


def _verifier_set(
    job: MeasureJob, setting: Setting, engines: Mapping[str, EngineProcess]
) -> AskedSet:
    """The verifier-only prompts; stops are taken from AR where it runs, else from the baseline."""
    reference = next((spec.label for spec in job.arms if spec.arm == "ar"), job.denominator)
    rules = stop_rules(ensure_target(setting), setting)

    def generate(label: str) -> Generate:
        client = engines[label].client()

        def answer(request: GenerationRequest) -> Answer:
            with blaming(label):
                return client.generate(request)

        return answer

    with blaming(job.subject):
        return ask_verifier_set(
            job.verifier_prompts,
            setting,
            rules,
            generate(reference),
            generate(job.subject),
        )


def _without_times(answer: Answer) -> dict[str, Any]:
    return asdict(answer) | {"arrivals": (), "meta": {}}


def _as_exact(request: GenerationRequest, setting: Setting) -> GenerationRequest:
    return replace(request, max_new_tokens=setting.decoding.max_new_tokens)
