"""Result files and their comparison: what is wrong with a file is named, exit code 2."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farm.bench.cli import arm_of, describe, summary
from farm.bench.compare import DISCLAIMER, main
from farm.bench.errors import MeasurementError
from farm.bench.result_file import BenchResult, read_result, write_result
from farm.statistics.simulate import QUIET, SimulatedArm, simulate


def _write(folder: Path, label: str, slower: float, seed: int = 0, tree: str | None = None) -> Path:
    arm = arm_of(label)
    both = simulate(
        SimulatedArm().slower(slower), SimulatedArm(), QUIET, prompts=6, mode="abba", seed=seed
    ).recording
    runs = tuple(replace(run, arm=arm) for run in both.runs if run.arm == "candidate")
    tree = tree or ("finaltree" if arm == "final" else "stocktree")
    recording = replace(both, runs=runs, trees={arm: tree})
    machine = {"cpu": "a CPU", "logical_cpus": 2}
    result = BenchResult(
        label, "tiny", arm, "cpu", tree, recording, {}, machine, summary(recording, arm)
    )
    assert "decode tokens/s" in describe(result)
    write_result(folder / f"{label}.json", result)
    assert read_result(folder / f"{label}.json") == result
    return folder / f"{label}.json"


def test_ratios_agreement_and_disclaimer(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:  # type: ignore[type-arg]
    stock = [_write(tmp_path, f"stock-{i}", 0.0, seed=0) for i in (1, 2)]
    final = [_write(tmp_path, f"final-{i}", -0.5, seed=0) for i in (1, 2, 3)]
    arguments = ["speed", "--stock", *map(str, stock), "--final", *map(str, final)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("final / stock  x")
    ratio = float(out.split(" x")[1].split()[0])
    assert ratio == pytest.approx(2.0, rel=0.25)
    assert "3 and 2 launches" in out
    assert "18 of 18 answers identical" in out
    assert "accept length" in out
    assert out.strip().endswith(DISCLAIMER)


def _damaged(path: Path, field: str | None, value: object = None) -> str:
    if field is None:
        path.write_text("{")
        return str(path)
    data = json.loads(path.read_text())
    if value is None:
        del data[field]
    else:
        data[field] = value
    path.write_text(json.dumps(data))
    return str(path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (None, None, "not JSON"),
        ("schema", "other", "field schema"),
        ("tree_hash", None, "field tree_hash"),
        ("recording", None, "field recording"),
        ("recording", {"schema": "x"}, "field recording.schema"),
        ("arm", "ar", "field arm is 'ar', given as --final"),
        ("setting", "another", "field setting differs between the files: stock-1 has tiny"),
        ("machine", {"cpu": "another"}, "field machine.cpu differs between the files"),
        ("machine", {"cpu": "a CPU", "logical_cpus": 64}, "stock-1 has 2, final-1 has 64"),
        ("device", "0", "field device differs between the files: stock-1 has cpu, final-1"),
    ],
)
def test_a_bad_file_is_named_with_its_field(
    tmp_path: Path,
    capsys: pytest.CaptureFixture,  # type: ignore[type-arg]
    field: str | None,
    value: object,
    said: str,
) -> None:
    stock = _write(tmp_path, "stock-1", 0.0)
    final = _damaged(_write(tmp_path, "final-1", 0.0), field, value)
    assert main(["speed", "--stock", str(stock), "--final", final]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "final-1" in error
    assert error.startswith("error: ") and error.count("\n") == 1


def test_missing_files_single_arms_and_odd_labels(
    tmp_path: Path,
    capsys: pytest.CaptureFixture,  # type: ignore[type-arg]
) -> None:
    stock = _write(tmp_path, "stock-1", 0.0)
    missing = str(tmp_path / "none.json")
    assert main(["speed", "--stock", str(stock), "--final", missing]) == 2
    assert missing in capsys.readouterr().err
    assert main(["speed", "--stock", str(stock)]) == 2
    for label in ("candidate-1", "final/../x", ""):
        with pytest.raises(MeasurementError, match="names no arm"):
            arm_of(label)


def test_files_that_are_no_launches_of_one_engine(
    tmp_path: Path,
    capsys: pytest.CaptureFixture,  # type: ignore[type-arg]
) -> None:
    stock = str(_write(tmp_path, "stock-1", 0.0))
    ar = str(_write(tmp_path, "ar-1", 0.3))
    other = str(_write(tmp_path, "stock-2", 0.0, tree="later"))
    assert main(["speed", "--stock", stock, "--ar", ar]) == 0
    assert capsys.readouterr().out.startswith("stock / ar  x")
    for arguments, said in (
        (["--stock", stock, stock, "--ar", ar], f"{stock} is given twice"),
        (["--stock", stock, "--ar", ar, stock], f"{stock} is given twice"),
        (["--stock", stock, other, "--ar", ar], "field tree_hash differs between the files"),
        (["--stock", other, "--ar", ar], "ar is stock's tree"),
    ):
        assert main(["speed", *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: command"),
        (["quality"], "invalid choice: 'quality'"),
        (["speed", "--best", "x.json"], "--best"),
        (["speed", "--stock"], "argument --stock: expected at least one argument"),
        (["speed"], "fewer than two arms were given"),
    ],
)
def test_a_mistaken_command_line_is_one_line(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture,  # type: ignore[type-arg]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(str(end.code))
    error = capsys.readouterr().err
    assert code == 2
    assert said in error and error.startswith("error: ") and error.count("\n") == 1
