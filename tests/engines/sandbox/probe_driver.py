"""Drivers of the probe engine: one that needs nothing of its sandbox, one of several processes."""

import sys
from pathlib import Path
from typing import ClassVar

from engines.server_driver import SETTING_OWNED_KEYS
from settings.schema import ArmName, Setting


class ProbeDriver:
    name = "probe"
    setting_owned_keys = SETTING_OWNED_KEYS

    def stock_source(self) -> Path:
        return Path(__file__).parent / "probe_tree"

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
        flags = ("--host", host, "--port", str(port), "--tree-hash", tree_hash)
        return (sys.executable, "server.py", *flags)

    def environment(self, tree: Path, cache_dir: Path) -> dict[str, str]:
        return {"FAKE_CACHE": str(cache_dir)}


class ManyProcesses(ProbeDriver):
    name = "many_processes"
    ports: ClassVar[tuple[int, ...]] = ()

    def internal_ports(self, port: int) -> tuple[int, ...]:
        return self.ports
