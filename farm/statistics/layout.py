"""How launches and prompts hang together: the same prompts in every launch, or fresh ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Layout:
    """`crossed`: the launches share their prompts, so a prompt's effect is in all of them; else
    every launch asked prompts of its own (as the placebo and confirmations do). `prompt_df`:
    degrees of freedom of the variance between prompts."""

    launches: int
    prompts: int
    crossed: bool
    prompt_df: int


def layout_of(present: Flags) -> Layout:
    """From (launches, prompts). A few prompts met again by chance do not make a crossed layout:
    at least half of them must be in more than one launch."""
    per_prompt = present.sum(axis=0)
    prompts = int((per_prompt > 0).sum())
    launches = int(present.any(axis=1).sum())
    crossed = launches < 2 or 2 * int((per_prompt > 1).sum()) >= prompts
    # Without a second prompt in any launch nothing is known of prompts but all together.
    crossed = crossed or int(present.sum()) <= launches
    units = prompts if crossed else int(present.sum())
    df = units - 1 if crossed else units - launches
    return Layout(launches, prompts, crossed, df)
