from dataclasses import replace

import pytest

from farm.report import words
from farm.results import LosslessSummary, RatioInterval
from farm.verdicts import Verdict
from tests.farm.report.samples import candidate, sample_report


def test_ratio_shows_three_decimals_and_both_bounds() -> None:
    assert words.ratio(RatioInterval(1.23449, 1.1, 1.3, "b", 3, "m")) == "1.234 [1.100, 1.300]"
    assert words.ratio(None) == "-"


def test_exact_is_matched_over_checked() -> None:
    row = candidate(1, "m", Verdict.NOT_LOSSLESS, "r", 1.1)
    assert words.exact(row) == "512/512"
    assert words.exact(replace(row, lossless=LosslessSummary(9, 0, 0, 0.0, None, 512, 7))) == (
        "505/512"
    )
    assert words.exact(replace(row, lossless=LosslessSummary(9, 0, 0, 0.0, None))) == "-"


def test_accepted_come_first_then_faster_then_untimed() -> None:
    names = [c.mechanism for c in words.ordered(sample_report())]
    assert names[:3] == ["merge-1", "token_recycling", "fused_norm_cpp"]
    assert names[3] == "second_best_token"
    assert names[-1] == "spin_threads"


@pytest.mark.parametrize("name", ["c08", f"{8:040x}", f"{264:040x}", "merge-1"])
def test_promoted_is_found_by_any_of_its_names(name: str) -> None:
    found = words.promoted_candidate(replace(sample_report(), promoted=name))
    assert found is not None and found.candidate_id == "c08"


def test_nothing_promoted_says_so() -> None:
    report = replace(sample_report(), promoted=None)
    assert words.promoted_candidate(report) is None
    assert "nothing" in words.promotion_line(report)


def test_the_serve_command_follows_the_setting() -> None:
    assert words.serve_command("cpu_c1_x") == "scripts/serve.sh cpu_c1_x final cpu"
    assert words.serve_command("h100_c1_x", "stock") == "scripts/serve.sh h100_c1_x stock 0"
