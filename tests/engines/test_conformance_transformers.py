"""The transformers reference on the tiny random model (its import alone takes many seconds)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from engines.conformance import EngineConformance
from settings.schema import ArmName

SETTINGS = Path(__file__).parent.parent / "data" / "settings"


@pytest.mark.slow
class TestTransformersFp32(EngineConformance):
    setting_name: ClassVar[str] = str(SETTINGS / "tiny-fp32" / "setting.toml")
    engine_name: ClassVar[str] = "transformers"
    arm: ClassVar[ArmName] = "ar"
    serves_logprobs: ClassVar[bool] = False
