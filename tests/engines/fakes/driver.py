"""The fake engine's driver: the same flags as the native engine's, on `python server.py`."""

import sys
from pathlib import Path

from engines.protocol import arm_args
from engines.server_driver import SETTING_OWNED_KEYS
from settings.schema import ArmName, Setting


class FakeDriver:
    name = "fake"
    setting_owned_keys = SETTING_OWNED_KEYS

    def stock_source(self) -> Path:
        return Path(__file__).parent / "fake_tree"

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
        flags = ("--host", host, "--port", str(port), "--arm", arm, "--tree-hash", tree_hash)
        return (sys.executable, "-S", "server.py", *flags, *arm_args(setting, arm))

    def environment(self, tree: Path, cache_dir: Path) -> dict[str, str]:
        return {"FAKE_CACHE": str(cache_dir)}
