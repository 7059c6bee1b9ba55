"""How many candidates were screened enters the level at which one of them is confirmed.

The best of many screened candidates is partly lucky. Confirmation takes fresh prompts and launches,
so its data know nothing of that luck; but several engines may be confirmed in one campaign (a
merge, its best member, a later round's). The confirmation level is therefore Bonferroni's over the
candidates that were accepted at screening and so compete for confirmation: whichever of them is
confirmed, and if all of them were, the chance of a false "faster" stays below `ALPHA`. Candidates
rejected at screening are not confirmed and need no share.
"""

from __future__ import annotations

ALPHA = 0.05


def confirmation_confidence(competing: int) -> float:
    """Two-sided confidence whose lower bound must exceed the floor, for `competing` >= 1 candidates
    accepted at screening."""
    if competing < 1:
        raise ValueError(f"{competing} candidates compete; a confirmation needs one")
    return 1.0 - ALPHA / competing
