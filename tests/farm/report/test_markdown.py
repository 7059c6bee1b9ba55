from dataclasses import replace

from farm.report.markdown import render_markdown
from farm.verdicts import Decision, Verdict
from tests.farm.report.samples import sample_report


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_verdict_table_holds_the_numbers_given() -> None:
    lines = render_markdown(sample_report()).splitlines()
    head = cells(next(x for x in lines if x.startswith("| mechanism")))
    row = cells(next(x for x in lines if x.startswith("| token_recycling")))
    found = dict(zip(head, row, strict=True))
    assert found["ratio to stock [95 %]"] == "1.222 [1.195, 1.249]"
    assert found["held-out [95 %]"] == "1.203 [1.172, 1.234]"
    assert found["tokens checked"] == "3071"
    assert found["near-ties"] == "29"
    assert found["verdict"] == "accepted"


def test_references_name_baseline_count_and_method() -> None:
    text = render_markdown(sample_report())
    assert (
        "| AR over reference | 1.310 [1.250, 1.370] | `transformers-5.24` | 12 |"
        " quiet-time slices, bootstrap |"
    ) in text
    assert "A/A floor (upper 95 % bound of stock over stock): 1.021." in text


def test_reasons_machine_and_serve_command_are_there() -> None:
    text = render_markdown(sample_report())
    assert "- **crashed** spin_threads: exit code 1 before /health answered" in text
    assert "- torch: 2.13.0" in text
    assert "scripts/serve.sh cpu_c1_smollm2-135m_ngram final cpu" in text


def test_a_pipe_in_a_name_does_not_break_the_table() -> None:
    report = sample_report()
    odd = replace(
        report.candidates[0], mechanism="a|b", decision=Decision(Verdict.ACCEPTED, "x\ny")
    )
    text = render_markdown(replace(report, candidates=(odd,), promoted=None))
    assert "| a\\|b | 1.222" in text
