"""Starts the transformers reference: the library's own `generate` behind the same HTTP surface.

A yardstick for autoregressive speed and an independent oracle for tokens, never a candidate.
"""

from __future__ import annotations

from pathlib import Path

from engines.native_driver import SETTING_OWNED_KEYS, server_command
from settings.paths import checkout_root
from settings.schema import ArmName, Setting


class TransformersDriver:
    name = "transformers"
    setting_owned_keys = SETTING_OWNED_KEYS

    def stock_source(self) -> Path:
        return checkout_root() / "engines" / "transformers_reference"

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
            "transformers_reference.server", setting, arm, model_dir, host, port, tree_hash
        )

    def environment(self, tree: Path, cache_dir: Path) -> dict[str, str]:
        return {"PYTHONPATH": str(tree)}
