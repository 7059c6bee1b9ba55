from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from farm.report.plot import broken, plot_candidates, plot_report, size_px
from farm.verdicts import Verdict
from tests.farm.report.samples import candidate, sample_report

GREEN, BAND = (0x00, 0x9E, 0x73), (0xCD, 0xE8, 0xF8)


def pixels(path: Path, colour: tuple[int, int, int]) -> int:
    image = np.asarray(imread(path))[..., :3]
    return int((np.abs(image * 255 - np.array(colour)).max(axis=-1) < 6).sum())


def test_the_figure_has_the_announced_size_and_shows_verdicts_and_floor(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ratios.png"
    plot_report(sample_report(), path)
    width, height = size_px(8)
    assert imread(path).shape[:2] == (height, width)
    assert pixels(path, GREEN) > 500
    assert pixels(path, BAND) > 5000


def test_without_an_accepted_one_and_without_a_floor_neither_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "ratios.png"
    lost = candidate(1, "m", Verdict.NOT_FASTER, "r", 0.98)
    plot_report(replace(sample_report(), aa=None, aa_floor=None, candidates=(lost,)), path)
    assert pixels(path, GREEN) == 0
    assert pixels(path, BAND) == 0


@pytest.mark.parametrize("ratio", [None, 1.0, float("nan")])
def test_candidates_without_a_usable_ratio_are_drawn(tmp_path: Path, ratio: float | None) -> None:
    path = tmp_path / "ratios.png"
    plot_candidates((candidate(1, "x" * 60, Verdict.CRASHED, "r", ratio),), path)
    assert imread(path).shape[1] == size_px(1)[0]


def test_no_candidate_yet_is_drawn(tmp_path: Path) -> None:
    plot_report(replace(sample_report(), candidates=()), tmp_path / "r.png")
    assert (tmp_path / "r.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("fused_cpp_ops+confident_block_length", ["fused_cpp_ops+", "confident_block_length"]),
        ("block_length_by_recent_acceptance", ["block_length_by_recent_", "acceptance"]),
        ("odd_one (planted: planted_lossy)", ["odd_one (planted:", "planted_lossy)"]),
        ("x" * 30, ["x" * 26, "xxxx"]),
    ],
)
def test_long_names_break_between_their_parts(name: str, lines: list[str]) -> None:
    assert broken(name, 26).split("\n") == lines
