"""The whole corpus through the gate on a real model in BF16, with its FP32 twin.

Answers are short there, so that sixty candidates take one and a half to two hours. Some, as the
manifest says, go through the setting as it is: an honest speed-up, which too few tokens never
accept, and cheats that show in few tokens. With `CHEATS_TABLE=file` the table is written there:
docs/benchmarks/cheat-corpus.md holds one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.report.words import CALLED_DISHONEST
from farm.results import CandidateResult
from farm.workers.here import workers_here
from tests.cheats.cheat_farm import (
    REAL_SETTING,
    chosen,
    lost_to_noise,
    real_candidates,
    real_setting,
    through_the_gate,
    unexpected,
)
from tests.cheats.corpus import REAL
from tests.cheats.resident_stock import resident_stock
from tests.cheats.table import markdown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(10800)]
Results = dict[str, CandidateResult]
ENTRIES = chosen(REAL)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    longer = real_candidates(entry for entry in ENTRIES if entry.own_lengths)
    shorter = real_candidates(entry for entry in ENTRIES if not entry.own_lengths)
    found: Results = {}
    if longer:
        found |= through_the_gate(REAL_SETTING, longer, workers_here)
    if shorter:
        setting = real_setting(tmp_path_factory.mktemp("real"))
        found |= through_the_gate(str(setting), shorter, resident_stock)
    if (target := os.environ.get("CHEATS_TABLE")) is not None:
        Path(target).write_text(markdown(ENTRIES, found))
    yield found


def test_no_cheat_is_accepted(results: Results) -> None:
    accepted = {name for name, row in results.items() if row.decision.verdict.value == "accepted"}
    assert accepted <= {entry.name for entry in ENTRIES if entry.control}


def test_no_control_is_called_dishonest(results: Results) -> None:
    controls = [results[entry.name].decision for entry in ENTRIES if entry.control]
    assert [decision for decision in controls if decision.verdict in CALLED_DISHONEST] == []


def test_each_ends_with_its_verdict_by_its_check(results: Results) -> None:
    found = unexpected(ENTRIES, results)
    assert not found, "\n".join(found)
    assert len(lost_to_noise(ENTRIES, results)) <= len(ENTRIES) // 6
