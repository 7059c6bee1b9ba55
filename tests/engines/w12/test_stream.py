"""Packing safetensors files: every byte comes back, and a bad round trip leaves nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from native_engine.w12 import decode_matrix, stream
from native_engine.w12.errors import RoundTripError, W12FileError
from native_engine.w12.safetensors_file import Reader


def checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = {
        "gate": (0.02 * torch.randn(78, 250)).bfloat16(),
        "wild": torch.randint(-(1 << 15), 1 << 15, (32, 64)).to(torch.int16).view(torch.bfloat16),
        "norm": torch.ones(64).bfloat16(),
        "scale": torch.ones(32, 64),
        "conv": (0.02 * torch.randn(48, 1, 4)).bfloat16(),
        "experts": (0.02 * torch.randn(3, 32, 128)).bfloat16(),
    }
    tensors["gate"][3, 7] = float("nan")
    tensors["gate"][5] = 0.0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text("{}")
    return tensors


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(torch.int16).numpy().view(np.uint16).reshape(-1, tensor.shape[-1])


def test_every_tensor_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_CHUNK_WEIGHTS", 16 * 250)  # several chunks, an uneven last one
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    tensors = checkpoint(source)
    lines = stream.pack_directory(source, target)
    path = target / "model.safetensors"
    packed = load_file(path)
    for name in ("gate", "experts"):
        assert np.array_equal(decode_matrix(stream.load_matrix(path, name)), bits_of(tensors[name]))
    for name in ("wild", "norm", "scale", "conv"):
        assert torch.equal(packed[name].view(torch.uint8), tensors[name].view(torch.uint8))
    assert (target / "config.json").exists()
    text = "\n".join(lines)
    assert "stays: not a matrix" in text and "stays: is F32" in text
    assert "6 tensors" in text.replace("2 of ", "") and "2 of 6 tensors packed" in text
    with Reader(path) as reader:
        assert reader.metadata["format"] == "pt"


def test_a_bad_round_trip_stops_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    checkpoint(source)
    honest = stream.pack_tiles

    def broken(bits: np.ndarray, base: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        blocks, counts, entries = honest(bits, base)
        blocks[-1, -1, -1] ^= 1
        return blocks, counts, entries

    monkeypatch.setattr(stream, "pack_tiles", broken)
    with pytest.raises(RoundTripError, match=r"gate|experts"):
        stream.pack_directory(source, target)
    assert list(target.iterdir()) == []


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(W12FileError, match=r"no \.safetensors"):
        stream.pack_directory(tmp_path, tmp_path / "out")
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(W12FileError, match="not a safetensors file"):
        stream.pack_directory(tmp_path, tmp_path / "out")
