"""Joining or starting Ray.

Token authentication stays on (Ray listens on all interfaces); its token is in ~/.ray/auth_token.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from settings.errors import SpecfarmError
from settings.paths import checkout_root


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
    import ray

    paths = [str(checkout_root()), os.environ.get("PYTHONPATH", "")]
    runtime = {"env_vars": {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}}
    options: dict[str, object] = {
        "runtime_env": runtime,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    if address is None:
        options |= {"include_dashboard": False, "_temp_dir": _temp_dir()}
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


def _temp_dir() -> str:
    """Short, because Ray's sockets live below it (a Unix socket path has at most 107 bytes)."""
    path = Path(tempfile.gettempdir()) / f"specfarm-ray-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return str(path)
