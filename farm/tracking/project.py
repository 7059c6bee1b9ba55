"""From result records to MLflow's flat names: metrics, parameters (identity) and tags."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from farm.report.words import label, promoted_candidate
from farm.results import CampaignReport, CandidateResult, RatioInterval
from farm.verdicts import Verdict

_TAG_LIMIT = 5000
# The UI prints every digit of a float; verdict.json keeps full precision.
_DECIMALS = 4
_BROKEN = {Verdict.CRASHED, Verdict.TIMEOUT, Verdict.INVALID_ENVIRONMENT}


@dataclass(frozen=True)
class Projection:
    """What one run shows. `params` never change for a run; `tags` and `metrics` may."""

    unit: str
    name: str
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]
    failed: bool = False


def interval_metrics(name: str, interval: RatioInterval | None) -> dict[str, float]:
    """`name`, `name_low`, `name_high`; nothing where nothing was measured."""
    if interval is None:
        return {}
    values = {name: interval.ratio, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return _known(values)


def _known(values: Mapping[str, float | int | None]) -> dict[str, float]:
    """What was measured and is finite, rounded."""
    return {
        key: round(float(value), _DECIMALS)
        for key, value in values.items()
        if value is not None and math.isfinite(value)
    }


def _intervals(**intervals: RatioInterval | None) -> dict[str, str]:
    return {
        f"{k}_95": f"[{i.low:.3f}, {i.high:.3f}]" for k, i in intervals.items() if i is not None
    }


def _baselines(**intervals: RatioInterval | None) -> dict[str, str]:
    return {f"baseline_{key}": i.baseline for key, i in intervals.items() if i is not None}


def project_candidate(campaign_id: str, result: CandidateResult) -> Projection:
    """The run of one candidate."""
    lossless = result.lossless
    metrics = {
        **interval_metrics("ratio_to_stock", result.to_stock),
        **interval_metrics("ratio_to_ar", result.to_ar),
        **interval_metrics("heldout_ratio_to_stock", result.heldout_to_stock),
        **interval_metrics("tau_ratio", result.tau_interval),
        **interval_metrics("step_ratio", result.step_interval),
        **_known(
            {
                "tau": result.accept_length,
                "tau_ratio": result.tau_ratio,
                "step_ratio": result.step_ratio,
                "mean_throughput_ratio": result.mean_throughput_ratio,
                "ratio_shrunken": result.ratio_shrunken,
            }
        ),
    }
    if lossless is not None:
        metrics |= _known(
            {
                "tokens_checked": lossless.tokens_checked,
                "mismatches": lossless.mismatches,
                "near_ties": lossless.near_ties,
                "worst_gap_ulps": lossless.worst_gap_ulps,
                "fp32_exact_checked": lossless.exact_checked,
                "fp32_exact_mismatches": lossless.exact_mismatches,
            }
        )
    return Projection(
        unit=f"{campaign_id}/{result.candidate_id}",
        name=label(result),
        metrics=metrics,
        params={
            "candidate_id": result.candidate_id,
            "mechanism": result.mechanism,
            "kind": result.kind,
            "component": result.component,
            "round": str(result.round),
            "tree_hash": result.tree_hash,
            "commit": result.commit,
        },
        tags={
            "specfarm.kind": "candidate",
            "verdict": result.decision.verdict.value,
            "reason": result.decision.reason[:_TAG_LIMIT],
            "mlflow.note.content": f"{result.hypothesis}\n\n{result.decision.reason}".strip(),
            **_intervals(stock=result.to_stock, ar=result.to_ar, heldout=result.heldout_to_stock),
            **_baselines(
                stock=result.to_stock, ar=result.to_ar, heldout_stock=result.heldout_to_stock
            ),
        },
        failed=result.decision.verdict in _BROKEN,
    )


def _outcome(report: CampaignReport) -> str:
    if not report.promoted:
        return "nothing promoted"
    found = promoted_candidate(report)
    return f"promoted {found.mechanism if found else report.promoted}"


def project_campaign(report: CampaignReport) -> Projection:
    """The campaign's own run: the promoted engine's ratios under the candidates' names, and the
    reference measurements under their own."""
    accepted = sum(c.decision.verdict is Verdict.ACCEPTED for c in report.candidates)
    metrics = {
        **interval_metrics("ratio_to_stock", report.final_to_stock),
        **interval_metrics("ratio_to_ar", report.final_to_ar),
        **interval_metrics("aa", report.aa),
        **interval_metrics("ar_to_reference", report.ar_to_reference),
        **interval_metrics("stock_to_ar", report.stock_to_ar),
        **_known(
            {
                "aa_floor": report.aa_floor,
                "candidates": len(report.candidates),
                "accepted": accepted,
                "candidates_screened": report.candidates_screened,
                "confirmation_confidence": report.confirmation_confidence,
            }
        ),
    }
    return Projection(
        unit=report.campaign_id,
        name=report.campaign_id,
        metrics=metrics,
        params={"setting": report.setting, "stock_tree": report.stock_tree},
        tags={
            "specfarm.kind": "campaign",
            "verdict": _outcome(report),
            "started_utc": report.started_utc,
            "mlflow.note.content": "\n\n".join(report.notes),
            **_intervals(stock=report.final_to_stock, ar=report.final_to_ar),
            **_baselines(
                stock=report.final_to_stock,
                ar=report.final_to_ar,
                reference=report.ar_to_reference,
                stock_to_ar=report.stock_to_ar,
                aa=report.aa,
            ),
            **{
                f"machine.{key}": str(value)[:_TAG_LIMIT]
                for key, value in report.machine.items()
                if isinstance(value, str | int | float)
            },
        },
    )
