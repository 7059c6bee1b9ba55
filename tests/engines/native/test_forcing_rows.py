"""What a forcing request costs: the head at the answer's positions only, nothing else leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from native_engine.requests import GenerateRequest, LogprobOptions
from native_engine.server.native_reply import meta_info
from tests.engines.native.tiny import VOCAB, make_folder, tiny_engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make_folder(path)
    return path


@pytest.mark.parametrize(("prompt", "answer"), [(300, 40), (5, 0), (1, 290), (256, 256)])
def test_the_head_is_computed_once_for_each_answer_position(
    folder: Path, prompt: int, answer: int
) -> None:
    engine = tiny_engine(folder)
    ids = tuple((7 * i * i + 3 * i) % VOCAB for i in range(prompt + answer))
    rows: list[int] = []
    head = engine.model.logits

    def counted(hidden: torch.Tensor) -> torch.Tensor:
        rows.append(len(hidden))
        return head(hidden)

    engine.model.logits = counted  # type: ignore[method-assign]
    request = GenerateRequest("r", ids, 0, logprobs=LogprobOptions(prompt - 1, 4, 4))
    result = engine.run(request)
    assert sum(rows) == answer + 1
    meta = meta_info(request, result, 0.0, "t")
    for name in ("input_token_logprobs", "input_top_logprobs", "input_raw_logits_topk"):
        assert len(meta[name]) == answer + 1, name
        assert meta[name][0] is None or meta[name][0][0] is None
    assert all(len(row) == 4 for row in meta["input_raw_logits_topk"][1:])
    assert len(meta["output_raw_logits_topk"]) == 1


def test_every_value_is_the_heads_own(folder: Path) -> None:
    """Top lists against a plain sort over the whole vocabulary, ties by the lowest id."""
    engine = tiny_engine(folder)
    ids = tuple((5 * i * i + i) % VOCAB for i in range(60))
    request = GenerateRequest("r", ids, 0, logprobs=LogprobOptions(19, 6, 6))
    meta = meta_info(request, engine.run(request), 0.0, "t")
    plain = tiny_engine(folder)
    found: list[torch.Tensor] = []
    plain.decoder.start(ids, 19, lambda _, logits: found.append(logits.clone()))
    logits = torch.cat(found).float()
    order = logits.sort(dim=-1, descending=True, stable=True).indices[:, :6]
    scores = logits - logits.logsumexp(dim=-1, keepdim=True)
    for j, row in enumerate(order.tolist()):
        follower = ids[20 + j]
        assert [i for _, i in meta["input_raw_logits_topk"][j + 1]] == row
        assert [v for v, _ in meta["input_raw_logits_topk"][j + 1]] == logits[j, row].tolist()
        assert [i for _, i, _ in meta["input_top_logprobs"][j + 1]] == row
        values = [s for s, _, _ in meta["input_top_logprobs"][j + 1]]
        assert values == pytest.approx(scores[j, row].tolist(), abs=1e-5)
        assert meta["input_token_raw_logits"][j + 1] == (logits[j, follower].item(), follower)
        assert meta["input_token_logprobs"][j + 1][1] == follower
