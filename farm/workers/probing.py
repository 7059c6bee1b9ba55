"""What a worker asks of its engines beside the timed answers: warm-up, caches, configuration."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psutil

from engines.answers import GenerationRequest
from engines.engine_process import EngineProcess
from farm.bench.blame import blaming
from farm.bench.cache_probe import ProbedPrompt, probe_caches
from farm.bench.kept_state import AskedAgain, ask_again, kept_state
from farm.bench.plan import MeasurementPlan
from farm.bench.recording import Recording
from farm.bench.repeat_trials import RepeatTrial, ask_repeatedly
from farm.bench.variants import variant
from farm.bench.warm import WarmUp, warm
from farm.campaign.jobs import MeasureJob

_WARM_TOKENS = 16
_MOST_FACT_BYTES = 8192


def warm_up(label: str, engine: EngineProcess, job: MeasureJob, max_rounds: int) -> WarmUp:
    """Warms on a prompt that no timed request asks and that looks like all of them, term by term;
    the client hangs up early, so that twelve rounds are cheap."""
    with blaming(label):
        return warm(engine, [_warm_request(job)], max_rounds=max_rounds, cut=_WARM_TOKENS)


def _warm_request(job: MeasureJob) -> GenerationRequest:
    """A variant of the last prompt that has one; where none has, half of the last prompt."""
    rng = random.Random(f"warm:{job.seed}")
    for index in reversed(range(len(job.requests))):
        found = variant(job.requests, index, rng)
        if found is not None:
            return found
    last = job.requests[-1]
    return replace(last, prompt_ids=last.prompt_ids[: max(1, len(last.prompt_ids) // 2)])


@dataclass(frozen=True)
class CacheProbes:
    """What was asked of the subject, and of the denominator as its control, for
    guards_on_answers.cache_probe; `trials` only of a subject that `again` makes suspicious."""

    pairs: tuple[ProbedPrompt, ...] = ()
    again: tuple[AskedAgain, ...] = ()
    trials: tuple[RepeatTrial, ...] = ()


def cache_probes(
    job: MeasureJob, engines: Mapping[str, EngineProcess], recording: Recording, pause_idle: bool
) -> CacheProbes:
    """Pairs of prompts the recording has asked and prompts nobody has, and some of its prompts once
    more.

    Raises:
        EngineError: with its arm.
    """
    plan = MeasurementPlan(
        mode="slices" if pause_idle else "abba",
        prompts=len(job.requests),
        seed=job.seed,
        pause_idle=pause_idle,
    )
    both = {label: engines[label] for label in (job.subject, job.denominator)}
    asked = sorted({run.request for run in recording.runs})
    again = ask_again(both, job.requests, asked, plan)
    state = kept_state(recording, again, job.subject, job.denominator)
    trials: tuple[RepeatTrial, ...] = ()
    if state is not None and state.suspicious:
        trials = ask_repeatedly(both, job.subject, job.requests, plan)
    pairs = probe_caches(both, job.requests, asked, plan, job.subject, job.denominator)
    return CacheProbes(pairs, again, trials)


def served_facts(engines: Mapping[str, EngineProcess]) -> dict[str, dict[str, Any]]:
    """Each arm's /server_info by label, less what would fill the ledger.

    Raises:
        EngineError: with its arm.
    """
    found: dict[str, dict[str, Any]] = {}
    for label, engine in engines.items():
        with blaming(label):
            info = engine.client().server_info()
        found[label] = {
            key: value for key, value in info.items() if len(json.dumps(value)) <= _MOST_FACT_BYTES
        }
    return found


def processor_seconds(engines: Mapping[str, EngineProcess]) -> dict[str, float]:
    """User and system seconds of each arm's processes so far, ended children included."""
    return {label: _processor_seconds(engine.pid) for label, engine in engines.items()}


def _processor_seconds(pid: int) -> float:
    total = 0.0
    with suppress(psutil.Error):
        leader = psutil.Process(pid)
        for process in (leader, *leader.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total
