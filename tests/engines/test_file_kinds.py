"""Real files of each kind, made by the libraries that own the format."""

from __future__ import annotations

import gzip
import io
import pickle
import sys
import zipfile
from pathlib import Path
from py_compile import compile as compile_module

import numpy as np
import pytest
from safetensors.numpy import save

from engines.file_kinds import opaque_kind


def _pyc(folder: Path) -> bytes:
    source = folder / "module.py"
    source.write_text("x = 1\n")
    compile_module(str(source), cfile=str(folder / "module.pyc"))
    return (folder / "module.pyc").read_bytes()


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", "x")
    return stream.getvalue()


def test_code_and_archives_are_named(tmp_path: Path) -> None:
    elf = Path(sys.executable).resolve().read_bytes()[:4096]
    assert opaque_kind("a.so", elf) == "compiled code (ELF)"
    # The name does not matter.
    assert opaque_kind("table.txt", elf) == "compiled code (ELF)"
    assert opaque_kind("module.pyc", _pyc(tmp_path)) == "Python byte code"
    for protocol in (2, 3, 4, 5):
        assert opaque_kind("a.pkl", pickle.dumps([1.5, "x"], protocol)) == "a pickle"
    assert opaque_kind("weights.pt", _zip()) == "an archive (zip: wheel, .pt, .npz)"
    assert opaque_kind("x.gz", gzip.compress(b"x = 1")) == "an archive (gzip)"


@pytest.mark.parametrize("content", [b"\x80", b"a\0b", b"\xff\xfe\x00", b"caf\xe9", b"!<arch>\n"])
def test_whatever_is_no_text_is_refused(content: bytes) -> None:
    assert opaque_kind("table.txt", content) is not None


@pytest.mark.parametrize(
    "content", [b"", b"x = 1\n", "caf\u00e9 \u4e2d".encode(), b"1 2 3\n" * 9999]
)
def test_text_passes(content: bytes) -> None:
    assert opaque_kind("table.bin", content) is None


def test_numbers_in_safetensors_pass_and_nothing_dressed_as_them() -> None:
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float16)}
    good = save(tensors, metadata={"format": "np"})
    assert opaque_kind("draft.safetensors", good) is None
    assert opaque_kind("draft.bin", good) is not None
    for bad in (
        good + b"\x7fELF\0",
        good[:-1],
        good[:4],
        b"\x7fELF" + good,
        b"\2" + b"\0" * 7 + b"{}",
    ):
        assert opaque_kind("draft.safetensors", bad) is not None
