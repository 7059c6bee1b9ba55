"""What the drivers of this repository's own engines share: a Python module of the tree that serves
over HTTP and takes the setting as flags."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from engines.errors import EngineError
from engines.protocol import arm_args
from settings.paths import checkout_root
from settings.schema import ArmName, Setting

SETTING_OWNED_KEYS = frozenset(
    {
        "target",
        "model_dir",
        "draft_model_dir",
        "device",
        "prefix_reuse",
        "revision",
        "dtype",
        "weights_dtype",
        "kv_dtype",
        "lm_head_dtype",
        "gpu",
        "threads",
        "memory_gb",
        "concurrency",
        "max_running_requests",
        "max_total_tokens",
        "max_new_tokens",
        "temperature",
        "ignore_eos",
        "stop_token_ids",
        "arm",
        "host",
        "port",
        "served_model_name",
        "tree_hash",
    }
)
_OWNED_FLAGS = SETTING_OWNED_KEYS | {"engine_config"}


def refuse_owned_flags(
    setting: Setting, arm: ArmName, given: tuple[str, ...], owned: frozenset[str]
) -> None:
    """Raise EngineError where the arm's args set what a field of the setting owns."""
    for word in given:
        flag = word.split("=", 1)[0]
        if flag.startswith("--") and flag[2:].replace("-", "_") in owned:
            raise EngineError(
                f"{setting.name}: engine.arms.{arm}.args may not set {flag}",
                "The setting's own fields and the launcher set it",
            )


class ServerDriver:
    """Subclasses say which engine: its name in the registry, its folder below `engines/`, the
    module that serves."""

    name: str
    folder: ClassVar[str]
    module: ClassVar[str]
    setting_owned_keys = SETTING_OWNED_KEYS

    def stock_source(self) -> Path:
        return checkout_root() / "engines" / self.folder

    def command(
        self,
        setting: Setting,
        arm: ArmName,
        tree: Path,
        model_dir: Path,
        host: str,
        port: int,
        tree_hash: str,
    ) -> tuple[str, ...]:
        """argv that serves the arm.

        Raises:
            EngineError: the arm's args set what a field of the setting owns.
        """
        given = arm_args(setting, arm)
        refuse_owned_flags(setting, arm, given, _OWNED_FLAGS)
        flags: dict[str, object] = {
            "--model-dir": model_dir,
            "--host": host,
            "--port": port,
            "--arm": arm,
            "--dtype": setting.target.weights_dtype,
            "--threads": setting.hardware.threads,
            "--max-total-tokens": setting.serving.max_total_tokens,
            "--max-running-requests": setting.serving.max_running_requests,
            "--served-model-name": setting.target.name,
            "--tree-hash": tree_hash,
            **self.further_flags(setting, arm),
        }
        owned = [str(part) for pair in flags.items() for part in pair]
        return (sys.executable, "-m", self.module, *given, *owned)

    def further_flags(self, setting: Setting, arm: ArmName) -> dict[str, object]:
        """What only this engine is told of the setting."""
        return {}

    def environment(self, tree: Path, cache_dir: Path) -> dict[str, str]:
        return {"PYTHONPATH": str(tree)}
