"""The whole way of the verifier-only prompts on real engines: asked after the clock, forced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engines.resolve import import_stock, store_for
from engines.tree_store import Tree, TreeStore
from farm.campaign.jobs import ArmSpec, MeasureJob, MeasureOutcome, VerifyJob
from farm.search.prompts import prompt_supply
from farm.workers.measure import run_measure_job
from farm.workers.verify import VerifyService, answers
from settings.loading import load_setting
from settings.weights import ensure_target
from tests.verifier.settings_for_tests import FOLDER
from verifier.ending import check_ending
from verifier.target_rules import stop_rules

pytestmark = pytest.mark.timeout(300)
SETTING = str(FOLDER / "tiny-fp32")
# From the moment at which requests queue up: a load no timed answer puts on an engine for one.
WRONG_UNDER_LOAD = """

_fair_submit, _fair_commit = Scheduler.submit, Engine._commit


def _submit(self, jobs):
    _fair_submit(self, jobs)
    if len(self._waiting) >= 4:
        Engine.was_busy = True


def _commit(self, request, result, tokens, emit):
    if getattr(Engine, "was_busy", False) and len(result.output_ids) > 3:
        tokens = [3 + (tokens[0] + 1) % 250, *tokens[1:]]
    return _fair_commit(self, request, result, tokens, emit)


Scheduler.submit, Engine._commit = _submit, _commit
"""
SCHEDULER = "native_engine/scheduler.py"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TreeStore]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setenv("SPECFARM_DATA", str(folder))
        patch.setenv("SPECFARM_TIMING_LOCK", str(folder / "timing.lock"))
        yield store_for(load_setting(SETTING))


@pytest.fixture(scope="module")
def stock(store: TreeStore) -> Tree:
    return import_stock(load_setting(SETTING), store)


@pytest.fixture(scope="module")
def service(store: TreeStore) -> Iterator[VerifyService]:
    found = VerifyService(store)
    yield found
    found.close()


@pytest.fixture(scope="module")
def honest(store: TreeStore, stock: Tree) -> MeasureOutcome:
    outcome = measured(store, stock, stock)
    assert outcome.status == "ok", outcome.error
    return outcome


def measured(store: TreeStore, stock: Tree, candidate: Tree) -> MeasureOutcome:
    setting = load_setting(SETTING)
    supply = prompt_supply(setting, ensure_target(setting), "secret")
    arms = (
        ArmSpec("candidate", "candidate", "native", candidate.commit, candidate.tree_hash),
        ArmSpec("stock", "stock", "native", stock.commit, stock.tree_hash),
    )
    job = MeasureJob(
        unit="confirm:x:0",
        setting=SETTING,
        arms=arms,
        requests=supply.search[:2],
        subject="candidate",
        denominator="stock",
        seconds=1.0,
        seed=1,
        stop_losers=False,
        verifier_prompts=supply.verifier("verifier:x"),
        exact_setting=SETTING,
        exact_requests=supply.search[2:4],
    )
    return run_measure_job(job, store)


def verified(service: VerifyService, stock: Tree, outcome: MeasureOutcome) -> Any:
    sent, received = json.loads(json.dumps([outcome.verifier_requests, outcome.verifier_answers]))
    job = VerifyJob(
        "verify:x",
        SETTING,
        stock.commit,
        stock.tree_hash,
        verifier_requests=tuple(sent),
        verifier_answers=tuple(received),
    )
    return service.run(job)


def test_an_honest_engine_is_right_alone_and_among_others(
    honest: MeasureOutcome, stock: Tree, service: VerifyService
) -> None:
    found = verified(service, stock, honest)
    hidden = found.evidence["verifier_set"]
    assert hidden["mismatches"] == hidden["bad_ends"] == 0
    assert hidden["tokens_checked"] >= 1000 and hidden["fresh_tokens"] >= 800
    kinds = {f"c{clients} {kind}" for clients in (1, 8) for kind in ("random_ids", "long_prompt")}
    assert kinds | {"c1 near_limit", "c1 long_answer", "c1 page_border"} <= set(hidden["by_family"])
    setting = load_setting(SETTING)
    rules = stop_rules(ensure_target(setting), setting)
    given = answers(tuple(json.loads(json.dumps(honest.verifier_answers))))
    ends = {(a.request.family.split()[1], check_ending(a, rules).reason) for a in given}
    assert {
        ("stop_token", "stop token"),
        ("stop_string", "stop string"),
        ("stop_ignored", "length limit reached"),
    } <= ends
    ignored = [a for a in given if a.request.family.endswith("stop_ignored")]
    stops = [set(a.request.stop_token_ids) & set(a.output_ids[:-1]) for a in ignored]
    assert all(stops), "it went on past the stop it was given and told to ignore"


def test_an_engine_that_errs_only_under_load_is_caught_there(
    store: TreeStore, stock: Tree, service: VerifyService
) -> None:
    source = store.read_file(stock.commit, SCHEDULER) + WRONG_UNDER_LOAD.encode()
    planted = store.commit_files(stock.commit, {SCHEDULER: source}, "planted")
    outcome = measured(store, stock, planted)
    assert outcome.status == "ok", outcome.error
    found = verified(service, stock, outcome)
    assert found.status == "not_lossless"
    assert (found.evidence["caught_by"], found.evidence["caught_in"]) == (
        "token_forcing",
        "verifier_set",
    )
    families = found.evidence["verifier_set"]["by_family"]
    wrong = {name for name, sums in families.items() if sums["mismatches"]}
    assert wrong and all(name.startswith("c8 ") for name in wrong)


def test_the_twin_answers_one_of_each_kind_too(honest: MeasureOutcome) -> None:
    families = [answer["request"]["family"] for answer in honest.exact_answers or []]
    of_the_set = families[2:]
    sent = [request["family"] for request in honest.verifier_requests]
    assert of_the_set == list(dict.fromkeys(sent))
    assert {"c1 near_limit", "c1 long_answer", "c8 long_prompt"} <= set(of_the_set)
    # FP32 and one tree: the same tokens as before.
    known = {a["request"]["id"]: a["output_ids"] for a in honest.verifier_answers}
    for answer in (honest.exact_answers or [])[2:]:
        assert answer["output_ids"] == known[answer["request"]["id"]]


def test_what_errs_only_under_load_is_wrong_on_the_twin_too(
    store: TreeStore, stock: Tree, service: VerifyService
) -> None:
    source = store.read_file(stock.commit, SCHEDULER) + WRONG_UNDER_LOAD.encode()
    planted = store.commit_files(stock.commit, {SCHEDULER: source}, "planted")
    exact = json.loads(json.dumps(measured(store, stock, planted).exact_answers))
    job = VerifyJob("verify:x", SETTING, stock.commit, stock.tree_hash)
    alone = [a for a in exact if not a["request"]["family"].startswith("c8 ")]
    honest_part = service.run(replace(job, answers=tuple(alone)))
    assert honest_part.evidence["forcing"]["mismatches"] == 0
    whole = service.run(replace(job, answers=tuple(exact)))
    assert whole.status == "not_lossless" and whole.evidence["forcing"]["mismatches"] > 0


def test_what_it_asks_is_not_in_the_timed_part(honest: MeasureOutcome) -> None:
    assert honest.recording is not None
    timed = {tuple(r["prompt_ids"]) for r in honest.recording["requests"]}
    hidden = {tuple(r["prompt_ids"]) for r in honest.verifier_requests}
    assert timed and hidden and not timed & hidden
