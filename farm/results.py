"""What a campaign knows at its end: plain frozen data, JSON in and out, no behaviour."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from farm.verdicts import Decision, Verdict


@dataclass(frozen=True)
class RatioInterval:
    """A speed ratio with its interval. `baseline` names what it is a ratio to
    (`native-<tree hash 12>`, `native-<hash>-ar`, `transformers-5.24`); `n` counts the independent
    units (prompts or blocks) behind it; `method` names estimator and interval; `confidence` is 0.95
    except in a confirmation's own bound."""

    ratio: float
    low: float
    high: float
    baseline: str
    n: int
    method: str
    confidence: float = 0.95


@dataclass(frozen=True)
class LosslessSummary:
    """Token forcing in numbers. `worst_gap_ulps` is in the unit of the calibration's allowed gap
    (`verifier.margins`); `exact_*` are the FP32 twin's counts, verifier-only prompts included (None
    where no twin was run), `verifier_*` those of the verifier-only prompts (None where they were
    not asked)."""

    tokens_checked: int
    mismatches: int
    near_ties: int
    worst_gap_ulps: float
    first_bad_position: str | None
    exact_checked: int | None = None
    exact_mismatches: int | None = None
    verifier_checked: int | None = None
    verifier_mismatches: int | None = None


@dataclass(frozen=True)
class CandidateResult:
    """One row of the verdict table. `kind`: mechanism, merge, canary_noop, canary_lossy,
    canary_cheat; `planted` is a canary's own name.

    `to_baseline` is what was measured, to the round's incumbent; `to_stock` and `to_ar` are
    composed from it. `tau_interval` x `step_interval` = `to_baseline`. `ratio_shrunken` is
    `to_stock` shrunk for having been one of several (farm.statistics.shrinkage)."""

    candidate_id: str
    mechanism: str
    kind: str
    component: str
    round: int
    tree_hash: str
    commit: str
    patch: str
    decision: Decision
    to_stock: RatioInterval | None = None
    to_ar: RatioInterval | None = None
    heldout_to_stock: RatioInterval | None = None
    accept_length: float | None = None
    tau_ratio: float | None = None
    step_ratio: float | None = None
    mean_throughput_ratio: float | None = None
    lossless: LosslessSummary | None = None
    hypothesis: str = ""
    to_baseline: RatioInterval | None = None
    tau_interval: RatioInterval | None = None
    step_interval: RatioInterval | None = None
    ratio_shrunken: float | None = None
    planted: str = ""


@dataclass(frozen=True)
class CampaignReport:
    """Everything `specfarm report` prints, MLflow shows and the certificate quotes.

    `candidates_screened` were timed; `confirmation_confidence` is the level at which the last
    confirmation's lower bound was held against the floor (None: nothing was confirmed)."""

    campaign_id: str
    setting: str
    stock_tree: str
    started_utc: str
    machine: dict[str, Any]
    aa: RatioInterval | None
    aa_floor: float | None
    ar_to_reference: RatioInterval | None
    stock_to_ar: RatioInterval | None
    final_to_stock: RatioInterval | None
    final_to_ar: RatioInterval | None
    candidates: tuple[CandidateResult, ...] = ()
    promoted: str | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    candidates_screened: int = 0
    confirmation_confidence: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_INTERVALS = (
    "to_stock",
    "to_ar",
    "heldout_to_stock",
    "to_baseline",
    "tau_interval",
    "step_interval",
)


def _interval(data: dict[str, Any] | None) -> RatioInterval | None:
    return None if data is None else RatioInterval(**data)


def candidate_from_json(data: dict[str, Any]) -> CandidateResult:
    """Inverse of `dataclasses.asdict(CandidateResult)`."""
    decision = data["decision"]
    return CandidateResult(
        **{
            **data,
            "decision": Decision(
                Verdict(decision["verdict"]), decision["reason"], decision["evidence"]
            ),
            **{key: _interval(data.get(key)) for key in _INTERVALS},
            "lossless": None if data["lossless"] is None else LosslessSummary(**data["lossless"]),
        }
    )


def report_from_json(data: dict[str, Any]) -> CampaignReport:
    """Inverse of `CampaignReport.to_json`."""
    intervals = ("aa", "ar_to_reference", "stock_to_ar", "final_to_stock", "final_to_ar")
    return CampaignReport(
        **{
            **data,
            **{key: _interval(data[key]) for key in intervals},
            "candidates": tuple(candidate_from_json(c) for c in data["candidates"]),
            "notes": tuple(data["notes"]),
        }
    )
