"""What a driver hands to its actors; Ray itself is not started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import ray
from ray.runtime_env.runtime_env import _merge_runtime_env

from farm.cluster import start_ray
from farm.timing_lock import OWNER_VARIABLE, owner


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What `ray.init` is called with."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", lambda **options: found.update(options))
    with patch.dict(os.environ):
        os.environ.pop("RAY_JOB_CONFIG_JSON_ENV_VAR", None)
        os.environ["SPECFARM_DATA"] = "/data"
        yield found


def test_actors_time_for_their_driver(given: dict[str, Any]) -> None:
    start_ray("auto")
    first = given["runtime_env"]["env_vars"]
    assert first["SPECFARM_DATA"] == "/data" and "PYTHONPATH" in first
    assert first[OWNER_VARIABLE] == owner()
    start_ray("auto")
    assert given["runtime_env"]["env_vars"][OWNER_VARIABLE] != first[OWNER_VARIABLE]


def test_in_a_job_only_what_the_job_does_not_set_is_handed_over(given: dict[str, Any]) -> None:
    os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"] = "{}"
    start_ray("auto")
    assert given["runtime_env"] == {"env_vars": {OWNER_VARIABLE: owner()}}
    job = {"working_dir": "gcs://copy.zip", "env_vars": {"SPECFARM_DATA": "/data"}}
    merged = _merge_runtime_env(job, given["runtime_env"])
    assert merged is not None
    assert merged["env_vars"] == {"SPECFARM_DATA": "/data", OWNER_VARIABLE: owner()}
