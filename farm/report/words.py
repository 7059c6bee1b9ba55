"""The words every report uses for the same number, so that table, page and figure agree."""

from __future__ import annotations

from farm.results import CampaignReport, CandidateResult, RatioInterval
from farm.verdicts import Verdict

NOT_MEASURED = "-"
CALLED_DISHONEST = (Verdict.NOT_LOSSLESS, Verdict.CHEATING, Verdict.REFUSED)


def ratio(interval: RatioInterval | None) -> str:
    """`1.234 [1.180, 1.290]`."""
    if interval is None:
        return NOT_MEASURED
    return f"{interval.ratio:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def ratio_with_baseline(interval: RatioInterval | None) -> str:
    """`1.234 [1.180, 1.290] to native-0123abcd`."""
    return NOT_MEASURED if interval is None else f"{ratio(interval)} to {interval.baseline}"


def tau_times_step(candidate: CandidateResult) -> str:
    """`1.20 x 1.05`: accept-length ratio times step-rate ratio."""
    parts = (candidate.tau_ratio, candidate.step_ratio)
    if all(part is None for part in parts):
        return NOT_MEASURED
    return " x ".join("?" if part is None else f"{part:.2f}" for part in parts)


def count(value: int | None) -> str:
    return NOT_MEASURED if value is None else str(value)


def exact(candidate: CandidateResult) -> str:
    """FP32 twin: `matched/checked`."""
    lossless = candidate.lossless
    if lossless is None or lossless.exact_checked is None:
        return NOT_MEASURED
    return f"{lossless.exact_checked - (lossless.exact_mismatches or 0)}/{lossless.exact_checked}"


def label(candidate: CandidateResult) -> str:
    """The mechanism, marked where the farm planted it, with its own name."""
    if not is_canary(candidate):
        return candidate.mechanism
    own = f": {candidate.planted}" if candidate.planted else ""
    return f"{candidate.mechanism} (planted{own})"


def is_canary(candidate: CandidateResult) -> bool:
    return candidate.kind.startswith("canary")


def canary_line(report: CampaignReport) -> str | None:
    """`canaries: 4 planted, 0 false accepts, 0 false rejects`; None where none was planted.

    Nothing planted is faster by honest means, so every acceptance is false; it is a false reject
    when an honest one is called anything but honest."""
    planted = [candidate for candidate in report.candidates if is_canary(candidate)]
    if not planted:
        return None
    accepted = sum(c.decision.verdict is Verdict.ACCEPTED for c in planted)
    rejected = sum(
        c.kind == "canary_noop" and c.decision.verdict in CALLED_DISHONEST for c in planted
    )
    return f"canaries: {len(planted)} planted, {accepted} false accepts, {rejected} false rejects"


def caught_by(candidate: CandidateResult) -> str:
    """The check that decided, as the verdict's evidence names it."""
    found = candidate.decision.evidence.get("caught_by")
    return str(found) if found else NOT_MEASURED


def ordered(report: CampaignReport) -> list[CandidateResult]:
    """Accepted first, then by ratio to stock; what was never timed comes last."""
    return sorted(
        report.candidates,
        key=lambda c: (
            c.decision.verdict is not Verdict.ACCEPTED,
            c.to_stock is None,
            -c.to_stock.ratio if c.to_stock else 0.0,
            c.candidate_id,
        ),
    )


def promoted_candidate(report: CampaignReport) -> CandidateResult | None:
    """The candidate `report.promoted` names, by id, mechanism, commit or tree."""
    for candidate in report.candidates:
        names = (
            candidate.candidate_id,
            candidate.tree_hash,
            candidate.commit,
            candidate.mechanism,
        )
        if report.promoted and report.promoted in names:
            return candidate
    return None


def serve_command(setting: str, arm: str = "final") -> str:
    """The command that serves `arm`; the device follows the setting's name."""
    return f"scripts/serve.sh {setting} {arm} {'cpu' if setting.startswith('cpu_') else '0'}"


def header_lines(report: CampaignReport) -> list[str]:
    """What a reader must know before the table: noise, references, the result."""
    floor = "not measured" if report.aa_floor is None else f"{report.aa_floor:.3f}"
    return [
        f"A/A  stock over stock     {ratio(report.aa)}   floor {floor}",
        f"AR   over reference       {ratio_with_baseline(report.ar_to_reference)}",
        f"stock over AR             {ratio_with_baseline(report.stock_to_ar)}",
        f"final over stock          {ratio_with_baseline(report.final_to_stock)}",
        f"final over AR             {ratio_with_baseline(report.final_to_ar)}",
    ]


def promotion_line(report: CampaignReport) -> str:
    """The promoted engine, or that there is none."""
    if not report.promoted:
        return "Promoted: nothing; stock stays the engine to serve."
    found = promoted_candidate(report)
    tree = f", tree {found.tree_hash[:12]}" if found else ""
    name = label(found) if found else report.promoted
    return f"Promoted: {name}{tree}"
