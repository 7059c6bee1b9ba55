"""How much a sample of forced tokens can show: tokens needed, and what may have gone unseen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from verifier.policy import MarginPolicy
from verifier.proportions import detection_tokens, wrong_rate_bound
from verifier.report import ForcingReport

ONE_IN = 1000


@dataclass(frozen=True)
class Power:
    """`tokens` are distinct ones, `wrong` the mismatches among all checked; `wrong_rate_upper95` is
    the largest share of wrong tokens that leaves a sample like this one likelier than 5 %.
    `near_tie_tokens` and `delta` are N and margin of the near-tie rate test, None without one."""

    tokens: int
    wrong: int
    wrong_rate_upper95: float
    tokens_for_one_in_1000: int
    near_tie_tokens: int | None
    delta: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def power_of(report: ForcingReport, policy: MarginPolicy) -> Power:
    """What this sample is worth under `policy`."""
    tested = policy.kind == "near_tie" and policy.delta is not None
    return Power(
        tokens=report.fresh_tokens,
        wrong=report.mismatches,
        wrong_rate_upper95=wrong_rate_bound(report.mismatches, report.fresh_tokens),
        tokens_for_one_in_1000=detection_tokens(1 / ONE_IN),
        near_tie_tokens=policy.min_tokens if tested else None,
        delta=policy.delta,
    )


def power_in_words(power: Power) -> list[str]:
    """The power calculation as sentences."""
    rate = power.wrong_rate_upper95
    rarest = f"one token in {1 / rate:.0f}" if 0 < rate < 1 else "every token"
    sentences = [
        f"To meet one wrong token in {ONE_IN} with 95 %: {power.tokens_for_one_in_1000} distinct "
        f"tokens; this sample has {power.tokens}.",
        f"With {power.wrong} wrong in {power.tokens}, up to {rate:.3%} ({rarest}) could be wrong "
        "(upper 95 % bound).",
    ]
    if power.near_tie_tokens is not None and power.delta is not None:
        sentences.append(
            f"To tell that near-ties are not more frequent by {power.delta:.2%}: "
            f"{power.near_tie_tokens} distinct tokens; this sample has {power.tokens}."
        )
    return sentences
