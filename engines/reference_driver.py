"""Starts the transformers reference: the library's own `generate` behind the same HTTP surface.

A yardstick for autoregressive speed and an independent oracle for tokens, never a candidate.
"""

from __future__ import annotations

from engines.server_driver import ServerDriver
from settings.hardware import hardware
from settings.schema import ArmName, Setting


class TransformersDriver(ServerDriver):
    name = "transformers"
    folder = "transformers_reference"
    module = "transformers_reference.server"

    def further_flags(self, setting: Setting, arm: ArmName) -> dict[str, object]:
        return {"--device": "cuda" if hardware(setting.hardware.gpu).is_gpu else "cpu"}
