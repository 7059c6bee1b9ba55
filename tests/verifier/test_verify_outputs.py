"""The command on files of outputs; stock is an oracle with the tiny target's vocabulary."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from engines.answers import Answer
from tests.verifier.oracle import OracleModel, launcher, request
from tests.verifier.settings_for_tests import FOLDER, tiny
from tests.verifier.test_calibration import batch
from verifier.calibration import calibrate
from verifier.calibration_file import save_calibration
from verifier.verify_outputs import calibration_path, main

Command = Callable[..., tuple[int, list[dict[str, object]]]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Writes answers to a file and runs `main --json` on it; returns exit code and events."""
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))

    def run(answers: list[Answer], model: OracleModel, *, dtype: str = "fp32"):  # type: ignore[no-untyped-def]
        setting = str(FOLDER / ("tiny-fp32" if dtype == "fp32" else "tiny"))
        file = tmp_path / "outputs.jsonl"
        lines = [
            {
                "id": a.request.id,
                "prompt_ids": list(a.request.prompt_ids),
                "output_ids": list(a.output_ids),
                "finish_reason": a.finish_reason,
                "max_new_tokens": a.request.max_new_tokens,
                "ignore_eos": a.request.ignore_eos,
            }
            for a in answers
        ]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        code = main([setting, "--outputs", str(file), "--json"], launcher({setting: model}))
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_enough_clean_fp32_tokens_are_lossless(command: Command) -> None:
    model = OracleModel(2, bf16=False)
    answers = [model.generate(request(n, tokens=100)) for n in range(30)]
    code, events = command(answers, model)
    assert code == 0 and len(events) == 31
    total = events[-1]
    assert (total["verdict"], total["tokens_checked"], total["mismatches"]) == ("lossless", 3000, 0)
    assert events[0]["request_id"] == "r0" and events[0]["tokens_checked"] == 100
    power = total["power"]
    assert isinstance(power, dict)
    assert (power["tokens_for_one_in_1000"], power["tokens"], power["wrong"]) == (2995, 3000, 0)
    assert power["wrong_rate_upper95"] == pytest.approx(1 - 0.05 ** (1 / 3000))
    assert "FP32" in str(total["rules"])


def test_a_wrong_token_is_named(command: Command) -> None:
    model = OracleModel(2, bf16=False)
    good = model.generate(request(0))

    def choose(row: np.ndarray, position: int) -> int:
        return int(row.argmin() if position == 11 else row.argmax())

    code, events = command([good, model.generate(request(1), choose)], model)
    assert code == 1
    assert events[-1]["verdict"] == "not_lossless"
    assert events[-1]["first_bad_position"] == "r1:11"
    assert [e["mismatches"] for e in events] == [0, 1, 1]


def test_few_tokens_and_no_calibration_stay_inconclusive(command: Command) -> None:
    model = OracleModel(2)
    answers = [model.generate(request(0))]
    code, events = command(answers, model, dtype="bf16")
    assert code == 1 and events[-1]["verdict"] == "inconclusive"
    assert "calibration" in str(events[-1]["reason"])


def test_a_stored_calibration_is_used(command: Command) -> None:
    model = OracleModel(2)
    save_calibration(calibrate(tiny(), batch(100), batch(100)), calibration_path(tiny()))
    answers = [model.generate(request(n, tokens=100)) for n in range(31)]
    code, events = command(answers, model, dtype="bf16")
    assert code == 0, events[-1]["reason"]
    evidence = events[-1]["evidence"]
    assert isinstance(evidence, dict) and evidence["near_tie_rate"]["candidate"] == 0.0
    power, rules = events[-1]["power"], str(events[-1]["rules"])
    assert isinstance(power, dict) and power["delta"] == pytest.approx(1 / 64)
    assert f"N = {power['near_tie_tokens']} distinct tokens" in rules and "delta = 1.56%" in rules


def test_another_setting_of_the_same_name_has_its_own_calibration() -> None:
    setting = tiny()
    shorter = setting.decoding.model_copy(update={"max_new_tokens": 5})
    other = setting.model_copy(update={"decoding": shorter})
    assert calibration_path(setting) == calibration_path(tiny())
    assert other.name == setting.name and calibration_path(other) != calibration_path(setting)
    resumed = setting.model_copy(update={"summary": "said in other words"})
    assert calibration_path(resumed) == calibration_path(setting)


def test_a_calibration_too_small_to_decide_counts_as_none(command: Command) -> None:
    model = OracleModel(2)
    save_calibration(calibrate(tiny(), batch(2), batch(2)), calibration_path(tiny()))
    answers = [model.generate(request(n, tokens=100)) for n in range(31)]
    code, events = command(answers, model, dtype="bf16")
    assert code == 1 and events[-1]["verdict"] == "inconclusive"
    assert events[-1]["tokens_checked"] == 3100


def test_usage_errors_exit_2(
    tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    model = OracleModel(2)
    far = Answer(request(0), (3, 99_999), "length")
    code, events = command([far], model)
    assert code == 2 and "output_ids" in str(events[-1]["message"])
    absent = tmp_path / "absent.jsonl"
    setting = str(FOLDER / "tiny")
    assert main([setting, "--outputs", str(absent)], lambda _: nullcontext(model.force)) == 2
    assert "absent.jsonl" in capsys.readouterr().err
    assert main(["nosuch", "--outputs", str(absent)]) == 2


def test_table_shows_totals_and_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "120")
    model = OracleModel(2, bf16=False)
    answer = model.generate(request(0))
    file = tmp_path / "o.jsonl"
    line = {
        "id": "only",
        "prompt_ids": [0, 3, 5],
        "output_ids": list(answer.output_ids),
        "finish_reason": "length",
        "ignore_eos": True,
    }
    file.write_text(json.dumps(line))
    setting = str(FOLDER / "tiny-fp32")
    assert main([setting, "--outputs", str(file)], launcher({setting: model})) == 1
    out = capsys.readouterr().out
    assert "only" in out and "total" in out and "verdict: inconclusive" in out
    assert "rules: At least 2995 distinct tokens must be checked" in out
    assert "power: With 0 wrong in 40, up to 7.216% (one token in 14) could be wrong" in out
