"""SQLite (WAL) store of campaigns and units; the truth from which everything is resumed.

A unit's row is written before its work starts and again when it ends, each in its own committed
transaction, so kill -9 at any point loses at most the unit that was running.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farm.ledger.unit_key import UnitKey
from settings.errors import SpecfarmError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS campaigns (
    id TEXT PRIMARY KEY, setting TEXT NOT NULL, options TEXT NOT NULL, status TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, owner_pid INTEGER, report TEXT
);
CREATE TABLE IF NOT EXISTS units (
    digest TEXT PRIMARY KEY, campaign TEXT NOT NULL REFERENCES campaigns(id), phase TEXT NOT NULL,
    subject TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL, attempts INTEGER NOT NULL,
    started REAL NOT NULL, ended REAL, worker_pid INTEGER, result TEXT, error TEXT
);
CREATE INDEX IF NOT EXISTS units_by_campaign ON units (campaign, started);
CREATE TABLE IF NOT EXISTS notes (
    campaign TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (campaign, name)
);
"""


@dataclass(frozen=True)
class Campaign:
    """One search: `status` is running, finished or stopped; `options` are the command line's."""

    id: str
    setting: str
    options: dict[str, Any]
    status: str
    created: float
    updated: float
    owner_pid: int | None


@dataclass(frozen=True)
class Unit:
    """One unit of work. `status` is running, done or failed; `result` is its JSON."""

    digest: str
    phase: str
    subject: str
    status: str
    attempts: int
    started: float
    ended: float | None
    result: Any
    error: str | None


class Ledger:
    """All campaigns of one data folder. Safe for several processes (WAL, busy timeout)."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # campaigns -------------------------------------------------------------------------------

    def create_campaign(self, campaign_id: str, setting: str, options: dict[str, Any]) -> Campaign:
        now = time.time()
        with self._transaction() as db:
            db.execute(
                "INSERT INTO campaigns VALUES (?,?,?,?,?,?,?,NULL)",
                (campaign_id, setting, json.dumps(options), "running", now, now, os.getpid()),
            )
        return self.campaign(campaign_id)

    def campaign(self, campaign_id: str) -> Campaign:
        """The campaign, by id or by a prefix only it has.

        Raises:
            SpecfarmError: none or several match; lists the newest ones.
        """
        rows = self._db.execute(
            "SELECT id, setting, options, status, created, updated, owner_pid FROM campaigns"
            " WHERE substr(id, 1, ?) = ?",
            (len(campaign_id), campaign_id),
        ).fetchall()
        if len(rows) != 1:
            known = ", ".join(c.id for c in self.campaigns()[:5]) or "none yet"
            what = "is not a campaign" if not rows else f"matches {len(rows)} campaigns"
            raise SpecfarmError(f"CAMPAIGN {campaign_id!r} {what}", f"Newest: {known}")
        row = rows[0]
        return Campaign(row[0], row[1], json.loads(row[2]), *row[3:])

    def campaigns(self) -> list[Campaign]:
        """All campaigns, newest first."""
        rows = self._db.execute(
            "SELECT id, setting, options, status, created, updated, owner_pid FROM campaigns"
            " ORDER BY created DESC"
        ).fetchall()
        return [Campaign(r[0], r[1], json.loads(r[2]), *r[3:]) for r in rows]

    def set_status(
        self, campaign_id: str, status: str, report: dict[str, Any] | None = None
    ) -> None:
        """Records the campaign's state, this process as its owner and, when given, its report."""
        with self._transaction() as db:
            db.execute(
                "UPDATE campaigns SET status=?, updated=?, owner_pid=?,"
                " report=COALESCE(?, report) WHERE id=?",
                (
                    status,
                    time.time(),
                    os.getpid(),
                    None if report is None else json.dumps(report),
                    campaign_id,
                ),
            )

    def report(self, campaign_id: str) -> dict[str, Any] | None:
        row = self._db.execute("SELECT report FROM campaigns WHERE id=?", (campaign_id,)).fetchone()
        return None if row is None or row[0] is None else json.loads(row[0])

    # notes: small facts fixed once (the seed and its commitment, the stock commit) -------------

    def note_once(self, campaign_id: str, name: str, value: Any) -> Any:
        """Stores `value` under `name` unless it is there already; returns what is stored."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO notes VALUES (?,?,?)", (campaign_id, name, json.dumps(value))
            )
        row = self._db.execute(
            "SELECT value FROM notes WHERE campaign=? AND name=?", (campaign_id, name)
        ).fetchone()
        return json.loads(row[0])

    # units -----------------------------------------------------------------------------------

    def unit(self, key: UnitKey) -> Unit | None:
        row = self._db.execute(
            "SELECT digest, phase, subject, status, attempts, started, ended, result, error"
            " FROM units WHERE digest=?",
            (key.digest,),
        ).fetchone()
        return None if row is None else _unit(row)

    def start(self, key: UnitKey) -> None:
        """Writes the unit's row before its work begins (again after a kill: attempts + 1)."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO units VALUES (?,?,?,?,?,'running',1,?,NULL,?,NULL,NULL)"
                " ON CONFLICT (digest) DO UPDATE SET status='running', attempts=attempts+1,"
                " started=excluded.started, ended=NULL, worker_pid=excluded.worker_pid, error=NULL",
                (
                    key.digest,
                    key.campaign,
                    key.phase,
                    key.subject,
                    json.dumps(key.__dict__ | {"digest": key.digest}),
                    time.time(),
                    os.getpid(),
                ),
            )

    def finish(self, key: UnitKey, result: Any) -> None:
        self._end(key, "done", json.dumps(result), None)

    def fail(self, key: UnitKey, error: str) -> None:
        self._end(key, "failed", None, error)

    def _end(self, key: UnitKey, status: str, result: str | None, error: str | None) -> None:
        with self._transaction() as db:
            db.execute(
                "UPDATE units SET status=?, ended=?, result=?, error=? WHERE digest=?",
                (status, time.time(), result, error, key.digest),
            )

    def units(self, campaign_id: str) -> list[Unit]:
        """All units of a campaign in the order they were (last) started."""
        rows = self._db.execute(
            "SELECT digest, phase, subject, status, attempts, started, ended, result, error"
            " FROM units WHERE campaign=? ORDER BY started",
            (campaign_id,),
        ).fetchall()
        return [_unit(row) for row in rows]


def _unit(row: tuple[Any, ...]) -> Unit:
    digest, phase, subject, status, attempts, started, ended, result, error = row
    parsed = None if result is None else json.loads(result)
    return Unit(digest, phase, subject, status, attempts, started, ended, parsed, error)
