"""What this machine has of what specfarm (and one setting) needs, each with its remedy."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import psutil

from engines.errors import EngineError
from engines.registry import engine_driver
from engines.sandbox.errors import SandboxUnavailable
from engines.sandbox.level import REMEDY, active_level
from settings.hardware import hardware
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


@dataclass(frozen=True)
class Check:
    """`missing` makes `doctor` exit with 2; `note` does not."""

    what: str
    state: Literal["ok", "note", "missing"]
    found: str
    remedy: str = ""


def checks(setting: Setting | None) -> list[Check]:
    """General checks, then those of a setting."""
    found = [
        Check("python", "ok", platform.python_version()),
        *(_package(name) for name in _PACKAGES),
        *(_optional(name, remedy) for name, remedy in _OPTIONAL.items()),
        _tool("git", "apt-get install git", required=True),
        _tool("g++", "mechanisms with C++ ops are skipped; apt-get install g++", required=False),
        _disk(),
        _port(30000),
        _gpus(),
        _key(),
        _sandbox(),
    ]
    return found + ([] if setting is None else _setting(setting))


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


def _gpu_names() -> list[str]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def _gpus() -> Check:
    names = _gpu_names()
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


def _setting(setting: Setting) -> list[Check]:
    device = hardware(setting.hardware.gpu)
    found = [Check("setting", "ok", setting.name)]
    if device.is_gpu:
        present = [name for name in _gpu_names() if name in device.nvml_names]
        state: Literal["ok", "missing"] = "ok" if present else "missing"
        remedy = f"needs one of: {', '.join(device.nvml_names)}"
        found.append(Check(f"GPU {device.name}", state, ", ".join(present) or "none", remedy))
    memory = psutil.virtual_memory().available / 1e9
    enough = memory >= setting.hardware.memory_gb
    text = f"{memory:.0f} GB available"
    need = f"needs {setting.hardware.memory_gb:.0f} GB"
    found.append(Check("memory", "ok" if enough or device.is_gpu else "missing", text, need))
    found.append(_engine(setting.engine.name))
    return found


def _engine(name: str) -> Check:
    try:
        engine_driver(name)
    except EngineError as error:
        return Check("engine.name", "missing", name, error.remedy)
    return Check("engine.name", "ok", name)
