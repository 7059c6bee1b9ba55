"""Simulated acceptance: the histogram's lengths, the same for a prompt every time, and marked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from native_engine.batching.replay import ReplayDrafter, read_histogram
from native_engine.errors import ConfigError
from native_engine.requests import GenerateRequest, GenerateResult
from tests.engines.native.batching.fake_target import FakeTarget
from tests.engines.native.batching.harness import ask, batch_engine, scheduling
from tests.engines.native.batching.test_batch_decoder import HalfRight

CHANCES = [0.1, 0.2, 0.0, 0.3, 0.4]


def replayed(
    requests: list[GenerateRequest], seed: int = 0
) -> list[tuple[GenerateResult, list[int]]]:
    """Each result with its accept lengths, step by step (the first token is the prompt's own)."""
    drafter = ReplayDrafter(CHANCES, 4, None, seed)
    engine = batch_engine(FakeTarget(), slots=3, capacity=500, drafter=drafter, rule=drafter.verify)
    with scheduling(engine) as scheduler:
        asked = []
        for request in requests:
            lengths: list[int] = []
            job = ask(scheduler, request)
            job.job.on_tokens = lambda tokens, to=lengths: to.append(len(tokens))
            asked.append((job, lengths))
        return [(job.result(), lengths) for job, lengths in asked]


def test_lengths_follow_the_histogram() -> None:
    requests = [GenerateRequest(f"r{i}", (i, 3, i), 300) for i in range(40)]
    results = [result for result, _ in replayed(requests)]
    mean = sum(length * p for length, p in enumerate(CHANCES, 1))
    found = sum(299 / result.steps for result in results) / len(results)
    assert found == pytest.approx(mean, rel=0.03)
    assert len({result.steps for result in results}) > 5


def test_a_prompt_is_accepted_alike_in_any_company() -> None:
    request = GenerateRequest("r", (4, 5, 6), 200)
    others = [GenerateRequest(f"o{i}", (i, i), 120) for i in range(5)]
    ((alone, _),) = replayed([request])
    beside = replayed([*others, request])[-1][0]
    assert alone.steps == beside.steps
    assert replayed([request], seed=1)[0][0].steps != alone.steps


def test_reuse_of_a_prefix_changes_no_length() -> None:
    drafter = ReplayDrafter(CHANCES, 4, HalfRight())
    engine = batch_engine(
        FakeTarget(), slots=1, capacity=500, drafter=drafter, rule=drafter.verify, reuse=True
    )
    with scheduling(engine) as scheduler:
        request = GenerateRequest("r", (4, 5, 6), 200)
        first, second = (ask(scheduler, request).result() for _ in "ab")
    assert second.cached == 2 and first.steps == second.steps


def test_every_length_of_the_histogram_occurs_and_no_other(tmp_path: Path) -> None:
    drafter = ReplayDrafter(CHANCES, 4, None)
    engine = batch_engine(FakeTarget(), capacity=900, drafter=drafter, rule=drafter.verify)
    lengths: Counter[int] = Counter()
    with scheduling(engine) as scheduler:
        blocker = ask(scheduler, GenerateRequest("a", (1,), 1))
        blocker.result()
        asked = ask(scheduler, GenerateRequest("b", (2, 3), 800))
        asked.job.on_tokens = lambda tokens: lengths.update([len(tokens)])
        asked.result()
    assert set(lengths) <= {1, 2, 4, 5} and lengths[5] > 40 and lengths[4] > 30


def test_histogram_files(tmp_path: Path) -> None:
    plain, table, toml = (tmp_path / name for name in ("a.json", "b.json", "c.toml"))
    plain.write_text(json.dumps(CHANCES))
    table.write_text(json.dumps({"accept_length": CHANCES}))
    toml.write_text(f"accept_length = {CHANCES}\n")
    for path in (plain, table, toml):
        assert read_histogram(path, 4) == CHANCES
    with pytest.raises(ConfigError, match="at most 4"):
        read_histogram(plain, 3)
    for text in ("[0.5, 0.6]", "[1.5, -0.5]", "[true]", "{}", "[", '["1"]', "[]"):
        plain.write_text(text)
        with pytest.raises(ConfigError, match=r"a\.json"):
            read_histogram(plain, 4)
    with pytest.raises(ConfigError, match="missing"):
        read_histogram(tmp_path / "missing", 4)
