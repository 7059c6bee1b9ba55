"""What the statistics promise, on simulated campaigns (docs/benchmarks/statistics.md)."""

from __future__ import annotations

import pytest

from farm.statistics.proof.any_ratio import RATIOS, any_ratio
from farm.statistics.proof.coverage import (
    CAMPAIGNS,
    CONFIRMATION,
    MACHINES,
    PLACEBO,
    SCREENING,
    SIX,
    SIX_SHARED,
    Coverage,
    Design,
    coverage,
)
from farm.statistics.proof.gate import gate
from farm.statistics.proof.stopping import LOSER, SAME, WINNER, StoppingFigures, stopping
from farm.statistics.simulate_campaigns import NO_CHANGE, TIE_SD, Effect, kernel, mechanism

LEAST_COVERAGE, MOST_WIDTH, MOST_FALSE = 0.93, 1.5, 0.02
BOTH = [pytest.param("busy"), pytest.param("quiet", marks=pytest.mark.slow)]
DRAFT, KERNEL = mechanism(0.262), kernel(0.262, TIE_SD)


def covers(found: Coverage) -> None:
    for share in (found.ratio, found.tau, found.step):
        assert share >= LEAST_COVERAGE, found


@pytest.mark.parametrize("machine", BOTH)
@pytest.mark.parametrize("effect", [DRAFT, KERNEL], ids=["draft", "kernel"])
def test_a_confirmation_covers_the_truth_and_is_not_much_wider_than_the_oracle(
    machine: str, effect: Effect
) -> None:
    found = coverage(CONFIRMATION, MACHINES[machine], effect)
    assert found.campaigns == CAMPAIGNS == 2000
    covers(found)
    assert found.width <= MOST_WIDTH


@pytest.mark.parametrize("machine", BOTH)
def test_without_a_change_too_and_single_steps_as_units_fail_the_same_simulation(
    machine: str,
) -> None:
    found = coverage(CONFIRMATION, MACHINES[machine], NO_CHANGE, naive=True)
    covers(found)
    assert found.width <= MOST_WIDTH
    assert found.naive is not None and found.naive < 0.8


@pytest.mark.parametrize("design", [SIX, SIX_SHARED], ids=["own prompts", "shared prompts"])
def test_with_launches_enough_to_resample_them(design: Design) -> None:
    for effect in (NO_CHANGE, DRAFT):
        found = coverage(design, MACHINES["busy"], effect, 500)
        covers(found)
        assert found.width <= MOST_WIDTH


@pytest.mark.parametrize("design", [SCREENING, PLACEBO], ids=["screening", "placebo"])
def test_one_launch_and_the_placebo_itself_cover_too(design: Design) -> None:
    covers(coverage(design, MACHINES["busy"], NO_CHANGE))


@pytest.mark.slow
@pytest.mark.parametrize("design", [SCREENING, PLACEBO, CONFIRMATION, SIX], ids=lambda d: d.name)
@pytest.mark.parametrize("ratio", RATIOS)
def test_coverage_holds_for_any_ratio_of_launch_to_prompt_variance(
    design: Design, ratio: float
) -> None:
    assert any_ratio(design, ratio).covered >= LEAST_COVERAGE


@pytest.mark.parametrize("machine", BOTH)
def test_candidates_without_a_change_are_not_promoted(machine: str) -> None:
    found = gate(MACHINES[machine], [NO_CHANGE] * 4, 2000, of=NO_CHANGE)
    assert found.candidates == 8000
    assert found.screened <= MOST_FALSE
    # Of a whole campaign, four candidates at once.
    assert 4 * found.confirmed <= MOST_FALSE
    # The placebo refuses by chance, but seldom.
    assert found.refused <= MOST_FALSE


@pytest.mark.parametrize("machine", BOTH)
@pytest.mark.parametrize("effect", [kernel(0.1823), mechanism(0.3365)], ids=["x1.2", "x1.4"])
def test_real_winners_are_confirmed_at_the_stricter_level(machine: str, effect: Effect) -> None:
    found = gate(MACHINES[machine], [effect, *[NO_CHANGE] * 4], 300, of=effect)
    assert found.confirmed >= 0.9


@pytest.fixture(scope="module", params=BOTH)
def rules(request: pytest.FixtureRequest) -> dict[str, StoppingFigures]:
    return {figures.rule: figures for figures in stopping(MACHINES[request.param], 2000)}


def test_dropping_early_saves_bench_time_and_accepts_nothing_more(
    rules: dict[str, StoppingFigures],
) -> None:
    used, none = rules["t bound (used)"], rules["none"]
    assert none.saved == 0.0
    assert used.saved >= 0.4
    assert used.false_accepts <= none.false_accepts <= MOST_FALSE
    assert used.dropped[LOSER] > 0.95 and used.dropped[SAME] > 0.8
    # What it costs: winners that would have been confirmed.
    assert none.winners - used.winners <= 0.02
    assert used.dropped[WINNER] < 0.6


def test_the_rule_in_use_saves_more_than_signed_ranks(rules: dict[str, StoppingFigures]) -> None:
    used, other = rules["t bound (used)"], rules["Wilcoxon"]
    assert used.saved > other.saved
    assert used.winners >= other.winners
