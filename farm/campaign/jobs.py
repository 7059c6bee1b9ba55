"""Jobs the loop hands to workers and what comes back: frozen, picklable, JSON where stored.

A `MeasureJob` is everything one device does for one candidate: launch the arms, warm them, time
them interleaved, then (untimed) let the candidate answer the exact twin's prompts. A `VerifyJob`
is what the verifier does with the answers. Neither decides anything about speed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engines.answers import GenerationRequest
from settings.schema import ArmName
from settings.verifier_prompts import VerifierPrompt


@dataclass(frozen=True)
class ArmSpec:
    """One resident engine of a measurement. `label` is unique in the job (`candidate`, `stock`,
    `stock_b`); `arm` is the launch arm; `engine` a name of the engine registry."""

    label: str
    arm: ArmName
    engine: str
    commit: str
    tree_hash: str


@dataclass(frozen=True)
class MeasureJob:
    """Timed, interleaved answers of all arms to `requests`, and exact answers of one of them.

    `subject` is the label of the arm a failure is blamed on; its ratio to the arm `denominator` may
    end the measurement early (one that cannot reach `bar`, the least ratio that could be accepted,
    unless `stop_losers` is off). `exact_requests`, and one verifier-only prompt of each kind after
    them, are answered by `subject` on the setting's exact twin, unless it was dropped early.
    `bundles` are git bundles that together hold every commit of `arms`. With `every_prompt` each
    request is answered at least once however long it takes: a confirmation needs its tokens.
    `verifier_prompts` are asked of `subject` after the timed part, untimed, unless it was dropped
    early.
    """

    unit: str
    setting: str
    arms: tuple[ArmSpec, ...]
    requests: tuple[GenerationRequest, ...]
    subject: str
    denominator: str
    seconds: float
    seed: int
    bundles: tuple[bytes, ...] = ()
    exact_setting: str | None = None
    exact_requests: tuple[GenerationRequest, ...] = ()
    stop_losers: bool = True
    every_prompt: bool = False
    bar: float = 1.0
    verifier_prompts: tuple[VerifierPrompt, ...] = ()


@dataclass(frozen=True)
class MeasureOutcome:
    """`status`: ok, crashed, timeout, malformed, out_of_memory (of `blamed`), or
    invalid_environment.

    `recording` is farm.bench's JSON; `exact_answers` the twin's answers as JSON (None when not
    run); `clear_loser` and `out_of_reach` say that it was dropped early (slower; not fast enough to
    be accepted); `verifier_requests` are those sent for the verifier-only prompts, and
    `verifier_answers` what came back, as JSON; `warm` each arm's warm-up by label; `seconds` the
    wall time of the whole job, of which `waited_s` went by before it began, while somebody else was
    timing on the machine.

    For the guards: `served` is each arm's /server_info after the timed part, by label; `probes` are
    farm.bench.cache_probe's, `asked_again` farm.bench.kept_state's and `repeat_trials`
    farm.bench.repeat_trials', as JSON; `escaped` names, by label, processes that had left their
    engine's session and outlived its end; `cpu_s` are processor seconds of each arm's processes in
    the timed part.
    """

    status: str
    blamed: str | None = None
    error: str = ""
    recording: dict[str, Any] | None = None
    exact_answers: list[dict[str, Any]] | None = None
    clear_loser: bool = False
    out_of_reach: bool = False
    warm: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    verifier_requests: list[dict[str, Any]] = field(default_factory=list)
    verifier_answers: list[dict[str, Any]] = field(default_factory=list)
    waited_s: float = 0.0
    served: dict[str, dict[str, Any]] = field(default_factory=dict)
    probes: list[dict[str, Any]] = field(default_factory=list)
    asked_again: list[dict[str, Any]] = field(default_factory=list)
    repeat_trials: list[dict[str, Any]] = field(default_factory=list)
    escaped: dict[str, list[str]] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class VerifyJob:
    """`calibrate` stores the A/A calibration from `stock_answers` and `ar_answers`; otherwise
    `answers` (and `exact_answers`, and `verifier_answers` to `verifier_requests`) of a candidate
    are token-forced and judged. `restarted_answers` are of another process of stock. Calibration
    travels in every job so that any verifier, a restarted one too, judges alike. `final` asks for
    the strict policy of a confirmation (more tokens) instead of the screening one."""

    unit: str
    setting: str
    stock_commit: str
    stock_tree: str
    bundle: bytes = b""
    calibrate: bool = False
    ar_answers: tuple[dict[str, Any], ...] = ()
    stock_answers: tuple[dict[str, Any], ...] = ()
    answers: tuple[dict[str, Any], ...] = ()
    exact_setting: str | None = None
    exact_answers: tuple[dict[str, Any], ...] | None = None
    calibration: dict[str, Any] | None = None
    final: bool = False
    restarted_answers: tuple[dict[str, Any], ...] = ()
    verifier_requests: tuple[dict[str, Any], ...] = ()
    verifier_answers: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class VerifyOutcome:
    """`status`: lossless, not_lossless, cheating, inconclusive, calibrated, invalid_environment.
    `summary` is a farm.results.LosslessSummary as JSON; `evidence` is the verifier's own;
    `waited_s` as in a `MeasureOutcome`."""

    status: str
    reason: str
    summary: dict[str, Any] | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    calibration: dict[str, Any] | None = None
    waited_s: float = 0.0


Job = MeasureJob | VerifyJob
Outcome = MeasureOutcome | VerifyOutcome
