"""The HTTP surface over a tiny model: shapes, forcing, stops, streaming, queueing, bad input."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import LlamaForCausalLM

from native_engine.server.state import ServerState
from tests.engines.native.serving import serve
from tests.engines.native.tiny import VOCAB, add_tokenizer, make_folder, reference_greedy

PROMPT = [40, 70, 33, 52, 61, 40, 70, 33]


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx.Client, ServerState, LlamaForCausalLM]]:
    folder = tmp_path_factory.mktemp("tiny")
    reference = make_folder(folder)
    add_tokenizer(folder)
    with serve(folder) as (url, state), httpx.Client(base_url=url, timeout=60) as client:
        yield client, state, reference


def generate(client: httpx.Client, **body: Any) -> Any:
    reply = client.post("/generate", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def greedy_body(count: int, **more: Any) -> dict[str, Any]:
    params = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True, **more}
    return {"input_ids": PROMPT, "sampling_params": params}


def events(client: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with client.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200
        lines = [line for line in reply.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def test_generate_gives_transformers_tokens(served: Any) -> None:
    client, _, reference = served
    got = generate(client, **greedy_body(60))
    meta = got["meta_info"]
    assert got["output_ids"] == reference_greedy(reference, PROMPT, 60)
    assert meta["finish_reason"] == {"type": "length", "length": 60}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), 60)
    assert meta["spec_accept_length"] == pytest.approx(60 / meta["spec_verify_ct"])
    assert "input_token_logprobs" not in meta


def test_a_list_of_prompts_gives_a_list_of_results(served: Any) -> None:
    client, _, reference = served
    prompts = [PROMPT, [5, 6, 7]]
    got = generate(client, input_ids=prompts, sampling_params={"max_new_tokens": 5})
    assert [g["output_ids"] for g in got] == [reference_greedy(reference, p, 5) for p in prompts]


def test_forcing_reply_holds_the_targets_own_choices(served: Any) -> None:
    client, _, reference = served
    truth = reference_greedy(reference, PROMPT, 20)
    forced = [*truth[:10], (truth[10] + 1) % VOCAB, *truth[11:]]
    ids = PROMPT + forced
    meta = generate(
        client,
        input_ids=ids,
        sampling_params={"max_new_tokens": 0, "temperature": 0},
        return_logprob=True,
        logprob_start_len=len(PROMPT) - 1,
        top_logprobs_num=3,
        return_raw_logits_topk=2,
    )["meta_info"]
    with torch.no_grad():
        logits = reference(torch.tensor([ids])).logits[0, len(PROMPT) - 1 :]
    scores = logits.log_softmax(-1)
    count = len(forced)
    tokens, tops, raw = (
        meta["input_token_logprobs"],
        meta["input_top_logprobs"],
        meta["input_raw_logits_topk"],
    )
    assert len(tokens) == len(tops) == len(raw) == count + 1
    assert tokens[0] == [None, PROMPT[-1], None]
    assert tops[0] is raw[0] is meta["input_token_raw_logits"][0] is None
    for j, token in enumerate(forced):
        assert tokens[j + 1][1] == token
        assert tokens[j + 1][0] == pytest.approx(scores[j, token].item(), abs=1e-3)
        assert [t[1] for t in tops[j + 1]] == scores[j].topk(3).indices.tolist()
        assert raw[j + 1][0][0] == pytest.approx(logits[j].max().item(), abs=1e-3)
        assert meta["input_token_raw_logits"][j + 1][0] == pytest.approx(
            logits[j, token].item(), abs=1e-3
        )
    assert tops[11][0][1] == truth[10] != forced[10]
    # The choice after the last forced token: needed to check where an answer ends.
    after = meta["output_top_logprobs"]
    assert len(after) == 1
    assert after[0][0][1] == logits[-1].argmax().item()
    assert (meta["completion_tokens"], meta["finish_reason"]["type"]) == (0, "length")


def test_output_logprobs_belong_to_the_output(served: Any) -> None:
    client, _, reference = served
    got = generate(client, **greedy_body(40), return_logprob=True, top_logprobs_num=1)
    meta = got["meta_info"]
    assert [t[1] for t in meta["output_token_logprobs"]] == got["output_ids"]
    assert [t[0][1] for t in meta["output_top_logprobs"]] == got["output_ids"]
    with torch.no_grad():
        ids = PROMPT + got["output_ids"]
        scores = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = [scores[len(PROMPT) - 1 + i, t].item() for i, t in enumerate(got["output_ids"])]
    assert [t[0] for t in meta["output_token_logprobs"]] == pytest.approx(expected, abs=1e-3)
    assert meta["input_token_logprobs"] == []


def test_stops(served: Any) -> None:
    client, state, reference = served
    truth = reference_greedy(reference, PROMPT, 60)
    stop_at = {"stop_token_ids": [truth[20]]}
    by_token = generate(client, **greedy_body(60, ignore_eos=False, **stop_at))
    end = truth.index(truth[20]) + 1
    assert by_token["output_ids"] == truth[:end]
    assert by_token["meta_info"]["finish_reason"] == {"type": "stop", "matched": truth[20]}
    assert generate(client, **greedy_body(60, **stop_at))["output_ids"] == truth

    text = state.tokenizer.decode(truth)
    stop = text[20:22]
    by_text = generate(client, **greedy_body(60, stop=[stop, "\x00never"]))
    assert by_text["text"] == text[: text.index(stop)]
    assert by_text["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert by_text["output_ids"] == truth[: len(by_text["output_ids"])]


def test_the_models_end_token_ends_unless_ignored(served: Any) -> None:
    client, state, reference = served
    truth = reference_greedy(reference, PROMPT, 30)
    config = state.scheduler.engine.model_config
    object.__setattr__(config, "eos_token_ids", (truth[9],))
    try:
        body = greedy_body(30, ignore_eos=False)
        ended = generate(client, **body)
        ignored = generate(client, **greedy_body(30))
    finally:
        object.__setattr__(config, "eos_token_ids", (1,))
    assert ended["output_ids"] == truth[: truth.index(truth[9]) + 1]
    assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": truth[9]}
    assert ignored["output_ids"] == truth


def test_stream_is_cumulative_one_event_a_step(served: Any) -> None:
    client, _, _ = served
    whole = generate(client, **greedy_body(50))
    got = events(client, "/generate", {**greedy_body(50), "stream": True})
    sizes = [len(e["output_ids"]) for e in got]
    assert sizes == sorted(set(sizes))
    assert all(e["output_ids"] == whole["output_ids"][: len(e["output_ids"])] for e in got)
    assert all(whole["text"].startswith(e["text"]) for e in got)
    assert [e["meta_info"]["finish_reason"] for e in got[:-1]] == [None] * (len(got) - 1)
    assert got[-1]["output_ids"] == whole["output_ids"]
    assert got[-1]["text"] == whole["text"]
    # The prompt's own token comes first, then one event a verify step.
    assert len(got) == whole["meta_info"]["spec_verify_ct"] + 1


BAD_BODIES: list[tuple[dict[str, Any], str]] = [
    ({}, "input_ids"),
    ({"input_ids": [1], "text": "x"}, "input_ids"),
    ({"input_ids": "abc"}, "input_ids"),
    ({"input_ids": []}, "input_ids"),
    ({"input_ids": [[1], []]}, "input_ids"),
    ({"input_ids": [1, VOCAB]}, "input_ids[1]"),
    ({"input_ids": [1, -1]}, "input_ids[1]"),
    ({"input_ids": [1, True]}, "input_ids[1]"),
    ({"input_ids": [1.0]}, "input_ids[0]"),
    ({"input_ids": [[1], 2]}, "input_ids[1]"),
    ({"input_ids": [3] * 300}, "input_ids"),
    ({"text": 7}, "text"),
    ({"text": "a\ud800"}, "text"),
    ({"input_ids": [1], "sampling_params": 3}, "sampling_params"),
    ({"input_ids": [1], "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens"),
    ({"input_ids": [1], "sampling_params": {"max_new_tokens": 256}}, "max_new_tokens"),
    ({"input_ids": [1], "sampling_params": {"max_new_tokens": "9"}}, "max_new_tokens"),
    ({"input_ids": [1], "sampling_params": {"temperature": 0.5}}, "temperature"),
    ({"input_ids": [1], "sampling_params": {"stop_token_ids": [VOCAB]}}, "stop_token_ids"),
    ({"input_ids": [1], "sampling_params": {"stop": [1]}}, "stop"),
    ({"input_ids": [1], "sampling_params": {"ignore_eos": 1}}, "ignore_eos"),
    ({"input_ids": [1], "stream": "yes"}, "stream"),
    ({"input_ids": [1], "top_logprobs_num": -2}, "top_logprobs_num"),
    ({"input_ids": [1], "return_logprob": True, "logprob_start_len": 1}, "logprob_start_len"),
]


@pytest.mark.parametrize(("body", "field"), BAD_BODIES)
def test_bad_generate_bodies_are_refused_by_field(served: Any, body: Any, field: str) -> None:
    client, _, _ = served
    reply = client.post("/generate", content=json.dumps(body))
    assert reply.status_code == 400, reply.text
    assert field in reply.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff\xfe", b"null", b"[" * 100_000])
@pytest.mark.parametrize("path", ["/generate", "/v1/completions", "/v1/chat/completions"])
def test_malformed_json_is_refused(served: Any, path: str, body: bytes) -> None:
    client, _, _ = served
    assert client.post(path, content=body).status_code == 400
    assert client.get("/health").status_code == 200


def test_broken_logits_fail_closed(served: Any) -> None:
    client, state, _ = served
    norm = state.scheduler.engine.model.final_norm
    kept = norm.clone()
    with torch.inference_mode():
        norm.fill_(float("nan"))
    try:
        reply = client.post("/generate", json=greedy_body(4))
        streamed = events(client, "/generate", {**greedy_body(4), "stream": True})
    finally:
        with torch.inference_mode():
            norm.copy_(kept)
    assert reply.status_code == 500
    for body in (reply.json(), streamed[-1]):
        assert body["meta_info"]["finish_reason"]["type"] == "abort"
        assert body["output_ids"] == []
    assert len(generate(client, **greedy_body(4))["output_ids"]) == 4


def test_admin_endpoints(served: Any) -> None:
    client, _, _ = served
    assert client.get("/health").status_code == 200
    assert client.get("/health_generate").status_code == 200
    assert client.post("/flush_cache").status_code == 200
    generate(client, **greedy_body(20))
    info = client.get("/server_info").json()
    assert info["tree_hash"] == "f" * 40
    assert info["dtype"] == info["weights_dtype"] == "fp32"
    assert (info["arm"], info["replayed"], info["speculation"]) == ("stock", False, True)
    assert info["engine_config"]["speculation"]["drafter"] == "ngram"
    times = info["component_times"]
    assert times["steps"] > 0
    assert times["components"]["layers"] > 0
    assert times["committed"] == 19
    text = client.get("/metrics").text
    assert 'sglang:num_requests_total{model_name="tiny"} 1' in text
    assert client.get("/flush_cache").status_code == 200
    assert client.get("/server_info").json()["component_times"]["steps"] == 0


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_a_full_queue_answers_503_and_a_gone_client_frees_the_engine(tmp_path: Path) -> None:
    make_folder(tmp_path)
    add_tokenizer(tmp_path)
    with serve(tmp_path, speculation=False, max_queued=1, tokens=1000) as (url, state):
        engine = state.scheduler.engine
        forward, steps = engine.model.forward, []

        def slow(*args: Any) -> Any:
            time.sleep(0.02)
            steps.append(1)
            return forward(*args)

        engine.model.forward = slow  # type: ignore[method-assign]
        body = {**greedy_body(900), "stream": True}
        with httpx.Client(base_url=url, timeout=60) as client:
            with (
                client.stream("POST", "/generate", json=body) as running,
                client.stream("POST", "/generate", json=body),
            ):
                next(running.iter_lines())
                wait_until(lambda: state.scheduler.load == (1, 1))
                refused = client.post("/generate", json=greedy_body(1))
                assert refused.status_code == 503
                assert int(refused.headers["Retry-After"]) >= 1
                assert client.post("/flush_cache").status_code == 400
            wait_until(lambda: state.scheduler.load == (0, 0))
            assert len(steps) < 500
            # A client that waits for a whole answer and hangs up is cancelled too.
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(
                    f"{url}/generate", json=greedy_body(900), timeout=httpx.Timeout(60, read=0.5)
                )
            wait_until(lambda: state.scheduler.load == (0, 0))
            assert len(steps) < 900
