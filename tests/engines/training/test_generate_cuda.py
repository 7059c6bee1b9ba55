"""The generator on a GPU: its kernel, its graphs, and the CPU's FP32 tokens."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engines.training.batched_target import BatchedTarget
from engines.training.decode_attention import decode_attention, matmul_attention, triton_attention
from engines.training.generate import Answer, GenerationOptions, Generator
from tests.engines.native.tiny import VOCAB, make_folder

pytestmark = pytest.mark.gpu


def _run(folder: Path, device: str, dtype: torch.dtype, temperature: float = 0.0) -> list[Answer]:
    rng = random.Random(3)
    prompts = [[rng.randrange(2, VOCAB) for _ in range(rng.randint(1, 200))] for _ in range(40)]
    target = BatchedTarget(folder, torch.device(device), dtype)
    options = GenerationOptions(100, slots=12, temperature=temperature, top_p=0.95)
    generator = Generator(target, options, 200, seed=1)
    return sorted(generator.run(prompts), key=lambda answer: answer.index)


def test_fp32_tokens_are_the_cpus(tmp_path: Path) -> None:
    make_folder(tmp_path)
    assert _run(tmp_path, "cuda", torch.float32) == _run(tmp_path, "cpu", torch.float32)


def test_samples_are_reproduced_and_vary(tmp_path: Path) -> None:
    make_folder(tmp_path)
    first, again = (_run(tmp_path, "cuda", torch.bfloat16, 1.0) for _ in range(2))
    assert first == again
    assert len({tuple(answer.ids) for answer in first}) == len(first)


def test_kernel_against_plain_torch() -> None:
    device = torch.device("cuda")
    assert decode_attention(device, torch.bfloat16) is triton_attention
    torch.manual_seed(0)
    queries = torch.randn(70, 15, 64, device=device).bfloat16()[:, :9]
    cache = torch.randn(70, 6, 304, 64, device=device).bfloat16()
    lengths = torch.randint(1, 305, (70,), device=device)
    ours = triton_attention(queries, cache, lengths, 304)
    plain = matmul_attention(queries.float().contiguous(), cache.float(), lengths, 304)
    assert torch.allclose(ours.float(), plain, atol=0.02)
