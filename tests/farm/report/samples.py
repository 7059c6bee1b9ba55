"""A campaign report made by hand; every number in it is invented."""

from __future__ import annotations

from farm.results import CampaignReport, CandidateResult, LosslessSummary, RatioInterval
from farm.verdicts import Decision, Verdict

STOCK = "1f0c" * 10
NATIVE = f"native-{STOCK[:12]}"
PATCH = "--- a/engine.toml\n+++ b/engine.toml\n@@ -1 +1 @@\n-k = 7\n+k = 11\n"


def interval(ratio: float, half: float, baseline: str = NATIVE) -> RatioInterval:
    return RatioInterval(
        ratio, ratio - half, ratio + half, baseline, 12, "quiet-time slices, bootstrap"
    )


def candidate(
    number: int,
    mechanism: str,
    verdict: Verdict,
    reason: str,
    ratio: float | None,
    kind: str = "mechanism",
    component: str = "draft",
    mismatches: int = 0,
    heldout: float | None = None,
) -> CandidateResult:
    return CandidateResult(
        candidate_id=f"c{number:02d}",
        mechanism=mechanism,
        kind=kind,
        component=component,
        round=1,
        tree_hash=f"{number:040x}",
        commit=f"{number + 256:040x}",
        patch=PATCH,
        decision=Decision(verdict, reason, {"floor": 1.021}),
        to_stock=None if ratio is None else interval(ratio, 0.027),
        to_ar=None if ratio is None else interval(1.61 * ratio, 0.05, f"{NATIVE}-ar"),
        heldout_to_stock=None if heldout is None else interval(heldout, 0.031),
        accept_length=None if ratio is None else 1.64 * ratio,
        tau_ratio=None if ratio is None else 1.17,
        step_ratio=None if ratio is None else 1.04,
        lossless=None
        if ratio is None
        else LosslessSummary(
            3071, mismatches, 29, 1.5, "request 3, position 17" if mismatches else None, 512, 0
        ),
        hypothesis=f"{mismatches=} is what {mismatches} says",
    )


def sample_report() -> CampaignReport:
    return CampaignReport(
        campaign_id="20261129-1207-ab12",
        setting="cpu_c1_smollm2-135m_ngram",
        stock_tree=STOCK,
        started_utc="2026-11-29T12:07:00Z",
        machine={"cpu": "Example CPU", "cores": 2, "torch": "2.13.0"},
        aa=RatioInterval(1.003, 0.986, 1.021, NATIVE, 3, "small-sample t over launches"),
        aa_floor=1.021,
        ar_to_reference=interval(1.31, 0.06, "transformers-5.24"),
        stock_to_ar=interval(1.61, 0.05, f"{NATIVE}-ar"),
        final_to_stock=interval(1.274, 0.03),
        final_to_ar=interval(2.05, 0.07, f"{NATIVE}-ar"),
        candidates=(
            candidate(
                1,
                "token_recycling",
                Verdict.ACCEPTED,
                "lower bound 1.195 > floor 1.021",
                1.222,
                heldout=1.203,
            ),
            candidate(2, "longer_k", Verdict.NOT_FASTER, "upper bound 1.018 below floor", 0.991),
            candidate(
                3,
                "fused_norm_cpp",
                Verdict.ACCEPTED,
                "lower bound 1.077 > floor 1.021",
                1.104,
                component="norms",
                heldout=1.098,
            ),
            candidate(
                4,
                "second_best_token",
                Verdict.NOT_LOSSLESS,
                "3 mismatches in 3071 tokens",
                1.35,
                kind="canary_lossy",
                mismatches=3,
            ),
            candidate(
                5,
                "comment_only",
                Verdict.NOT_FASTER,
                "interval holds 1",
                1.002,
                kind="canary_noop",
                component="host",
            ),
            candidate(6, "static_bigram_table", Verdict.INCONCLUSIVE, "interval too wide", 1.043),
            candidate(
                7,
                "spin_threads",
                Verdict.CRASHED,
                "exit code 1 before /health answered",
                None,
                component="host",
            ),
            candidate(
                8,
                "merge-1",
                Verdict.ACCEPTED,
                "confirmed on held-out prompts",
                1.301,
                kind="merge",
                component="host",
                heldout=1.274,
            ),
        ),
        promoted="c08",
        notes=("two of eight candidates were planted by the farm",),
    )
