"""Real processes: the native engine's own answers, forced on its stock tree over HTTP."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from engines.answers import Answer, GenerationRequest
from engines.launcher import launch
from engines.registry import engine_driver
from engines.tree_store import TreeStore
from settings.weights import ensure_target
from tests.verifier.settings_for_tests import FOLDER, tiny
from verifier.batch import force_all
from verifier.core import VerifierCore
from verifier.ending import StopRules
from verifier.forced import Forcer
from verifier.policy import exact_policy
from verifier.stock_forcer import launch_stock_forcer
from verifier.target_rules import stop_rules

SETTING = tiny("fp32")
REQUESTS = [
    GenerationRequest(f"r{n}", tuple(40 + (n * 7 + i * i) % 90 for i in range(9 + n)), 24)
    for n in range(6)
] + [GenerationRequest("long", tuple(range(50, 90)), 60, ignore_eos=True)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setenv("SPECFARM_DATA", str(folder))
        yield folder


@pytest.fixture(scope="module")
def rules(data: Path) -> StopRules:
    return stop_rules(ensure_target(SETTING), SETTING)


@pytest.fixture(scope="module")
def answers(data: Path) -> dict[str, list[Answer]]:
    store = TreeStore()
    tree = store.import_stock(engine_driver("native").stock_source(), "stock")
    folder, model_dir = store.checkout(tree.commit), ensure_target(SETTING)
    found = {}
    for arm in ("ar", "stock"):
        with launch(SETTING, arm, folder, tree.tree_hash, model_dir) as process:
            client = process.client()
            found[arm] = [client.generate(r) for r in REQUESTS]
    return found


@pytest.fixture(scope="module")
def forcer(data: Path) -> Iterator[Forcer]:
    with launch_stock_forcer(FOLDER / "tiny-fp32") as force:
        yield force


def test_fp32_answers_of_both_arms_force_clean(
    answers: dict[str, list[Answer]], forcer: Forcer, rules: StopRules
) -> None:
    for arm in ("ar", "stock"):
        report = force_all(answers[arm], forcer, exact_policy(), rules)
        assert report.mismatches == 0 and report.first_bad is None, (arm, report.totals())
        assert report.tokens_checked >= 60
    texts = [[a.output_ids for a in answers[arm]] for arm in ("ar", "stock")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("position", [0, 30, 59])
def test_one_altered_token_is_caught_where_it_is(
    answers: dict[str, list[Answer]], forcer: Forcer, rules: StopRules, position: int
) -> None:
    batch = list(answers["ar"])
    ids = list(batch[-1].output_ids)
    ids[position] = ids[position] + 1 if ids[position] < 200 else ids[position] - 1
    batch[-1] = replace(batch[-1], output_ids=tuple(ids))
    report = force_all(batch, forcer, exact_policy(), rules)
    assert report.first_bad_position == f"long:{position}"


def test_early_stop_is_caught(
    answers: dict[str, list[Answer]], forcer: Forcer, rules: StopRules
) -> None:
    whole = answers["ar"][0]
    assert len(whole.output_ids) > 6
    eos = min(rules.eos_ids)
    for ids in (whole.output_ids[:5], (*whole.output_ids[:5], eos)):
        short = replace(whole, output_ids=ids, finish_reason="stop")
        row = force_all([short], forcer, exact_policy(), rules).rows[0]
        assert not row.ok and row.first_bad_position == 5


def test_the_core_judges_real_answers(
    answers: dict[str, list[Answer]], forcer: Forcer, rules: StopRules
) -> None:
    core = VerifierCore(SETTING, lambda _: nullcontext(forcer), rules, detect_one_in=20)
    result = core.verify(answers["stock"], requests=REQUESTS)
    assert result.judgement.lossless, result.judgement
