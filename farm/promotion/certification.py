"""The result of running a certificate again: the verdict, both sets of numbers, what it does to the
certificate's status."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from engines.certificate import (
    CERTIFICATE,
    CERTIFICATION,
    Status,
    certificate_bytes,
    sealed,
    sha256,
)
from engines.errors import EngineError
from farm.promotion.atomic import replaced_file
from farm.promotion.checks import Check, State
from farm.results import RatioInterval
from farm.verdicts import Decision, Verdict

SCHEMA_VERSION = 1


class Outcome(StrEnum):
    """`inconclusive`: the machine was too noisy, or the sample too small, to say either way."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Remeasured:
    """Final against stock and AR as measured here. `decision` is the gate's own verdict on it;
    `lossless` a farm.results.LosslessSummary as JSON, `verification` the verifier's evidence."""

    decision: Decision
    aa: RatioInterval
    aa_floor: float
    to_stock: RatioInterval | None = None
    to_ar: RatioInterval | None = None
    stock_to_ar: RatioInterval | None = None
    tau_ratio: float | None = None
    step_ratio: float | None = None
    lossless: dict[str, Any] | None = None
    verification: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Certification:
    """`certificate_sha256` is of the bytes of the certificate that was run again; `here` says on
    what, with what and on which prompts. `ours` is None where a check failed before any run."""

    outcome: Outcome
    reason: str
    setting: str
    final_tree: str
    certificate_sha256: str
    date: str
    checks: tuple[Check, ...]
    theirs: dict[str, Any]
    ours: dict[str, Any] | None
    here: dict[str, Any]

    @property
    def is_of_the_folder(self) -> bool:
        """Whether it failed for what this folder holds: a copy elsewhere may be whole."""
        first = next((check for check in self.checks if check.state is State.FAILED), None)
        return first is not None and first.name != "weights"

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {"schema_version": SCHEMA_VERSION, **plain}


def failed_check(checks: Sequence[Check]) -> str | None:
    """What the first failed check found; None where none failed."""
    found = [check for check in checks if check.state is State.FAILED]
    return f"{found[0].name}: {found[0].detail}" if found else None


def outcome_of(measured: Remeasured) -> tuple[Outcome, str]:
    """Pass: lossless, and the whole interval above the A/A floor, on a machine whose A/A interval
    holds 1. A wrong token or a crash fails whatever the noise; a speed does not.

    Raises:
        EngineError: stock or the machine failed, so nothing was learned about the engine.
    """
    verdict, reason = measured.decision.verdict, measured.decision.reason
    if verdict is Verdict.INVALID_ENVIRONMENT:
        raise EngineError(reason, "Repair it and run specfarm certify again; it goes on from here")
    on_speed = verdict in (Verdict.ACCEPTED, Verdict.NOT_FASTER)
    if on_speed and not measured.aa.low <= 1.0 <= measured.aa.high:
        span = f"x{measured.aa.ratio:.3f} [{measured.aa.low:.3f}, {measured.aa.high:.3f}]"
        why = f"stock against itself is {span} here, which excludes 1: too noisy to time anything"
        return Outcome.INCONCLUSIVE, why
    if verdict is Verdict.ACCEPTED:
        return Outcome.PASS, reason
    if verdict is Verdict.INCONCLUSIVE:
        return Outcome.INCONCLUSIVE, reason
    return Outcome.FAIL, f"{verdict.value}: {reason}"


def their_numbers(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """What the certificate claims, in the words of `our_numbers`; a changed one may lack any."""
    speed, lossless = certificate.get("speed"), certificate.get("lossless")
    given = speed if isinstance(speed, dict) else {}
    names = ("aa", "aa_floor", "final_to_ar", "stock_to_ar", "tau_ratio", "step_ratio")
    return {
        "final_to_stock": given.get("heldout"),
        **{name: given.get(name) for name in names},
        "lossless": lossless.get("summary") if isinstance(lossless, dict) else None,
        "created": certificate.get("created"),
        "machine": certificate.get("machine"),
        "clocks": certificate.get("clocks"),
        "sandbox": certificate.get("sandbox"),
    }


def our_numbers(measured: Remeasured) -> dict[str, Any]:
    """The same as measured here."""
    return {
        "final_to_stock": None if measured.to_stock is None else asdict(measured.to_stock),
        "aa": asdict(measured.aa),
        "aa_floor": measured.aa_floor,
        "final_to_ar": None if measured.to_ar is None else asdict(measured.to_ar),
        "stock_to_ar": None if measured.stock_to_ar is None else asdict(measured.stock_to_ar),
        "tau_ratio": measured.tau_ratio,
        "step_ratio": measured.step_ratio,
        "lossless": measured.lossless,
        "verification": measured.verification,
        "decision": asdict(measured.decision),
    }


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def record(folder: Path, certification: Certification, *, may_revoke: bool = True) -> bool:
    """Writes certification.json and, for a failure, revokes the certificate; the latter comes last,
    so that a run killed in between does both again.

    Earlier certifications stay in `earlier`, newest first: nobody can try until it passes and show
    the pass alone.

    Returns:
        whether the certificate was revoked by this call.
    """
    data = certification.to_json() | {"earlier": _earlier(folder, certification)}
    replaced_file(folder / CERTIFICATION, (json.dumps(data, indent=1) + "\n").encode())
    if certification.outcome is not Outcome.FAIL or not may_revoke:
        return False
    return revoke(folder, certification.reason, certification.date)


def revoke(folder: Path, reason: str, date: str) -> bool:
    """Makes the certificate `revoked`, the one before it kept in its `history`, and seals it anew.

    Returns:
        False where it was revoked before.
    """
    raw = (folder / CERTIFICATE).read_bytes()
    data = json.loads(raw)
    if data.get("status") == Status.REVOKED.value:
        return False
    original = {key: value for key, value in data.items() if key != "history"}
    history = [*data.get("history", []), {"file_sha256": sha256(raw), "certificate": original}]
    revoked = {"reason": reason, "date": date, "by": "specfarm certify"}
    changed = {**data, "status": Status.REVOKED.value, "revoked": revoked, "history": history}
    replaced_file(folder / CERTIFICATE, certificate_bytes(sealed(changed)))
    return True


def _earlier(folder: Path, now: Certification) -> list[dict[str, Any]]:
    try:
        before = json.loads((folder / CERTIFICATION).read_bytes())
        earlier = list(before.pop("earlier", []))
    except (OSError, ValueError, AttributeError, TypeError):
        return []
    if _campaign(before) is not None and _campaign(before) == now.here.get("campaign"):
        return earlier
    return [_short(before), *earlier]


def _campaign(before: Mapping[str, Any]) -> Any:
    here = before.get("here")
    return here.get("campaign") if isinstance(here, dict) else None


def _short(before: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier certification without its evidence."""
    ours = before.get("ours")
    ratio = ours.get("final_to_stock") if isinstance(ours, dict) else None
    kept = ("outcome", "reason", "date", "certificate_sha256")
    return {**{name: before.get(name) for name in kept}, "final_to_stock": ratio}
