"""The verifier as one object: holds the calibration, forces batches, hands down judgements.

Knows nothing of Ray; the farm wraps it in an actor. It reads only what a candidate's server sent
to the client and what stock says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from engines.answers import Answer, GenerationRequest
from settings.schema import Setting
from verifier.calibration import POWER, Calibration, calibrate, exact_policy, policy_for
from verifier.ending import StopRules
from verifier.errors import CalibrationError
from verifier.forced import Forcer, Position
from verifier.judgement import LosslessJudgement, judge, judge_malformed
from verifier.margins import Unit
from verifier.numeric_noise import numeric_noise
from verifier.policy import MarginPolicy, unlimited
from verifier.report import ForcingReport
from verifier.request_checks import check_requests
from verifier.token_forcing import check_answer

OpenForcer = Callable[[], AbstractContextManager[Forcer]]
LaunchStock = Callable[[str], AbstractContextManager[Forcer]]
# Answers whose every position is forced in each row shape: a thousand positions.
NOISE_ANSWERS = 12


@dataclass(frozen=True)
class CandidateOutputs:
    """One candidate's timed answers and those of its tree on the FP32 twin.

    `requests` are what the farm sent (None: each answer's own request, for outputs that no farm
    asked for). `exact_*` likewise.
    """

    answers: tuple[Answer, ...]
    exact_answers: tuple[Answer, ...] = ()
    requests: tuple[GenerationRequest, ...] | None = None
    exact_requests: tuple[GenerationRequest, ...] | None = None


@dataclass(frozen=True)
class VerifierResult:
    """`report` is None where the answers were too malformed to force."""

    judgement: LosslessJudgement
    report: ForcingReport | None
    exact_report: ForcingReport | None


class VerifierCore:
    """Judges candidates of one setting.

    Args:
        setting: the deployment.
        launch_stock: setting name -> context manager that gives a `Forcer` on stock without
            speculation; entered once per `verify_many` and setting.
        rules: vocabulary size and stop ids of the target.
        calibration: None until `calibrate` has run (FP32 settings need none).
        detect_one_in: wrong tokens rarer than one in this many may go unseen (95 %).
        delta, power: of the near-tie rate test, see `calibration.policy_for`; a wider delta needs
            fewer tokens and lets more through.
        unit: `nats` where stock serves log-probabilities only.

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
        unit: Unit = "bf16_ulp",
    ) -> None:
        self.setting = setting
        self.rules = rules
        self.calibration = calibration
        self._launch = launch_stock
        self._detect_one_in = detect_one_in
        self._delta = delta
        self._power = power
        self._unit = unit

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
        shapes: Mapping[str, OpenForcer] | None = None,
    ) -> Calibration:
        """Force stock's own answers, keep and return the calibration.

        `shapes` names ways to force with other row counts a pass (`8 rows`); a sample of the
        answers is forced in each, for the numeric noise.

        Raises:
            CalibrationError: stock contradicts itself, or the answers are too few for delta (the
                message says how many tokens would do); an earlier calibration stays.
        """
        policy = exact_policy() if self.is_exact else unlimited(self._unit)
        with self._launch(self.setting.name) as force:
            ar = self._force_all(ar_answers, force, policy)
            stock = self._force_all(stock_answers, force, policy)
            sample = _distinct([*ar_answers, *stock_answers])[:NOISE_ANSWERS]
            forced = [force(a.request.prompt_ids, a.output_ids) for a in sample]
        shaped: dict[str, list[Sequence[Position]]] = {}
        for name, opened in ({} if self.is_exact else shapes or {}).items():
            with opened() as force:
                shaped[name] = [force(a.request.prompt_ids, a.output_ids) for a in sample]
        noise = numeric_noise(forced, shaped, self._unit) if shaped else None
        calibration = calibrate(self.setting, ar, stock, evidence, noise)
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
        reports = self._force_batches(self.setting.name, [b.answers for b in sound], policy)
        exact_reports: list[ForcingReport | None] = [None] * len(sound)
        twin = self.setting.exact_twin
        if twin is not None and any(b.exact_answers for b in sound):
            exact_reports = list(
                self._force_batches(twin, [b.exact_answers for b in sound], exact_policy())
            )
        results = []
        done = iter(zip(reports, exact_reports, strict=True))
        for problem in malformed:
            if problem is not None:
                results.append(VerifierResult(problem, None, None))
                continue
            report, exact = next(done)
            exact = exact if exact is not None and exact.rows else None
            judgement = judge(report, self.calibration, policy, exact)
            results.append(VerifierResult(judgement, report, exact))
        return results

    def _malformed(self, batch: CandidateOutputs) -> LosslessJudgement | None:
        problems = []
        for requests, answers in (
            (batch.requests, batch.answers),
            (batch.exact_requests, batch.exact_answers),
        ):
            sent = tuple(a.request for a in answers) if requests is None else requests
            problems += check_requests(sent, answers, self.rules.vocab_size)
        return judge_malformed(problems) if problems else None

    def _force_batches(
        self, setting: str, batches: Sequence[Sequence[Answer]], policy: MarginPolicy
    ) -> list[ForcingReport]:
        if not any(batches):
            return [ForcingReport((), policy.unit) for _ in batches]
        with self._launch(setting) as force:
            return [self._force_all(batch, force, policy) for batch in batches]

    def _force_all(
        self, answers: Sequence[Answer], force: Forcer, policy: MarginPolicy
    ) -> ForcingReport:
        return force_all(answers, force, policy, self.rules)


def force_all(
    answers: Sequence[Answer], force: Forcer, policy: MarginPolicy, rules: StopRules
) -> ForcingReport:
    """Force every answer; a repeated (prompt, output) is forced once and scored each time."""
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], Sequence[Position]] = {}
    earlier: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    rows = []
    for answer in answers:
        prompt, ids = answer.request.prompt_ids, answer.output_ids
        if (prompt, ids) not in known:
            known[prompt, ids] = force(prompt, ids)
        seen = earlier.setdefault(prompt, [])
        fresh_from = max((_common_prefix(ids, other) for other in seen), default=0)
        if ids in seen:  # a left-out stop token was scored with the first copy
            fresh_from += 1
        else:
            seen.append(ids)
        rows.append(check_answer(answer, known[prompt, ids], policy, rules, fresh_from=fresh_from))
    return ForcingReport(tuple(rows), policy.unit)


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _distinct(answers: Sequence[Answer]) -> list[Answer]:
    """The answers without repeats of a prompt and its output, in order."""
    found = {(a.request.prompt_ids, a.output_ids): a for a in answers}
    return list(found.values())
