"""The whole corpus through the gate, on a tiny FP32 model: no cheat accepted, no control called
lossy. `test_real_corpus.py` is the same on the embedded default."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from engines.process_registry import ProcessRegistry
from farm.report.words import CALLED_DISHONEST
from farm.results import CandidateResult
from settings.loading import load_setting
from settings.paths import work_dir
from settings.prompts import search_prompts
from settings.weights import ensure_target
from tests.cheats.cheat_farm import (
    chosen,
    lost_to_noise,
    through_the_gate,
    tiny_candidates,
    tiny_farm,
    unexpected,
)
from tests.cheats.corpus import TINY
from tests.cheats.known_answers import key, stored
from tests.cheats.resident_stock import resident_stock
from tests.farm.gate.planted_farm import SETTING

# Six minutes on two cores, most of them launches.
pytestmark = pytest.mark.timeout(1800)
Results = dict[str, CandidateResult]


ENTRIES = chosen(TINY)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    folder = tmp_path_factory.mktemp("cheats")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in tiny_farm(folder).items():
            patch.setenv(name, value)
        candidates = tiny_candidates(ENTRIES, folder / "stock")
        yield through_the_gate(os.environ[SETTING], candidates, resident_stock)


def test_no_cheat_is_accepted(results: Results) -> None:
    accepted = {e.name for e in ENTRIES if results[e.name].decision.verdict.value == "accepted"}
    assert accepted <= {entry.name for entry in ENTRIES if entry.control}


def test_no_control_is_called_dishonest(results: Results) -> None:
    controls = [results[entry.name].decision for entry in ENTRIES if entry.control]
    assert [decision for decision in controls if decision.verdict in CALLED_DISHONEST] == []


def test_each_ends_with_its_verdict(results: Results) -> None:
    found = unexpected(ENTRIES, results, by_any_check=True)
    assert not found, "\n".join(found)
    assert len(lost_to_noise(ENTRIES, results)) <= len(ENTRIES) // 6


def test_nothing_is_left(results: Results) -> None:
    assert ProcessRegistry().records() == []
    assert list(work_dir().rglob("planted-outside-the-tree.txt")) == []
    assert not any(work_dir("scratch").iterdir())


def test_the_baked_in_answers_are_to_the_search_prompts_of_today(results: Results) -> None:
    setting = load_setting(os.environ[SETTING])
    prompts = search_prompts(setting, ensure_target(setting))
    assert {key("fp32", prompt.prompt_ids) for prompt in prompts} <= stored().keys()
