"""Our own engine, on the tiny random model in both precisions."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from engines.conformance import EngineConformance
from settings.loading import load_setting
from settings.schema import Setting

SETTINGS = Path(__file__).parent.parent / "data" / "settings"


class TestNativeFp32(EngineConformance):
    setting_name: ClassVar[str] = str(SETTINGS / "tiny-fp32" / "setting.toml")
    engine_name: ClassVar[str] = "native"
    near_tie: ClassVar[float] = 1e-4


class TestNativeBatchFp32(EngineConformance):
    """Eight requests at a time: the batch path."""

    setting_name: ClassVar[str] = str(SETTINGS / "tiny-fp32" / "setting.toml")
    engine_name: ClassVar[str] = "native"
    # Attention over a prompt and over a verify step's few rows round apart.
    near_tie: ClassVar[float] = 1e-4

    @pytest.fixture(scope="class")
    @classmethod
    def setting(cls) -> Setting:
        setting = load_setting(cls.setting_name)
        serving = setting.serving.model_copy(update={"max_running_requests": 8})
        return setting.model_copy(update={"serving": serving})


@pytest.mark.slow
class TestNativeBf16(EngineConformance):
    setting_name: ClassVar[str] = str(SETTINGS / "tiny" / "setting.toml")
    engine_name: ClassVar[str] = "native"
    # One BF16 ULP at the size of this random model's top logits (4 to 8).
    near_tie: ClassVar[float] = 2.0**-5
