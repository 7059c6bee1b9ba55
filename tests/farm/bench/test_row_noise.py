"""BF16's noise on random ids: what is compared with what, and a tiny run end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.forcing import ForcedPosition
from farm.bench.row_noise import _compared, main, row_noise
from settings.errors import SpecfarmError

SETTINGS = Path(__file__).resolve().parents[2] / "data" / "settings"
TINY = str(SETTINGS / "tiny")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))


def position(*top: tuple[int, float]) -> ForcedPosition:
    return ForcedPosition(token_id=top[0][0], token_logit=top[0][1], top=top, raw=True)


def test_values_that_move_and_choices_that_fall_are_counted() -> None:
    # An ULP is 0.125 from 16 to 32.
    whole = [position((5, 20.0), (6, 19.5)), position((5, 20.0), (6, 19.0)), position((5, 20.0))]
    other = [position((5, 20.25)), position((6, 22.5), (5, 20.0)), position((9, 20.0), (5, 19.0))]
    (noise,) = _compared({"one pass": whole, "8 rows a pass": other}, allowed=4.0)
    assert (noise.way, noise.positions) == ("8 rows a pass", 3)
    assert noise.furthest == (20.0, 2.0, 0.0)
    # Token 6 is eight ULPs below the pass's best, 9 is below all that the pass names (0 here).
    assert (noise.over_limit, noise.wrong) == (1, 1)


def test_bf16_lies_near_fp32_on_the_tiny_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([TINY, "--texts", "3", "--tokens", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["way"], row["positions"]) for row in found] == [
        ("8 rows a pass", 60),
        ("FP32, one pass", 60),
    ]
    for row in found:
        assert 0.0 < row["furthest"][0] < 16.0 and row["over_limit"] == 0
    assert main([TINY, "--texts", "1", "--tokens", "5", "--no-start"]) == 0
    assert "5 positions; best value moved by" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecfarmError, match="max_total_tokens"):
        row_noise(TINY, 1, 100_000, 4.0)
    assert main([str(SETTINGS / "tiny-fp32"), "--tokens", "5"]) == 2
    assert "exact_twin" in capsys.readouterr().err
