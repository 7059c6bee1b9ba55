"""An `EngineWorker` whose measurement leaves its pid, then waits to be let go."""

from __future__ import annotations

import os
import time
from pathlib import Path

from farm.campaign.jobs import MeasureJob, MeasureOutcome
from farm.workers.ray_workers import EngineWorker


class FakeEngineWorker(EngineWorker):
    """`job.setting` is a folder it shares with the test."""

    def measure(self, job: MeasureJob) -> MeasureOutcome:
        """Ends once the file `go` is there; its error is the visible device. Raises on `raise`."""
        if job.unit == "raise":
            raise ValueError("no such disk")
        folder = Path(job.setting)
        (folder / f"{job.unit}-{os.getpid()}").touch()
        for _ in range(600):
            if (folder / "go").exists():
                return MeasureOutcome("ok", error=os.environ.get("CUDA_VISIBLE_DEVICES", ""))
            time.sleep(0.1)
        return MeasureOutcome("timeout")
