"""The certificate's form: sealed to the byte, readable in both versions."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from engines.certificate import (
    certificate_bytes,
    certificate_digest,
    check_folder,
    read_certificate,
    sealed,
    series_hash,
)
from engines.errors import EngineError
from settings.loading import list_settings
from settings.paths import checkout_root

DATA: dict[str, Any] = {
    "schema_version": 2,
    "status": "certified",
    "hardware": "cpu",
    "speed": {"low": 1.0838945, "n": 12, "none": None},
    "ids": [["a/[1,\n2]", [1, -2, 3]], ["b", []]],
    "text": 'a "quoted" [\n1\n] line, ü',
}


def written(folder: Path, data: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "certificate.json").write_bytes(certificate_bytes(data))
    return folder


def test_the_seal_is_sha256_over_sorted_json_without_spaces() -> None:
    text = json.dumps(DATA, sort_keys=True, separators=(",", ":"))
    assert certificate_digest(DATA) == hashlib.sha256(text.encode()).hexdigest()
    assert sealed(DATA)["certificate_sha256"] == certificate_digest(DATA)
    assert sealed(sealed(DATA)) == sealed(DATA)


def test_the_file_reads_back_with_lists_of_numbers_on_one_line() -> None:
    text = certificate_bytes(sealed(DATA)).decode()
    assert json.loads(text) == sealed(DATA)
    assert "[1, -2, 3]" in text and text.endswith("}\n")


def test_tuples_and_integer_keys_are_sealed_as_they_are_read() -> None:
    data = sealed({**DATA, "pairs": ((1, 2), (3, 4)), "counts": {10: "x", 9: "y"}})
    assert certificate_digest(json.loads(certificate_bytes(data))) == data["certificate_sha256"]


def test_every_single_changed_byte_is_noticed(tmp_path: Path) -> None:
    folder = written(tmp_path / "final", sealed(DATA))
    path = folder / "certificate.json"
    good = path.read_bytes()
    assert read_certificate(folder)["speed"]["n"] == 12
    for place in range(len(good)):
        for byte in (good[place] ^ 1, ord(" "), ord("0")):
            if byte != good[place]:
                path.write_bytes(good[:place] + bytes([byte]) + good[place + 1 :])
                with pytest.raises(EngineError):
                    read_certificate(folder)


def test_a_second_version_without_a_seal_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "final", DATA)
    with pytest.raises(EngineError, match="certificate_sha256 does not match"):
        read_certificate(folder)


def test_a_first_version_has_no_seal_and_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "final"
    folder.mkdir()
    old = {**DATA, "schema_version": 1}
    (folder / "certificate.json").write_text(json.dumps(old, indent=1))
    assert read_certificate(folder) == old


def test_the_promoted_engines_of_this_checkout_are_whole() -> None:
    folders = [checkout_root() / "settings" / name / "final" for name in list_settings()]
    promoted = [folder for folder in folders if folder.is_dir()]
    assert promoted
    for folder in promoted:
        assert check_folder(folder)["status"] == "certified"


def test_the_hash_of_a_series_depends_on_content_and_order() -> None:
    one, two = (hashlib.sha256(text).hexdigest() for text in (b"one", b"two"))
    expected = hashlib.sha256(f"{one}\n{two}\n".encode()).hexdigest()
    assert series_hash([b"one", b"two"]) == expected
    assert series_hash([b"two", b"one"]) != expected
    assert series_hash([b"onetwo"]) != series_hash([b"one", b"two"])
