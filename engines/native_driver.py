"""Starts our own engine (`engines/native`): `python -m native_engine.server` from its tree."""

from __future__ import annotations

from engines.knobs import KnobValue
from engines.server_driver import ServerDriver


class NativeDriver(ServerDriver):
    name = "native"
    folder = "native"
    module = "native_engine.server"

    def row_shape_knobs(self, rows: int) -> dict[str, KnobValue]:
        return {"prefill.chunk_tokens": rows, "prefill.head_rows": rows}
