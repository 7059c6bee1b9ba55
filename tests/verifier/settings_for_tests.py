"""The tiny settings, read from tests/data without touching weights."""

from pathlib import Path

from settings.loading import load_setting
from settings.schema import Setting

FOLDER = Path(__file__).resolve().parents[1] / "data" / "settings"


def tiny(dtype: str = "bf16") -> Setting:
    return load_setting(FOLDER / ("tiny-fp32" if dtype == "fp32" else "tiny"))
