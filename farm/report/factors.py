"""The words for what stands behind a ratio: its two factors, its shrunken value, how many
candidates were screened and at what level the winner was confirmed."""

from __future__ import annotations

from farm.report.words import NOT_MEASURED, ratio
from farm.results import CampaignReport, CandidateResult


def shrunken(candidate: CandidateResult) -> str:
    """`1.210`."""
    value = candidate.ratio_shrunken
    return NOT_MEASURED if value is None else f"{value:.3f}"


def factors(candidate: CandidateResult) -> str | None:
    """`accept length x1.170 [1.100, 1.240], steps/s x1.040 [1.010, 1.070], shrunken to x1.210`;
    None where nothing was timed."""
    if candidate.tau_interval is None or candidate.step_interval is None:
        return None
    text = (
        f"accept length x{ratio(candidate.tau_interval)}, steps/s x{ratio(candidate.step_interval)}"
    )
    if candidate.ratio_shrunken is not None:
        text += f", shrunken to x{shrunken(candidate)}"
    return text


def screening_line(report: CampaignReport) -> str | None:
    """`9 candidates screened; confirmation at 98.33 %`; None for reports older than the count."""
    if not report.candidates_screened:
        return None
    text = f"{report.candidates_screened} candidates screened"
    if report.confirmation_confidence is not None:
        text += f"; confirmation at {100 * report.confirmation_confidence:.4g} %"
    return text


def factor_rows(report: CampaignReport) -> list[tuple[str, str, str, str, str]]:
    """mechanism, measured to its baseline, accept length, steps a second, shrunken to stock: of
    every candidate whose factors were measured, in the report's order."""
    return [
        (
            c.mechanism,
            ratio(c.to_baseline),
            ratio(c.tau_interval),
            ratio(c.step_interval),
            shrunken(c),
        )
        for c in report.candidates
        if c.tau_interval is not None
    ]
