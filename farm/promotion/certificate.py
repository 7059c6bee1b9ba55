"""What goes into a certificate: the evidence that an engine is faster and lossless, for a third
party to check and to run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engines.certificate import SCHEMA_VERSION, Status, sealed, series_hash, sha256
from engines.final_folder import EngineLock
from farm.campaign.heldout_draws import Drawn
from farm.results import CampaignReport, CandidateResult
from settings.weight_hashes import WeightHashes


@dataclass(frozen=True)
class Evidence:
    """What the report does not carry.

    `hardware` is the setting's hardware name (`cpu`, `h200`): `serve` refuses another one.
    `heldout` are the confirmation's prompts by draw. `thresholds` and `verification` are the
    verifier's own numbers (allowed gap, delta, N, power; totals an arm). `clocks` in MHz, as read
    when the certificate was made. `sandbox` says what held the engines while they were measured.
    """

    engine: str
    hardware: str
    stock_commit: str
    harness: str
    seed: str
    seed_commitment: str
    heldout: Sequence[Drawn]
    verification: Mapping[str, Any]
    thresholds: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    max_new_tokens: int
    weights: WeightHashes
    sandbox: str
    clocks: Mapping[str, Any] = field(default_factory=dict)
    status: Status = Status.CERTIFIED


def certificate(
    report: CampaignReport,
    candidate: CandidateResult,
    evidence: Evidence,
    lock: EngineLock,
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    """The certificate as JSON data, sealed.

    Args:
        files: the other files of the final folder; each one's sha256 is recorded.
    """
    patches = [data for name, data in sorted(files.items()) if name.startswith("patches/")]
    return sealed(
        {
            "schema_version": SCHEMA_VERSION,
            "status": evidence.status.value,
            "hardware": evidence.hardware,
            "setting": report.setting,
            "campaign": report.campaign_id,
            "candidate": candidate.candidate_id,
            "created": lock.created,
            "mechanism": candidate.mechanism,
            "speed": _speed(report, candidate),
            "lossless": {
                "summary": None if candidate.lossless is None else asdict(candidate.lossless),
                "totals": dict(evidence.verification),
                "thresholds": dict(evidence.thresholds),
            },
            "heldout": {
                "seed": evidence.seed,
                "seed_commitment": evidence.seed_commitment,
                "max_new_tokens": evidence.max_new_tokens,
                "draws": [
                    {
                        "purpose": found.draw.purpose,
                        "take": found.draw.take,
                        "prompts": [[r.id, list(r.prompt_ids)] for r in found.requests],
                    }
                    for found in evidence.heldout
                ],
            },
            "weights": _weights(evidence.weights),
            "sandbox": evidence.sandbox,
            "hashes": {
                "stock_tree": lock.stock_tree,
                "final_tree": lock.final_tree,
                "harness": lock.harness,
                "patch_series": series_hash(patches),
                "files": {name: sha256(data) for name, data in sorted(files.items())},
            },
            "machine": dict(evidence.machine),
            "clocks": dict(evidence.clocks),
            "versions": dict(evidence.versions),
        }
    )


def _weights(hashes: WeightHashes) -> dict[str, Any]:
    own = {"pin": hashes.pin, "files": dict(hashes.files)}
    return own if hashes.drafter is None else {**own, "drafter": _weights(hashes.drafter)}


def _speed(report: CampaignReport, candidate: CandidateResult) -> dict[str, Any]:
    return {
        "search": _interval(candidate.to_stock),
        "heldout": _interval(candidate.heldout_to_stock),
        "final_to_stock": _interval(report.final_to_stock),
        "final_to_ar": _interval(report.final_to_ar),
        "stock_to_ar": _interval(report.stock_to_ar),
        "ar_to_reference": _interval(report.ar_to_reference),
        "aa": _interval(report.aa),
        "aa_floor": report.aa_floor,
        "tau": _interval(candidate.tau_interval),
        "step": _interval(candidate.step_interval),
        "tau_ratio": candidate.tau_ratio,
        "step_ratio": candidate.step_ratio,
        "mean_throughput_ratio": candidate.mean_throughput_ratio,
        "ratio_shrunken": candidate.ratio_shrunken,
        "candidates_screened": report.candidates_screened,
        "confirmation_confidence": report.confirmation_confidence,
    }


def _interval(value: Any) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
