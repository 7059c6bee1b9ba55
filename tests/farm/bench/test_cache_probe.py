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

REQUESTS = [request(f"{n} words of prompt number {n * 7919}", tokens=24) for n in range(4)]
PLAN = MeasurementPlan(mode="slices", prompts=4, seed=4)


class Remembering(FakeEngine):
    """A prompt it has met starts at once."""

    def __init__(self, label: str, ledger: Ledger, prefill_s: float = 0.1) -> None:
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


def probed(candidate: FakeEngine, stock: FakeEngine) -> tuple[ProbedPrompt, ...]:
    engines = {"candidate": candidate, "stock": stock}
    for engine in engines.values():
        for asked in REQUESTS:
            engine.stream(asked, cut=1)
    probes = probe_caches(engines, REQUESTS, range(4), PLAN)
    assert all(engine.is_running.is_set() for engine in engines.values())
    return probes


def test_what_an_engine_keeps_is_found_in_interleaved_flushed_pairs() -> None:
    ledger = Ledger()
    probes = probed(Remembering("candidate", ledger), FakeEngine("stock", ledger))
    assert "time to first token" in (cache_effect(probes).kept or "")
    assert len(probes) == PAIRS * 2 * 2
    assert {(p.arm, p.pair, p.known) for p in probes} == {
        (arm, pair, known)
        for arm in ("candidate", "stock")
        for pair in range(PAIRS)
        for known in (True, False)
    }
    asked = [i for i, (_, what) in enumerate(ledger.events) if what.startswith("send")]
    probing = asked[2 * len(REQUESTS) :]
    assert all(ledger.events[i - 1][1] == "flush" for i in probing)
    order = ["candidate", "stock", "stock", "candidate"]
    assert [p.arm for p in probes[::2]] == (order * PAIRS)[: 2 * PAIRS]
    # Six pairs of four prompts: each unknown prompt is another one.
    unknown = {ledger.events[i][1] for i in probing if "~" in ledger.events[i][1]}
    assert len(unknown) >= PAIRS - 1


def test_the_first_pair_without_a_gain_ends_it() -> None:
    ledger = Ledger()
    for candidate, stock in (
        (FakeEngine("candidate", ledger), FakeEngine("stock", ledger)),
        (FakeEngine("candidate", ledger), Remembering("stock", ledger)),
        # Both keep it: the fault is not the candidate's.
        (Remembering("candidate", ledger), Remembering("stock", ledger)),
    ):
        probes = probed(candidate, stock)
        assert cache_effect(probes).kept == ""
        assert len(probes) < PAIRS * 4


def test_prompts_that_cannot_be_varied_are_not_probed() -> None:
    same = [replace(REQUESTS[0], prompt_ids=(7,) * 20), REQUESTS[1]]
    engines = {label: FakeEngine(label) for label in ("candidate", "stock")}
    assert probe_caches(engines, same, [0], PLAN) == ()
    assert cache_effect(()).kept is None


def synthetic(gain_first: float, gain_total: float, sigma: float, seed: int) -> str | None:
    """A known prompt's times on the candidate are divided by the gains; each has log sd `sigma`."""
    rng = random.Random(seed)
    probes = []
    for pair in range(PAIRS):
        for arm in ("candidate", "stock"):
            for known in (True, False):
                gains = (gain_first, gain_total) if known and arm == "candidate" else (1.0, 1.0)
                first, total = (
                    base * math.exp(rng.gauss(0, sigma)) / gain
                    for base, gain in zip((0.25, 0.45), gains, strict=True)
                )
                probes.append(ProbedPrompt(arm, pair, known, first, total))
    return cache_effect(probes).kept


def test_noise_alone_is_never_taken_for_a_cache() -> None:
    """Each time is off by a third, up or down; two thousand honest candidates."""
    assert [s for s in range(2000) if synthetic(1.0, 1.0, 0.35, s) != ""] == []


def test_a_large_gain_is_found_through_noise() -> None:
    found = [synthetic(8.0, 1.0, 0.2, s) for s in range(200)]
    assert found.count("time to first token") >= 190
    found = [synthetic(1.0, 12.0, 0.2, s) for s in range(200)]
    assert found.count(f"time to token {TOKENS}") >= 190


def test_times_below_the_clients_own_delays_show_nothing() -> None:
    probes = [
        ProbedPrompt(arm, pair, known, 1e-5 if known and arm == "candidate" else 0.004, 0.004)
        for pair in range(PAIRS)
        for arm in ("candidate", "stock")
        for known in (True, False)
    ]
    assert cache_effect(probes).kept == ""


def test_too_few_pairs_decide_nothing_against_anyone() -> None:
    gaining = [
        ProbedPrompt(arm, pair, known, 0.01 if known and arm == "candidate" else 1.0, 1.0)
        for pair in range(PAIRS)
        for arm in ("candidate", "stock")
        for known in (True, False)
    ]
    assert cache_effect(gaining[: 4 * (PAIRS - 1)]).kept is None
    assert cache_effect(gaining).kept == "time to first token"
    saving = [replace(p, total_s=p.first_s + 0.2) for p in gaining]
    found = cache_effect(saving)
    assert found.kept == f"time to first token, time to token {TOKENS}"
    assert found.to_json()["first_factors"][0] == pytest.approx(50.5)


def test_json_and_back() -> None:
    probe = ProbedPrompt("stock", 1, True, 0.5, 0.25)
    assert probes_from_json([dict(probe.__dict__)]) == (probe,)
    with pytest.raises(TypeError):
        probes_from_json([{"arm": "stock"}])
    assert TOKENS > 1
