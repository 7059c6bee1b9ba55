"""A farm without engines: trees are sets of features, features have a known true effect.

Everything a job needs travels in the job (features in its bundles), so that workers built anew
after a kill know no more than a fresh process would.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

from engines.answers import GenerationRequest
from engines.errors import PatchConflict, TreeRefused
from explorers.protocol import Change, ExplorerContext, Prediction, Proposal
from farm.bench.errors import MeasurementError
from farm.campaign.context import CampaignContext, Measured, PromptSupply
from farm.campaign.flow import CampaignEnd, campaign
from farm.campaign.guard_case import Guarded
from farm.campaign.jobs import Job, MeasureJob, MeasureOutcome, Outcome, VerifyJob, VerifyOutcome
from farm.campaign.options import SearchOptions
from farm.campaign.scheduler import Scheduler, UnitStore
from farm.ledger import Ledger
from farm.results import CampaignReport, CandidateResult, RatioInterval
from farm.search.assemble import unit_keys
from farm.workers.codec import decode_outcome, encode_outcome
from settings.verifier_prompts import VerifierPrompt
from tests.farm.campaign.simulated_setting import SETTING

HALF_WIDTH = 0.02
FLOOR = 1.015
ROLE_SPEED = {"ar": 0.5}


@dataclass(frozen=True)
class Effect:
    """The truth about one feature. `status` other than ok: how the engine fails when launched."""

    search: float = 1.0
    heldout: float | None = None
    lossy: bool = False
    lossy_exact: bool = False
    lossy_hidden: bool = False
    status: str = "ok"
    loser: bool = False
    mute: bool = False


@dataclass
class World:
    """True effects, and everything that survives a kill: the clock and what was run. `placebo`: the
    true stock_b / stock of each A/A launch."""

    effects: Mapping[str, Effect]
    pairs: Mapping[frozenset[str], float] = field(default_factory=dict)
    faults: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    placebo: Sequence[float] = ()
    now: float = 0.0
    executed: Counter[str] = field(default_factory=Counter)

    def second_stock(self, unit: str) -> float:
        """How much faster stock's second engine is in that launch of the A/A placebo."""
        launch = int(unit.split(":")[1])
        return self.placebo[launch] if launch < len(self.placebo) else 1.0

    def speed(self, features: Sequence[str], role: str, heldout: bool) -> float:
        speed = ROLE_SPEED.get(role, 1.0)
        for name in features:
            effect = self.effects.get(name, Effect())
            held = effect.search if effect.heldout is None else effect.heldout
            speed *= held if heldout else effect.search
        for pair in itertools.combinations(sorted(features), 2):
            speed *= self.pairs.get(frozenset(pair), 1.0)
        return speed


@dataclass(frozen=True)
class FakeTree:
    tree_hash: str
    commit: str


class FakeTrees:
    """A patch's text is a feature's name; `conflict` clashes, `evil` is against the policy,
    `needs_clean` applies only where nothing else is."""

    def __init__(self) -> None:
        self._features: dict[str, tuple[str, ...]] = {}

    def stock(self, *features: str) -> FakeTree:
        names = tuple(sorted(features))
        tree_hash = hashlib.sha1(json.dumps(names).encode()).hexdigest()
        commit = hashlib.sha1(tree_hash.encode()).hexdigest()
        self._features[commit] = names
        return FakeTree(tree_hash, commit)

    def commit_patch(self, base_commit: str, patch: str, message: str) -> FakeTree:
        if patch == "conflict" or (patch == "needs_clean" and self._features[base_commit]):
            raise PatchConflict(f"{patch} does not apply")
        if patch == "evil":
            raise TreeRefused("evil leaves its tree")
        return self.stock(*{*self._features[base_commit], patch})

    def commit_knobs(
        self, base: str, knobs: Mapping[str, Any], message: str | None = None
    ) -> FakeTree:
        return self.stock(*{*self._features[base], *knobs})

    def diff(self, base: str, commit: str) -> str:
        return "+".join(sorted({*self._features[commit]} - {*self._features[base]}))

    def bundle(self, commit: str) -> bytes:
        return json.dumps({commit: self._features[commit]}).encode()


class FakeStatistics:
    """Geometric means of the true ratios, a 95 % interval of a fixed half-width."""

    def estimate(
        self,
        recordings: Sequence[Mapping[str, Any]],
        numerator: str,
        denominator: str,
        baseline: str,
        confidence: float = 0.95,
    ) -> Measured:
        logs = []
        for recording in recordings:
            if recording["mute"][numerator]:
                raise MeasurementError("0 prompts have data of both arms; two are the least")
            speeds = recording["speeds"]
            logs.append(math.log(speeds[numerator] / speeds[denominator]))
        ratio = math.exp(sum(logs) / len(logs))
        half = HALF_WIDTH * NormalDist().inv_cdf((1 + confidence) / 2) / NormalDist().inv_cdf(0.975)
        interval = RatioInterval(
            ratio,
            ratio * (1 - half),
            ratio * (1 + half),
            baseline,
            len(logs),
            "true",
            confidence,
        )
        tau = RatioInterval(1.0, 0.99, 1.01, baseline, len(logs), "true")
        return Measured(interval, 1.0, ratio, ratio, {numerator: 2.0}, tau, interval)

    def aa_floor(
        self, recordings: Sequence[Mapping[str, Any]], baseline: str
    ) -> tuple[RatioInterval, float]:
        return self.estimate(recordings, "stock_b", "stock", "stock").ratio, FLOOR

    def least_acceptable(self, floor: float) -> float:
        return floor * (1 + HALF_WIDTH)

    def answers(self, recordings: Sequence[Mapping[str, Any]], arm: str) -> list[dict[str, Any]]:
        return [{"unit": r["unit"], "arm": arm, "lossy": r["lossy"][arm]} for r in recordings]


class NoGuards:
    """A world without engines has nothing to guard; tests may plant what the guards say."""

    def __init__(self) -> None:
        self.says = Guarded()

    def check(self, *seen: object) -> Guarded:
        return self.says

    def fair(self, recordings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return list(recordings)


class FakeWorkers:
    """Runs a job when waited for; `last_first` returns them in the order nobody expects."""

    def __init__(
        self,
        world: World,
        capacity: int = 1,
        last_first: bool = False,
        forcing_waits: bool = False,
    ) -> None:
        self.world = world
        self.forcing_waits = forcing_waits
        self._capacity = capacity
        self._last_first = last_first
        self.flight: list[Job] = []
        self.submitted: list[str] = []
        self.most = 0

    @property
    def capacity(self) -> int:
        return self._capacity

    def submit(self, job: Job) -> None:
        self.flight.append(job)
        self.submitted.append(job.unit)
        self.most = max(self.most, len(self.flight))

    def wait(self) -> tuple[Job, Outcome]:
        job = self.flight.pop(-1 if self._last_first else 0)
        self.world.executed[job.unit] += 1
        if isinstance(job, MeasureJob):
            self.world.now += job.seconds
            return job, self._measure(job)
        return job, self._verify(job)

    def _measure(self, job: MeasureJob) -> MeasureOutcome:
        if job.unit in self.world.faults:
            status, blamed = self.world.faults.pop(job.unit)
            return MeasureOutcome(status, blamed, f"{status} of {blamed}")
        features: dict[str, list[str]] = {}
        for bundle in job.bundles:
            features |= json.loads(bundle)
        world, heldout = self.world, job.requests[0].id.startswith("heldout")
        speeds, lossy, mute, exact, hidden, loser = {}, {}, {}, False, False, False
        for spec in job.arms:
            names = features[spec.commit]
            effects = [world.effects.get(name, Effect()) for name in names]
            for effect in effects:
                if effect.status != "ok":
                    return MeasureOutcome(effect.status, spec.label, f"{effect.status}: log tail")
            speeds[spec.label] = world.speed(names, spec.arm, heldout)
            if spec.label == "stock_b":
                speeds[spec.label] *= world.second_stock(job.unit)
            lossy[spec.label] = any(effect.lossy for effect in effects)
            mute[spec.label] = any(effect.mute for effect in effects)
            if spec.label == job.subject:
                exact = any(effect.lossy_exact for effect in effects)
                hidden = any(effect.lossy_hidden for effect in effects)
                loser = job.stop_losers and any(effect.loser for effect in effects)
        recording = {"unit": job.unit, "speeds": speeds, "lossy": lossy, "mute": mute}
        answers = [{"lossy": exact}] * len(job.exact_requests)
        run_exact = job.exact_setting is not None and bool(job.exact_requests) and not loser
        return MeasureOutcome(
            "ok",
            recording=recording,
            exact_answers=answers if run_exact else None,
            verifier_requests=[{"id": prompt.id} for prompt in job.verifier_prompts],
            verifier_answers=[{"lossy": hidden} for _ in job.verifier_prompts],
            clear_loser=loser,
        )

    def _verify(self, job: VerifyJob) -> VerifyOutcome:
        if job.unit in self.world.faults:
            return VerifyOutcome(self.world.faults.pop(job.unit)[0], "stock engine is gone")
        if job.calibrate:
            return VerifyOutcome("calibrated", "", calibration={"answers": len(job.stock_answers)})
        if job.calibration is None or not job.answers:
            return VerifyOutcome("inconclusive", "nothing to judge by")
        if job.exact_setting is not None and job.exact_answers is None:
            return VerifyOutcome("inconclusive", "the FP32-exact run of this tree is missing")
        forced = (*job.answers, *(job.exact_answers or ()), *job.verifier_answers)
        wrong = sum(answer["lossy"] for answer in forced)
        status = "not_lossless" if wrong else "lossless"
        summary = {
            "tokens_checked": len(job.answers),
            "mismatches": wrong,
            "near_ties": 0,
            "worst_gap_ulps": 0.0,
            "first_bad_position": None,
        }
        return VerifyOutcome(status, f"{wrong} mismatches", summary, {"wrong": wrong})


class FakeExplorer:
    """Proposes a fixed list a round, less what was tried."""

    name = "fake"

    def __init__(self, rounds: Mapping[int, Sequence[Proposal]]) -> None:
        self._rounds = rounds

    def propose(self, context: ExplorerContext) -> Sequence[Proposal]:
        tried = {item.mechanism for item in context.evidence}
        return [p for p in self._rounds.get(context.round, ()) if p.mechanism not in tried]


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.reports: list[CampaignReport] = []
        self.rows: list[CandidateResult] = []

    def phase(self, name: str, units: int) -> None:
        self.messages.append(f"phase {name}")

    def message(self, text: str) -> None:
        self.messages.append(text)

    def candidate(self, result: CandidateResult, recording: dict[str, object] | None) -> None:
        self.rows.append(result)

    def report(self, report: CampaignReport) -> None:
        self.reports.append(report)


def proposal(name: str, kind: str = "mechanism", *, knob: bool = False) -> Proposal:
    change = Change(knobs={name: 1}) if knob else Change(patch=name)
    return Proposal(name, "draft", f"{name} helps", change, Prediction(1.1, "a guess"), kind)


def request(name: str) -> GenerationRequest:
    return GenerationRequest(name, tuple(name.encode()), 8)


class Farm:
    """One campaign over a world; `build` makes everything but ledger and world anew."""

    def __init__(
        self,
        folder: Path,
        world: World,
        rounds: Mapping[int, Sequence[Proposal]],
        *,
        canaries: Sequence[Proposal] = (),
        budget_s: float = 1e6,
        exact: bool = False,
        capacity: int = 1,
        last_first: bool = False,
    ) -> None:
        self.world = world
        self.ledger = Ledger(folder / "ledger.sqlite")
        self.ledger._db.execute("PRAGMA synchronous=OFF")
        self.rounds = rounds
        self.canaries = canaries
        self.options = SearchOptions(
            rounds=max(rounds, default=1), budget_s=budget_s, canaries=len(canaries)
        )
        self.exact = exact
        self.capacity, self.last_first = capacity, last_first
        self.ledger.create_campaign("sim", SETTING.name, self.options.to_json())
        self.build()

    def build(self) -> None:
        """As a new process would after a kill."""
        trees = FakeTrees()
        self.observer = Recorder()
        self.workers = FakeWorkers(self.world, self.capacity, self.last_first)
        self.context = CampaignContext(
            campaign_id="sim",
            setting=SETTING,
            exact_setting="simulated-fp32" if self.exact else None,
            options=self.options,
            stock=trees.stock(),
            reference=trees.stock("reference"),
            reference_name="transformers-0",
            trees=trees,
            statistics=FakeStatistics(),
            guards=NoGuards(),
            prompts=PromptSupply(
                search=(request("search-1"), request("search-2")),
                heldout=lambda purpose: (request(f"heldout-{purpose}"),),
                exact=(request("exact-1"),) if self.exact else (),
                verifier=lambda purpose: (VerifierPrompt(purpose, "random_ids", (1,), 8),),
            ),
            explorers=[FakeExplorer(self.rounds)],
            canaries=self.canaries,
            observer=self.observer,
            seed=5,
            started=0.0,
            machine={"cpu": "simulated"},
            has_compiler=False,
            clock=lambda: self.world.now,
        )
        units = UnitStore(self.ledger, unit_keys(self.context), encode_outcome, decode_outcome)
        self.scheduler = Scheduler(campaign(self.context), self.workers, units)

    def run(self) -> CampaignEnd:
        end = self.scheduler.run()
        assert isinstance(end, CampaignEnd)
        return end

    def verdicts(self, end: CampaignEnd) -> dict[str, str]:
        return {c.mechanism: c.decision.verdict.value for c in end.report.candidates}


def as_json(report: CampaignReport) -> Any:
    """Tuples and lists alike."""
    return json.loads(json.dumps(asdict(report)))
