"""One command line in this process, with a data folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from farm.cli.app import run


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines; fails on anything else."""
        found = [json.loads(line) for line in self.out.splitlines()]
        assert all(isinstance(item, dict) for item in found)
        return found


Cli = Callable[..., Ran]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")

    def ran(*arguments: str) -> Ran:
        capfd.readouterr()
        code = run(list(arguments))
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Ran(code, out, err)

    return ran
