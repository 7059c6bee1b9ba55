"""The forcing of one batch of answers: a row an answer, totals, JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from verifier.margins import Unit
from verifier.proportions import Rate, design_effect
from verifier.token_forcing import AnswerCheck

_FAMILY_SUMS = ("answers", "tokens", "mismatches", "near_ties", "bad_ends")


@dataclass(frozen=True)
class ForcingReport:
    """Rows in the order of the answers. Rates use fresh tokens only (see `AnswerCheck`)."""

    rows: tuple[AnswerCheck, ...]
    unit: Unit

    @property
    def tokens_checked(self) -> int:
        return sum(r.tokens_checked for r in self.rows)

    @property
    def mismatches(self) -> int:
        return sum(r.mismatches for r in self.rows)

    @property
    def near_ties(self) -> int:
        return sum(r.near_ties for r in self.rows)

    @property
    def exact_ties(self) -> int:
        return sum(r.exact_ties for r in self.rows)

    @property
    def fresh_tokens(self) -> int:
        return sum(r.fresh_tokens for r in self.rows)

    @property
    def worst_gap_ulps(self) -> float:
        return max((r.worst_gap_ulps for r in self.rows), default=0.0)

    @property
    def first_bad(self) -> AnswerCheck | None:
        return next((r for r in self.rows if not r.ok), None)

    @property
    def first_bad_position(self) -> str | None:
        """`request:position` of the first wrong token or end, None when all is right."""
        row = self.first_bad
        return None if row is None else f"{row.request_id}:{row.first_bad_position}"

    def near_tie_rate(self) -> Rate:
        return Rate(sum(r.fresh_near_ties for r in self.rows), self.fresh_tokens)

    def design_effect(self) -> float:
        """Over-dispersion of near-ties between answers, at least 1."""
        return design_effect([Rate(r.fresh_near_ties, r.fresh_tokens) for r in self.rows])

    def by_family(self) -> dict[str, dict[str, int]]:
        """Totals of each family of requests, in the order they first appear."""
        found: dict[str, dict[str, int]] = {}
        for row in self.rows:
            sums = found.setdefault(row.family, dict.fromkeys(_FAMILY_SUMS, 0))
            sums["answers"] += 1
            sums["tokens"] += row.tokens_checked
            sums["mismatches"] += row.mismatches
            sums["near_ties"] += row.near_ties
            sums["bad_ends"] += not row.end_ok
        return found

    def totals(self) -> dict[str, Any]:
        """JSON-serialisable totals for evidence."""
        return {
            "answers": len(self.rows),
            "tokens_checked": self.tokens_checked,
            "fresh_tokens": self.fresh_tokens,
            "mismatches": self.mismatches,
            "near_ties": self.near_ties,
            "exact_ties": self.exact_ties,
            "bad_ends": sum(1 for r in self.rows if not r.end_ok),
            "undecided": sum(r.undecided for r in self.rows),
            "not_finite": sum(r.not_finite for r in self.rows),
            "worst_gap": finite(self.worst_gap_ulps),
            "gap_unit": self.unit,
            "first_bad_position": self.first_bad_position,
        }

    def to_json(self) -> dict[str, Any]:
        """`totals()` plus `rows`; infinite gaps are the string "inf", as JSON has none."""
        rows = []
        for row in self.rows:
            data = asdict(row)
            data["worst_gap_ulps"] = finite(row.worst_gap_ulps)
            data["gaps"] = [finite(g) for g in row.gaps]
            rows.append(data)
        return {**self.totals(), "rows": rows}


def finite(value: float) -> float | str:
    """A JSON value for a gap that may be infinite."""
    return value if value != float("inf") else "inf"
