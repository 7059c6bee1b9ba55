"""`certificate.json`: the evidence that an engine is faster and lossless, for a third party to
check and to run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from farm.promotion.errors import PromotionError
from farm.promotion.lock import EngineLock
from farm.results import CampaignReport, CandidateResult
from settings.prompts import seed_commitment

CERTIFICATE = "certificate.json"


class Status(StrEnum):
    """`replayed`: acceptance was simulated; such an engine is never promoted."""

    CERTIFIED = "certified"
    REPLAYED = "replayed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Evidence:
    """What the report does not carry.

    `hardware` is the setting's hardware name (`cpu`, `h200`): `serve` refuses another one.
    `heldout` maps a held-out request's id to its rendered prompt ids, in order. `thresholds` and
    `verification` are the verifier's own numbers (allowed gap, near-tie margin, totals an arm).
    """

    engine: str
    hardware: str
    stock_commit: str
    harness: str
    seed: str
    seed_commitment: str
    heldout: Mapping[str, Sequence[int]]
    verification: Mapping[str, Any]
    thresholds: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    max_new_tokens: int
    status: Status = Status.CERTIFIED
    extra: Mapping[str, Any] = field(default_factory=dict)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def series_hash(patches: Sequence[bytes]) -> str:
    """One hash of a patch series: over the hashes of its patches, in order."""
    return sha256("".join(f"{sha256(patch)}\n" for patch in patches).encode())


def certificate(
    report: CampaignReport,
    candidate: CandidateResult,
    evidence: Evidence,
    lock: EngineLock,
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    """The certificate as JSON data.

    Args:
        files: the other files of the final folder; each one's sha256 is recorded.
    """
    patches = [data for name, data in sorted(files.items()) if name.startswith("patches/")]
    return {
        "schema_version": 1,
        "status": evidence.status.value,
        "hardware": evidence.hardware,
        "setting": report.setting,
        "campaign": report.campaign_id,
        "created": lock.created,
        "mechanism": candidate.mechanism,
        "speed": {
            "search": _interval(candidate.to_stock),
            "heldout": _interval(candidate.heldout_to_stock),
            "final_to_stock": _interval(report.final_to_stock),
            "final_to_ar": _interval(report.final_to_ar),
            "stock_to_ar": _interval(report.stock_to_ar),
            "ar_to_reference": _interval(report.ar_to_reference),
            "aa": _interval(report.aa),
            "aa_floor": report.aa_floor,
            "tau_ratio": candidate.tau_ratio,
            "step_ratio": candidate.step_ratio,
            "mean_throughput_ratio": candidate.mean_throughput_ratio,
            "candidates_screened": len(report.candidates),
        },
        "lossless": {
            "summary": None if candidate.lossless is None else asdict(candidate.lossless),
            "totals": dict(evidence.verification),
            "thresholds": dict(evidence.thresholds),
        },
        "heldout": {
            "seed": evidence.seed,
            "seed_commitment": evidence.seed_commitment,
            "max_new_tokens": evidence.max_new_tokens,
            "prompt_ids": {key: list(ids) for key, ids in evidence.heldout.items()},
        },
        "hashes": {
            "stock_tree": lock.stock_tree,
            "final_tree": lock.final_tree,
            "harness": lock.harness,
            "patch_series": series_hash(patches),
            "files": {name: sha256(data) for name, data in sorted(files.items())},
        },
        "machine": dict(evidence.machine),
        "versions": dict(evidence.versions),
        "extra": dict(evidence.extra),
    }


def _interval(value: Any) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def read_certificate(folder: Path) -> dict[str, Any]:
    """The certificate in a final folder.

    Raises:
        PromotionError: it is missing or no JSON object.
    """
    path = folder / CERTIFICATE
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise PromotionError(f"{folder} holds no {CERTIFICATE}", "Run a search first") from None
    except ValueError as error:
        raise PromotionError(f"{path} is not JSON: {error}", "Promote again") from None
    if not isinstance(data, dict):
        raise PromotionError(f"{path} is no JSON object", "Promote again")
    return data


def check_folder(folder: Path) -> dict[str, Any]:
    """The certificate, once every file it lists has the recorded hash and no other is there.

    Raises:
        PromotionError: a file is missing, changed or unknown, or the seed does not match its
            commitment.
    """
    data = read_certificate(folder)
    try:
        listed = dict(data["hashes"]["files"])
        seed, committed = data["heldout"]["seed"], data["heldout"]["seed_commitment"]
    except (KeyError, TypeError, ValueError):
        raise PromotionError(
            f"{folder / CERTIFICATE} lacks hashes.files or heldout.seed", "Promote again"
        ) from None
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    remedy = "Restore the folder, or promote the campaign again"
    for name in sorted(set(listed) ^ (present - {CERTIFICATE})):
        state = "missing" if name in listed else "not in the certificate"
        raise PromotionError(f"{folder}: {name} is {state}", remedy)
    for name, wanted in sorted(listed.items()):
        if sha256((folder / name).read_bytes()) != wanted:
            raise PromotionError(f"{folder}: {name} differs from its certificate", remedy)
    if seed_commitment(seed) != committed:
        raise PromotionError(f"{folder}: the revealed seed does not match its commitment", remedy)
    return data
