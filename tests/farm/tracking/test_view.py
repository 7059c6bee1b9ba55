import json
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from farm.tracking import view
from farm.tracking.project import project_campaign, project_candidate
from farm.tracking.store import open_client
from farm.tracking.tracker import Tracker
from tests.farm.report.samples import sample_report


def test_every_column_of_the_view_is_logged() -> None:
    report = sample_report()
    shown = project_candidate("c", report.candidates[0])
    logged = {
        *(f"metrics.`{key}`" for key in shown.metrics),
        *(f"params.`{key}`" for key in shown.params),
        *(f"tags.`{key}`" for key in shown.tags),
    }
    assert set(view.COLUMNS) <= logged
    assert {"ratio_to_stock", "ratio_to_ar"} <= set(project_campaign(report).metrics)


def test_the_experiment_opens_on_the_saved_view(tmp_path: Path) -> None:
    Tracker(tmp_path).start_campaign("cpu_c1_x", "one")
    experiment = open_client(tmp_path).get_experiment_by_name("cpu_c1_x")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    route = view.view_path(experiment.experiment_id)
    assert route in experiment.tags["mlflow.note.content"]
    key = parse_qs(urlparse(route.removeprefix("#")).query)["viewStateShareKey"][0]
    state = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
    assert state["selectedColumns"][0] == "tags.`verdict`"
    assert state["orderByKey"] in state["selectedColumns"]
