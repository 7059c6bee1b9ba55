"""The warm-up rule, on a client whose clock is scripted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.answers import Answer, GenerationRequest
from farm.bench.errors import MeasurementError
from farm.bench.warm import warm
from tests.farm.bench.fakes import request


class ScriptedEngine:
    """Round n's steps take `steps_s[n]` seconds."""

    arm, tree_hash = "stock", "t"

    def __init__(self, steps_s: list[float]) -> None:
        self.steps: Iterator[float] = iter(steps_s)
        self.asked = 0

    def client(self) -> ScriptedEngine:
        return self

    def flush_cache(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def stop(self) -> None: ...

    def stream(
        self, asked: GenerationRequest, on_event: object = None, cut: int | None = None
    ) -> Answer:
        self.asked += 1
        step = next(self.steps)
        arrivals = tuple((1.0 + step * i, i + 1) for i in range(4))
        return Answer(asked, (0, 1, 2, 3), "length", 0.0, arrivals)


def test_three_agreeing_rounds_end_the_warm_up() -> None:
    engine = ScriptedEngine([0.2, 0.1, 0.1005, 0.103, 0.102, 0.101, 9.0])
    found = warm(engine, [request("p")])
    # 0.1, 0.1005, 0.103 differ by 3 %; 0.103, 0.102, 0.101 by 1.98 %.
    assert found.settled
    assert found.rounds == engine.asked == 6
    assert found.medians_s[-1] == pytest.approx(0.101)
    assert found.answer_s == pytest.approx(1.303)


def test_a_noisy_machine_is_accepted_at_the_limit_and_said_so() -> None:
    found = warm(ScriptedEngine([0.1, 0.2] * 6), [request("p")], max_rounds=5)
    assert (found.settled, found.rounds) == (False, 5)
    assert "not settled after 5 rounds" in found.note
    assert "100.0%" in found.note
    with pytest.raises(MeasurementError):
        warm(ScriptedEngine([]), [])
