"""Parallel drafters behind the HTTP server: sampled answers are the target's, in distribution."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from native_engine.config import EngineConfig, SpeculationKnobs
from tests.engines.native.batching.test_parallel_drafters import DRAFTERS, drafter_folder
from tests.engines.native.serving import serve
from tests.engines.native.tiny import VOCAB, add_tokenizer, make_folder

PROMPT = [40, 70, 33, 52, 61]
CALLS, EACH = 12, 200
CANDIDATES = 6
HEAT = {"temperature": 4.0, "top_k": CANDIDATES, "ignore_eos": True, "max_new_tokens": 3}


@torch.no_grad()
def law(model: Any, ids: list[int]) -> torch.Tensor:
    """p of the next token: temperature, then top-k, restated."""
    logits = model(torch.tensor([ids])).logits[0, -1].double() / HEAT["temperature"]
    keep = logits.topk(CANDIDATES).indices
    p = torch.zeros(VOCAB, dtype=torch.float64)
    p[keep] = logits[keep].softmax(0)
    return p


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_sampled_answers_have_the_targets_joint_distribution(name: str, tmp_path: Path) -> None:
    """Chi-square of three tokens: the first is the prompt's own, the others pass the verify rule
    with what the drafter drew from (DFlash2: its candidates)."""
    model = make_folder(tmp_path)
    add_tokenizer(tmp_path)
    drafter = drafter_folder(tmp_path / name, DRAFTERS[name], 96, 3)
    knobs = EngineConfig(speculation=SpeculationKnobs(name, 2))
    with (
        serve(tmp_path, slots=32, max_queued=EACH, knobs=knobs, drafter=drafter) as (url, _),
        httpx.Client(base_url=url, timeout=120) as client,
    ):
        counts: Counter[tuple[int, ...]] = Counter()
        accepted = drafted = 0
        for _ in range(CALLS):
            body = {"input_ids": [PROMPT] * EACH, "sampling_params": HEAT}
            for reply in client.post("/generate", json=body).json():
                counts[tuple(reply["output_ids"])] += 1
                accepted += reply["meta_info"]["spec_num_correct_drafts"]
                drafted += reply["meta_info"]["spec_num_proposed_drafts"]
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
        chat |= {"temperature": 1.2, "seed": 5}
        texts = [client.post("/v1/chat/completions", json=chat).json()["choices"] for _ in "ab"]
        assert texts[0] == texts[1]
    # Some are accepted and some refused: both branches of the rule were taken.
    assert 0.02 * drafted < accepted < 0.98 * drafted
    expected: dict[tuple[int, ...], float] = {}
    first = law(model, PROMPT)
    for a in first.nonzero()[:, 0].tolist():
        second = law(model, [*PROMPT, a])
        for b in second.nonzero()[:, 0].tolist():
            third = law(model, [*PROMPT, a, b])
            for c in third.nonzero()[:, 0].tolist():
                expected[a, b, c] = float(first[a] * second[b] * third[c]) * CALLS * EACH
    assert set(counts) <= set(expected)
    likely = [text for text, mean in expected.items() if mean >= 5]
    rare = sum(mean for mean in expected.values() if mean < 5)
    cells = [(counts[text], expected[text]) for text in likely]
    cells.append((CALLS * EACH - sum(count for count, _ in cells), rare))
    assert len(likely) > 20 and rare > 5
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    chance = float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2)))
    assert chance > 1e-4


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_one_request_at_a_time_has_a_path_of_its_own(name: str, tmp_path: Path) -> None:
    make_folder(tmp_path)
    add_tokenizer(tmp_path)
    drafter = drafter_folder(tmp_path / name, DRAFTERS[name], 96, 3)
    knobs = EngineConfig(speculation=SpeculationKnobs(name, 4))
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 25, "ignore_eos": True}}
    replies = []
    for slots in (1, 2):
        with (
            serve(tmp_path, slots=slots, knobs=knobs, drafter=drafter) as (url, state),
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            assert (state.batch is None) == (slots == 1)
            client.post("/generate", json=body)
            reply = client.post("/generate", json=body).json()
            meta = reply["meta_info"]
            spec = {key: meta[key] for key in meta if key.startswith("spec_")}
            replies.append((reply["output_ids"], spec))
            times = client.get("/server_info").json()["component_times"]
            assert times["drafted"] > 60 and times["components"]["draft"] > 0
    assert replies[0] == replies[1]


def test_a_schedule_cuts_drafts_and_changes_no_token(tmp_path: Path) -> None:
    make_folder(tmp_path)
    add_tokenizer(tmp_path)
    drafter = drafter_folder(tmp_path / "dspark", DRAFTERS["dspark"], 96, 3)
    prompts = [[(7 * i + j) % 90 + 3 for j in range(3 + 2 * i)] for i in range(9)]
    sampling = {"max_new_tokens": 20, "ignore_eos": True}
    found, drafted = {}, {}
    profile = {"batch_tokens": [1, 8, 64], "steps_per_second": [100.0, 90.0, 20.0]}
    for schedule in ("none", "threshold", "throughput"):
        table = {"schedule": schedule, "threshold": 0.5, **profile}
        knobs = EngineConfig(speculation=SpeculationKnobs("dspark", 4), drafters={"dspark": table})
        with (
            serve(tmp_path, slots=4, knobs=knobs, drafter=drafter, max_queued=9) as (url, state),
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            body = {"input_ids": prompts, "sampling_params": sampling}
            replies = client.post("/generate", json=body).json()
            found[schedule] = [reply["output_ids"] for reply in replies]
            drafted[schedule] = state.scheduler.engine.decoder.times.drafted
    assert found["threshold"] == found["throughput"] == found["none"]
    assert 0 < drafted["threshold"] < drafted["none"] and drafted["throughput"] < drafted["none"]
