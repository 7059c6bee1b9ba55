"""Joining or starting Ray.

Token authentication stays on (Ray listens on all interfaces); its token is in ~/.ray/auth_token.
"""

from __future__ import annotations

import logging
import os
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from farm.timing_lock import OWNER_VARIABLE
from settings.errors import SpecfarmError
from settings.paths import checkout_root

_SHARED = (
    "SPECFARM_DATA",
    "SPECFARM_MLRUNS",
    "SPECFARM_TIMING_LOCK",
    "SPECFARM_SANDBOX",
    "SPECFARM_SANDBOX_READ",
    OWNER_VARIABLE,
    "OMP_NUM_THREADS",
)


def start_ray(address: str | None) -> None:
    """`None` starts a local cluster that ends with this process; `auto` or host:port joins one.

    Raises:
        SpecfarmError: the address answers to nobody.
    """
    for name, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }.items():
        os.environ.setdefault(name, value)
    # This driver and its actors time for one campaign.
    os.environ[OWNER_VARIABLE] = uuid.uuid4().hex
    import ray

    options: dict[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR}
    variables = actor_variables(os.environ)
    if in_job():
        # The job's runtime environment reaches the actors by itself, and Ray refuses a second one
        # that names the same variables.
        variables = {OWNER_VARIABLE: variables[OWNER_VARIABLE]}
    options["runtime_env"] = {"env_vars": variables}
    if address is None:
        # Not None: that would join whatever RAY_ADDRESS names.
        options |= {"address": "local", "include_dashboard": False, "_temp_dir": str(ray_folder())}
        options["num_cpus"] = max(2, os.cpu_count() or 2)
    else:
        options["address"] = address
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = "a local Ray cluster" if address is None else f"--address {address}"
        raise SpecfarmError(
            f"{where}: {str(error).splitlines()[0]}",
            "Start one with `ray start --head`, or leave --address out for a local one",
        ) from error


def in_job() -> bool:
    """Whether `ray job submit` started this process."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def actor_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What actors must share with the driver: where the code, the data and the timing lock are.

    A cluster that was there before has none of this driver's variables.
    """
    paths = [str(checkout_root()), environment.get("PYTHONPATH", "")]
    found = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    return found | {name: environment[name] for name in _SHARED if name in environment}


def ray_folder() -> Path:
    """Where local clusters keep their sockets and logs. Short, because a Unix socket path has at
    most 107 bytes.

    Raises:
        SpecfarmError: another user's folder, or a link, lies there.
    """
    path = Path(tempfile.gettempdir()) / f"specfarm-ray-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise SpecfarmError(f"{path} is not a folder of yours", "Remove it, or set TMPDIR")
    return path
