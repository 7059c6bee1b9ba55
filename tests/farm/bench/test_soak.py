"""The soak against a small served model: what it keeps is right, what it must notice it notices."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from engines.errors import BadRequest, EngineCrashed, EngineError, EngineProtocolError
from farm.bench.soak import Minute, main, verdict
from farm.bench.soak_load import BAD_BODIES, Counts, Load, Shape
from tests.engines.native.batching.full_forward import full_forward_greedy
from tests.engines.native.serving import serve
from tests.engines.native.tiny import add_tokenizer, make_folder
from verifier.outputs_file import parse_outputs


def test_a_short_soak_of_the_batch_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = make_folder(tmp_path)
    add_tokenizer(tmp_path)
    out = tmp_path / "answers.jsonl"
    with serve(tmp_path, slots=4, tokens=96, prefix_reuse=True) as (url, _):
        flags = ["--minutes", "0.03", "--concurrency", "6", "--max-new", "40"]
        code = main([url, *flags, "--out", str(out), "--pid", str(os.getpid())])
    *minutes, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert code == 0 and last["problems"] == []
    assert len(minutes) == 1 and minutes[0]["rss_mb"] > 10
    assert {"whole", "streamed", "cut", "refused"} <= last["kinds"].keys()
    assert (last["left"]["slots_used"], last["kinds"].get("failed", 0)) == (0, 0)
    answers = parse_outputs(out, 40)
    assert len(answers) == last["kinds"]["whole"] + last["kinds"]["streamed"]
    for answer in answers[:: max(1, len(answers) // 10)]:
        request = answer.request
        expected = full_forward_greedy(reference, request.prompt_ids, request.max_new_tokens)
        assert list(answer.output_ids) == expected


def test_problems_are_named() -> None:
    minutes = [
        Minute(1.0, 50.0, 10, 0, 100.0, None, 4, 0),
        Minute(2.0, 25.0, 9, 1, 300.0, None, 4, 0),
    ]
    counts = Counts(Counter(failed=1, accepted_bad=2, whole=5), 4500, ["EngineTimeout: late"])
    left = {"rss_mb": 290.0, "device_mb": None, "slots_used": 1.0, "tokens_kept": 0.0}
    found = verdict(minutes, counts, left, 64.0)
    text = " ".join(found["problems"])
    assert len(found["problems"]) == 5
    for word in ("late", "2 bad", "1 slots", "rss_mb grew from 100 to 290", "fell from 50 to 25"):
        assert word in text
    assert found["last_over_first_quarter"] == pytest.approx(0.5)
    assert (
        verdict(minutes[:1], Counts(), {**left, "rss_mb": 150.0, "slots_used": 0.0}, 64.0)[
            "problems"
        ]
        == []
    )


def test_lengths_stay_within_the_limits() -> None:
    shape = Shape([list(range(50))], 40, 30)
    draw = random.Random(0)
    requests = [shape.request(str(i), draw) for i in range(500)]
    assert all(len(r.prompt_ids) + r.max_new_tokens <= 40 for r in requests)
    assert {1, 30} <= {r.max_new_tokens for r in requests}
    assert {1} <= {len(r.prompt_ids) for r in requests} and len(BAD_BODIES) > 5


class Refusing:
    """A client whose every request ends in the same error."""

    def __init__(self, error: EngineError) -> None:
        self.generate = self.stream = self.post = self._refuse
        self.error, self.asked = error, threading.Event()

    def _refuse(self, *_: object, **__: object) -> None:
        self.asked.set()
        raise self.error


@pytest.mark.parametrize(
    ("kind", "text", "status", "counted"),
    [
        (EngineProtocolError, "the queue is full", 503, "back_pressure"),
        (BadRequest, "17 prompts in one call", 429, "back_pressure"),
        (EngineProtocolError, "503 ids after 429, completion_tokens 7", None, "failed"),
        (EngineProtocolError, "no token after 1503 can be chosen", 500, "failed"),
        (EngineCrashed, "port 50342: connection lost", None, "failed"),
    ],
)
def test_only_the_status_says_back_pressure(
    kind: type[EngineError], text: str, status: int | None, counted: str
) -> None:
    error = kind(text)
    error.status = status
    client = Refusing(error)
    load = Load(client, Shape([[1, 2, 3]], 40, 30), 1, 2, lambda answer: None)  # type: ignore[arg-type]
    load.start()
    assert client.asked.wait(10)
    load.stop()
    kinds = load.counts.kinds
    assert kinds[counted] >= 1 and set(kinds) <= {counted, "refused"}
    assert bool(load.counts.errors) == (counted == "failed")
