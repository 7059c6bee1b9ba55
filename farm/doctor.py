"""What this machine has of what specfarm (and one setting) needs, each with its remedy."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from engines.sandbox.errors import SandboxUnavailable
from engines.sandbox.level import REMEDY, active_level
from farm.doctor_check import Check, Gpu, present_gpus
from farm.doctor_setting import overview, setting_checks
from settings.paths import data_root
from settings.schema import Setting

_PACKAGES = ("torch", "transformers", "ray", "mlflow", "gitpython", "huggingface_hub", "fastapi")
_OPTIONAL = {
    "reasoning-gym": "held-out prompts of the embedded default: pip install 'specfarm[demo]'",
    "optuna": "kernel tuner: pip install 'specfarm[gpu]'",
    "triton": "GPU kernels: pip install 'specfarm[gpu]'",
    "anthropic": "Claude explorers: pip install 'specfarm[claude]'",
}
_DISK_GB = 2.0


def checks(setting: Setting | None) -> list[Check]:
    """General checks, then those of a setting, or a line on each setting there is."""
    gpus = present_gpus()
    found = [
        Check("python", "ok", platform.python_version()),
        *(_package(name) for name in _PACKAGES),
        *(_optional(name, remedy) for name, remedy in _OPTIONAL.items()),
        _tool("git", "apt-get install git", required=True),
        _tool("g++", "mechanisms with C++ ops are skipped; apt-get install g++", required=False),
        _disk(),
        _port(30000),
        _gpus(gpus),
        _key(),
        _sandbox(),
    ]
    return found + (overview(gpus) if setting is None else setting_checks(setting, gpus))


def _package(name: str) -> Check:
    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        return Check(name, "missing", "not installed", "run: make setup")


def _optional(name: str, remedy: str) -> Check:
    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        return Check(name, "note", "not installed", remedy)


def _tool(name: str, remedy: str, *, required: bool) -> Check:
    path = shutil.which(name)
    if path:
        return Check(name, "ok", path)
    return Check(name, "missing" if required else "note", "not found", remedy)


def _disk() -> Check:
    root = data_root()
    free = shutil.disk_usage(root).free / 1e9
    text = f"{free:.0f} GB free in {root}"
    if free < _DISK_GB:
        return Check("disk", "missing", text, f"free {_DISK_GB:.0f} GB or set SPECFARM_DATA")
    return Check("disk", "ok", text)


def _port(port: int) -> Check:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            remedy = f"scripts/stop.sh {port}, or serve on another port"
            return Check(f"port {port}", "note", "in use", remedy)
    return Check(f"port {port}", "ok", "free")


def _gpus(gpus: Sequence[Gpu]) -> Check:
    names = [gpu.name for gpu in gpus]
    return Check("GPUs", "ok" if names else "note", ", ".join(names) or "none (cpu settings only)")


def _key() -> Check:
    if os.environ.get("ANTHROPIC_API_KEY"):
        return Check("ANTHROPIC_API_KEY", "ok", "set")
    return Check("ANTHROPIC_API_KEY", "note", "not set", "only the Claude explorers need it")


def _sandbox() -> Check:
    try:
        level = active_level()
    except SandboxUnavailable as error:
        return Check("sandbox", "missing", error.message, error.remedy)
    if level.name == "rlimits":
        return Check("sandbox", "note", level.summary, REMEDY)
    return Check("sandbox", "ok", level.summary)
