"""A campaign's guards with all they need to know; the flow sees `farm.campaign.context.Guards`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.registry import engine_driver
from farm.bench.memoisation import first_answers, memoisation
from farm.bench.recording import merge_launches, recording_from_json
from farm.campaign.guard_case import CONTROL, SUBJECT, Case, Guarded
from farm.campaign.guards import check
from farm.campaign.jobs import ArmSpec, MeasureOutcome, VerifyOutcome
from farm.promotion.harness import harness_hash
from settings.schema import Setting
from verifier.target_size import TargetSize, target_size


@dataclass(frozen=True)
class CampaignGuards:
    """`harness_at_start` is taken when the campaign begins (or goes on: units of another harness
    are measured again); `harness_now` is asked at every verdict."""

    setting: Setting
    owned: frozenset[str]
    size: TargetSize
    harness_at_start: str
    harness_now: Callable[[], str] = harness_hash

    def check(
        self,
        arms: Sequence[ArmSpec],
        outcomes: Sequence[MeasureOutcome],
        verified: VerifyOutcome | None,
    ) -> Guarded:
        return check(
            Case(
                setting=self.setting,
                arms=tuple(arms),
                outcomes=tuple(outcomes),
                verified=verified,
                owned=self.owned,
                harness=(self.harness_at_start, self.harness_now()),
                size=self.size,
            )
        )

    def fair(self, recordings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        parsed = [recording_from_json(recording) for recording in recordings]
        found = memoisation(merge_launches(parsed), SUBJECT, CONTROL)
        if found is None or not found.excluded:
            return list(recordings)
        return [first_answers(recording).to_json() for recording in parsed]


def campaign_guards(setting: Setting, target: Path) -> CampaignGuards:
    """Guards for a campaign that begins now, on the checkpoint in `target`.

    Raises:
        VerifierError: the checkpoint's files cannot be read.
    """
    return CampaignGuards(
        setting=setting,
        owned=engine_driver(setting.engine.name).setting_owned_keys,
        size=target_size(
            target, setting.target.weights_dtype, setting.target.checkpoint.size_bytes
        ),
        harness_at_start=harness_hash(),
    )
