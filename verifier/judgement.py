"""From a forcing report to one word: lossless, not_lossless, cheating or inconclusive.

Fails closed: whatever is missing, too small or not a number never ends as lossless.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from verifier.calibration import Calibration
from verifier.policy import MarginPolicy
from verifier.proportions import difference_bounds, wilson
from verifier.report import ForcingReport
from verifier.request_checks import RequestProblem

Status = Literal["lossless", "not_lossless", "cheating", "inconclusive"]


@dataclass(frozen=True)
class LosslessJudgement:
    """`reason` is one sentence; `evidence` is JSON-serialisable and holds every number used."""

    status: Status
    reason: str
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def lossless(self) -> bool:
        return self.status == "lossless"


def judge(
    report: ForcingReport,
    calibration: Calibration | None,
    policy: MarginPolicy,
    exact: ForcingReport | None = None,
    hidden: ForcingReport | None = None,
) -> LosslessJudgement:
    """Decide about one candidate. Where it is refused, evidence says `caught_by` which check and
    `caught_in` which answers (timed, verifier_set, fp32_exact).

    Args:
        report: the candidate's own answers forced on stock of its setting.
        calibration: the A/A the near-tie rate is compared with; without one a near-tie policy
            can only refuse or stay inconclusive.
        exact: answers of the same tree on the FP32 twin, forced there.
        hidden: its answers to the verifier-only prompts. Their near-tie rate is shown and not
            tested: the calibration saw text of another kind.
    """
    evidence: dict[str, Any] = {"policy": asdict(policy), "forcing": report.totals()}
    if calibration is not None:
        evidence["calibration"] = calibration.summary()
    if exact is not None:
        evidence["exact"] = {**exact.totals(), "by_family": exact.by_family()}
    if hidden is not None:
        evidence["verifier_set"] = {**hidden.totals(), "by_family": hidden.by_family()}

    def end(status: Status, reason: str) -> LosslessJudgement:
        return LosslessJudgement(status, reason, evidence)

    for where, name, batch in (
        ("timed", "", report),
        ("verifier_set", "verifier-only prompts: ", hidden),
        ("fp32_exact", "FP32-exact: ", exact),
    ):
        fault = None if batch is None else _fault(batch)
        if fault is not None:
            caught_by, reason = fault
            evidence["caught_by"] = "fp32_exact" if where == "fp32_exact" else caught_by
            evidence["caught_in"] = where
            return end("not_lossless", name + reason)
    if policy.kind == "near_tie":
        if calibration is None or policy.delta is None:
            return end("inconclusive", "no A/A calibration: the near-tie rate cannot be tested")
        status, reason = _rate_test(report, calibration, policy, policy.delta, evidence)
        if status == "not_lossless":
            evidence |= {"caught_by": "near_tie_rate", "caught_in": "timed"}
        if status != "lossless":
            return end(status, reason)
    if policy.requires_exact and exact is None:
        return end("inconclusive", "the FP32-exact run of this tree is missing")
    checked = _distinct_tokens(report, hidden, exact)
    evidence["tokens_towards_detection"] = checked
    if checked < max(policy.min_tokens_detect, 1):
        return end(
            "inconclusive",
            f"{checked} distinct tokens checked; {policy.min_tokens_detect} are needed to have met "
            f"one wrong token in {policy.detect_one_in} with 95 %",
        )
    return end("lossless", f"{checked} distinct tokens checked, none wrong")


def _distinct_tokens(*batches: ForcingReport | None) -> int:
    """Fresh tokens of all batches; what the FP32 twin was asked as well counts once."""
    counted: set[str] = set()
    total = 0
    for batch in batches:
        rows = () if batch is None else batch.rows
        total += sum(row.fresh_tokens for row in rows if row.request_id not in counted)
        counted |= {row.request_id for row in rows}
    return total


def judge_malformed(problems: list[RequestProblem]) -> LosslessJudgement:
    """The judgement of a batch that is not worth forcing; `problems` must not be empty."""
    first = problems[0]
    status: Status = "cheating" if any(p.forged for p in problems) else "not_lossless"
    where = f"request {first.request_id}: " if first.request_id else ""
    return LosslessJudgement(
        status,
        f"malformed answers ({first.kind}): {where}{first.detail}",
        {
            "problems": [asdict(p) for p in problems[:20]],
            "problem_count": len(problems),
            "caught_by": "requests",
        },
    )


def _fault(report: ForcingReport) -> tuple[str, str] | None:
    """The check that caught it, and what it saw."""
    bad = report.first_bad
    if bad is None:
        return None
    where = f"request {bad.request_id}, position {bad.first_bad_position}"
    if any(r.not_finite for r in report.rows):
        reason = f"values that are not finite, or tokens outside stock's reach; first: {where}"
        return "token_forcing", reason
    if report.mismatches:
        return "token_forcing", (
            f"{report.mismatches} of {report.tokens_checked} tokens are not stock's choice "
            f"(worst gap {report.worst_gap_ulps:g} {report.unit}); first: {where}"
        )
    return "ending", f"wrong end of answer ({bad.end_reason}); {where}"


def _rate_test(
    report: ForcingReport,
    calibration: Calibration,
    policy: MarginPolicy,
    delta: float,
    evidence: dict[str, Any],
) -> tuple[Status, str]:
    """Non-inferiority of the near-tie rate; each sample is divided by its own design effect."""
    candidate, stock = report.near_tie_rate(), calibration.stock.rate
    design = {"candidate": report.design_effect(), "stock": calibration.stock.design_effect}
    low, high = difference_bounds(
        candidate.effective(design["candidate"]), stock.effective(design["stock"])
    )
    evidence["near_tie_rate"] = {
        "candidate": candidate.value,
        "candidate_wilson95": list(wilson(candidate)),
        "stock": stock.value,
        "difference_low95": low,
        "difference_high95": high,
        "delta": delta,
        "design_effect": design,
        "fresh_tokens": report.fresh_tokens,
        "min_tokens": policy.min_tokens,
        "method": "Newcombe difference of Wilson intervals, one-sided 95 % bounds",
    }
    rates = f"near-tie rate {candidate.value:.2%} against stock's {stock.value:.2%}"
    enough = report.fresh_tokens >= policy.min_tokens
    if enough and high < delta:
        return "lossless", f"{rates}: at most {high:.2%} more"
    if low > delta / 2:
        return "not_lossless", f"{rates}: at least {low:.2%} more (delta {delta:.2%})"
    if not enough:
        return (
            "inconclusive",
            f"{report.fresh_tokens} distinct tokens, the near-tie rate needs {policy.min_tokens}",
        )
    return "inconclusive", f"{rates}: up to {high:.2%} more, delta is {delta:.2%}"
