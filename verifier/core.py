"""The verifier as one object: holds the calibration, forces batches, hands down judgements.

Knows nothing of Ray; the farm wraps it in an actor. It reads only what a candidate's server sent
to the client and what stock says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from engines.answers import Answer, GenerationRequest
from settings.schema import Setting
from verifier.batch import Forced, best_values, force_answers, score, unit_of
from verifier.calibration import Calibration, calibrate
from verifier.ending import StopRules
from verifier.errors import CalibrationError
from verifier.forced import Forcer
from verifier.judgement import LosslessJudgement, judge, judge_malformed
from verifier.margins import usual_magnitude
from verifier.policy import MarginPolicy, exact_policy, unlimited
from verifier.report import ForcingReport
from verifier.request_checks import check_requests
from verifier.second_look import SecondLook, Undecided, undecided
from verifier.shapes import ShapeRow, forced_row, generated_row
from verifier.sweep import Sweeps, border_requests, differing, restart_row
from verifier.thresholds import POWER, policy_for

LaunchStock = Callable[[str], AbstractContextManager[Forcer]]
# Answers whose every position is forced in each other shape: a thousand positions.
NOISE_ANSWERS = 12
NO_SWEEPS = Sweeps()


@dataclass(frozen=True)
class CandidateOutputs:
    """One candidate's timed answers, those of its tree on the FP32 twin, and those to the
    verifier-only prompts.

    `requests` are what the farm sent (None: each answer's own request, for outputs that no farm
    asked for). `exact_*` and `verifier_*` likewise.
    """

    answers: tuple[Answer, ...]
    exact_answers: tuple[Answer, ...] = ()
    requests: tuple[GenerationRequest, ...] | None = None
    exact_requests: tuple[GenerationRequest, ...] | None = None
    verifier_answers: tuple[Answer, ...] = ()
    verifier_requests: tuple[GenerationRequest, ...] | None = None


@dataclass(frozen=True)
class VerifierResult:
    """`report` is None where the answers were too malformed to force; the others where there was
    nothing of their kind."""

    judgement: LosslessJudgement
    report: ForcingReport | None
    exact_report: ForcingReport | None
    verifier_report: ForcingReport | None = None


class VerifierCore:
    """Judges candidates of one setting.

    Args:
        setting: the deployment.
        launch_stock: setting name -> context manager that gives a `Forcer` on stock without
            speculation; entered once per `verify_many` and setting.
        rules: vocabulary size and stop ids of the target.
        calibration: None until `calibrate` has run (FP32 settings need none).
        detect_one_in: wrong tokens rarer than one in this many may go unseen (95 %).
        delta, power: of the near-tie rate test, see `thresholds.policy_for`; a wider delta needs
            fewer tokens and lets more through.
        second_look: forces on stock in other ways, where few tokens are wrong; None: every one of
            them stands.

    Gaps are in BF16 ULPs where stock serves raw logits, in nats where it serves log-probabilities.
    Engine failures leave as exceptions (an invalid environment); a candidate's never do.
    """

    def __init__(
        self,
        setting: Setting,
        launch_stock: LaunchStock,
        rules: StopRules,
        *,
        calibration: Calibration | None = None,
        detect_one_in: int = 1000,
        delta: float | None = None,
        power: float = POWER,
        second_look: SecondLook | None = None,
    ) -> None:
        self.setting = setting
        self.rules = rules
        self.calibration = calibration
        self._launch = launch_stock
        self._second_look = second_look
        self._detect_one_in = detect_one_in
        self._delta = delta
        self._power = power

    @property
    def is_exact(self) -> bool:
        return self.setting.target.weights_dtype == "fp32"

    @property
    def policy(self) -> MarginPolicy:
        """Raises CalibrationError where a BF16 or FP8 setting has not been calibrated."""
        if self.is_exact:
            return exact_policy(self._detect_one_in)
        if self.calibration is None:
            raise CalibrationError(
                f"{self.setting.name} has no A/A calibration", "calibrate before verifying"
            )
        return self._policy_from(self.calibration)

    def _policy_from(self, calibration: Calibration) -> MarginPolicy:
        return policy_for(
            self.setting,
            calibration,
            detect_one_in=self._detect_one_in,
            delta=self._delta,
            power=self._power,
        )

    def calibrate(
        self,
        ar_answers: Sequence[Answer],
        stock_answers: Sequence[Answer],
        evidence: dict[str, Any] | None = None,
        sweeps: Sweeps = NO_SWEEPS,
    ) -> Calibration:
        """Force stock's own answers, and a sample of them in every other shape; keep and return
        the calibration.

        Raises:
            CalibrationError: stock contradicts itself, or the answers are too few for delta (the
                message says how many tokens would do); an earlier calibration stays.
        """
        parted = differing(stock_answers, sweeps.restarted)
        with self._launch(self.setting.name) as force:
            borders = []
            if sweeps.generate is not None:
                borders = [sweeps.generate(r) for r in border_requests(stock_answers)]
            forced = force_answers([*ar_answers, *stock_answers, *parted, *borders], force)
        unit = unit_of(forced)
        usual = 0.0
        if unit == "bf16_ulp" and not self.is_exact:
            own = {(a.request.prompt_ids, a.output_ids) for a in (*ar_answers, *stock_answers)}
            usual = usual_magnitude(best_values(forced[pair] for pair in own))
        policy = exact_policy(unit=unit) if self.is_exact else unlimited(unit, usual)

        def scored(answers: Sequence[Answer]) -> ForcingReport:
            return score(answers, forced, policy, self.rules)

        rows: list[ShapeRow] = []
        if borders:
            lengths = f"prompts of {_lengths(borders)} tokens"
            rows.append(generated_row(lengths, "1 row a step", scored(borders)))
        restart = restart_row(
            self.setting.name, self.is_exact, stock_answers, sweeps.restarted, scored(parted)
        )
        rows += [] if restart is None else [restart]
        sample = [*_distinct([*ar_answers, *stock_answers])[:NOISE_ANSWERS], *borders]
        pairs = [(a.request.prompt_ids, a.output_ids) for a in sample]
        base = [forced[pair] for pair in pairs]
        for shape in sweeps.shapes:
            rows.append(forced_row(shape.name, shape.path, base, shape.force(pairs), policy))
        calibration = calibrate(
            self.setting, scored(ar_answers), scored(stock_answers), evidence, rows, usual
        )
        self._policy_from(calibration)
        self.calibration = calibration
        return calibration

    def verify(
        self,
        answers: Sequence[Answer],
        exact_answers: Sequence[Answer] = (),
        *,
        requests: Sequence[GenerationRequest] | None = None,
        exact_requests: Sequence[GenerationRequest] | None = None,
    ) -> VerifierResult:
        """`verify_many` of one candidate."""
        outputs = CandidateOutputs(
            tuple(answers),
            tuple(exact_answers),
            None if requests is None else tuple(requests),
            None if exact_requests is None else tuple(exact_requests),
        )
        return self.verify_many([outputs])[0]

    def verify_many(self, batches: Sequence[CandidateOutputs]) -> list[VerifierResult]:
        """Judge several candidates with one stock launch a dtype; results in order."""
        malformed = [self._malformed(batch) for batch in batches]
        sound = [b for b, m in zip(batches, malformed, strict=True) if m is None]
        policy = self.policy
        parts = [part for b in sound for part in (b.answers, b.verifier_answers)]
        reports = self._force_batches(self.setting.name, parts, policy)
        exact_reports: list[ForcingReport | None] = [None] * len(sound)
        twin = self.setting.exact_twin
        if twin is not None and any(b.exact_answers for b in sound):
            exact_reports = list(
                self._force_batches(twin, [b.exact_answers for b in sound], exact_policy())
            )
        results = []
        done = iter(zip(reports[::2], reports[1::2], exact_reports, strict=True))
        for problem in malformed:
            if problem is not None:
                results.append(VerifierResult(problem, None, None))
                continue
            report, hidden, exact = next(done)
            judgement = judge(report, self.calibration, policy, _some(exact), _some(hidden))
            results.append(VerifierResult(judgement, report, _some(exact), _some(hidden)))
        return results

    def _malformed(self, batch: CandidateOutputs) -> LosslessJudgement | None:
        problems = []
        for requests, answers in (
            (batch.requests, batch.answers),
            (batch.exact_requests, batch.exact_answers),
            (batch.verifier_requests, batch.verifier_answers),
        ):
            sent = tuple(a.request for a in answers) if requests is None else requests
            problems += check_requests(sent, answers, self.rules.vocab_size)
        return judge_malformed(problems) if problems else None

    def _force_batches(
        self, setting: str, batches: Sequence[Sequence[Answer]], policy: MarginPolicy
    ) -> list[ForcingReport]:
        if not any(batches):
            return [ForcingReport((), policy.unit) for _ in batches]
        forced: Forced = {}
        with self._launch(setting) as force:
            for batch in batches:
                forced = force_answers(batch, force, forced)
        if policy.kind == "exact":
            policy = replace(policy, unit=unit_of(forced))
        return [
            score(batch, forced, policy, self.rules, self._undecided(batch, forced, policy))
            for batch in batches
        ]

    def _undecided(
        self, batch: Sequence[Answer], forced: Forced, policy: MarginPolicy
    ) -> Undecided:
        look = self._second_look
        return {} if look is None else undecided(batch, forced, policy, look)


def _some(report: ForcingReport | None) -> ForcingReport | None:
    return report if report is not None and report.rows else None


def _distinct(answers: Sequence[Answer]) -> list[Answer]:
    """The answers without repeats of a prompt and its output, in order."""
    found = {(a.request.prompt_ids, a.output_ids): a for a in answers}
    return list(found.values())


def _lengths(answers: Sequence[Answer]) -> str:
    return ", ".join(str(len(a.request.prompt_ids)) for a in answers)
