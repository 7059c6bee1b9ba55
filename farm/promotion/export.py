"""Write a winner as a folder that stands alone: stock bundle, patch series, lock, certificate."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Protocol

from engines.certificate import CERTIFICATE, Status, certificate_bytes, check_folder
from engines.final_folder import BUNDLE, LOCK, RESULT, EngineLock
from farm.promotion.atomic import replaced_folder
from farm.promotion.certificate import Evidence, certificate
from farm.promotion.errors import PromotionError
from farm.report.markdown import render_markdown
from farm.results import CampaignReport, CandidateResult
from farm.verdicts import Verdict
from settings.prompts import seed_commitment


class TreeStore(Protocol):
    """What an export needs of engines.tree_store."""

    def bundle(self, commit: str) -> bytes: ...
    def patch_series(self, base: str, commit: str) -> list[str]: ...


def export_final(
    report: CampaignReport,
    candidate: CandidateResult,
    tree_store: TreeStore,
    out_dir: Path,
    evidence: Evidence,
) -> Path:
    """Writes `out_dir` (usually work/final/<setting>) in one step; an older one stays until then.

    Returns:
        `out_dir`.

    Raises:
        PromotionError: the candidate is not accepted, not confirmed on held-out prompts above the
            A/A floor, or the evidence is incomplete.
    """
    _check(report, candidate, evidence)
    lock = EngineLock(
        setting=report.setting,
        engine=evidence.engine,
        stock_tree=report.stock_tree,
        stock_commit=evidence.stock_commit,
        final_tree=candidate.tree_hash,
        final_commit=candidate.commit,
        harness=evidence.harness,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    series = tree_store.patch_series(evidence.stock_commit, candidate.commit)
    if not series:
        raise PromotionError(
            f"candidate {candidate.candidate_id} changes nothing in stock", "Keep serving stock"
        )
    files = {
        LOCK: lock.to_toml().encode(),
        BUNDLE: tree_store.bundle(evidence.stock_commit),
        RESULT: render_markdown(report).encode(),
        **{
            f"patches/{number:04d}-{_slug(patch)}.patch": patch.encode("utf-8", "surrogateescape")
            for number, patch in enumerate(series, start=1)
        },
    }
    data = certificate(report, candidate, evidence, lock, files)
    files[CERTIFICATE] = certificate_bytes(data)
    with replaced_folder(out_dir) as fresh:
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        check_folder(fresh)
    return out_dir


def _check(report: CampaignReport, candidate: CandidateResult, evidence: Evidence) -> None:
    what = f"candidate {candidate.candidate_id} ({candidate.mechanism})"
    if candidate.decision.verdict is not Verdict.ACCEPTED:
        raise PromotionError(
            f"{what} is {candidate.decision.verdict.value}, not accepted",
            "Only an accepted candidate leaves the search",
        )
    if candidate.kind.startswith("canary"):
        raise PromotionError(
            f"{what} was planted by the farm and accepted", "Find out why before promoting anything"
        )
    fresh = candidate.heldout_to_stock
    if fresh is None or report.aa_floor is None or not fresh.low > report.aa_floor:
        raise PromotionError(
            f"{what} is not above the A/A floor on held-out prompts",
            "Run the campaign's confirmation (specfarm resume)",
        )
    if not evidence.heldout:
        raise PromotionError(f"{what}: no held-out prompts are given", "Pass the confirmation's")
    if evidence.status is Status.REVOKED:
        raise PromotionError(f"{what}: a revoked engine is not exported", "Search again")
    if seed_commitment(evidence.seed) != evidence.seed_commitment:
        raise PromotionError(
            f"{what}: the held-out seed does not match its commitment",
            "Take both from the campaign's ledger",
        )


def _slug(patch: str) -> str:
    """A file name from the message that stands on top of a patch."""
    first = patch.splitlines()[0] if patch else ""
    words = re.sub(r"[^a-z0-9]+", "-", first.lower()) if first.startswith("#") else ""
    return words.strip("-")[:48].strip("-") or "change"
