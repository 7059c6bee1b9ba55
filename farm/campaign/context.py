"""Everything a campaign's flow needs, gathered once; services come in as protocols."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engines.answers import GenerationRequest
from engines.knobs import KnobValue
from explorers.protocol import Explorer, Proposal
from farm.campaign.guard_case import Guarded
from farm.campaign.jobs import ArmSpec, MeasureOutcome, VerifyOutcome
from farm.campaign.observer import Observer
from farm.campaign.options import SearchOptions
from farm.results import RatioInterval
from settings.schema import Setting
from settings.verifier_prompts import VerifierPrompt


class TreeLike(Protocol):
    @property
    def tree_hash(self) -> str: ...
    @property
    def commit(self) -> str: ...


class Trees(Protocol):
    """The tree store as the flow sees it."""

    def commit_patch(self, base_commit: str, patch: str, message: str) -> TreeLike: ...
    def commit_knobs(
        self, base: str, knobs: Mapping[str, KnobValue], message: str | None = None
    ) -> TreeLike: ...
    def diff(self, base: str, commit: str) -> str: ...
    def bundle(self, commit: str) -> bytes: ...


@dataclass(frozen=True)
class Measured:
    """A ratio and its decomposition (speed = accept length x steps per second); `tau` and `step`
    are the two factors with their own intervals."""

    ratio: RatioInterval
    tau_ratio: float | None
    step_ratio: float | None
    mean_throughput_ratio: float | None
    accept_length: Mapping[str, float]
    tau: RatioInterval | None = None
    step: RatioInterval | None = None


class Statistics(Protocol):
    """farm.bench's estimators as the flow sees them; recordings are their JSON."""

    def estimate(
        self,
        recordings: Sequence[Mapping[str, Any]],
        numerator: str,
        denominator: str,
        baseline: str,
        confidence: float = 0.95,
    ) -> Measured:
        """Raises MeasurementError where the recordings do not hold a ratio."""
        ...

    def aa_floor(
        self, recordings: Sequence[Mapping[str, Any]], baseline: str
    ) -> tuple[RatioInterval, float]: ...

    def least_acceptable(self, floor: float) -> float:
        """The least ratio at which a one-launch measurement could be accepted (>= `floor`)."""
        ...

    def answers(self, recordings: Sequence[Mapping[str, Any]], arm: str) -> list[dict[str, Any]]:
        """Every answer of `arm`, as the JSON a VerifyJob carries."""
        ...


@dataclass(frozen=True)
class PromptSupply:
    """`search` is fixed; `heldout(purpose)` draws fresh prompts from the committed seed, and
    `verifier(purpose)` the verifier-only ones."""

    search: tuple[GenerationRequest, ...]
    heldout: Callable[[str], tuple[GenerationRequest, ...]]
    exact: tuple[GenerationRequest, ...]
    verifier: Callable[[str], tuple[VerifierPrompt, ...]]


class Guards(Protocol):
    """Every check but token forcing (farm.campaign.guards), with what it needs to know bound."""

    def check(
        self,
        arms: Sequence[ArmSpec],
        outcomes: Sequence[MeasureOutcome],
        verified: VerifyOutcome | None,
    ) -> Guarded:
        """What all guards say of a candidate whose verdict is due."""
        ...

    def fair(self, recordings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The recordings a confirmation's interval may rest on: all answers where repeats of a
        prompt are no faster than its first answer (the interval of the gain holds 1), else first
        answers only."""
        ...


EXACT_PROMPTS = 4


def spread(
    requests: tuple[GenerationRequest, ...], count: int = EXACT_PROMPTS
) -> tuple[GenerationRequest, ...]:
    """`count` requests evenly over the list, so that every prompt family is met."""
    step = max(1, len(requests) // count)
    return requests[::step][:count]


@dataclass(frozen=True)
class CampaignContext:
    """One campaign's fixed inputs. `reference` is the (engine, commit, tree) of the independent
    implementation AR is shown beside, None where there is none."""

    campaign_id: str
    setting: Setting
    exact_setting: str | None
    options: SearchOptions
    stock: TreeLike
    reference: TreeLike | None
    reference_name: str
    trees: Trees
    statistics: Statistics
    guards: Guards
    prompts: PromptSupply
    explorers: Sequence[Explorer]
    canaries: Sequence[Proposal]
    observer: Observer
    seed: int
    started: float
    machine: Mapping[str, Any]
    has_compiler: bool
    setting_path: str | None = None
    clock: Callable[[], float] = time.time

    @property
    def setting_ref(self) -> str:
        """What jobs load the setting by: its path where it was given by one, else its name."""
        return self.setting_path or self.setting.name

    @property
    def stock_name(self) -> str:
        """The baseline's name in every ratio: `native-<tree hash 12>`."""
        return f"{self.setting.engine.name}-{self.stock.tree_hash[:12]}"

    def time_left(self) -> float:
        """Seconds of the budget left."""
        return self.options.budget_s - (self.clock() - self.started)
