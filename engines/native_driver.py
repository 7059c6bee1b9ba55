"""Starts our own engine (`engines/native`): `python -m native_engine.server` from its tree."""

from __future__ import annotations

import sys
from pathlib import Path

from engines.errors import EngineError
from engines.knobs import KnobValue
from engines.protocol import arm_args
from settings.paths import checkout_root
from settings.schema import ArmName, Setting

SETTING_OWNED_KEYS = frozenset(
    {
        "target",
        "model_dir",
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


def server_command(
    module: str,
    setting: Setting,
    arm: ArmName,
    model_dir: Path,
    host: str,
    port: int,
    tree_hash: str,
) -> tuple[str, ...]:
    """argv shared by the engines whose server takes the native engine's flags.

    Raises:
        EngineError: the arm's args set what a field of the setting owns.
    """
    for word in arm_args(setting, arm):
        flag = word.split("=", 1)[0]
        if flag.startswith("--") and flag[2:].replace("-", "_") in _OWNED_FLAGS:
            raise EngineError(
                f"{setting.name}: engine.arms.{arm}.args may not set {flag}",
                "The setting's own fields and the launcher set it",
            )
    return (
        sys.executable,
        "-m",
        module,
        "--model-dir",
        str(model_dir),
        "--host",
        host,
        "--port",
        str(port),
        "--arm",
        arm,
        *arm_args(setting, arm),
        "--dtype",
        setting.target.weights_dtype,
        "--threads",
        str(setting.hardware.threads),
        "--max-total-tokens",
        str(setting.serving.max_total_tokens),
        "--max-running-requests",
        str(setting.serving.max_running_requests),
        "--served-model-name",
        setting.target.name,
        "--tree-hash",
        tree_hash,
    )


class NativeDriver:
    name = "native"
    setting_owned_keys = SETTING_OWNED_KEYS

    def stock_source(self) -> Path:
        return checkout_root() / "engines" / "native"

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
        return server_command(
            "native_engine.server", setting, arm, model_dir, host, port, tree_hash
        )

    def environment(self, tree: Path, cache_dir: Path) -> dict[str, str]:
        return {"PYTHONPATH": str(tree)}

    def row_shape_knobs(self, rows: int) -> dict[str, KnobValue]:
        return {"prefill.chunk_tokens": rows, "prefill.head_rows": rows}
