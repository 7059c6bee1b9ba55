"""The reference server against a plain `generate` call made here, over real HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engines.registry import engine_driver
from settings.loading import load_setting
from settings.paths import checkout_root
from settings.weights import ensure_target

ROOT = checkout_root()
PROMPT = [1, 87, 85, 292, 201, 57, 74, 335]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECFARM_DATA", str(tmp_path_factory.mktemp("data")))
        yield ensure_target(load_setting(ROOT / "tests/data/settings/tiny"))


@pytest.fixture(scope="module")
def server(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "transformers_reference.server", "--model-dir", model_dir]
    command += ["--port", port, "--dtype", "fp32", "--threads", 1, "--max-total-tokens", 256]
    command += ["--tree-hash", "abc123", "--speculation", "off", "--max-running-requests", 1]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "engines/transformers_reference")}
    log = tmp_path_factory.mktemp("log") / "server.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            [str(part) for part in command], env=environment, stdout=sink, stderr=sink
        )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            try:
                if client.get("/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="module")
def expected(model_dir: Path) -> list[int]:
    """40 greedy tokens by an argmax loop without cache: not the code path of the server."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    ids = list(PROMPT)
    with torch.inference_mode():
        for _ in range(40):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(PROMPT) :]


def generate(server: httpx.Client, **sampling: object) -> dict:
    reply = server.post("/generate", json={"input_ids": PROMPT, "sampling_params": sampling})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_greedy_ids(server: httpx.Client, expected: list[int]) -> None:
    answer = generate(server, max_new_tokens=40, ignore_eos=True, temperature=0)
    assert answer["output_ids"] == expected
    meta = answer["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), 40)
    assert meta["finish_reason"] == {"type": "length", "length": 40}


def test_stop_id_ends_and_is_kept(server: httpx.Client, expected: list[int]) -> None:
    stop = expected[5]
    answer = generate(server, max_new_tokens=40, stop_token_ids=[stop])
    assert answer["output_ids"] == expected[: expected.index(stop) + 1]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    kept_on = generate(server, max_new_tokens=12, stop_token_ids=[stop], ignore_eos=True)
    assert kept_on["output_ids"] == expected[:12]


def test_stream_gives_every_token(server: httpx.Client, expected: list[int]) -> None:
    body = {
        "input_ids": PROMPT,
        "stream": True,
        "sampling_params": {"max_new_tokens": 9, "ignore_eos": True},
    }
    with server.stream("POST", "/generate", json=body) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    assert [event["output_ids"] for event in events] == [expected[: n + 1] for n in range(9)]
    reasons = [event["meta_info"]["finish_reason"] for event in events]
    assert reasons == [None] * 8 + [{"type": "length", "length": 9}]


def test_leaving_client_frees_the_worker(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "engines/transformers_reference"))
    from transformers_reference import generation

    seen: list[int] = []
    put = generation.TokenStreamer.put

    def counted(self: generation.TokenStreamer, value: object) -> None:
        seen.append(1)
        put(self, value)

    monkeypatch.setattr(generation.TokenStreamer, "put", counted)
    model = generation.ReferenceModel(model_dir, "fp32", 1)
    left = model.generate(tuple(PROMPT), 400, ())
    next(left)
    left.close()
    assert len(list(model.generate(tuple(PROMPT), 3, ()))) == 3
    assert len(seen) < 300


def test_zero_new_tokens(server: httpx.Client) -> None:
    assert generate(server, max_new_tokens=0)["output_ids"] == []


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "input_ids"),
        ({"input_ids": "12"}, "input_ids"),
        ({"input_ids": []}, "empty"),
        ({"input_ids": [1, 512]}, "512"),
        ({"input_ids": [-1]}, "-1"),
        ({"input_ids": [True]}, "input_ids"),
        ({"input_ids": [1] * 250}, "max_total_tokens"),
        ({"input_ids": [1], "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens"),
        ({"input_ids": [1], "sampling_params": {"temperature": 0.7}}, "temperature"),
        ({"input_ids": [1], "sampling_params": "x"}, "sampling_params"),
        ({"input_ids": [1], "stream": "yes"}, "stream"),
        ({"input_ids": [1], "return_logprob": True}, "return_logprob"),
        ([1], "object"),
    ],
)
def test_bad_input_is_400(server: httpx.Client, body: object, named: str) -> None:
    reply = server.post("/generate", json=body)
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]


def test_malformed_json_is_400(server: httpx.Client) -> None:
    assert server.post("/generate", content=b'{"input_ids": [1').status_code == 400
    assert server.post("/generate", content=b"\xff\xfe").status_code == 400


def test_server_states_what_it_runs(server: httpx.Client) -> None:
    info = server.get("/server_info").json()
    assert (info["tree_hash"], info["arm"], info["replayed"]) == ("abc123", "ar", False)
    assert info["config"]["dtype"] == "fp32" and info["config"]["threads"] == 1
    assert server.post("/flush_cache").status_code == 200
    assert server.get("/health_generate").status_code == 200


@pytest.mark.parametrize(
    ("setting", "device"),
    [("h200_c1_smollm2-135m_ngram", "cuda"), ("cpu_c1_smollm2-135m_ngram", "cpu")],
)
def test_it_runs_on_the_device_of_the_setting(setting: str, device: str) -> None:
    """A reference on the CPU beside engines on a GPU would flatter them."""
    driver = engine_driver("transformers")
    here = Path("/tree")
    command = driver.command(load_setting(setting), "ar", here, here, "127.0.0.1", 1, "abc")
    assert command[command.index("--device") + 1] == device
