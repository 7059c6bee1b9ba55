"""c > 1: the steady window by hand, the statistic by block, and the mode on fake engines."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from farm.bench.blocks import PROMPTS_A_SLOT, measure_blocks
from farm.bench.errors import MeasurementError
from farm.bench.estimate import estimate
from farm.bench.estimators.block_window import Window, steady_window
from farm.bench.estimators.cells import cells_of
from farm.bench.modes import measure
from farm.bench.plan import MeasurementPlan
from farm.bench.recording import Recording, Run, merge_launches, recording_from_json
from farm.bench.stopping import LOSER, SequentialStop
from tests.farm.bench.fakes import FakeEngine, Ledger, request


def run(
    sent: float,
    first: float,
    steps: int,
    gap: float,
    *,
    arm: str = "candidate",
    prompt: int = 0,
    block: int = 0,
    per_step: int = 1,
) -> Run:
    """A request sent at `sent` whose first token comes `first` later, then one step a `gap`."""
    times = tuple(first + gap * n for n in range(steps + 1))
    tokens = tuple(1 + per_step * n for n in range(steps + 1))
    return Run(
        arm=arm,
        request=prompt,
        repeat=0,
        launch=0,
        output_ids=tuple(range(tokens[-1])),
        finish_reason="length",
        verify_steps=None,
        ttft_s=first,
        wall_s=times,
        running_s=times,
        tokens=tokens,
        block=block,
        sent_s=sent,
    )


def test_the_window_leaves_ramp_and_drain_out() -> None:
    # Two slots, three requests. First tokens at 1 and 2; the third request takes over at 6.
    runs = [
        run(0.0, 1.0, 5, 1.0),  # tokens at 1 2 3 4 5 6
        run(0.0, 2.0, 6, 1.0),  # tokens at 2 3 ... 8
        run(6.0, 1.0, 5, 1.0),  # tokens at 7 8 ... 12
    ]
    # Full from 2 (both decoding) to 8 (a request ends and none takes its slot).
    tokens = 4 + 6 + 2
    assert steady_window(runs, 2) == Window(tokens, 6.0)
    # All three at once: full when the last has its first token, until the first of them ends.
    assert steady_window(runs[:2], 2) == Window(4 + 4, 4.0)
    assert steady_window(runs[:1], 2) is None
    assert steady_window([run(0.0, 1.0, 1, 1.0), run(5.0, 1.0, 1, 1.0)], 2) is None


def test_a_step_that_brings_several_tokens_counts_them_all() -> None:
    runs = [run(0.0, 1.0, 4, 1.0, per_step=3), run(0.0, 1.0, 4, 1.0, per_step=2)]
    assert steady_window(runs, 2) == Window(4 * 3 + 4 * 2, 4.0)


def blocks(gaps: dict[str, list[float]], slots: int = 2, size: int = 6) -> Recording:
    """arm -> seconds a step of each block; every slot answers its prompts one after the other."""
    runs = []
    for arm, per_block in gaps.items():
        for block, gap in enumerate(per_block):
            for place in range(size):
                turn, prompt = place // slots, block * size + place
                sent = turn * (0.5 + 10 * gap)
                runs.append(
                    run(sent, 0.5, 10, gap, arm=arm, prompt=prompt, block=block, per_step=2)
                )
    requests = tuple(request(f"p{n}") for n in range(size * len(next(iter(gaps.values())))))
    trees = {arm: f"{arm}-tree" for arm in gaps}
    return Recording("blocks", requests, tuple(runs), trees, 0, 1.0, {"concurrency": slots})


def test_the_ratio_is_of_tokens_a_second_paired_by_block() -> None:
    stock = [0.10, 0.20, 0.15, 0.12]
    made = blocks({"stock": stock, "candidate": [gap / 1.25 for gap in stock]})
    found = estimate(made, estimator="block_throughput")
    by_hand = []
    for gap in stock:
        top, bottom = (
            steady_window(
                [run(t * (0.5 + 10 * g), 0.5, 10, g, per_step=2) for t in range(3) for _ in (0, 1)],
                2,
            )
            for g in (gap / 1.25, gap)
        )
        assert top is not None and bottom is not None
        by_hand.append(math.log(top.tokens / top.seconds / (bottom.tokens / bottom.seconds)))
    assert math.log(found.ratio.ratio) == pytest.approx(sum(by_hand) / 4)
    # Prefill does not get faster, so throughput gains less than a step does.
    assert 1.15 < found.ratio.ratio < 1.25
    assert found.ratio.n == 4, "blocks are the units, not requests"
    assert "4 blocks x 1 launches" in found.ratio.method
    assert found.tau.ratio == 1.0 and (found.tau.low, found.tau.high) == (1.0, 1.0)
    assert found.mean_throughput_ratio.ratio == pytest.approx(1.25)


def test_blocks_of_fresh_prompts_are_units_of_their_own_launch() -> None:
    one = blocks({"stock": [0.1, 0.2], "candidate": [0.1, 0.2]})
    other = replace(one, requests=tuple(request(f"q{n}") for n in range(len(one.requests))))
    merged = merge_launches([one, recording_from_json(other.to_json())])
    present = cells_of(merged, "candidate", "stock").means(lambda cell: cell.log_tau).present
    assert present.sum() == 4
    assert present.sum(axis=0).max() == 1


def test_blocks_that_never_filled_or_other_modes_are_refused() -> None:
    made = blocks({"stock": [0.1, 0.2], "candidate": [0.1, 0.2]}, slots=2, size=2)
    alone = replace(made, plan={"concurrency": 5})
    with pytest.raises(MeasurementError, match="steady load"):
        estimate(alone, estimator="block_throughput")
    asked_singly = replace(made, runs=tuple(replace(r, block=None) for r in made.runs))
    with pytest.raises(MeasurementError, match="steady load"):
        estimate(asked_singly, estimator="block_throughput")


def test_a_slow_arm_is_dropped_by_block() -> None:
    stock = [0.10, 0.11, 0.105, 0.10, 0.102]
    slow = blocks({"stock": stock, "candidate": [gap * 1.5 for gap in stock]})
    rule = SequentialStop(estimator="block_throughput")
    assert LOSER in (rule(slow) or "")
    three = replace(slow, runs=tuple(r for r in slow.runs if (r.block or 0) < 3))
    assert rule(three) is None


def test_the_mode_keeps_its_slots_busy_and_records_every_prompt() -> None:
    ledger = Ledger()
    engines = {name: FakeEngine(name, ledger) for name in ("stock", "candidate")}
    size = 2 * PROMPTS_A_SLOT
    requests = [request(f"p{n}") for n in range(2 * size + 3)]
    plan = MeasurementPlan(mode="blocks", prompts=len(requests), concurrency=2)
    made = measure(engines, requests, plan)
    assert {(r.arm, r.request) for r in made.runs} == {
        (arm, n) for arm in engines for n in range(2 * size)
    }
    assert {r.block for r in made.runs} == {0, 1}
    for arm in engines:
        for block in (0, 1):
            mine = [r for r in made.runs if r.arm == arm and r.block == block]
            first_end = min(r.sent_s + r.wall_s[-1] for r in mine)
            assert sorted(r.sent_s for r in mine)[1] < first_end, "two are under way at once"
            window = steady_window(mine, 2)
            assert window is not None and window.tokens > 0
    flushes = [label for label, what in ledger.events if what == "flush"]
    assert flushes == ["stock", "candidate", "candidate", "stock"]
    assert all(engine.is_running.is_set() for engine in engines.values())
    assert recording_from_json(made.to_json()) == made
    assert estimate(made, estimator="block_throughput").ratio.n == 2


def test_too_few_prompts_for_two_blocks_are_refused() -> None:
    engines = {"stock": FakeEngine("stock")}
    plan = MeasurementPlan(mode="blocks", prompts=9, concurrency=2)
    with pytest.raises(MeasurementError, match="not two blocks of 8"):
        measure_blocks(engines, [request(f"p{n}") for n in range(9)], plan)
    with pytest.raises(MeasurementError, match="concurrency"):
        MeasurementPlan(concurrency=0)
