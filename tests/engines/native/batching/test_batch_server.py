"""The HTTP surface on the batch path: the single path's shapes, back-pressure, sampling, reuse."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import LlamaForCausalLM

from native_engine.config import EngineConfig, SpeculationKnobs
from native_engine.server.__main__ import batched, main, parse_args
from native_engine.server.state import ServerState
from tests.engines.native.serving import serve
from tests.engines.native.tiny import VOCAB, add_tokenizer, make_folder, reference_greedy

PROMPT = [40, 70, 33, 52, 61, 40, 70, 33]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    folder = tmp_path_factory.mktemp("tiny")
    # An embedding of its own: a broken row of it must not be a broken row of the head.
    reference = make_folder(folder, tied=False)
    add_tokenizer(folder)
    return folder, reference


@pytest.fixture(scope="module")
def served(
    model: tuple[Path, LlamaForCausalLM],
) -> Iterator[tuple[httpx.Client, ServerState, LlamaForCausalLM]]:
    with (
        serve(model[0], slots=4, prefix_reuse=True, max_queued=100) as (url, state),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client, state, model[1]


def body(count: int, prompt: Any = None, **sampling: Any) -> dict[str, Any]:
    params = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True, **sampling}
    return {"input_ids": prompt or PROMPT, "sampling_params": params}


def generate(client: httpx.Client, payload: dict[str, Any]) -> Any:
    reply = client.post("/generate", json=payload)
    assert reply.status_code == 200, reply.text
    return reply.json()


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_many_clients_get_transformers_tokens(served: Any) -> None:
    client, _, reference = served
    prompts = [[(7 * i + j) % 90 + 3 for j in range(3 + 5 * i)] for i in range(9)]
    with ThreadPoolExecutor(9) as pool:
        found = list(pool.map(lambda p: generate(client, body(30, p))["output_ids"], prompts))
    assert found == [reference_greedy(reference, p, 30) for p in prompts]
    listed = generate(client, body(12, prompts))
    assert [reply["output_ids"] for reply in listed] == [answer[:12] for answer in found]


def test_stream_stops_and_openai(served: Any) -> None:
    client, state, reference = served
    truth = reference_greedy(reference, PROMPT, 40)
    with client.stream("POST", "/generate", json={**body(40), "stream": True}) as reply:
        lines = [line[6:] for line in reply.iter_lines() if line]
    events = [json.loads(line) for line in lines[:-1]]
    assert lines[-1] == "[DONE]" and events[-1]["output_ids"] == truth
    assert len(events) == events[-1]["meta_info"]["spec_verify_ct"] + 1
    text = state.tokenizer.decode(truth)
    stopped = generate(client, body(40, stop=[text[20:22]]))
    assert stopped["text"] == text[: text.index(text[20:22])]
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "temperature": 0}
    answer = client.post("/v1/chat/completions", json=chat).json()
    assert len(answer["choices"][0]["message"]["content"]) == 5 and "replayed" not in answer


def test_forcing_and_prefix_reuse_together(served: Any) -> None:
    client, _, reference = served
    truth = reference_greedy(reference, PROMPT, 20)
    client.post("/flush_cache")
    first, second = (generate(client, body(20)) for _ in range(2))
    assert first["output_ids"] == second["output_ids"] == truth
    assert first["meta_info"]["cached_tokens"] == 0
    assert second["meta_info"]["cached_tokens"] == len(PROMPT) - 1
    forced = {
        "input_ids": PROMPT + truth,
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": len(PROMPT) - 1,
        "return_raw_logits_topk": 2,
    }
    meta = generate(client, forced)["meta_info"]
    assert meta["cached_tokens"] == len(PROMPT) - 1
    assert len(meta["input_raw_logits_topk"]) == 21
    assert [row[0][1] for row in meta["input_raw_logits_topk"][1:]] == truth
    with torch.no_grad():
        logits = reference(torch.tensor([PROMPT + truth])).logits[0, len(PROMPT) - 1 :]
    for row, values in zip(meta["input_raw_logits_topk"][1:], logits, strict=False):
        assert row[0][0] == pytest.approx(values.max().item(), abs=1e-3)
    client.post("/flush_cache")
    assert generate(client, body(5))["meta_info"]["cached_tokens"] == 0


def test_sampling_follows_the_target_and_its_seed(served: Any) -> None:
    client, _, reference = served
    with torch.no_grad():
        p = (reference(torch.tensor([PROMPT])).logits[0, -1] / 2.0).softmax(-1)
    many = generate(client, body(1, [PROMPT] * 100, temperature=2.0))
    for _ in range(9):
        many += generate(client, body(1, [PROMPT] * 100, temperature=2.0))
    counts = Counter(reply["output_ids"][0] for reply in many)
    for token in p.topk(3).indices.tolist():
        share, expected = counts[token] / len(many), p[token].item()
        assert share == pytest.approx(expected, abs=4 * (expected / len(many)) ** 0.5)
    seeded = body(20, temperature=1.5, top_p=0.9, top_k=40, sampling_seed=11)
    assert generate(client, seeded)["output_ids"] == generate(client, seeded)["output_ids"]
    openai = {"prompt": PROMPT, "max_tokens": 9, "temperature": 1.0, "seed": 3}
    texts = {client.post("/v1/completions", json=openai).json()["choices"][0]["text"] for _ in "ab"}
    assert len(texts) == 1
    # One candidate is the greedy choice.
    truth = reference_greedy(reference, PROMPT, 9)
    assert generate(client, body(9, temperature=3.0, top_k=1))["output_ids"] == truth
    # So is what is colder than FP32 can divide by.
    assert generate(client, body(9, temperature=1e-50))["output_ids"] == truth


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", True),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", 0),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", 0.1),
        ("frequency_penalty", 1),
        ("n", 2),
        ("sampling_seed", 1.5),
    ],
)
def test_what_is_not_sampled_is_refused_by_name(served: Any, name: str, value: Any) -> None:
    client, _, _ = served
    reply = client.post("/generate", json=body(2, **{"temperature": 1.0, name: value}))
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == f"sampling_params.{name}"


def test_admission_names_the_limit(served: Any) -> None:
    client, _, _ = served
    for payload in (body(249), body(1, [3] * 256), body(0, [3] * 257)):
        reply = client.post("/generate", json=payload)
        assert reply.status_code == 400 and "256" in reply.text
    assert client.get("/health").status_code == 200


def test_admin_endpoints(served: Any) -> None:
    client, _, _ = served
    assert client.get("/health_generate").status_code == 200
    assert client.post("/flush_cache").status_code == 200
    generate(client, body(20))
    info = client.get("/server_info").json()
    assert (info["replayed"], info["max_running_requests"], info["device"]) == (False, 4, "cpu")
    assert info["engine_config"]["batching"] == {"rows_per_step": 512, "prefill_rows": 128}
    assert info["slots"]["slots"] == 4 and info["component_times"]["committed"] == 19
    lines = client.get("/metrics").text.splitlines()
    values = {line.split("{")[0]: float(line.split()[-1]) for line in lines if line[0] != "#"}
    assert values["sglang:num_requests_total"] == 1
    assert values["sglang:replayed"] == values["sglang:slots_used"] == 0
    assert values["sglang:tokens_kept"] == len(PROMPT) + 19
    assert values["sglang:prefix_hits"] == 0


def test_broken_logits_of_one_request_leave_the_others(served: Any) -> None:
    client, state, reference = served
    table = state.scheduler.engine.decoder.target._embedding
    truth = reference_greedy(reference, PROMPT, 60)
    bad = next(token for token in range(3, VOCAB) if token not in PROMPT + truth)
    kept = table[bad].clone()
    with torch.inference_mode():
        table[bad] = float("nan")
    try:
        with ThreadPoolExecutor(3) as pool:
            good = [pool.submit(generate, client, body(60)) for _ in range(2)]
            reply = client.post("/generate", json=body(60, [bad, *PROMPT]))
        assert reply.status_code == 500
        assert reply.json()["meta_info"]["finish_reason"]["type"] == "abort"
        assert [future.result()["output_ids"] for future in good] == [truth, truth]
    finally:
        with torch.inference_mode():
            table[bad] = kept


def test_an_unexpected_error_does_not_spoil_the_connections_next_request(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, state, _ = served
    for _ in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(state.scheduler.engine.decoder.target, "forward", lambda *_: 1 / 0)
            reply = client.post("/generate", json=body(3))
        assert reply.status_code == 500 and reply.json()["error"]["type"] == "ZeroDivisionError"
        assert len(generate(client, body(3))["output_ids"]) == 3


def test_back_pressure_and_clients_that_go_away(model: tuple[Path, LlamaForCausalLM]) -> None:
    with serve(model[0], slots=2, max_queued=1, tokens=1000, speculation=False) as (url, state):
        target = state.scheduler.engine.decoder.target
        forward, steps = target.forward, []

        def slow(*args: Any) -> Any:
            time.sleep(0.02)
            steps.append(1)
            return forward(*args)

        target.forward = slow
        long = {**body(900), "stream": True}
        with httpx.Client(base_url=url, timeout=60) as client:
            with (
                client.stream("POST", "/generate", json=long) as running,
                client.stream("POST", "/generate", json=long) as second,
                client.stream("POST", "/generate", json=long),
            ):
                # Kept: httpx closes the connection of an iterator that is collected.
                streams = running.iter_lines(), second.iter_lines()
                assert all(next(lines) for lines in streams)
                wait_until(lambda: state.scheduler.load == (2, 1))
                refused = client.post("/generate", json=body(1))
                assert refused.status_code == 503
                assert int(refused.headers["Retry-After"]) >= 1
                too_many = client.post("/generate", json=body(1, [PROMPT] * 4))
                assert too_many.status_code == 429
                assert int(too_many.headers["Retry-After"]) >= 1
                assert "at most 3" in too_many.json()["error"]["message"]
                assert client.post("/flush_cache").status_code == 400
                text = client.get("/metrics").text
                assert 'sglang:num_running_reqs{model_name="tiny"} 2' in text
                assert 'sglang:num_queue_reqs{model_name="tiny"} 1' in text
            wait_until(lambda: state.scheduler.load == (0, 0))
            assert len(steps) < 300
            aborted = 'sglang:num_aborted_requests_total{model_name="tiny"}'
            assert f"{aborted} 3" in client.get("/metrics").text
            # A client that waits for a whole answer and hangs up is cancelled too.
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{url}/generate", json=body(900), timeout=httpx.Timeout(60, read=0.3))
            wait_until(lambda: state.scheduler.load == (0, 0))
            assert len(steps) < 600
            assert len(generate(client, body(3))["output_ids"]) == 3
            assert f"{aborted} 4" in client.get("/metrics").text


def test_replay_shows_everywhere(model: tuple[Path, LlamaForCausalLM], tmp_path: Path) -> None:
    (model[0] / "tau.json").write_text("[0, 0, 0, 1]")
    knobs = EngineConfig(
        speculation=SpeculationKnobs("replay", 3), drafters={"replay": {"histogram": "tau.json"}}
    )
    with (
        serve(model[0], slots=2, knobs=knobs) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        meta = generate(client, body(41))["meta_info"]
        assert (meta["replayed"], meta["spec_verify_ct"]) == (True, 10)
        with client.stream("POST", "/generate", json={**body(9), "stream": True}) as reply:
            events = [json.loads(line[6:]) for line in list(reply.iter_lines())[:-2] if line]
        assert events and all(event["meta_info"]["replayed"] is True for event in events)
        answer = client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 3})
        assert answer.json()["replayed"] is True
        assert client.get("/server_info").json()["replayed"] is True
        assert 'sglang:replayed{model_name="tiny"} 1' in client.get("/metrics").text


def test_which_path_serves(
    model: tuple[Path, LlamaForCausalLM], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(model[0])

    def path(*flags: str, drafter: str = "ngram", at: str = folder) -> bool:
        args = parse_args(["--model-dir", at, *flags])
        return batched(args, EngineConfig(speculation=SpeculationKnobs(drafter)))

    assert not path()
    assert path("--max-running-requests", "2")
    assert path("--device", "cuda")
    assert path("--load-format", "dummy")
    assert path("--prefix-reuse", "on")
    assert path("--dtype", "fp8")
    assert path(drafter="replay")
    for drafter in ("dflash", "dspark"):
        assert not path(drafter=drafter)
        assert path("--max-running-requests", "2", drafter=drafter)
        assert path("--device", "cuda", drafter=drafter)
    raw = json.loads((model[0] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "model_type": "qwen3"}))
    assert path(at=str(tmp_path))
    # Errors of the batch path are one line too.
    many = ["--max-running-requests", "600", "--max-total-tokens", "64"]
    assert main(["--model-dir", folder, *many]) == 2
    assert "rows_per_step" in capsys.readouterr().err
    for flag, low in (("--max-running-requests", "0"), ("--max-queued-requests", "-1")):
        with pytest.raises(SystemExit):
            parse_args(["--model-dir", "x", flag, low])
        assert f"{flag}: at least" in capsys.readouterr().err
    for name, content, message in (
        ("generation_config.json", b'{"eos_token_id": "two"}', "generation_config.json eos_token"),
        ("generation_config.json", b"{", "generation_config.json"),
        ("tokenizer.json", b"{", "tokenizer.json"),
        ("model.safetensors", b"no header", "download it again"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(raw))
        (tmp_path / name).write_bytes(content)
        for slots in ("1", "2"):
            flags = ["--model-dir", str(tmp_path), "--max-running-requests", slots]
            assert main([*flags, "--max-total-tokens", "64"]) == 2
            assert message in capsys.readouterr().err
        (tmp_path / name).unlink()
    assert main(["--model-dir", str(tmp_path), "--draft-model-dir", "d", *many]) == 2
    assert "--draft-model-dir is not read" in capsys.readouterr().err


def test_known_parameters_are_named_with_those_of_sampling(served: Any) -> None:
    reply = served[0].post("/generate", json=body(1, qqqq=1))
    assert reply.status_code == 400 and "temperature, top_k, top_p" in reply.text
