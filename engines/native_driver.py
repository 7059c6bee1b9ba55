"""Starts our own engine (`engines/native`): `python -m native_engine.server` from its tree."""

from __future__ import annotations

from engines.knobs import KnobValue
from engines.server_driver import ServerDriver
from settings.hardware import hardware
from settings.schema import ArmName, Setting
from settings.weights import ensure_drafter


class NativeDriver(ServerDriver):
    name = "native"
    folder = "native"
    module = "native_engine.server"

    def further_flags(self, setting: Setting, arm: ArmName) -> dict[str, object]:
        flags: dict[str, object] = {}
        if hardware(setting.hardware.gpu).is_gpu:
            flags["--device"] = "cuda"
        drafter = None if arm == "ar" else ensure_drafter(setting)
        if drafter is not None:
            flags["--draft-model-dir"] = drafter
        return flags

    def row_shape_knobs(self, rows: int) -> dict[str, KnobValue]:
        return {"prefill.chunk_tokens": rows, "prefill.head_rows": rows}

    def stock_knobs(self, setting: Setting) -> dict[str, KnobValue]:
        """The released drafter and its length; the tree's own are for prompt lookup."""
        drafter = setting.drafter
        if drafter.kind == "ngram":
            return {}
        # The checkpoint's config says which DFlash it is.
        name = drafter.kind.replace("dflash2", "dflash")
        knobs: dict[str, KnobValue] = {"speculation.drafter": name}
        if drafter.draft_tokens is not None:
            knobs["speculation.draft_tokens"] = drafter.draft_tokens
        return knobs
