"""One line per check: readable, or JSON for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class CheckLine:
    """`status` is ok, failed or not_run."""

    kernel: str
    check: str
    status: str
    detail: str = ""

    def text(self, as_json: bool) -> str:
        if as_json:
            return json.dumps(asdict(self))
        return f"{self.status:8} {self.kernel:16} {self.check:34} {self.detail}"


def line(kernel: str, check: str, ok: bool, detail: str = "") -> CheckLine:
    return CheckLine(kernel, check, "ok" if ok else "failed", detail)
