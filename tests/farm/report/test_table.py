from dataclasses import replace

import pytest

from farm.report.table import report_text
from farm.report.words import ordered
from tests.farm.report.samples import sample_report


def rows(text: str) -> dict[str, str]:
    """The table's lines by their first word."""
    return {line.split()[0]: line for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("width", [100, 108, 120, 160])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(width: int) -> None:
    report = sample_report()
    text = report_text(report, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    for candidate in report.candidates:
        for interval in (candidate.to_stock, candidate.to_ar):
            if interval is not None:
                assert f"{interval.ratio:.3f}" in text
                assert f"[{interval.low:.3f}, {interval.high:.3f}]" in text
        assert candidate.decision.verdict.value in text
        assert candidate.decision.reason.split()[0] in text


def test_a_row_holds_every_count_of_its_candidate() -> None:
    text = report_text(sample_report(), 140)
    line = next(x for x in text.splitlines() if x.startswith("second_best_token (planted)"))
    assert line.split()[2:] == [
        *("1.350", "[1.323,", "1.377]", "2.174", "[2.124,", "2.224]"),
        *("1.17", "x", "1.04", "3", "29", "512/512", "not_lossless"),
    ]


def test_in_eighty_columns_every_row_still_ends_with_its_verdict() -> None:
    text = report_text(sample_report(), 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    line = next(x for x in text.splitlines() if "not_lossless" in x)
    assert line.split()[-3:] == ["29", "512/512", "not_lossless"]
    assert "to AR" not in text.split("mechanism")[1].split("accepted")[0]


def test_rows_stand_in_the_common_order() -> None:
    lines = report_text(sample_report(), 140).splitlines()
    names = [c.mechanism for c in ordered(sample_report())]
    starts = [next(i for i, x in enumerate(lines) if x.startswith(name)) for name in names]
    assert starts == sorted(starts)


def test_header_gives_noise_and_references_with_their_baselines() -> None:
    text = report_text(sample_report(), 120)
    assert "1.003 [0.986, 1.021]   floor 1.021" in text
    assert "1.310 [1.250, 1.370] to transformers-5.24" in text
    assert "1.610 [1.560, 1.660] to native-1f0c1f0c1f0c-ar" in text
    assert "1.274 [1.244, 1.304] to native-1f0c1f0c1f0c\n" in text
    assert "2.050 [1.980, 2.120] to native-1f0c1f0c1f0c-ar" in text


def test_footer_names_the_engine_and_the_command_only_when_there_is_one() -> None:
    assert rows(report_text(sample_report()))["Serve"] == (
        "Serve it: scripts/serve.sh cpu_c1_smollm2-135m_ngram final cpu"
    )
    empty = report_text(replace(sample_report(), promoted=None, candidates=()))
    assert "Serve it" not in empty
    assert "Promoted: nothing" in empty


def test_a_report_without_measurements_is_printed() -> None:
    report = replace(
        sample_report(), aa=None, aa_floor=None, ar_to_reference=None, stock_to_ar=None
    )
    assert "floor not measured" in report_text(report)
