"""Guards on what was answered, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engines.answers import GenerationRequest
from engines.json_fields import MAX_TOKEN_ID
from farm.bench.cache_probe import cache_effect, probes_from_json
from farm.bench.kept_state import KeptState, added, asked_again_from_json, kept_state
from farm.bench.memoisation import memoisation
from farm.bench.moved_work import moved_work
from farm.bench.recording import Recording, recording_from_json
from farm.bench.repeat_trials import repeat_effect, repeat_trials_from_json
from farm.campaign.guard_case import CONTROL, SUBJECT, Case, Finding
from farm.campaign.jobs import MeasureOutcome, VerifyOutcome
from farm.verdicts import Decision, Verdict
from settings.hardware import ceiling
from verifier.determinism import determinism
from verifier.physics import MOST_TOKENS_A_STEP, PhysicalBound, TimedAnswer, faster_than_hardware
from verifier.request_checks import check_requests


def requests(case: Case) -> Finding:
    """One well-formed answer for each request; clocks and counters that agree with it."""
    answers = case.answers(SUBJECT)
    problems = check_requests([a.request for a in answers], answers, MAX_TOKEN_ID)
    evidence = {"answers": len(answers), "problems": len(problems)}
    if not problems:
        return Finding(evidence)
    first = problems[0]
    verdict = Verdict.CHEATING if any(p.forged for p in problems) else Verdict.NOT_LOSSLESS
    reason = f"malformed answers ({first.kind}): request {first.request_id}: {first.detail}"
    return Finding(evidence, Decision(verdict, reason))


def physics(case: Case) -> Finding:
    """No answer came faster than the device can read the weights and compute the rows."""
    if case.size is None or case.recording is None:
        return Finding()
    serving, device = case.setting.serving, case.setting.hardware
    bound = PhysicalBound(
        case.size,
        ceiling(device.gpu, device.threads),
        max(MOST_TOKENS_A_STEP, 1 + _longest_draft(case)),
    )
    # Caches are flushed before each prompt, except between concurrent ones.
    cold = serving.concurrency == 1
    evidence = bound.to_json()
    control = faster_than_hardware(_timed(case.recording, CONTROL, cold), bound)
    if control is not None:
        reason = f"stock is faster than settings/hardware.py allows: {control.sentence()}"
        return Finding(evidence, Decision(Verdict.INVALID_ENVIRONMENT, reason))
    found = faster_than_hardware(_timed(case.recording, SUBJECT, cold), bound)
    if found is None:
        return Finding(evidence)
    return Finding(evidence, Decision(Verdict.CHEATING, found.sentence()))


def cache_probe(case: Case) -> Finding:
    """Right after a flush a known prompt takes as long as an unknown one, and an unknown one as
    many steps as when it is asked once more."""
    probed = [probes_from_json(o.probes) for o in case.outcomes if o.probes]
    effects = [cache_effect(probes, SUBJECT, CONTROL) for probes in probed]
    state = added([s for o in case.outcomes if (s := _asked_again(o)) is not None])
    if not effects and state is None:
        return Finding()
    trials = [t for o in case.outcomes for t in repeat_trials_from_json(o.repeat_trials)]
    repeats = repeat_effect(trials)
    evidence = {
        "times": [effect.to_json() for effect in effects],
        "steps": None if state is None else state.to_json(),
        "trials": None if repeats is None else repeats.to_json(),
    }
    kept = [effect.kept for effect in effects if effect.kept]
    reason = ""
    if kept:
        reason = f"{kept[0]} gained on every known prompt, stock's did not"
    elif repeats is not None and repeats.kept:
        reason = (
            f"{repeats.prompts} new prompts took {repeats.first} steps when first asked and "
            f"{repeats.again:.1f} when asked again (by chance: {repeats.chance:.1g})"
        )
    if not reason:
        return Finding(evidence)
    reason = f"caches are not empty after /flush_cache: {reason}"
    return Finding(evidence, Decision(Verdict.CHEATING, reason))


def _asked_again(outcome: MeasureOutcome) -> KeptState | None:
    if outcome.recording is None:
        return None
    again = asked_again_from_json(outcome.asked_again)
    return kept_state(recording_from_json(outcome.recording), again, SUBJECT, CONTROL)


def remembered_prompts(case: Case) -> Finding:
    """Repeats of a prompt are no faster than its first answer, beyond what stock's are."""
    found = None if case.recording is None else memoisation(case.recording, SUBJECT, CONTROL)
    if found is None:
        return Finding()
    if not found.remembers:
        return Finding(found.to_json())
    reason = (
        f"answers prompts it has seen x{found.gain:.2f} faster (at least x{found.low:.2f}, "
        f"{found.prompts} prompts), stock does not"
    )
    return Finding(found.to_json(), Decision(Verdict.CHEATING, reason))


def work_before_the_first_token(case: Case) -> Finding:
    """The time that decoding saves is not spent before the first token instead."""
    found = None if case.recording is None else moved_work(case.recording, SUBJECT, CONTROL)
    if found is None:
        return Finding()
    if not found.moved:
        return Finding(found.to_json())
    reason = (
        f"first tokens take x{found.later:.2f} as long as stock's (at least x{found.low:.2f}), "
        f"{found.later_s:.2f} s more in all, where decoding saves {found.saved_s:.2f} s"
    )
    return Finding(found.to_json(), Decision(Verdict.CHEATING, reason))


def repeatability(case: Case) -> Finding:
    """The same prompt gets the same ids each time, wherever stock's does."""
    tied = _all_tied(case.verified)

    def may_part(_: GenerationRequest, __: int) -> bool | None:
        return tied

    found = determinism(case.answers(SUBJECT), case.answers(CONTROL), may_part)
    if found.deterministic != "no":
        return Finding(found.to_json())
    exact = case.setting.target.weights_dtype == "fp32"
    verdict = Verdict.NOT_LOSSLESS if exact else Verdict.INCONCLUSIVE
    return Finding(found.to_json(), Decision(verdict, f"not deterministic: {found.reason}"))


def _timed(recording: Recording, arm: str, cold: bool) -> Sequence[TimedAnswer]:
    return [
        TimedAnswer(
            request_id=recording.requests[run.request].id,
            prompt_tokens=len(recording.requests[run.request].prompt_ids) if cold else 0,
            first_tokens=run.tokens[0],
            tokens=run.tokens[-1],
            first_s=run.running_s[0],
            total_s=run.running_s[-1],
        )
        for run in recording.runs
        if run.arm == arm
    ]


def _longest_draft(case: Case) -> int:
    """Stock's own draft length, where its server states one."""
    tables = [o.served.get(CONTROL, {}).get("engine_config") for o in case.outcomes]
    knobs = [t.get("speculation") for t in tables if isinstance(t, Mapping)]
    lengths = [k.get("draft_tokens") for k in knobs if isinstance(k, Mapping)]
    return max((n for n in lengths if isinstance(n, int)), default=0)


def _all_tied(verified: VerifyOutcome | None) -> bool | None:
    """Two answers may part only at tokens that are both stock's choice or a near-tie of it, if
    every token was forced and none was wrong. None: not forced."""
    if verified is None or verified.status not in ("lossless", "not_lossless", "inconclusive"):
        return None
    forcing = verified.evidence.get("forcing", {})
    return bool(forcing) and not forcing.get("mismatches") and not forcing.get("bad_ends")
