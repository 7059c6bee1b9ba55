"""Kernel registry, schedules and the parts of check and bench that need no GPU."""

import math
from itertools import product
from pathlib import Path

import pytest
import torch

from kernel_tuner.kernels import check_kernels, list_kernels
from kernel_tuner.kernels.__main__ import main
from kernel_tuner.kernels.bench import Record, summarise
from kernel_tuner.kernels.cases import PRODUCTION, STACKS, random_patterns, random_weight
from kernel_tuner.kernels.registry import KERNELS, kernel
from kernel_tuner.kernels.report import line
from native_engine.kernels import schedule as schedules
from native_engine.kernels.linear import w12_linear
from native_engine.kernels.schedule import Schedule, choose, deepest, launch, token_tiles

H200, RTXPRO6000 = (132, 232_448), (188, 101_376)
SHAPES = [*PRODUCTION, *{shape for stack in STACKS for shape in stack.matrices()}]
SHAPES += [(16, 64), (48, 192), (576, 576), (1040, 1088), (49152, 576), (1024, 4096)]


@pytest.mark.parametrize("chip", [H200, RTXPRO6000])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_matrix_has_a_schedule_that_fits(
    chip: tuple[int, int], shape: tuple[int, int]
) -> None:
    plan = choose(*shape, *chip)
    plan.check(*shape)
    assert plan.groups * plan.cluster <= chip[0]
    assert plan.groups * plan.row_warps * plan.passes(shape[0]) >= shape[0] // 16
    rooms = (2, schedules.USUAL_ROOM, schedules.MAX_ROOM)
    forms = [*((schedules.W12_BYTES, room) for room in rooms), (schedules.RAW_BYTES, 0)]
    both = (False, True)
    for (block, room), tiles, wgmma, dependent in product(forms, schedules.TOKEN_TILES, both, both):
        how = launch(plan, block, room, tiles, chip[1], wgmma=wgmma, dependent=dependent)
        used = how.stages * schedules.stage_bytes(plan, block, room, tiles)
        used += schedules.plane_bytes(plan, block) + schedules.exchange_bytes(plan, tiles)
        assert used <= chip[1] and how.stages >= (1 if room == schedules.MAX_ROOM else 2)
        assert how.stages <= deepest(plan, block, room, tiles, chip[1])
        assert plan.warps(how.grouped) <= schedules.MAX_CONSUMERS


def test_a_schedule_never_depends_on_the_tokens() -> None:
    """`choose` has no such argument: the split of k, hence the order of sums, is the matrix's."""
    assert choose.__code__.co_varnames[: choose.__code__.co_argcount] == (
        "rows",
        "cols",
        "multiprocessors",
        "shared_bytes",
    )


@pytest.mark.parametrize(("tokens", "tiles"), [(1, 1), (8, 1), (9, 2), (25, 4), (33, 6), (64, 8)])
def test_token_tiles(tokens: int, tiles: int) -> None:
    assert token_tiles(tokens) == tiles


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 64 tokens"):
        token_tiles(65)
    with pytest.raises(ValueError, match="N % 16"):
        Schedule(1, 1, 1, 1).check(17, 64)
    with pytest.raises(ValueError, match="one pass"):
        Schedule(1, 1, 1, 2).check(64, 128)
    with pytest.raises(ValueError, match="at most 20"):
        Schedule(1, 1, 11, 2)


def test_planted_escapes_have_the_density_asked_for() -> None:
    weight = random_weight(512, 512, 0.01, "cpu", 1, full_tile=True)
    exponents = (weight.view(torch.int16).to(torch.int32) >> 7) & 0xFF
    assert torch.all(exponents[-16:] == 20)
    rate = float((exponents[:-16] == 20).float().mean())
    assert abs(rate - 0.01) < 4 * math.sqrt(0.01 / exponents[:-16].numel())
    assert torch.isfinite(random_patterns(64, 64, "cpu").float()).all()


def test_stacks_have_the_sizes_of_their_models() -> None:
    billions = {
        stack.name: sum(rows * cols for rows, cols in stack.matrices()) / 1e9 for stack in STACKS
    }
    assert billions["Qwen3.8-27B"] == pytest.approx(25.6, abs=0.1)
    assert billions["Qwen3-8B"] == pytest.approx(7.57, abs=0.01)
    assert billions["Muse-Glimmer-30B"] == pytest.approx(26.5, abs=0.1)


def test_summary_is_a_geomean() -> None:
    def record(us: dict[str, float]) -> Record:
        return Record(16, 64, 0.01, 1, us, {}, {}, "")

    lines = summarise([record({"cublas": 8.0, "w12": 4.0}), record({"cublas": 8.0, "w12": 1.0})])
    assert lines == ["escapes~0.010 M=1   x cuBLAS: w12 4.000"]


def test_cpu_check_reports_what_was_not_run() -> None:
    found = list(check_kernels(quick=True, gpu=False))
    assert [entry.status for entry in found] == ["not_run"]
    assert line("a", "b", False).status == "failed"


def test_list_and_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list_kernels()) == len(KERNELS) and main(["list"]) == 0
    assert "w12_skinny" in capsys.readouterr().out
    with pytest.raises(KeyError, match="w12_skinny"):
        kernel("w11")


def test_pack_command_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["w12-pack", str(tmp_path)]) == 2
    assert "holds no .safetensors" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(48, 128), (33, 70)])
def test_w12_linear_on_the_cpu_is_the_plain_product(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    weight = (0.02 * torch.randn(shape)).bfloat16()
    weight[0, 0] = 0.0
    x, residual = torch.randn(5, shape[1]).bfloat16(), torch.randn(5, shape[0]).bfloat16()
    packed = w12_linear(weight)
    plain = torch.nn.functional.linear(x, weight)
    assert torch.equal(packed(x), plain)
    assert torch.equal(packed.add(x, residual), plain + residual)


@pytest.mark.gpu
def test_gpu_kernels_match_their_oracles() -> None:
    assert all(entry.status == "ok" for entry in check_kernels(quick=True))
