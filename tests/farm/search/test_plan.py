"""What a search says it will do is what the explorers propose and the budget buys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from explorers.memory_explorer import MemoryExplorer
from explorers.protocol import ExplorerContext
from farm.campaign.options import SearchOptions
from farm.search.plan import SearchPlan, describe_plan
from settings.errors import SpecfarmError
from settings.loading import load_setting

SETTING = load_setting("cpu_c1_smollm2-135m_ngram")
PLAN = SearchPlan("s", 1000.0, 1, ("a", "b"), ("noop",), 200.0, 100.0, 300.0)


def test_affordable_is_what_is_left_after_baselines_and_confirmation() -> None:
    assert PLAN.affordable == 5
    assert replace(PLAN, budget_s=599.0).affordable == 0
    assert replace(PLAN, budget_s=60.0).affordable == 0
    assert PLAN.to_json()["affordable"] == 5


def test_the_text_lists_everything_in_order() -> None:
    lines = PLAN.text().splitlines()
    assert lines[0].startswith("s: 3 candidates") and "17 min buy about 5" in lines[0]
    assert [line.split()[1] for line in lines[2:]] == ["a", "b", "noop"]
    assert lines[-1].endswith("(planted)")


def test_the_plan_is_the_explorers_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler in (None, "/usr/bin/g++"):
        monkeypatch.setattr("shutil.which", lambda name, found=compiler: found)
        plan = describe_plan(SETTING, SearchOptions())
        context = ExplorerContext(SETTING, 1, (), compiler is not None)
        assert plan.mechanisms == tuple(p.mechanism for p in MemoryExplorer().propose(context))
    assert len(plan.canaries) == SearchOptions().canaries


def test_more_workers_buy_more_candidates_and_canaries_can_be_left_out() -> None:
    one = describe_plan(SETTING, SearchOptions(budget_s=3600))
    four = describe_plan(SETTING, SearchOptions(budget_s=3600, workers=4, canaries=0))
    assert four.affordable >= 4 * one.affordable
    assert four.canaries == () and four.mechanisms == one.mechanisms


def test_an_unknown_explorer_is_named() -> None:
    with pytest.raises(SpecfarmError, match="'oracle' is not an explorer"):
        describe_plan(SETTING, SearchOptions(explorers=("oracle",)))


def test_an_unknown_engine_is_named_with_the_nearest() -> None:
    setting = SETTING.model_copy(
        update={"engine": SETTING.engine.model_copy(update={"name": "nativ"})}
    )
    with pytest.raises(SpecfarmError, match=r"engine\.name = 'nativ'.*Did you mean 'native'\?"):
        describe_plan(setting, SearchOptions())


def test_what_a_setting_cannot_use_is_said_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The static table was counted on the embedded default's target and helps no other."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    tiny = load_setting("tests/data/settings/tiny")
    plan = describe_plan(tiny, SearchOptions())
    why = f"target is {tiny.target.name}, needs {SETTING.target.name}"
    assert plan.left_out["static_table"] == why
    assert not set(plan.left_out) & set(plan.mechanisms)
    said = plan.text().partition("not for this setting:\n")[2].splitlines()
    assert said == [f"  {name}: {reason}" for name, reason in plan.left_out.items()]
    assert plan.to_json()["left_out"] == plan.left_out
    assert "static_table" not in describe_plan(SETTING, SearchOptions()).left_out
