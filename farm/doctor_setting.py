"""What this machine lacks of what one setting needs, and how to get each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from engines.errors import EngineError
from engines.registry import engine_driver
from engines.sglang_driver import REMEDY, sglang_python, sglang_version
from farm.doctor_check import Check, Gpu, State
from settings.disk_space import gigabytes, missing_bytes
from settings.download import absent_bytes
from settings.errors import SpecfarmError
from settings.hardware import hardware
from settings.loading import list_settings, load_setting
from settings.paths import shared_dir
from settings.prompt_sets import absent_hub_sets
from settings.revisions import known_revision, revisions_file
from settings.schema import RESOLVE, Baseline, Checkpoint, Setting
from settings.weights import present_drafter, present_target


def setting_checks(setting: Setting, gpus: Sequence[Gpu]) -> list[Check]:
    """Device, memory, weights, prompts, disk, engine, baseline."""
    found = [Check("setting", "ok", setting.name), *_device(setting, gpus)]
    found.append(_weights(setting, "target", setting.target.checkpoint, present_target))
    if setting.drafter.checkpoint is not None:
        found.append(_weights(setting, "drafter", setting.drafter.checkpoint, present_drafter))
    found += _prompts(setting)
    found += _room(setting)
    found.append(_engine(setting.engine.name))
    if setting.baseline is not None:
        found.append(_baseline(setting.baseline, setting.hardware.gpu))
    return found


def overview(gpus: Sequence[Gpu]) -> list[Check]:
    """One line a setting of this checkout: whether it could run here, else what it lacks."""
    lines = []
    for name in list_settings():
        try:
            lacks = [
                c.what for c in setting_checks(load_setting(name), gpus) if c.state == "missing"
            ]
        except SpecfarmError as error:
            lacks = [error.message]
        text = f"lacks {', '.join(lacks)}" if lacks else "can run here"
        remedy = f"specfarm doctor {name}" if lacks else ""
        lines.append(Check(f"setting {name}", "note" if lacks else "ok", text, remedy))
    return lines


def _device(setting: Setting, gpus: Sequence[Gpu]) -> list[Check]:
    device, needed = hardware(setting.hardware.gpu), setting.hardware.memory_gb
    if not device.is_gpu:
        free = psutil.virtual_memory().available / 1e9
        state: State = "ok" if free >= needed else "missing"
        return [Check("memory", state, f"{free:.0f} GB available", f"needs {needed:.0f} GB")]
    mine = [gpu for gpu in gpus if gpu.name in device.nvml_names]
    what, remedy = f"GPU {device.name}", f"needs one of: {', '.join(device.nvml_names)}"
    if not mine:
        others = ", ".join(sorted({gpu.name for gpu in gpus})) or "none"
        return [Check(what, "missing", others, f"{remedy}; {needed:.0f} GB of memory")]
    most = max(gpu.memory_gb for gpu in mine)
    enough: State = "ok" if most >= needed else "missing"
    return [
        Check(what, "ok", ", ".join(gpu.name for gpu in mine), remedy),
        Check("GPU memory", enough, f"{most:.0f} GB", f"needs {needed:.0f} GB"),
    ]


def _weights(
    setting: Setting,
    role: str,
    checkpoint: Checkpoint,
    present: Callable[[Setting], Path | None],
) -> Check:
    what = f"{role} weights"
    try:
        folder, pin = present(setting), _pin(checkpoint)
    except SpecfarmError as error:
        return Check(what, "missing", error.message, error.remedy)
    if folder is not None:
        return Check(what, "ok", f"{folder} ({pin})")
    size = "" if checkpoint.size_bytes is None else f", {gigabytes(checkpoint.size_bytes)}"
    how = f"scripts/download_models.sh {setting.name}"
    if checkpoint.source == "local":
        return Check(what, "missing", f"no model at {checkpoint.path}", "Correct checkpoint.path")
    if checkpoint.source == "hub":
        return Check(what, "missing", f"not here: {pin}{size}", how)
    return Check(what, "note", f"not here yet: {pin}{size}", f"fetched at first use, or by {how}")


def _pin(checkpoint: Checkpoint) -> str:
    """Where the weights come from; a revision left open says what it was resolved to, and where
    that is written down."""
    if checkpoint.source == "checkout":
        return f"ships with the repository, sha256 {(checkpoint.sha256 or '')[:12]}"
    if checkpoint.source != "hub":
        return checkpoint.package or checkpoint.source
    repository, revision = checkpoint.repository or "", checkpoint.revision or ""
    known = known_revision(repository, revision)
    if known is None:
        return f"{repository}, revision to be resolved at the first download"
    recorded = f", recorded in {revisions_file().name}" if revision == RESOLVE else ""
    return f"{repository} at {known[:12]}{recorded}"


def _prompts(setting: Setting) -> list[Check]:
    absent = absent_hub_sets((*setting.prompts.search, *setting.prompts.heldout))
    if not absent:
        return []
    how = f"scripts/download_models.sh {setting.name}"
    return [Check("prompt sets", "missing", f"not here: {', '.join(absent)}", how)]


def _room(setting: Setting) -> list[Check]:
    try:
        needed = absent_bytes(setting)
    except SpecfarmError:
        return []
    if not needed:
        return []
    missing = missing_bytes(needed, shared_dir())
    text = f"{gigabytes(needed)} to download into {shared_dir()}"
    if missing:
        remedy = f"free {gigabytes(missing)}, or set SPECFARM_DATA to a folder on a larger disk"
        return [Check("disk for weights", "missing", text, remedy)]
    return [Check("disk for weights", "ok", text)]


def _engine(name: str) -> Check:
    try:
        engine_driver(name)
    except EngineError as error:
        return Check("engine.name", "missing", name, error.remedy)
    return Check("engine.name", "ok", name)


def _baseline(baseline: Baseline, gpu: str) -> Check:
    """Only ratios against it need it: a note, not a reason not to run."""
    what, remedy = f"baseline {baseline.label}", REMEDY.replace("VERSION", baseline.version)
    try:
        python = sglang_python(gpu)
    except EngineError as error:
        return Check(what, "note", error.message, remedy)
    found = sglang_version(python)
    if found != baseline.version:
        return Check(what, "note", f"{python} has {found or 'no SGLang'}", remedy)
    return Check(what, "ok", str(python))
