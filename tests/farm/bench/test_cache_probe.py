"""The probe on engines that keep what they have answered, and on noise alone."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from engines.answers import Answer, GenerationRequest
from farm.bench.cache_probe import (
    PAIRS,
    TOKENS,
    ProbedPrompt,
    cache_effect,
    probe_caches,
    probes_from_json,
)
from farm.bench.plan import MeasurementPlan
from tests.farm.bench.fakes import FakeEngine, Ledger, request

REQUESTS = [request(f"{n} words of prompt number {n * 7919}", tokens=24) for n in range(6)]
PLAN = MeasurementPlan(mode="slices", prompts=6, seed=4)


class Remembering(FakeEngine):
    """A prompt it has met starts at once."""

    def __init__(self, label: str, ledger: Ledger, prefill_s: float = 0.06) -> None:
        super().__init__(label, ledger)
        self.prefill_s = prefill_s
        self.met: set[tuple[int, ...]] = set()

    def stream(
        self,
        asked: GenerationRequest,
        on_event: Callable[..., object] | None = None,
        cut: int | None = None,
    ) -> Answer:
        sent = time.monotonic()
        if asked.prompt_ids not in self.met:
            self.met.add(asked.prompt_ids)
            time.sleep(self.prefill_s)
        return replace(super().stream(asked, on_event, cut), sent_s=sent)


def test_pairs_are_interleaved_flushed_and_cut() -> None:
    ledger = Ledger()
    engines = {label: FakeEngine(label, ledger) for label in ("candidate", "stock")}
    probes = probe_caches(engines, REQUESTS, range(6), PLAN)
    assert len(probes) == PAIRS * 2 * 2
    assert {(p.arm, p.pair, p.known) for p in probes} == {
        (arm, pair, known) for arm in engines for pair in range(PAIRS) for known in (True, False)
    }
    sends = [i for i, (_, what) in enumerate(ledger.events) if what.startswith("send")]
    assert all(ledger.events[i - 1][1] == "flush" for i in sends)
    assert [p.arm for p in probes[::2]] == ["candidate", "stock", "stock", "candidate"] * (
        PAIRS // 2
    )
    assert all(engine.is_running.is_set() for engine in engines.values())
    known = {what for _, what in ledger.events if what.startswith("send") and "~" not in what}
    assert len(known) == PAIRS


def test_what_an_engine_keeps_is_found_and_stock_is_the_control() -> None:
    def effect(candidate: FakeEngine, stock: FakeEngine) -> str | None:
        engines = {"candidate": candidate, "stock": stock}
        for engine in engines.values():
            for asked in REQUESTS:
                engine.stream(asked, cut=1)
        return cache_effect(probe_caches(engines, REQUESTS, range(6), PLAN)).kept

    ledger = Ledger()
    assert effect(Remembering("candidate", ledger), FakeEngine("stock", ledger)) == (
        "time to first token"
    )
    assert effect(FakeEngine("candidate", ledger), Remembering("stock", ledger)) == ""
    # Both keep it: the fault is not the candidate's.
    assert effect(Remembering("candidate", ledger), Remembering("stock", ledger)) == ""


def synthetic(factor_first: float, factor_rest: float, sigma: float, seed: int) -> str | None:
    """Times of a known prompt are `factor` shorter on the candidate; each has log sd `sigma`."""
    rng = random.Random(seed)
    probes = []
    for pair in range(PAIRS):
        for arm in ("candidate", "stock"):
            for known in (True, False):
                gain = (factor_first, factor_rest) if known and arm == "candidate" else (1.0, 1.0)
                first, rest = (
                    base * math.exp(rng.gauss(0, sigma)) / g
                    for base, g in zip((0.25, 0.03), gain, strict=True)
                )
                probes.append(ProbedPrompt(arm, pair, known, first, rest))
    return cache_effect(probes).kept


def test_noise_alone_is_never_taken_for_a_cache() -> None:
    """25 % of noise on each time, an honest candidate, a thousand measurements."""
    assert [s for s in range(1000) if synthetic(1.0, 1.0, 0.25, s)] == []


def test_a_large_gain_is_found_through_noise() -> None:
    found = [synthetic(8.0, 1.0, 0.25, s) for s in range(200)]
    assert found.count("time to first token") >= 190
    found = [synthetic(1.0, 12.0, 0.25, s) for s in range(200)]
    assert found.count("tokens after it") >= 190


def test_too_few_pairs_and_short_answers_show_nothing() -> None:
    probes = [
        ProbedPrompt(arm, pair, known, 0.01 if known else 1.0, math.nan)
        for pair in range(PAIRS)
        for arm in ("candidate", "stock")
        for known in (True, False)
    ]
    assert cache_effect(probes[: 4 * (PAIRS - 1)]).kept is None
    found = cache_effect(probes)
    assert found.kept == "" and found.to_json()["rest_factors"] == [None] * PAIRS


def test_json_and_back() -> None:
    probe = ProbedPrompt("stock", 1, True, 0.5, 0.25)
    assert probes_from_json([dict(probe.__dict__)]) == (probe,)
    with pytest.raises(TypeError):
        probes_from_json([{"arm": "stock"}])
    assert TOKENS > 1
