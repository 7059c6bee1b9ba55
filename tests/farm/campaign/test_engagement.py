"""Engagement by table: every answer, and what each sign alone can show."""

from __future__ import annotations

import re
from typing import Any

import pytest

from farm.campaign.engagement import engagement

COUNTERS = {"steps": 40, "rows": 300, "drafted": 260, "committed": 96, "components": {"draft": 0.1}}


def info(draft_tokens: int = 7, **counters: Any) -> dict[str, Any]:
    return {
        "engine_config": {"speculation": {"draft_tokens": draft_tokens, "drafter": "ngram"}},
        "component_times": COUNTERS | counters,
    }


@pytest.mark.parametrize(
    ("knobs", "candidate", "tau", "speed", "word", "reason"),
    [
        ({"speculation.draft_tokens": 15}, info(15), None, None, "yes", "7 -> 15"),
        ({"speculation.draft_tokens": 15}, info(7), 1.2, (1.1, 1.2), "no", "is 7, set was 15"),
        # A patch of engine.toml names no knobs; the server does.
        ({}, info(15), None, None, "yes", "speculation.draft_tokens: 7 -> 15"),
        ({}, info(), None, None, "cannot tell", "same knobs"),
        ({}, info(), 1.0, (0.98, 1.03), "cannot tell", "same counters"),
        ({}, info(steps=39), 1.0, None, "yes", "steps: 39 for stock's 40"),
        ({}, info(), 1.05, (0.9, 1.2), "yes", "accept length x1.050"),
        ({}, info(), 1.0, (1.01, 1.2), "yes", r"speed outside noise: \[1.010, 1.200\]"),
        ({}, info(), 1.0, (0.7, 0.8), "yes", "speed outside noise"),
        # Times are noise.
        ({}, info(components={"draft": 0.9}), 1.0, None, "cannot tell", ""),
        # Not reported: nobody can say that it was not heard.
        ({"linear.threads_per_row": 2}, info(), None, None, "cannot tell", ""),
        ({"speculation.draft_tokens": 15}, {}, None, None, "cannot tell", ""),
        ({"speculation.draft_tokens": 15}, {"engine_config": 3}, None, None, "cannot tell", ""),
    ],
)
def test_engagement(
    knobs: dict[str, object],
    candidate: dict[str, Any],
    tau: float | None,
    speed: tuple[float, float] | None,
    word: str,
    reason: str,
) -> None:
    stock = info() if candidate.get("component_times") else {}
    found = engagement(knobs, candidate, stock, tau, speed)
    assert found.engaged == word
    assert re.search(reason, found.reason), found.reason
