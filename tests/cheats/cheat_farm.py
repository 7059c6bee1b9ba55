"""A farm for the corpus in a folder of its own, and the corpus through its gate."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engines.sandbox import active_level
from explorers.memory_explorer import CATALOGUE
from farm.campaign.context import CampaignContext
from farm.report.words import CALLED_DISHONEST, caught_by
from farm.results import CandidateResult
from farm.search import evaluate as gate
from farm.search.assemble import assemble
from farm.search.evaluate import Candidate, OpenWorkers
from farm.verdicts import Verdict
from settings.paths import checkout_root
from tests.cheats.corpus import Entry, corpus
from tests.farm.gate.planted_farm import Silent, install, make_farm
from tests.farm.gate.plants import pace_patch

TWIN_OF = {"cpu_c1_smollm2-135m_ngram": "cpu_c1_smollm2-135m_ngram-fp32"}
REAL_SETTING = "cpu_c1_smollm2-135m_ngram"
# An honest speed-up that changes the drafter only, so that it goes with every cheat.
CARRIER = CATALOGUE / "static_table" / "change.patch"

# Short steps and few prompts: nothing here depends on how exactly a speed-up is measured.
TINY_STEP_S = 0.004
# Larger weights seldom repeat themselves: drafts are often near misses.
TINY_WEIGHTS = 0.12
TINY = {
    "max_new_tokens": "72",
    "temperature": "0.0\nignore_eos = true",
    "request_deadline_s": "12.0",
    "prompts": "20",
    "search": '[{ set = "arithmetic", first = 0, count = 8 }]',
    "heldout": '[{ set = "arithmetic", first = 0, count = 20 }]',
    "max_total_tokens": "1024",
    "mode": '"abba"',
    "seconds_per_candidate": """1.2
launches_confirm = 2
warm_rounds_max = 3

[verification]
new_tokens = 400
answer_tokens = 24
long_answer_tokens = 48""",
}
REAL = {
    "max_new_tokens": "40",
    "max_total_tokens": "840",
    "seconds_per_candidate": "8.0",
    "warm_rounds_max": """3
launches_confirm = 2

[verification]
new_tokens = 150
answer_tokens = 12
long_answer_tokens = 24
long_prompt_tokens = 560""",
}


def chosen(setting: str) -> list[Entry]:
    """The corpus's entries that this machine can keep out (with `CHEATS=name,name` only those)."""
    sandboxed = active_level().name != "rlimits"
    named = [name for name in os.environ.get("CHEATS", "").split(",") if name]
    return [
        entry
        for entry in corpus(setting)
        if (sandboxed or not entry.sandboxed)
        and (not named or any(entry.name.startswith(name) for name in named))
    ]


def tiny_farm(folder: Path) -> dict[str, str]:
    """The variables of a farm on a tiny FP32 model whose stock takes its time."""
    variables = make_farm(folder, "tiny-fp32", TINY, TINY_STEP_S, TINY_WEIGHTS)
    install()
    return variables


def real_setting(folder: Path) -> Path:
    """The embedded default's setting and its twin below `folder`, with less time a candidate."""
    for name in (REAL_SETTING, TWIN_OF[REAL_SETTING]):
        text = (checkout_root() / "settings" / name / "setting.toml").read_text()
        for key, value in REAL.items():
            text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
            assert count == 1, key
        (folder / name).mkdir(parents=True)
        (folder / name / "setting.toml").write_text(text)
    return folder / REAL_SETTING


def tiny_candidates(entries: Iterable[Entry], stock: Path) -> list[Candidate]:
    """The entries' patches, each beside the pace that is its motive."""
    return [
        Candidate(entry.name, patch=entry.change + pace_patch(stock, entry.pace or 1.0))
        for entry in entries
    ]


def real_candidates(entries: Iterable[Entry]) -> list[Candidate]:
    """The entries' patches, those that are carried behind the honest speed-up."""
    carrier = CARRIER.read_text()
    return [
        Candidate(entry.name, patch=(carrier if entry.carried else "") + entry.change)
        for entry in entries
    ]


def through_the_gate(
    setting: str, candidates: Sequence[Candidate], open_workers: OpenWorkers
) -> dict[str, CandidateResult]:
    """Every candidate's row, by name."""
    with patch.object(gate, "assemble", _without_reference):
        results = gate.evaluate(setting, candidates, Silent(), open_workers)
    return {result.mechanism: result for result in results}


def _without_reference(*inputs: Any) -> CampaignContext:
    """transformers beside AR takes tens of seconds, and nothing here asks for it."""
    return replace(assemble(*inputs), reference=None)


def unexpected(
    entries: Iterable[Entry], results: Mapping[str, CandidateResult], by_any_check: bool = False
) -> list[str]:
    """What differs from the manifest, in words; those that noise dropped early apart.

    by_any_check: a cheat that another check than its own called one is as good (where answers take
    milliseconds, a guard of times may speak first)."""
    found = []
    for entry in entries:
        decision = results[entry.name].decision
        by = caught_by(results[entry.name])
        as_said = decision.verdict.value in entry.verdicts and by in entry.caught_by
        called_one = not entry.control and decision.verdict in CALLED_DISHONEST
        caught = as_said or (by_any_check and called_one)
        if not (caught or _lost_to_noise(entry, results[entry.name])):
            found.append(f"{entry.name}: {decision.verdict.value} by {by}: {decision.reason}")
    return found


def lost_to_noise(entries: Iterable[Entry], results: Mapping[str, CandidateResult]) -> list[str]:
    """Faster cheats that a busy machine showed slower: kept out, but not by their check."""
    return [entry.name for entry in entries if _lost_to_noise(entry, results[entry.name])]


def _lost_to_noise(entry: Entry, result: CandidateResult) -> bool:
    faster = entry.lossy and bool(entry.pace or entry.carried)
    verdict = result.decision.verdict
    slow = verdict in (Verdict.NOT_FASTER, Verdict.INCONCLUSIVE)
    return faster and slow and caught_by(result) == "speed"
