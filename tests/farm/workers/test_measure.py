"""A worker's whole job on engines without a model: failures, blame, what outlives a launch."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engines.answers import GenerationRequest
from engines.process_registry import ProcessRegistry
from engines.registry import register_engine
from engines.resolve import import_stock, store_for
from engines.tree_store import TreeStore
from farm.campaign.decide import decide
from farm.campaign.jobs import ArmSpec, MeasureJob, MeasureOutcome
from farm.verdicts import Verdict
from farm.workers import measure as measure_module
from farm.workers.measure import run_measure_job
from settings.loading import load_setting

SETTINGS = Path(__file__).resolve().parents[2] / "data" / "settings"
REQUESTS = tuple(
    GenerationRequest(f"r{n}", tuple((n * 31 + i * 7) % 97 for i in range(12)), 9) for n in range(4)
)
Measure = Callable[..., MeasureOutcome]


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny setting, served by the fake engine."""
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SPECFARM_TIMING_LOCK", str(tmp_path / "timing.lock"))
    register_engine("fake", "tests.engines.fakes.driver:FakeDriver")
    shutil.copytree(SETTINGS, tmp_path / "settings")
    for name in ("tiny", "tiny-fp32"):
        file = tmp_path / "settings" / name / "setting.toml"
        text = file.read_text().replace('name = "native"', 'name = "fake"')
        text = re.sub(r"request_deadline_s = .*", "request_deadline_s = 1.5", text)
        text = re.sub(r"startup_deadline_s = .*", "startup_deadline_s = 15.0", text)
        file.write_text(text + "warm_rounds_max = 3\n")
    return tmp_path / "settings" / "tiny"


@pytest.fixture
def store(setting: Path) -> TreeStore:
    return store_for(load_setting(setting))


@pytest.fixture
def run(setting: Path, store: TreeStore) -> Measure:
    """run(candidate behaviour, stock behaviour) -> the outcome of one whole job."""

    def measured(candidate: str, stock: str = "healthy", **fields: object) -> MeasureOutcome:
        base = import_stock(load_setting(setting), store)

        def arm(label: str, role: str, behaviour: str) -> ArmSpec:
            knobs = {"behaviour": behaviour, "pause_s": 0.002}
            tree = store.commit_knobs(base.commit, knobs)
            return ArmSpec(label, role, "fake", tree.commit, tree.tree_hash)  # type: ignore[arg-type]

        job = MeasureJob(
            unit="measure:x",
            setting=str(setting),
            arms=(arm("candidate", "candidate", candidate), arm("stock", "stock", stock)),
            requests=REQUESTS,
            subject="candidate",
            denominator="stock",
            seconds=0.3,
            seed=1,
            stop_losers=False,
        )
        return run_measure_job(replace(job, **fields), store)  # type: ignore[arg-type]

    return measured


def test_an_honest_job_brings_everything_home(run: Measure) -> None:
    found = run("healthy")
    assert found.status == "ok", found.error
    assert found.recording is not None
    assert {r["arm"] for r in found.recording["runs"]} == {"candidate", "stock"}
    assert {len(r["output_ids"]) for r in found.recording["runs"]} == {9}
    for label, arm in (("candidate", "candidate"), ("stock", "stock")):
        assert found.served[label]["arm"] == arm
        assert found.cpu_s[label] >= 0.0
    assert {p["arm"] for p in found.probes} == {"candidate", "stock"}
    assert len(found.asked_again) == 6
    assert found.escaped == {}
    json.dumps(found.served)


def test_no_probes_where_stock_is_measured_against_itself(run: Measure) -> None:
    assert run("healthy", subject="stock", denominator="candidate").probes == []


@pytest.mark.parametrize(
    ("candidate", "stock", "status", "blamed", "verdict"),
    [
        ("crash", "healthy", "crashed", "candidate", Verdict.CRASHED),
        ("dies", "healthy", "crashed", "candidate", Verdict.CRASHED),
        ("garbage", "healthy", "malformed", "candidate", Verdict.CRASHED),
        ("slow", "healthy", "timeout", "candidate", Verdict.TIMEOUT),
        ("healthy", "crash", "crashed", "stock", Verdict.INVALID_ENVIRONMENT),
        ("healthy", "dies", "crashed", "stock", Verdict.INVALID_ENVIRONMENT),
        ("healthy", "slow", "timeout", "stock", Verdict.INVALID_ENVIRONMENT),
    ],
)
def test_the_arm_that_failed_is_blamed(
    run: Measure, candidate: str, stock: str, status: str, blamed: str, verdict: Verdict
) -> None:
    found = run(candidate, stock)
    assert (found.status, found.blamed) == (status, blamed), found.error
    assert found.error
    assert decide(found, None, None, 1.0).verdict is verdict
    assert ProcessRegistry().records() == []


def test_what_nobody_foresaw_ends_the_job_and_not_the_campaign(
    run: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no such thing\x1b[2J \ud800")

    monkeypatch.setattr(measure_module, "measure", broken)
    found = run("healthy")
    assert found.status == "invalid_environment" and found.blamed is None
    assert "ValueError: no such thing" in found.error
    assert "\x1b" not in found.error
    found.error.encode()
    assert decide(found, None, None, 1.0).verdict is Verdict.INVALID_ENVIRONMENT
    assert ProcessRegistry().records() == []


def test_a_process_that_leaves_its_session_is_brought_home(run: Measure) -> None:
    found = run("orphans")
    assert found.status == "ok", found.error
    assert found.escaped == {"candidate": ["sleep"]}
    assert ProcessRegistry().records() == []


def test_every_launch_is_cold_and_only_the_cache_survives(run: Measure) -> None:
    """Two launches of one tree, as a confirmation's are: other processes, other scratch folders;
    what an engine leaves in scratch, tree or elsewhere is gone, in its cache it is not."""
    first, second = run("litter"), run("litter")
    assert first.status == second.status == "ok", (first.error, second.error)
    for label in ("candidate",):
        one, two = first.served[label], second.served[label]
        assert one["env"]["ENGINE_LAUNCH_ID"] != two["env"]["ENGINE_LAUNCH_ID"]
        assert one["env"]["TMPDIR"] != two["env"]["TMPDIR"]
        assert not Path(one["env"]["TMPDIR"]).exists()
        assert one["env"]["FAKE_CACHE"] == two["env"]["FAKE_CACHE"]
        assert one["found"] == []
        assert two["found"] == ["cache"]
