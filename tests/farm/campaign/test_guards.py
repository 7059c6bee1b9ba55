"""Each guard on a case it must refuse and on the honest one beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from engines.server_driver import SETTING_OWNED_KEYS
from farm.bench.cache_probe import PAIRS, ProbedPrompt
from farm.bench.kept_state import AskedAgain
from farm.bench.recording import Recording, Run
from farm.bench.repeat_trials import RepeatTrial
from farm.campaign.decide import decide
from farm.campaign.guard_case import Case, Finding, Guarded
from farm.campaign.guards import GUARDS, check
from farm.campaign.jobs import ArmSpec, MeasureOutcome, VerifyOutcome
from farm.results import RatioInterval
from farm.search.campaign_guards import CampaignGuards
from farm.statistics.simulate import QUIET, SimulatedArm, simulate
from farm.verdicts import Decision, Verdict
from settings.schema import Setting
from tests.verifier.settings_for_tests import tiny
from verifier.target_size import TargetSize

ARM = SimulatedArm()
TREE = "a" * 40
ARMS = (
    ArmSpec("candidate", "candidate", "native", "c" * 40, TREE),
    ArmSpec("stock", "stock", "native", "d" * 40, "b" * 40),
)
SERVED: dict[str, dict[str, Any]] = {
    "candidate": {"arm": "candidate", "tree_hash": TREE, "dtype": "bf16", "max_total_tokens": 256},
    "stock": {"arm": "stock", "tree_hash": "b" * 40, "dtype": "bf16", "max_total_tokens": 256},
}
LOSSLESS = VerifyOutcome("lossless", "", evidence={"forcing": {"mismatches": 0, "bad_ends": 0}})
FAST = RatioInterval(1.2, 1.1, 1.3, "native-b", 12, "quiet_time")


def recorded(repeats: int = 2, seed: int = 1) -> Recording:
    return simulate(ARM, ARM, QUIET, prompts=6, repeats=repeats, tokens=48, seed=seed).recording


def edited(recording: Recording, change: Callable[[Run], Run], arm: str = "candidate") -> Recording:
    return replace(
        recording, runs=tuple(change(run) if run.arm == arm else run for run in recording.runs)
    )


def outcome(recording: Recording | None = None, **fields: Any) -> MeasureOutcome:
    found = (recording or recorded()).to_json()
    return MeasureOutcome("ok", recording=found, **{"served": SERVED, **fields})


def case(*outcomes: MeasureOutcome, **fields: Any) -> Case:
    known: dict[str, Any] = {
        "setting": tiny(),
        "arms": ARMS,
        "outcomes": outcomes or (outcome(),),
        "verified": LOSSLESS,
        "owned": SETTING_OWNED_KEYS,
        "harness": ("1" * 64, "1" * 64),
        "size": TargetSize(98e6, 2.7e8),
    }
    return Case(**{**known, **fields})


def caught(found: Guarded) -> tuple[str, object]:
    assert found.decision is not None
    return found.decision.verdict.value, found.decision.evidence["caught_by"]


def test_an_honest_candidate_passes_every_guard() -> None:
    probes = probed(1.0)
    found = check(case(outcome(probes=probes), outcome(recorded(seed=2))))
    assert found.decision is None
    assert set(found.evidence) == set(GUARDS) - {"served_configuration", "threads"}
    assert found.evidence["determinism"]["deterministic"] == "yes"
    assert found.evidence["memoisation"]["low"] < 1.0 < found.evidence["memoisation"]["high"]
    assert found.evidence["harness"]["at_start"] == found.evidence["harness"]["now"]


def test_a_changed_harness_decides_before_anything_else() -> None:
    cheat = outcome(escaped={"candidate": ["sleep"]})
    found = check(case(cheat, harness=("1" * 64, "2" * 64)))
    assert caught(found) == ("invalid_environment", "harness")
    assert found.decision is not None and "specfarm resume" in found.decision.reason
    assert found.evidence["harness"] == {"at_start": "1" * 64, "now": "2" * 64}


def test_a_process_that_outlives_its_engine() -> None:
    escaped = outcome(escaped={"candidate": ["sleep", "python3"]})
    assert caught(check(case(escaped))) == ("cheating", "stray_process")
    # Also where the measurement itself failed.
    dead = MeasureOutcome("crashed", "candidate", "gone", escaped={"candidate": ["sleep"]})
    found = check(case(dead, verified=None))
    assert caught(found) == ("cheating", "stray_process")
    verdict = decide(dead, None, None, 1.0, guarded=found).verdict
    assert verdict is Verdict.CHEATING
    stocks = outcome(escaped={"stock": ["sleep"]})
    assert caught(check(case(stocks))) == ("invalid_environment", "stray_process")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"replayed": True}, "cheating"),
        ({"tree_hash": "b" * 40}, "cheating"),
        ({"dtype": "fp8"}, "refused"),
        ({"max_total_tokens": 128}, "refused"),
    ],
)
def test_other_terms_served(change: dict[str, Any], verdict: str) -> None:
    served = SERVED | {"candidate": SERVED["candidate"] | change}
    found = check(case(outcome(), outcome(served=served)))
    assert caught(found) == (verdict, "served_configuration")


def test_answers_that_do_not_fit_their_clocks() -> None:
    forged = edited(recorded(), lambda run: replace(run, verify_steps=10_000))
    assert caught(check(case(outcome(forged)))) == ("cheating", "requests")
    short = edited(recorded(), lambda run: replace(run, output_ids=run.output_ids[:-1]))
    assert caught(check(case(outcome(short)))) == ("not_lossless", "requests")


def quickened(seconds: float) -> Callable[[Run], Run]:
    """Every event `seconds` after the one before, from the request on."""

    def change(run: Run) -> Run:
        times = tuple(seconds * (i + 1) for i in range(len(run.tokens)))
        return replace(run, running_s=times, wall_s=times, ttft_s=times[0], slices=())

    return change


def test_faster_than_the_hardware() -> None:
    replay = edited(recorded(), quickened(1e-6))
    found = check(case(outcome(replay)))
    assert caught(found) == ("cheating", "physics")
    assert found.decision is not None and "the hardware needs at least" in found.decision.reason
    assert found.evidence["physics"]["step_s"] == pytest.approx(98e6 / 2e11)
    # A target nobody could size bounds nothing; ten times slower than the bound is fine.
    assert "physics" not in check(case(outcome(replay), size=None)).evidence
    assert check(case(outcome(edited(recorded(), quickened(0.01))), verified=None)).decision is None


def test_stock_beyond_the_ceiling_means_the_ceiling_is_wrong() -> None:
    found = check(case(outcome(edited(recorded(), quickened(1e-6), "stock"))))
    assert caught(found) == ("invalid_environment", "physics")


def probed(gain: float) -> list[dict[str, Any]]:
    return [
        asdict(
            ProbedPrompt(
                arm, pair, known, 0.2 / (gain if known and arm == "candidate" else 1), 0.03
            )
        )
        for pair in range(PAIRS)
        for arm in ("candidate", "stock")
        for known in (True, False)
    ]


def test_caches_that_a_flush_leaves_full() -> None:
    found = check(case(outcome(probes=probed(5.0))))
    assert caught(found) == ("cheating", "cache_probe")
    assert "time to first token" in found.evidence["cache_probe"]["times"][0]["kept"]


def again(whole: Recording, steps_at_a_time: int) -> list[dict[str, Any]]:
    found = []
    for run in whole.runs:
        if run.request < 3:
            each = steps_at_a_time if run.arm == "candidate" else 1
            kept = (*run.tokens[1::each], run.tokens[-1])
            found.append(asdict(AskedAgain(run.arm, run.request, (run.tokens[0], *kept))))
    return found


def trials(*steps: int) -> list[dict[str, Any]]:
    """Ten prompts that took so many steps to the 24th token, time after time."""
    tokens = tuple((*range(1, count), 24) for count in steps)
    return [asdict(RepeatTrial(str(n), tokens)) for n in range(10)]


def test_a_draft_made_from_what_a_flush_should_have_emptied() -> None:
    whole = recorded(repeats=1)
    assert check(case(outcome(whole, asked_again=again(whole, 1)))).decision is None
    remembers = outcome(whole, asked_again=again(whole, 2), repeat_trials=trials(20, 8, 8))
    cheat = check(case(remembers))
    assert caught(cheat) == ("cheating", "cache_probe")
    assert cheat.decision is not None
    assert "10 new prompts took 200 steps when first asked and 80.0 when asked again" in (
        cheat.decision.reason
    )


def test_steps_that_vary_by_chance_are_no_cache() -> None:
    whole = recorded(repeats=1)
    tossed = [*trials(20, 8, 8)[:3], *trials(8, 20, 8)[3:7], *trials(8, 8, 20)[7:]]
    found = check(case(outcome(whole, asked_again=again(whole, 2), repeat_trials=tossed)))
    assert found.decision is None
    assert found.evidence["cache_probe"]["trials"]["chance"] > 0.1
    # The suspicion alone accuses nobody.
    assert check(case(outcome(whole, asked_again=again(whole, 2)))).decision is None


def sped_repeats(run: Run) -> Run:
    if run.repeat == 0:
        return run
    start = run.running_s[0]
    return replace(run, running_s=tuple(start + (t - start) / 2 for t in run.running_s))


def test_remembered_prompts() -> None:
    found = check(case(outcome(edited(recorded(), sped_repeats))))
    assert caught(found) == ("cheating", "memoisation")
    assert found.decision is not None and "prompts it has seen x2." in found.decision.reason


def test_more_processors_than_the_setting_gives() -> None:
    long = simulate(ARM, ARM, QUIET, prompts=6, repeats=3, tokens=96, seed=1).recording
    ran = {
        arm: sum(s.end_s - s.start_s for r in long.runs if r.arm == arm for s in r.slices)
        for arm in ("candidate", "stock")
    }

    def found(candidate: float, stock: float = 0.97) -> Guarded:
        spent = {"candidate": candidate * ran["candidate"], "stock": stock * ran["stock"]}
        return check(case(outcome(long, cpu_s=spent)))

    assert found(0.99).decision is None
    assert found(0.99).evidence["threads"]["used"] == pytest.approx(0.99)
    assert caught(found(1.9)) == ("cheating", "threads")
    # A machine whose clocks say the same of stock cannot tell.
    assert found(1.9, stock=1.9).decision is None
    # On a starved machine neither gets its core; a burner gets what two processes get.
    assert found(0.35, stock=0.3).decision is None
    assert caught(found(0.66, stock=0.3)) == ("cheating", "threads")
    assert check(case(outcome(long, cpu_s={}))).evidence.get("threads") is None


def hoarded(run: Run) -> Run:
    """A third of the decoding happens before the first token."""
    start = run.running_s[0]
    late = (run.running_s[-1] - start) / 3
    times = tuple(start + late + (t - start) * 2 / 3 for t in run.running_s)
    return replace(run, running_s=times, ttft_s=times[0])


def test_work_done_before_the_first_token() -> None:
    found = check(case(outcome(edited(recorded(), hoarded))))
    assert caught(found) == ("cheating", "moved_work")
    assert found.decision is not None and "where decoding saves" in found.decision.reason


def other_ids(run: Run) -> Run:
    if run.repeat == 0:
        return run
    return replace(run, output_ids=(*run.output_ids[:-1], run.output_ids[-1] + 1))


@pytest.mark.parametrize(
    ("setting", "verified", "verdict"),
    [
        (tiny("fp32"), replace(LOSSLESS, evidence={"forcing": {"mismatches": 1}}), "not_lossless"),
        (tiny(), replace(LOSSLESS, evidence={"forcing": {"mismatches": 1}}), "inconclusive"),
        # Every token forced and none wrong: they part at ties, and nothing follows.
        (tiny(), LOSSLESS, None),
        (tiny("fp32"), LOSSLESS, None),
        # Nobody forced them: nobody knows.
        (tiny("fp32"), None, None),
    ],
)
def test_other_ids_each_time(
    setting: Setting, verified: VerifyOutcome | None, verdict: str | None
) -> None:
    served = {k: v | {"dtype": setting.target.weights_dtype} for k, v in SERVED.items()}
    found = check(
        case(
            outcome(edited(recorded(), other_ids), served=served),
            setting=setting,
            verified=verified,
        )
    )
    if verdict is None:
        assert found.decision is None
    else:
        assert caught(found) == (verdict, "determinism")
    assert found.evidence["determinism"]["parted"] == 6


def test_doubt_holds_back_only_what_would_be_accepted() -> None:
    doubt = Guarded(Decision(Verdict.INCONCLUSIVE, "who knows", {"caught_by": "x"}), {"x": 1})
    slow = RatioInterval(0.9, 0.8, 0.95, "native-b", 12, "quiet_time")
    held = decide(outcome(), FAST, LOSSLESS, 1.02, guarded=doubt)
    assert (held.verdict, held.evidence["caught_by"]) == (Verdict.INCONCLUSIVE, "x")
    assert held.evidence["guards"] == {"x": 1} and held.evidence["floor"] == 1.02
    dropped = decide(outcome(), slow, LOSSLESS, 1.02, guarded=doubt)
    assert (dropped.verdict, dropped.evidence["caught_by"]) == (Verdict.NOT_FASTER, "speed")


def test_every_verdict_but_acceptance_names_what_caught_it() -> None:
    lossy = VerifyOutcome("not_lossless", "x", evidence={"caught_by": "ending"})
    cases = [
        decide(MeasureOutcome("crashed", "candidate", "x"), None, None, 1.0),
        decide(MeasureOutcome("crashed", "stock", "x"), None, None, 1.0),
        decide(outcome(), None, LOSSLESS, 1.0),
        decide(outcome(), FAST, lossy, 1.0),
        decide(outcome(), FAST, VerifyOutcome("inconclusive", "x"), 1.0),
        decide(outcome(), FAST, VerifyOutcome("invalid_environment", "x"), 1.0),
        decide(outcome(), FAST, None, 1.0),
        decide(outcome(), FAST, LOSSLESS, 1.5),
        decide(outcome(clear_loser=True), FAST, None, 1.0),
    ]
    names = [decision.evidence["caught_by"] for decision in cases]
    assert names == [
        *("contract", "environment", "speed", "ending", "token_forcing"),
        *("environment", "environment", "speed", "speed"),
    ]
    accepted = decide(outcome(), FAST, LOSSLESS, 1.0)
    assert accepted.verdict is Verdict.ACCEPTED and "caught_by" not in accepted.evidence


def test_a_guard_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def suspicious(seen: Case) -> Finding:
        return Finding({"arms": len(seen.arms)}, Decision(Verdict.CHEATING, "suspicious"))

    monkeypatch.setitem(GUARDS, "mine", suspicious)
    found = check(case())
    assert caught(found) == ("cheating", "mine")
    assert found.evidence["mine"] == {"arms": 2}


class TestCampaignGuards:
    """What is bound when a campaign begins."""

    def guards(self, *hashes: str) -> CampaignGuards:
        later = iter(hashes)
        return CampaignGuards(
            tiny(), SETTING_OWNED_KEYS, TargetSize(1.0, 1.0), "h0", lambda: next(later)
        )

    def test_the_harness_is_hashed_at_every_verdict(self) -> None:
        guards = self.guards("h0", "h1")
        assert guards.check(ARMS, [outcome()], LOSSLESS).decision is None
        assert caught(guards.check(ARMS, [outcome()], LOSSLESS)) == (
            "invalid_environment",
            "harness",
        )

    def test_a_confirmation_rests_on_first_answers_where_repeats_are_not_like_them(self) -> None:
        guards = self.guards()
        honest = [recorded().to_json(), recorded(seed=2).to_json()]
        assert guards.fair(honest) == honest
        odd = [edited(recorded(seed=n), sped_repeats).to_json() for n in (1, 2)]
        kept = guards.fair(odd)
        assert [{run["repeat"] for run in r["runs"]} for r in kept] == [{0}, {0}]
        assert [len(r["runs"]) for r in kept] == [12, 12]
