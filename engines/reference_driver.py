"""Starts the transformers reference: the library's own `generate` behind the same HTTP surface.

A yardstick for autoregressive speed and an independent oracle for tokens, never a candidate.
"""

from __future__ import annotations

from engines.server_driver import ServerDriver


class TransformersDriver(ServerDriver):
    name = "transformers"
    folder = "transformers_reference"
    module = "transformers_reference.server"
