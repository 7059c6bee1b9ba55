"""What MLflow's UI shows: experiment tags that open the run table with the columns that matter.

The UI reads three experiment tags. `mlflow.experimentKind` chooses the run table instead of the
trace views; `mlflow.note.content` is the description; `mlflow.sharedViewState.<key>` is a saved
view, opened by `?viewStateShareKey=<key>`: selected columns, their order, the sort. A sort by a
metric makes the table flat, so candidates stand open instead of folded under their campaign.
"""

from __future__ import annotations

import json

VIEW_KEY = "specfarm"

# Column -> width in pixels, in the order shown.
COLUMNS = {
    "tags.`verdict`": 112,
    "metrics.`ratio_to_stock`": 112,
    "tags.`stock_95`": 128,
    "tags.`heldout_95`": 128,
    "metrics.`ratio_to_ar`": 95,
    "tags.`ar_95`": 128,
    "metrics.`tau`": 70,
    "metrics.`mismatches`": 100,
    "metrics.`near_ties`": 85,
    "metrics.`tokens_checked`": 120,
    "params.`component`": 100,
    "tags.`baseline_stock`": 165,
}

_NOTE = """\
**{setting}**: one run a campaign, one nested run a candidate.

[Open the verdict table]({link}) (columns chosen, sorted by ratio to stock).

- `ratio_to_stock`, `ratio_to_ar`: speed ratios with 95 % bounds (`_low`, `_high`); the tags
  `baseline_stock` and `baseline_ar` name what they are ratios to. On a campaign's own row: the
  promoted engine's.
- `stock_95`, `ar_95`, `heldout_95`: the same intervals as text, for the table.
- `heldout_*`: ratios on fresh held-out prompts with fresh launches.
- `tau`: output tokens a verify step, bonus token included; ratio = `tau_ratio` x `step_ratio`.
- `mismatches`, `near_ties`, `tokens_checked`: token forcing on the stock target;
  `fp32_exact_mismatches`: the FP32 twin, where none is allowed.

The ledger is the truth; this store is a projection of it and can be written again from it.
"""


def view_path(experiment_id: str) -> str:
    """The UI route of the saved view; put it after the server's address."""
    query = f"workflowType=machine_learning&viewStateShareKey={VIEW_KEY}"
    return f"#/experiments/{experiment_id}/runs?{query}"


def shared_view() -> str:
    """The saved view, as JSON in the UI's own field names (MLflow 3.17)."""
    return json.dumps(
        {
            "selectedColumns": list(COLUMNS),
            "columnOrder": list(COLUMNS),
            "columnWidths": COLUMNS,
            "orderByKey": "metrics.`ratio_to_stock`",
            "orderByAsc": False,
            "runListHidden": False,
        }
    )


def experiment_tags() -> dict[str, str]:
    """The tags that do not depend on the experiment's id."""
    return {
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{VIEW_KEY}": shared_view(),
    }


def note(setting: str, experiment_id: str) -> str:
    """The experiment's description (Markdown)."""
    return _NOTE.format(setting=setting, link=view_path(experiment_id))
