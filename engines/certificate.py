"""`certificate.json` of a final folder: the one reader and writer of its form.

A certificate seals itself: `certificate_sha256` is the sha256 of its canonical JSON (sorted keys,
no spaces) without that key, and its file is byte for byte what `certificate_bytes` writes, so that
no byte of it changes unnoticed. A seal shows accidents, not forgery: who edits a certificate can
seal it again. What a forger cannot do is make `specfarm certify` measure what is not there.

Version 1 (no seal, no weights' hashes, no draws) is still read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from engines.errors import EngineError
from engines.final_folder import RESTORE
from settings.prompts import seed_commitment

CERTIFICATE, CERTIFICATION = "certificate.json", "certification.json"
SCHEMA_VERSION = 2
SEAL = "certificate_sha256"
# A list of numbers that json.dumps has spread over lines; no JSON string holds a line break.
_NUMBERS = re.compile(r"\[\n\s*(-?\d+(?:,\n\s*-?\d+)*)\n\s*\]")


class Status(StrEnum):
    """`replayed`: acceptance was simulated; such an engine is never promoted."""

    CERTIFIED = "certified"
    REPLAYED = "replayed"
    REVOKED = "revoked"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def series_hash(patches: Sequence[bytes]) -> str:
    """One hash of a patch series: over the hashes of its patches, in order."""
    return sha256("".join(f"{sha256(patch)}\n" for patch in patches).encode())


def certificate_digest(data: Mapping[str, Any]) -> str:
    """sha256 (hex) of the canonical JSON without the seal."""
    content = {key: value for key, value in data.items() if key != SEAL}
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate as JSON data with its own digest at the end."""
    plain: dict[str, Any] = json.loads(json.dumps(data))
    plain.pop(SEAL, None)
    return plain | {SEAL: certificate_digest(plain)}


def certificate_bytes(data: Mapping[str, Any]) -> bytes:
    """A certificate's file: a key a line, lists of numbers on one."""
    text = json.dumps(data, indent=1)
    flat = _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
    return (flat + "\n").encode()


def load_certificate(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The certificate and its file's bytes, its seal not looked at.

    Raises:
        EngineError: missing, no JSON object, or without `status` and `hardware`.
    """
    path = folder / CERTIFICATE
    try:
        raw = path.read_bytes()
        data = json.loads(raw)
    except FileNotFoundError:
        raise EngineError(
            f"{path} cannot be read: there is none", "Promote a campaign again"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(f"{path} cannot be read: {error}", RESTORE) from None
    for key in ("status", "hardware"):
        if not isinstance(data, dict) or not isinstance(data.get(key), str):
            raise EngineError(f"{path}: {key} is missing", RESTORE)
    return dict(data), raw


def read_certificate(folder: Path) -> dict[str, Any]:
    """The certificate of a final folder, its seal checked where its version has one.

    Raises:
        EngineError: as `load_certificate`, or the seal does not match.
    """
    data, raw = load_certificate(folder)
    check_seal(folder, data, raw)
    return data


def check_seal(folder: Path, data: Mapping[str, Any], raw: bytes) -> None:
    """Raises EngineError where a certificate is not as it was sealed."""
    path = folder / CERTIFICATE
    if not is_sealed(data):
        return
    if data.get(SEAL) != certificate_digest(data):
        raise EngineError(f"{path}: {SEAL} does not match its content", RESTORE)
    if raw != certificate_bytes(data):
        raise EngineError(f"{path}: the file was rewritten since it was sealed", RESTORE)


def is_sealed(data: Mapping[str, Any]) -> bool:
    """Whether the certificate must match a seal; version 1 has none unless it was given one."""
    return SEAL in data or data.get("schema_version", 1) != 1


def check_files(folder: Path, certificate: Mapping[str, Any]) -> None:
    """Every file whose hash the certificate records is as it was, RESULT.md (prose) apart.

    Raises:
        EngineError: names the file that changed or is missing.
    """
    for name, wanted in sorted(recorded_files(certificate).items()):
        if not name.endswith(".md"):
            _check_file(folder, name, wanted)


def check_folder(folder: Path) -> dict[str, Any]:
    """The certificate, once it is sealed, every file it lists has the recorded hash, no other is
    there, and the revealed seed matches its commitment.

    Raises:
        EngineError: names what does not hold.
    """
    data = read_certificate(folder)
    check_every_file(folder, data)
    check_commitment(folder, data)
    return data


def check_every_file(folder: Path, certificate: Mapping[str, Any]) -> None:
    """Raises EngineError where a listed file is missing or changed, or another is there."""
    listed = recorded_files(certificate)
    if not listed:
        raise EngineError(f"{folder / CERTIFICATE} lacks hashes.files", RESTORE)
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    for name in sorted(set(listed) ^ (present - {CERTIFICATE, CERTIFICATION})):
        state = "missing" if name in listed else "not in the certificate"
        raise EngineError(f"{folder}: {name} is {state}", RESTORE)
    for name, wanted in sorted(listed.items()):
        _check_file(folder, name, wanted)


def check_commitment(folder: Path, certificate: Mapping[str, Any]) -> None:
    """Raises EngineError where the revealed held-out seed is not the one committed to."""
    heldout = certificate.get("heldout")
    if not isinstance(heldout, dict) or "seed" not in heldout:
        raise EngineError(f"{folder / CERTIFICATE} lacks heldout.seed", RESTORE)
    if seed_commitment(heldout["seed"]) != heldout.get("seed_commitment"):
        raise EngineError(f"{folder}: the revealed seed does not match its commitment", RESTORE)


def recorded_files(certificate: Mapping[str, Any]) -> dict[str, str]:
    """File name -> recorded sha256; empty where none is recorded."""
    hashes = certificate.get("hashes")
    files = hashes.get("files") if isinstance(hashes, dict) else None
    return dict(files) if isinstance(files, dict) else {}


def _check_file(folder: Path, name: str, wanted: str) -> None:
    path = folder / name
    try:
        found = sha256(path.read_bytes())
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}", RESTORE) from None
    if found != wanted:
        raise EngineError(f"{path}: sha256 differs from {CERTIFICATE}'s", RESTORE)
