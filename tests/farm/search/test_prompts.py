"""Requests of a campaign: fixed for the search, drawn by seed and purpose to confirm."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.search.prompts import as_requests, prompt_supply
from settings.loading import load_setting
from settings.prompts import Prompt

SETTING = load_setting("cpu_c1_smollm2-135m_ngram")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Seeds held-out prompts were drawn with; 12 search prompts in three families."""
    seeds: list[str] = []

    def heldout(setting: object, folder: Path, seed: str) -> list[Prompt]:
        seeds.append(seed)
        return [Prompt(f"held/{seed}", "gsm8k", "text", (7,))]

    def search(setting: object, folder: Path) -> list[Prompt]:
        families = ("gsm8k", "humaneval", "mtbench")
        return [Prompt(f"{f}/{n}", f, "text", (n,)) for f in families for n in range(4)]

    monkeypatch.setattr("farm.search.prompts.heldout_prompts", heldout)
    monkeypatch.setattr("farm.search.prompts.search_prompts", search)
    return seeds


def test_held_out_prompts_depend_on_seed_and_purpose(asked: list[str], tmp_path: Path) -> None:
    supply = prompt_supply(SETTING, tmp_path, "secret")
    assert asked == []
    first, again = supply.heldout("confirm:a"), supply.heldout("confirm:a")
    assert first == again
    assert supply.heldout("confirm:b") != first
    assert asked == ["secret:confirm:a", "secret:confirm:a", "secret:confirm:b"]


def test_exact_prompts_are_search_prompts_of_every_family(asked: list[str], tmp_path: Path) -> None:
    supply = prompt_supply(SETTING, tmp_path, "secret")
    assert len(supply.search) == 12 and len(supply.exact) == 4
    assert set(supply.exact) <= set(supply.search)
    assert {request.family for request in supply.exact} == {"gsm8k", "humaneval", "mtbench"}


def test_requests_follow_the_setting_decoding_rules() -> None:
    (request,) = as_requests(SETTING, [Prompt("a/1", "a", "text", (1, 2, 3))])
    assert (request.id, request.prompt_ids, request.family) == ("a/1", (1, 2, 3), "a")
    assert request.max_new_tokens == SETTING.decoding.max_new_tokens
    assert request.stop_token_ids == SETTING.decoding.stop_token_ids
    assert request.ignore_eos is SETTING.decoding.ignore_eos
