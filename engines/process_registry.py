"""Every engine ever started and not yet seen to end, on disk, so that none outlives its farm.

A record is written before the process starts and removed after its last member is gone.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

from engines.proc_files import proc_stat
from engines.process_ending import end_processes
from engines.process_record import LAUNCH_ID, ProcessRecord, new_record
from settings.paths import work_dir

__all__ = ["LAUNCH_ID", "ProcessRecord", "ProcessRegistry", "end_processes", "new_record"]


class ProcessRegistry:
    """Records as JSON files in `folder` (default `work/processes`)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or work_dir("processes")

    def write(self, record: ProcessRecord) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{record.launch_id}.json"
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(record), indent=1))
        draft.replace(path)

    def started(self, record: ProcessRecord, pid: int, keeper: int) -> ProcessRecord:
        """The record with its processes filled in, written."""
        full = replace(
            record,
            pid=pid,
            start_time=_start_time(pid),
            keeper_pid=keeper,
            keeper_start_time=_start_time(keeper),
        )
        self.write(full)
        return full

    def forget(self, record: ProcessRecord) -> None:
        """Drop a record and its scratch folder; its processes must be gone."""
        shutil.rmtree(record.scratch, ignore_errors=True)
        (self.folder / f"{record.launch_id}.json").unlink(missing_ok=True)

    def records(self) -> list[ProcessRecord]:
        """All readable records."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            # Removed by its owner meanwhile, or written by another version: not ours to judge.
            with contextlib.suppress(OSError, ValueError, TypeError):
                found.append(ProcessRecord(**json.loads(path.read_text())))
        return found

    def reap_leftovers(self, grace_s: float = 3.0) -> list[ProcessRecord]:
        """End the engines of farms that are gone; the records that still had processes."""
        ended = []
        for record in self.records():
            if record.owner_is_running():
                continue
            if record.members() or record.keeper_is_running():
                end_processes(record, grace_s)
                ended.append(record)
            self.forget(record)
        return ended


def _start_time(pid: int) -> int:
    stat = proc_stat(pid)
    return stat.start_time if stat else 0
