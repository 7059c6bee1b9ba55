"""A whole farm in one folder: planted stock, planted candidates, settings, data; no Ray.

`python -c "from tests.farm.gate.planted_farm import main; main()"` starts a campaign in a process
of its own, which a test may kill.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engines.native_driver import NativeDriver
from engines.registry import register_engine
from engines.resolve import store_for
from engines.tree_store import TreeStore
from explorers import registry
from explorers.protocol import Change, ExplorerContext, Prediction, Proposal
from farm.campaign.context import CampaignContext
from farm.campaign.jobs import Job
from farm.campaign.options import SearchOptions
from farm.ledger import Campaign, Ledger
from farm.results import CampaignReport, CandidateResult
from farm.search import session
from farm.search.assemble import assemble
from farm.search.session import claim, new_campaign, open_ledger, run_campaign
from farm.workers.local import LocalWorkers
from farm.workers.measure import run_measure_job
from farm.workers.verify import VerifyService
from settings.loading import load_setting
from settings.paths import checkout_root
from settings.schema import Setting
from tests.farm.gate.plants import STOCK_STEP_S, Plant, write_stock

ENGINE = "planted-native"
EXPLORER = "planted"
FOLDER, SETTING = "GATE_FOLDER", "GATE_SETTING"
SETTINGS = Path(__file__).resolve().parents[2] / "data" / "settings"
OPTIONS = SearchOptions(rounds=1, budget_s=3600.0, explorers=(EXPLORER,), canaries=0)

LAUNCHES = "launches_confirm = 2\nwarm_rounds_max = 3"
# Six prompts of 320 tokens: 1,920 tokens a measurement at least, and 3,840 on the two launches of
# a confirmation, which must have met one wrong token in a thousand (2,995).
CHANGES = {
    "max_new_tokens": "320",
    "temperature": "0.0\nignore_eos = true",
    "request_deadline_s": "10.0",
    "prompts": "6",
    "search": '[{ set = "arithmetic", first = 0, count = 6 }]',
    "heldout": '[{ set = "arithmetic", first = 0, count = 6 }]',
    "max_total_tokens": "448",
}
# Whole answers in turn keep the steps' length to a per cent on a busy machine. Slices add the delay
# of each wake-up, some milliseconds in a hundred, which three repeats average out.
MODES = {
    "abba": {"mode": '"abba"', "seconds_per_candidate": f"11.0\n{LAUNCHES}"},
    "slices": {"seconds_per_candidate": f"22.0\nrepeats = 3\n{LAUNCHES}"},
}
# Smaller random weights repeat themselves: some three tokens are committed a step, not one.
REPETITIVE = 0.1
MOST_POSITIONS = 2048


class PlantedDriver(NativeDriver):
    """The native engine, its stock taken from the farm's folder."""

    name = ENGINE

    def stock_source(self) -> Path:
        return Path(os.environ[FOLDER]) / "stock"


class PlantedExplorer:
    """Proposes the patches in the farm's folder, in the order of their names."""

    name = EXPLORER

    def propose(self, context: ExplorerContext) -> Sequence[Proposal]:
        if context.evidence:
            return []
        return [
            Proposal(
                mechanism=file.stem.split("-", 1)[1],
                component="draft",
                hypothesis="planted",
                change=Change(patch=file.read_text()),
                prediction=Prediction(1.0, "none: it is planted"),
                explorer=self.name,
            )
            for file in sorted((Path(os.environ[FOLDER]) / "patches").glob("*.patch"))
        ]


class Workers(LocalWorkers):
    """Remembers which units it was given."""

    def __init__(self, setting: Setting) -> None:
        store: TreeStore = store_for(setting)
        service = VerifyService(store)
        super().__init__(lambda job: run_measure_job(job, store), service.run)
        self.close = service.close
        self.submitted: list[str] = []

    def submit(self, job: Job) -> None:
        self.submitted.append(job.unit)
        super().submit(job)


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def phase(self, name: str, units: int) -> None:
        self.messages.append(f"phase {name}")

    def message(self, text: str) -> None:
        self.messages.append(text)

    def candidate(self, result: CandidateResult, recording: dict[str, object] | None) -> None:
        self.messages.append(f"{result.candidate_id} {result.decision.verdict.value}")

    def report(self, report: CampaignReport) -> None:
        """Kept by the ledger."""


@dataclass(frozen=True)
class Life:
    """One process's part of a campaign."""

    report: CampaignReport
    submitted: list[str]
    messages: list[str]


def prepare(folder: Path, setting: str, mode: str, plants: Iterable[Plant]) -> dict[str, str]:
    """Writes everything a campaign needs below `folder`; the variables it is run with."""
    variables = make_farm(folder, setting, CHANGES | MODES[mode])
    (folder / "patches").mkdir()
    for number, plant in enumerate(plants):
        path = folder / "patches" / f"{number:02d}-{plant.name}.patch"
        path.write_text(plant.make_patch(folder / "stock"))
    return variables


def make_farm(
    folder: Path,
    setting: str,
    changes: dict[str, str],
    step_s: float = STOCK_STEP_S,
    weights: float = REPETITIVE,
) -> dict[str, str]:
    """Settings (the keys of `changes` set anew), a model (`weights`: their standard deviation) and
    a paced stock below `folder`; the variables that make them a farm's."""
    shutil.copytree(SETTINGS, folder / "settings")
    config = folder / "settings" / "tiny" / "model" / "config.json"
    model = json.loads(config.read_text())
    model |= {"initializer_range": weights, "max_position_embeddings": MOST_POSITIONS}
    config.write_text(json.dumps(model))
    for file in folder.glob("settings/*/setting.toml"):
        file.write_text(_adapted(file.read_text(), changes))
    write_stock(checkout_root() / "engines" / "native", folder / "stock", step_s)
    return {
        FOLDER: str(folder),
        SETTING: str(folder / "settings" / setting),
        "SPECFARM_DATA": str(folder / "data"),
        "SPECFARM_TIMING_LOCK": str(folder / "timing.lock"),
    }


def _adapted(text: str, changes: dict[str, str]) -> str:
    for key, value in changes.items():
        text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    assert text.count('name = "native"') == 1
    return text.replace('name = "native"', f'name = "{ENGINE}"')


def install() -> None:
    """Makes engine and explorer known in this process."""
    register_engine(ENGINE, f"{__name__}:PlantedDriver")
    registry._FACTORIES[EXPLORER] = PlantedExplorer


def _without_reference(*inputs: Any) -> CampaignContext:
    """The context without transformers beside AR: tens of seconds, and nothing here asks for it."""
    return replace(assemble(*inputs), reference=None)


def live(ledger: Ledger, row: Campaign) -> Life:
    """Runs a campaign (or goes on with it) to its end in this process."""
    observer = Silent()
    made: list[Workers] = []

    def make_workers(setting: Setting, count: int) -> Workers:
        made.append(Workers(setting))
        return made[0]

    claim(ledger, row)
    with patch.object(session, "assemble", _without_reference):
        report = run_campaign(ledger, row, observer, make_workers)
    return Life(report, made[0].submitted, observer.messages)


def begin() -> Campaign:
    """A new campaign of the setting in the environment."""
    setting = os.environ[SETTING]
    load_setting(setting)
    return new_campaign(open_ledger(), setting, OPTIONS)


def main() -> None:
    install()
    live(open_ledger(), begin())
