"""Read back with MLflow's own client, and with plain SQLite where the row counts matter."""

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from farm.results import candidate_from_json, report_from_json
from farm.tracking.store import open_client, tracking_root
from farm.tracking.tracker import Tracker, TrackingError
from farm.verdicts import Decision, Verdict
from tests.farm.report.samples import PATCH, sample_report

SETTING = sample_report().setting


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for the module (its schema takes seconds); each test logs its own campaign."""
    return tmp_path_factory.mktemp("mlruns")


@pytest.fixture(scope="module")
def tracker(root: Path) -> Tracker:
    return Tracker(root)


@pytest.fixture
def client(root: Path) -> Any:
    return open_client(root)


@pytest.fixture
def database(root: Path, tracker: Tracker) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(root / "mlflow.db")
    yield connection
    connection.close()


def artifacts(run: Any) -> dict[str, Path]:
    folder = Path(unquote(urlparse(run.info.artifact_uri).path))
    return {path.name: path for path in folder.iterdir()}


def test_a_campaign_and_its_candidates_are_parent_and_nested_runs(
    tracker: Tracker, client: Any, tmp_path: Path
) -> None:
    report = replace(sample_report(), campaign_id="nested")
    bench = tmp_path / "final-1.json"
    bench.write_text('{"tokens_per_s": 31.0}')
    parent = tracker.start_campaign(SETTING, "nested")
    child = tracker.log_candidate(report.candidates[0], bench)
    tracker.log_campaign(report)
    tracker.finish_campaign()

    run = client.get_run(child)
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert run.data.tags["specfarm.unit"] == "nested/c01"
    assert run.data.tags["verdict"] == "accepted"
    assert run.data.tags["reason"] == "lower bound 1.195 > floor 1.021"
    assert run.data.tags["baseline_stock"] == "native-1f0c1f0c1f0c"
    assert run.data.tags["baseline_ar"] == "native-1f0c1f0c1f0c-ar"
    assert run.data.tags["stock_95"] == "[1.195, 1.249]"
    assert run.data.params["component"] == "draft"
    assert run.data.params["tree_hash"] == f"{1:040x}"
    wanted = {
        **{"ratio_to_stock": 1.222, "ratio_to_stock_low": 1.195, "ratio_to_stock_high": 1.249},
        **{"heldout_ratio_to_stock_low": 1.172, "ratio_to_ar": 1.9674, "tau": 2.0041},
        **{"tau_ratio": 1.17, "step_ratio": 1.04, "mismatches": 0, "near_ties": 29},
        **{"tokens_checked": 3071, "fp32_exact_mismatches": 0},
    }
    assert {key: run.data.metrics[key] for key in wanted} == pytest.approx(wanted)
    files = artifacts(run)
    assert set(files) == {"patch.diff", "verdict.json", "bench.json", "ratios.png"}
    assert files["patch.diff"].read_text() == PATCH
    assert files["bench.json"].read_text() == bench.read_text()

    top = client.get_run(parent)
    assert top.info.status == "FINISHED"
    assert top.data.metrics["aa_floor"] == 1.021
    assert top.data.metrics["accepted"] == 3
    assert top.data.tags["verdict"] == "promoted merge-1"
    assert set(artifacts(top)) == {"report.json", "result.md", "verdicts.txt", "ratios.png"}


def test_json_artifacts_give_the_records_back(tracker: Tracker, client: Any) -> None:
    import json

    report = replace(sample_report(), campaign_id="json")
    top = client.get_run(tracker.log_report(report))
    stored = json.loads(artifacts(top)["report.json"].read_text())
    assert report_from_json(stored) == report
    child = client.get_run(tracker.log_candidate(report.candidates[3]))
    stored = json.loads(artifacts(child)["verdict.json"].read_text())
    assert candidate_from_json(stored) == report.candidates[3]


def test_logging_again_updates_and_never_duplicates(
    tracker: Tracker, client: Any, root: Path, database: sqlite3.Connection
) -> None:
    report = replace(sample_report(), campaign_id="again")
    first = tracker.log_report(report)

    def counts() -> tuple[int, ...]:
        return tuple(
            database.execute(f"select count(*) from {table}").fetchone()[0]
            for table in ("runs", "metrics", "params", "tags", "experiments")
        )

    before = counts()
    resumed = Tracker(root)
    assert resumed.log_report(report) == first
    assert counts() == before

    changed = replace(
        report.candidates[5],
        decision=Decision(Verdict.NOT_FASTER, "decided with more time"),
        to_stock=replace(report.candidates[5].to_stock, ratio=0.99, low=0.98, high=1.0),  # type: ignore[type-var]
    )
    run = client.get_run(resumed.log_candidate(changed))
    assert run.data.metrics["ratio_to_stock"] == 0.99
    assert run.data.tags["verdict"] == "not_faster"
    assert counts()[0] == before[0]


def test_another_tree_under_the_same_unit_replaces_the_run(tracker: Tracker, client: Any) -> None:
    result = sample_report().candidates[0]
    tracker.start_campaign(SETTING, "other-tree")
    old = tracker.log_candidate(result)
    new = tracker.log_candidate(replace(result, tree_hash="f" * 40))
    assert new != old
    assert client.get_run(old).info.lifecycle_stage == "deleted"
    assert client.get_run(new).data.params["tree_hash"] == "f" * 40


def test_what_broke_is_shown_as_failed_and_an_interrupted_campaign_as_killed(
    tracker: Tracker, client: Any
) -> None:
    parent = tracker.start_campaign(SETTING, "broken")
    assert client.get_run(parent).info.status == "RUNNING"
    crashed = client.get_run(tracker.log_candidate(sample_report().candidates[6]))
    assert crashed.info.status == "FAILED"
    assert "ratio_to_stock" not in crashed.data.metrics
    tracker.finish_campaign(ok=False)
    assert client.get_run(parent).info.status == "KILLED"


def test_resumed_campaign_runs_again(tracker: Tracker, client: Any) -> None:
    parent = tracker.start_campaign(SETTING, "resumed")
    tracker.finish_campaign(ok=False)
    assert tracker.start_campaign(SETTING, "resumed") == parent
    assert client.get_run(parent).info.status == "RUNNING"


def test_a_candidate_without_a_campaign_is_refused(root: Path) -> None:
    with pytest.raises(TrackingError, match=r"c01 .*start_campaign"):
        Tracker(root).log_candidate(sample_report().candidates[0])


def test_a_deleted_experiment_is_restored(tracker: Tracker, client: Any) -> None:
    tracker.start_campaign("trashed", "one")
    client.delete_experiment(client.get_experiment_by_name("trashed").experiment_id)
    tracker.start_campaign("trashed", "one")
    assert client.get_experiment_by_name("trashed").lifecycle_stage == "active"


def test_a_number_that_is_not_finite_is_kept_out(tracker: Tracker, client: Any) -> None:
    tracker.start_campaign(SETTING, "nan")
    odd = replace(sample_report().candidates[0], accept_length=float("nan"))
    run = client.get_run(tracker.log_candidate(odd))
    assert "tau" not in run.data.metrics
    assert run.data.metrics["tau_ratio"] == 1.17


def test_the_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECFARM_MLRUNS", str(tmp_path / "store"))
    assert tracking_root() == tmp_path / "store"
    monkeypatch.delenv("SPECFARM_MLRUNS")
    assert tracking_root().name == "mlruns"


def test_only_tracked_fields_become_metrics() -> None:
    """Every number of a CandidateResult that the table shows has a metric of the right value."""
    from farm.tracking.project import project_candidate

    result = sample_report().candidates[3]
    metrics = project_candidate("x", result).metrics
    flat = asdict(result)
    assert metrics["mismatches"] == flat["lossless"]["mismatches"] == 3
    assert metrics["ratio_to_ar_high"] == pytest.approx(flat["to_ar"]["high"], abs=5e-5)


def test_what_is_known_of_all_candidates_together_reaches_the_runs_there_are(
    tracker: Tracker, client: Any
) -> None:
    report = replace(sample_report(), campaign_id="together")
    tracker.start_campaign(SETTING, report.campaign_id)
    first = replace(report.candidates[0], tau_interval=report.candidates[0].to_stock)
    run_id = tracker.log_candidate(first)
    assert "ratio_shrunken" not in client.get_run(run_id).data.metrics
    shrunk = replace(first, ratio_shrunken=1.19)
    parent = tracker.log_campaign(
        replace(
            report,
            candidates=(shrunk, *report.candidates[1:]),
            candidates_screened=5,
            confirmation_confidence=0.99,
        )
    )
    metrics = client.get_run(run_id).data.metrics
    assert (metrics["ratio_shrunken"], metrics["tau_ratio_low"]) == (1.19, 1.195)
    campaign = client.get_run(parent).data.metrics
    assert (campaign["candidates_screened"], campaign["confirmation_confidence"]) == (5, 0.99)
    runs = client.search_runs([client.get_run(parent).info.experiment_id])
    children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent]
    assert [r.info.run_id for r in children] == [run_id], "no run is made for the others"
