"""What a search is going to do and what its budget buys, before anything runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engines.registry import engine_driver
from explorers.protocol import ExplorerContext
from explorers.registry import make_explorer
from explorers.selection import left_out
from farm.campaign.options import SearchOptions
from settings.schema import Setting

# Launching, warming, exact answers and forcing of one candidate, beside its timed seconds
# (measured on the embedded default; docs/measuring.md).
_OVERHEAD_S = 30.0
# The verifier-only prompts of a confirmation, asked in BF16 and of the FP32 twin, and forced.
_VERIFIER_SET_S = 150.0


@dataclass(frozen=True)
class SearchPlan:
    """Mechanisms in the order they will be tried, and how many the budget buys. `left_out` maps
    those the setting cannot use to the reason."""

    setting: str
    budget_s: float
    rounds: int
    mechanisms: tuple[str, ...]
    canaries: tuple[str, ...]
    baseline_s: float
    candidate_s: float
    confirm_s: float
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def affordable(self) -> int:
        """Candidates the budget buys beside baselines and confirmation."""
        return max(0, int((self.budget_s - self.baseline_s - self.confirm_s) / self.candidate_s))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"affordable": self.affordable}

    def headline(self) -> str:
        wanted = len(self.mechanisms) + len(self.canaries)
        return (
            f"{wanted} candidates proposed for round 1; {self.budget_s / 60:.0f} min buy about "
            f"{self.affordable} beside {self.baseline_s / 60:.0f} min of baselines and "
            f"{self.confirm_s / 60:.0f} min of confirmation"
        )

    def text(self) -> str:
        names = [*self.mechanisms, *(f"{name} (planted)" for name in self.canaries)]
        lines = [f"{self.setting}: {self.headline()}", "in this order:"]
        lines += [f"  {i:2d}. {name}" for i, name in enumerate(names, 1)]
        if self.left_out:
            lines.append("not for this setting:")
            lines += [f"  {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)


def describe_plan(setting: Setting, options: SearchOptions) -> SearchPlan:
    """The first round as the explorers propose it now.

    Raises:
        SpecfarmError: the setting's engine or one of the explorers is not known.
    """
    engine_driver(setting.engine.name)
    context = ExplorerContext(setting, 1, (), shutil.which("g++") is not None)
    explorers = [make_explorer(name) for name in options.explorers]
    proposals = [proposal for explorer in explorers for proposal in explorer.propose(context)]
    each = setting.measurement.seconds_per_candidate
    launches = setting.measurement.launches_aa
    return SearchPlan(
        setting=setting.name,
        budget_s=options.budget_s,
        rounds=options.rounds,
        mechanisms=tuple(proposal.mechanism for proposal in proposals),
        # Which ones, and where among the others, is the secret of the campaign to come.
        canaries=tuple(f"canary-{number + 1}" for number in range(options.canaries)),
        baseline_s=launches * (each / 2 + _OVERHEAD_S) + each * 1.5,
        candidate_s=(each + _OVERHEAD_S) / options.workers,
        confirm_s=setting.measurement.launches_confirm * (each + _OVERHEAD_S) + _VERIFIER_SET_S,
        left_out=left_out(explorers, context),
    )
