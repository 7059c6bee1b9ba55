"""What a campaign knows at its end: plain frozen data, JSON in and out, no behaviour."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from farm.verdicts import Decision, Verdict


@dataclass(frozen=True)
class RatioInterval:
    """A speed ratio with its 95 % interval. `baseline` names what it is a ratio to
    (`native-<tree hash 12>`, `native-<hash>-ar`, `transformers-5.24`); `n` counts the independent
    units (prompts or launches) behind it; `method` names estimator and interval."""

    ratio: float
    low: float
    high: float
    baseline: str
    n: int
    method: str


@dataclass(frozen=True)
class LosslessSummary:
    """Token forcing in numbers. `worst_gap_ulps` is in BF16 ULPs at the logit's magnitude;
    `exact_*` are the FP32 twin's counts (None where no twin was run)."""

    tokens_checked: int
    mismatches: int
    near_ties: int
    worst_gap_ulps: float
    first_bad_position: str | None
    exact_checked: int | None = None
    exact_mismatches: int | None = None


@dataclass(frozen=True)
class CandidateResult:
    """One row of the verdict table. `kind`: mechanism, merge, canary_noop, canary_lossy."""

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


@dataclass(frozen=True)
class CampaignReport:
    """Everything `specfarm report` prints, MLflow shows and the certificate quotes."""

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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
            "to_stock": _interval(data["to_stock"]),
            "to_ar": _interval(data["to_ar"]),
            "heldout_to_stock": _interval(data["heldout_to_stock"]),
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
