"""A final folder made with a tree store that answers from memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.answers import GenerationRequest
from farm.campaign.heldout_draws import Draw, Drawn
from farm.promotion.certificate import Evidence
from farm.promotion.export import export_final
from farm.results import CampaignReport, CandidateResult
from settings.prompts import seed_commitment
from settings.weight_hashes import WeightHashes
from tests.farm.report.samples import PATCH, sample_report

SETTING = sample_report().setting
STOCK_COMMIT = "5" * 40
SEED = "9f" * 16
HELDOUT = (
    Drawn(
        Draw("confirm:c08:0"),
        (GenerationRequest("gsm8k/1", (1, 2, 3), 160), GenerationRequest("code/7", (4, 5), 160)),
    ),
    Drawn(Draw("exact:c08", 1), (GenerationRequest("gsm8k/4", (6,), 160),)),
)
WEIGHTS = WeightHashes("pypi:" + "7" * 64, {"model.safetensors": "8" * 64})


class MemoryStore:
    """Checks that it is asked for the right commits."""

    def __init__(self, patches: tuple[str, ...] = ("# Lengthen k\n" + PATCH, PATCH)) -> None:
        self.patches = patches
        self.asked: list[tuple[str, ...]] = []

    def bundle(self, commit: str) -> bytes:
        self.asked.append(("bundle", commit))
        return b"# v2 git bundle\n\x00\xff"

    def patch_series(self, base: str, commit: str) -> list[str]:
        self.asked.append(("series", base, commit))
        return list(self.patches)


def evidence(**changes: Any) -> Evidence:
    given = Evidence(
        engine="native",
        hardware="cpu",
        stock_commit=STOCK_COMMIT,
        harness="ab" * 32,
        seed=SEED,
        seed_commitment=seed_commitment(SEED),
        heldout=HELDOUT,
        verification={"final": {"tokens": 3071}, "stock": {"tokens": 3100}},
        thresholds={"near_tie_ulps": 2.0, "delta": 0.01},
        machine={"cpu": "Example CPU"},
        versions={"torch": "2.13.0"},
        max_new_tokens=160,
        weights=WEIGHTS,
        sandbox="rlimits: CPU time",
    )
    return replace(given, **changes)


def winner(report: CampaignReport) -> CandidateResult:
    return next(c for c in report.candidates if c.candidate_id == "c08")


def write_final(folder: Path, **changes: Any) -> Path:
    report = sample_report()
    return export_final(report, winner(report), MemoryStore(), folder, evidence(**changes))
