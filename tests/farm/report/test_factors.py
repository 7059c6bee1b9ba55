"""The words for factors, shrunken ratios and levels."""

from __future__ import annotations

from dataclasses import replace

from farm.report.factors import factor_rows, factors, screening_line, shrunken
from farm.report.markdown import render_markdown
from farm.report.table import report_text
from farm.results import CampaignReport, CandidateResult
from tests.farm.report.samples import interval, sample_report


def decomposed() -> CampaignReport:
    report = sample_report()
    first: CandidateResult = replace(
        report.candidates[0],
        to_baseline=interval(1.222, 0.027),
        tau_interval=interval(1.170, 0.020),
        step_interval=interval(1.044, 0.010),
        ratio_shrunken=1.2154,
    )
    return replace(
        report,
        candidates=(first, *report.candidates[1:]),
        candidates_screened=5,
        confirmation_confidence=1 - 0.05 / 3,
    )


def test_factors_and_shrunken_in_words() -> None:
    report = decomposed()
    assert factors(report.candidates[0]) == (
        "accept length x1.170 [1.150, 1.190], steps/s x1.044 [1.034, 1.054], shrunken to x1.215"
    )
    assert factors(report.candidates[1]) is None
    assert shrunken(report.candidates[1]) == "-"
    assert len(factor_rows(report)) == 1


def test_how_many_were_screened_and_at_which_level() -> None:
    report = decomposed()
    assert screening_line(report) == "5 candidates screened; confirmation at 98.33 %"
    assert screening_line(replace(report, confirmation_confidence=None)) == "5 candidates screened"
    assert screening_line(sample_report()) is None


def test_table_and_page_show_them() -> None:
    report = decomposed()
    text, page = report_text(report, width=120), render_markdown(report)
    assert "98.33 %" in text and "98.33 %" in page
    assert "shrunken to" in text.replace("\n", " ")
    assert "1.170 [1.150, 1.190] | 1.044 [1.034, 1.054] | 1.215 |" in page
    assert "## Accept length" not in render_markdown(sample_report())
