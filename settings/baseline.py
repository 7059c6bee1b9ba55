"""A setting as its baseline serves it: the same deployment behind the released engine."""

from __future__ import annotations

from settings.errors import SettingError
from settings.schema import EngineChoice, Setting


def as_baseline(setting: Setting) -> Setting:
    """`setting` with `[baseline]` in place of `[engine]`; all that is fair in it stays.

    Raises:
        SettingError: it names no baseline (its own stock tree is the only one).
    """
    if setting.baseline is None:
        raise SettingError(
            f"{setting.name} has no [baseline]",
            f"Compare with the stock arm of {setting.engine.name}",
        )
    engine = EngineChoice(
        name=setting.baseline.engine,
        arms={name: arm for name, arm in setting.baseline.arms.items()},
        startup_deadline_s=setting.baseline.startup_deadline_s,
        request_deadline_s=setting.engine.request_deadline_s,
    )
    return setting.model_copy(update={"engine": engine})
