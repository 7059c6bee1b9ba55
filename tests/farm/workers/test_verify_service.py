"""The verifier's service on real engines of the tiny model: sweeps, batches, launches, nats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from engines.answers import Answer, GenerationRequest
from engines.launcher import launch
from engines.native_driver import NativeDriver
from engines.registry import engine_driver, register_engine
from engines.resolve import import_stock, store_for
from engines.tree_store import Tree, TreeStore
from farm.campaign.jobs import VerifyJob, VerifyOutcome
from farm.workers.row_shapes import second_look
from farm.workers.stock_pool import StockPool
from farm.workers.verify import VerifyService
from settings.loading import load_setting
from settings.paths import checkout_root
from settings.weights import ensure_target
from tests.verifier.settings_for_tests import FOLDER
from verifier.verify_outputs import calibration_path

pytestmark = pytest.mark.timeout(300)


class LogprobsDriver(NativeDriver):
    """The native engine with its raw logits withheld, as SGLang serves no raw logits."""

    name = "logprobs_only"

    def stock_source(self) -> Path:
        source = super().stock_source()
        folder = Path(STOCKS["folder"]) / "stock"
        if not folder.exists():
            ignored = shutil.ignore_patterns("__pycache__", "*_build")
            shutil.copytree(source, folder, ignore=ignored)
            reply = folder / "native_engine/server/native_reply.py"
            text = reply.read_text()
            assert text.count("if request.logprobs.raw_top:") == 1
            reply.write_text(text.replace("if request.logprobs.raw_top:", "if False:"))
        return folder


STOCKS: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setenv("SPECFARM_DATA", str(folder))
        patch.setenv("SPECFARM_TIMING_LOCK", str(folder / "timing.lock"))
        STOCKS["folder"] = str(folder)
        register_engine("logprobs_only", f"{__name__}:LogprobsDriver")
        yield folder


def requests(count: int, tokens: int = 24) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            f"r{n}",
            tuple(3 + (n * 37 + i * i * 11) % 500 for i in range(20 + n * 3 % 60)),
            tokens,
            stop_token_ids=(2,),
            ignore_eos=True,
        )
        for n in range(count)
    ]


def as_json(answers: list[Answer]) -> tuple[dict[str, Any], ...]:
    found = [asdict(a) | {"arrivals": (), "meta": {}} for a in answers]
    return tuple(json.loads(json.dumps(found)))


class Stock:
    """One setting's stock, its answers without and with speculation, and another process's."""

    def __init__(self, setting: str, count: int, restarted: int = 20) -> None:
        self.setting = setting
        self.loaded = load_setting(setting)
        self.store: TreeStore = store_for(self.loaded)
        self.tree: Tree = import_stock(self.loaded, self.store)
        self.requests = requests(count)
        self.ar = self.answers("ar", self.requests)
        self.stock = self.answers("stock", self.requests)
        self.again = self.answers("stock", self.requests[:restarted]) if restarted else []

    def answers(self, arm: Any, asked: list[GenerationRequest]) -> list[Answer]:
        path = self.store.checkout(self.tree.commit)
        model = ensure_target(self.loaded)
        with launch(self.loaded, arm, path, self.tree.tree_hash, model) as engine:
            client = engine.client()
            return [client.generate(request) for request in asked]

    def job(self, unit: str, **fields: Any) -> VerifyJob:
        return VerifyJob(unit, self.setting, self.tree.commit, self.tree.tree_hash, **fields)

    def calibration_job(self) -> VerifyJob:
        return self.job(
            "verify:calibration",
            calibrate=True,
            ar_answers=as_json(self.ar),
            stock_answers=as_json(self.stock),
            restarted_answers=as_json(self.again),
        )


@pytest.fixture(scope="module")
def fp32() -> Stock:
    return Stock(str(FOLDER / "tiny-fp32"), 40)


@pytest.fixture(scope="module")
def service(fp32: Stock) -> Iterator[VerifyService]:
    found = VerifyService(fp32.store)
    yield found
    found.close()


def pool_of(service: VerifyService) -> StockPool:
    return service._own


def test_fp32_stock_agrees_with_itself_in_every_shape(service: VerifyService, fp32: Stock) -> None:
    outcome = service.run(fp32.calibration_job())
    assert outcome.status == "calibrated", outcome.reason
    rows = {row["shape"]: row for row in outcome.evidence["shapes"]}
    assert {"ar", "stock", "restart to restart", "8 requests at once", "8 rows a pass"} < set(rows)
    assert any(name.startswith("prompts of 15, 16, 17, 63, 64, 65") for name in rows)
    assert all(row["mismatches"] == row["near_ties"] == 0 for row in rows.values())
    assert rows["8 requests at once"]["path"] == "queued: same path"
    assert rows["8 requests at once"]["worst_change"] == 0.0
    assert 0.0 < rows["8 rows a pass"]["worst_change"] < 0.01
    stored = json.loads(calibration_path(load_setting(FOLDER / "tiny-fp32")).read_text())
    assert stored["evidence"]["stock_tree"] == fp32.tree.tree_hash
    assert "without a mismatch" in stored["evidence"]["in_words"]["stock"][0]
    assert "FP32" in stored["evidence"]["in_words"]["confirmation"][0]


def test_a_parted_restart_in_fp32_is_no_calibration(service: VerifyService, fp32: Stock) -> None:
    parted = [wrong_at(fp32.again[0], 9), *fp32.again[1:]]
    job = replace(fp32.calibration_job(), restarted_answers=as_json(parted))
    outcome = service.run(job)
    assert outcome.status == "invalid_environment" and "differently in FP32" in outcome.reason


def judged(service: VerifyService, jobs: list[VerifyJob]) -> list[VerifyOutcome]:
    return service.run_many(jobs)


def wrong_at(answer: Answer, position: int) -> Answer:
    ids = answer.output_ids
    other = ids[position] + 1 if ids[position] < 400 else ids[position] - 1
    return replace(answer, output_ids=(*ids[:position], other, *ids[position + 1 :]))


def test_candidates_of_a_round_are_forced_by_one_launch_of_stock(fp32: Stock) -> None:
    service = VerifyService(fp32.store)
    good = fp32.stock
    bad = [*good[:7], wrong_at(good[7], 11), *good[8:]]
    jobs = [
        fp32.job("verify:a", answers=as_json(good)),
        fp32.job("verify:b", answers=as_json(bad)),
        fp32.job("verify:c", answers=as_json(good[:30])),
    ]
    try:
        outcomes = service.run_many(jobs)
        assert pool_of(service).launches == 1
        assert [o.status for o in outcomes] == ["lossless", "not_lossless", "inconclusive"]
        assert outcomes[1].evidence["caught_by"] == "token_forcing"
        assert outcomes[1].summary is not None
        assert outcomes[1].summary["first_bad_position"] == "r7:11"
        # One after the other, as a CPU campaign asks: still the same engine.
        assert [service.run(job).status for job in jobs] == [o.status for o in outcomes]
        assert pool_of(service).launches == 1
    finally:
        service.close()


def test_what_candidates_share_is_forced_once(fp32: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[Any] = []
    whole = StockPool.force_many

    def counted(self: StockPool, *arguments: Any, **options: Any) -> Any:
        forced.extend(arguments[2])
        return whole(self, *arguments, **options)

    monkeypatch.setattr(StockPool, "force_many", counted)
    service = VerifyService(fp32.store)
    try:
        for unit in ("verify:a", "verify:b"):
            service.run(fp32.job(unit, answers=as_json(fp32.stock[:10])))
        assert len(forced) == len(set(forced)) == 10
    finally:
        service.close()


def test_the_verifier_only_answers_are_forced_and_named(
    service: VerifyService, fp32: Stock
) -> None:
    hidden = [replace(a, request=replace(a.request, family="c8 random_ids")) for a in fp32.ar[30:]]
    sent = tuple(json.loads(json.dumps([asdict(a.request) for a in hidden])))
    fields = {"answers": as_json(fp32.stock[:30]), "verifier_requests": sent}
    clean, lossy, swapped = service.run_many(
        [
            fp32.job("verify:1", verifier_answers=as_json(hidden), **fields),
            fp32.job(
                "verify:2",
                verifier_answers=as_json([wrong_at(hidden[0], 3), *hidden[1:]]),
                **fields,
            ),
            fp32.job(
                "verify:3", verifier_answers=as_json([hidden[1], hidden[0], *hidden[2:]]), **fields
            ),
        ]
    )
    seen = clean.evidence["verifier_set"]
    assert seen["by_family"]["c8 random_ids"]["answers"] == 10 and seen["mismatches"] == 0
    assert clean.summary is not None and clean.summary["verifier_checked"] == 240
    assert lossy.status == "not_lossless"
    assert (lossy.evidence["caught_by"], lossy.evidence["caught_in"]) == (
        "token_forcing",
        "verifier_set",
    )
    assert lossy.reason.startswith("verifier-only prompts: ")
    assert lossy.reason.endswith("first: request r30, position 3")
    assert swapped.status == "cheating" and swapped.evidence["caught_by"] == "requests"


def test_an_engine_that_serves_log_probabilities_only_goes_all_the_way_in_nats(
    tmp_path: Path,
) -> None:
    shutil.copytree(FOLDER, tmp_path / "settings")
    for file in (tmp_path / "settings").glob("*/setting.toml"):
        text = file.read_text()
        assert text.count('name = "native"') == 1
        file.write_text(text.replace('name = "native"', 'name = "logprobs_only"'))
    stock = Stock(str(tmp_path / "settings" / "tiny"), 60, restarted=0)
    service = VerifyService(stock.store)
    try:
        calibrated = service.run(stock.calibration_job())
        assert calibrated.status == "calibrated", calibrated.reason
        assert calibrated.evidence["unit"] == "nats"
        assert 0.0 < calibrated.evidence["worst_gap"] <= 1.0
        fields = {"calibration": calibrated.calibration, "exact_setting": None}
        good = stock.stock
        lossy = [*good[:7], wrong_at(good[7], 11), *good[8:]]
        outcomes = service.run_many(
            [
                stock.job("verify:good", answers=as_json(good), **fields),
                stock.job("verify:bad", answers=as_json(lossy), **fields),
            ]
        )
        assert outcomes[0].status == "inconclusive", outcomes[0].reason
        assert "FP32-exact run of this tree is missing" in outcomes[0].reason
        assert outcomes[0].evidence["policy"]["unit"] == "nats"
        assert outcomes[0].evidence["near_tie_rate"]["fresh_tokens"] > 1000
        assert outcomes[1].status == "not_lossless" and "nats" in outcomes[1].reason
    finally:
        service.close()


def test_a_gpu_is_handed_back_after_each_batch(
    fp32: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    import farm.workers.verify as module

    h200 = module.hardware("h200")
    monkeypatch.setattr(module, "hardware", lambda name: h200)
    service = VerifyService(fp32.store)
    jobs = [fp32.job(f"verify:{n}", answers=as_json(fp32.stock[n : n + 4])) for n in range(3)]
    try:
        service.run_many(jobs)
        assert pool_of(service).launches == 1 and pool_of(service)._engines == {}
        service.run_many([fp32.job("verify:late", answers=as_json(fp32.stock[20:24]))])
        assert pool_of(service).launches == 2
    finally:
        service.close()


def test_the_driver_is_the_native_engine_but_for_its_logits() -> None:
    driver = engine_driver("logprobs_only")
    assert driver.stock_source() != checkout_root() / "engines" / "native"


def test_a_second_look_goes_along_three_paths_of_stock(fp32: Stock) -> None:
    pool = StockPool(fp32.store)
    look = second_look(fp32.loaded, fp32.job("look"), fp32.store, pool)
    assert look is not None and look.in_fp32 is None
    pairs = [(a.request.prompt_ids, a.output_ids[: 5 + n]) for n, a in enumerate(fp32.ar[:2])]
    found = look.other_paths(pairs)
    # The pass stays for the campaign; the row shapes' engines are gone again.
    assert len(found) == 3 and pool.launches == 3 and len(pool._engines) == 1
    with_twin = fp32.job("look", exact_setting=fp32.setting)
    look = second_look(fp32.loaded, with_twin, fp32.store, pool)
    assert look is not None and look.in_fp32 is not None
    assert list(look.in_fp32(pairs)) == found[0] and pool.launches == 3
    pool.release()
    for number, (_, ids) in enumerate(pairs):
        for path in found:
            assert len(path[number]) == len(ids) + 1
            for token, position in zip(ids, path[number], strict=False):
                assert position.token_id == token == position.top[0][0]
    values = [[p.token_logit for p in path[1]][:-1] for path in found]
    assert values[1] == pytest.approx(values[0], abs=1e-3)
    assert values[2] == pytest.approx(values[0], abs=1e-3)
    assert values[1] != values[0], "other kernels: rows of one and of a whole answer"
