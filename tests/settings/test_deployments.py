"""The deployments of the reference work and their H200 twins: what their files must hold."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from settings.baseline import as_baseline
from settings.checkout_weights import main
from settings.errors import SettingError
from settings.hardware import hardware
from settings.loading import list_settings, load_setting
from settings.paths import checkout_root
from settings.schema import RESOLVE, Setting
from settings.table import settings_table, table_in
from settings.weights import ensure_drafter

PUBLISHED = Path(__file__).parents[2] / "engines/native/native_engine/drafters/published.toml"
SIX = (
    "h100_c1_qwen3.8-27b_dflash2",
    "h100_c1_qwen3.8-27b_dspark",
    "rtxpro6000_c1_muse-glimmer-30b_dflash2",
    "h100_c16_qwen3.8-27b-fp8_dflash2",
    "h100_c16_qwen3.8-27b-fp8_dspark",
    "rtxpro6000_c16_qwen3.8-27b-fp8_dflash2",
)
FURTHER = (
    "h200_c1_muse-glimmer-30b_dspark",
    "h200_c1_qwen3-8b_dflash",
    "h200_c1_qwen3-8b_dspark",
)
SMALL_KINDS = ("ngram", "dflash2", "dspark")
SETS = {"gsm8k", "humaneval", "math500", "mbpp", "mtbench"}


def twin_of(name: str) -> str:
    return "h200_" + name.partition("_")[2]


DEPLOYMENTS = sorted({*SIX, *map(twin_of, SIX), *FURTHER})


SMALL = [f"{gpu}_c1_smollm2-135m_{kind}" for gpu in ("cpu", "h200") for kind in SMALL_KINDS]
TWINS = [f"{name}-fp32" for name in SMALL]


def test_all_are_there_and_nothing_else() -> None:
    assert set(list_settings()) == {*DEPLOYMENTS, *SMALL, *TWINS}


@pytest.mark.parametrize("name", SMALL)
def test_the_small_settings_differ_in_drafter_device_and_measurement_alone(name: str) -> None:
    setting, other = load_setting(name), load_setting("cpu_c1_smollm2-135m_ngram")
    gpu, _, _, kind = name.split("_")
    assert (setting.hardware.gpu, setting.drafter.kind) == (gpu, kind)
    assert setting.exact_twin == f"{name}-fp32"
    alike = {"target", "serving", "decoding", "prompts", "engine", "verification"}
    assert setting.model_dump(include=alike) == other.model_dump(include=alike)
    if kind != "ngram":
        checkpoint = setting.drafter.checkpoint
        assert checkpoint is not None and checkpoint.source == "checkout"
        assert checkpoint.path == f"engines/drafters/smollm2-135m-{kind}"
        assert (checkpoint.size_bytes or 0) <= 32_000_000


def test_the_weights_that_ship_are_the_recorded_ones_and_load() -> None:
    """Mend it with: python -m settings.checkout_weights --write."""
    from native_engine.drafters.describe import checked_folder

    for kind in SMALL_KINDS[1:]:
        setting = load_setting(f"cpu_c1_smollm2-135m_{kind}")
        folder = checkout_root() / f"engines/drafters/smollm2-135m-{kind}"
        if not folder.exists():
            pytest.skip(f"{folder} is not here yet")
        assert ensure_drafter(setting) == folder
        config = checked_folder(folder).config
        assert config.kind == kind and config.max_drafts == setting.drafter.draft_tokens
    assert main([]) == 0


@pytest.mark.parametrize("name", SIX)
def test_an_h200_twin_differs_in_the_device_alone(name: str) -> None:
    def facts(setting: Setting) -> dict[str, Any]:
        found = setting.model_dump(exclude={"name", "summary", "status"})
        found["hardware"].pop("gpu")
        return found

    assert facts(load_setting(name)) == facts(load_setting(twin_of(name)))


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_name_says_what_the_file_holds(name: str) -> None:
    setting = load_setting(name)
    gpu, concurrency, target, drafter = name.split("_")
    assert setting.hardware.gpu == gpu and hardware(gpu).is_gpu
    assert setting.serving.concurrency == setting.serving.max_running_requests
    assert concurrency == f"c{setting.serving.concurrency}"
    assert setting.target.name.lower() == target and setting.drafter.kind == drafter
    assert (setting.target.weights_dtype == "fp8") == target.endswith("-fp8")
    assert setting.target.lm_head_dtype == setting.target.kv_dtype == "bf16"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_decoding_prompts_and_weights_are_what_the_bench_asks(name: str) -> None:
    setting = load_setting(name)
    assert setting.decoding.max_new_tokens == 2048 and setting.decoding.temperature == 0
    assert not setting.decoding.ignore_eos
    for sources in (setting.prompts.search, setting.prompts.heldout):
        assert {source.set for source in sources} == SETS
    drafter = setting.drafter.checkpoint
    assert drafter is not None and setting.drafter.draft_tokens is not None
    for checkpoint in (setting.target.checkpoint, drafter):
        assert checkpoint.source == "hub" and checkpoint.size_bytes and checkpoint.licence
    weights = (setting.target.checkpoint.size_bytes or 0) + (drafter.size_bytes or 0)
    assert weights / 1e9 < setting.hardware.memory_gb
    if setting.serving.concurrency > 1:
        blocks = 2 * 4 * setting.serving.concurrency  # farm.bench.blocks: two of 4 prompts a slot
        assert sum(source.count for source in setting.prompts.search) >= blocks
        assert setting.measurement.prompts >= blocks


def test_only_the_muse_dspark_revision_is_open() -> None:
    open_ones = {
        checkpoint.repository
        for name in DEPLOYMENTS
        for setting in [load_setting(name)]
        for checkpoint in (setting.target.checkpoint, setting.drafter.checkpoint)
        if checkpoint is not None and checkpoint.revision == RESOLVE
    }
    assert open_ones == {"DaoCloud/Muse-Glimmer-30B-DSpark"}


def test_the_engine_knows_each_drafter_by_the_same_revision() -> None:
    described = tomllib.loads(PUBLISHED.read_text())
    revisions = {drafter["repository"]: drafter.get("revision") for drafter in described.values()}
    for name in DEPLOYMENTS:
        drafter = load_setting(name).drafter.checkpoint
        assert drafter is not None
        pinned = None if drafter.revision == RESOLVE else drafter.revision
        assert revisions[str(drafter.repository)] == pinned


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_baseline_differs_from_its_plain_arm_in_speculation_alone(name: str) -> None:
    setting = load_setting(name)
    served = as_baseline(setting)
    assert setting.baseline is not None and setting.baseline.label == "sglang-0.5.21"
    assert served.engine.name == "sglang" and served.serving == setting.serving
    plain, stock = (served.engine.arms[arm].args for arm in ("ar", "stock"))
    assert stock[: len(plain)] == plain
    assert all(word.startswith("--speculative-") for word in stock[len(plain) :] if "--" in word)
    algorithm = stock[stock.index("--speculative-algorithm") + 1]
    assert algorithm == setting.drafter.kind.upper().removesuffix("2")
    # SGLang counts DFlash's anchor as a draft token, DSpark's block without it.
    wanted = {"DFLASH": ("num-draft-tokens", 1), "DSPARK": ("dspark-block-size", 0)}
    flag, anchor = wanted[algorithm]
    assert int(stock[stock.index(f"--speculative-{flag}") + 1]) - anchor == (
        setting.drafter.draft_tokens
    )


def test_a_setting_without_baseline_says_what_to_compare_with() -> None:
    with pytest.raises(SettingError, match=r"no \[baseline\].*stock arm of native"):
        as_baseline(load_setting("cpu_c1_smollm2-135m_ngram"))


def test_the_table_in_the_docs_is_the_settings_own() -> None:
    """Mend it with: python -m settings.table --write."""
    assert table_in() == settings_table()
