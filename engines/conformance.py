"""The suite every engine driver must pass: subclass it in a test module and say what to launch.

    class TestMine(EngineConformance):
        setting_name = "tests/data/settings/tiny/setting.toml"
        engine_name = "mine"

Needs pytest (extra `dev`). One launch serves the whole class. What it shows: the HTTP contract,
typed refusals, streaming, forcing against its own greedy answer, an untouched tree, a clean end.
It says nothing of speed, nor of losslessness between arms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psutil
import pytest

from engines.answers import GenerationRequest
from engines.engine_process import EngineProcess, port_is_free
from engines.errors import BadRequest
from engines.forcing import force
from engines.http_client import EngineClient
from engines.launcher import launch
from engines.process_registry import ProcessRegistry
from engines.registry import engine_driver
from engines.resolve import import_stock, store_for
from engines.tree_store import verify_checkout
from settings.loading import load_setting
from settings.schema import ArmName, Setting
from settings.weights import ensure_target

BAD_REQUESTS: dict[str, dict[str, Any]] = {
    "empty": {},
    "no_ids": {"input_ids": [], "sampling_params": {}},
    "negative_id": {"input_ids": [-1], "sampling_params": {}},
    "id_beyond_vocabulary": {"input_ids": [2**30], "sampling_params": {}},
    "text_as_ids": {"input_ids": "abc", "sampling_params": {}},
    "negative_length": {"input_ids": [3], "sampling_params": {"max_new_tokens": -1}},
    "prompt_too_long": {"input_ids": [3] * 100_000, "sampling_params": {}},
}


class EngineConformance:
    """Class attributes: `setting_name` (name or path), `engine_name` (registry), `arm`, `changes`
    of the setting's [engine] (another engine's arms speak its own flags), a prompt of `prompt_ids`
    valid for the setting's target, and the BF16 `near_tie` between a prefill and a decode kernel,
    in the forcing's own unit (0: the same numbers). An engine that is never used to force others
    may set `serves_logprobs` False: it must then refuse. `fatal`: names of BAD_REQUESTS that a
    released engine is known to die of; ours may name none."""

    setting_name: ClassVar[str]
    engine_name: ClassVar[str]
    arm: ClassVar[ArmName] = "stock"
    changes: ClassVar[Mapping[str, Any]] = {}
    prompt_ids: ClassVar[tuple[int, ...]] = tuple(range(3, 30))
    near_tie: ClassVar[float] = 0.0
    serves_logprobs: ClassVar[bool] = True
    fatal: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture(scope="class")
    @classmethod
    def setting(cls) -> Setting:
        setting = load_setting(cls.setting_name)
        choice = setting.engine.model_copy(update={"name": cls.engine_name, **cls.changes})
        return setting.model_copy(update={"engine": choice})

    @pytest.fixture(scope="class")
    @classmethod
    def engine(
        cls, setting: Setting, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[EngineProcess]:
        """The launched engine; at its end nothing of it may be left."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPECFARM_DATA", str(tmp_path_factory.mktemp("data")))
            store = store_for(setting)
            tree = import_stock(setting, store)
            path = store.checkout(tree.commit)
            with launch(setting, cls.arm, path, tree.tree_hash, ensure_target(setting)) as engine:
                yield engine
                leader = psutil.Process(engine.pid)
                processes = [leader, *leader.children(recursive=True)]
            assert not [p for p in processes if p.is_running()]
            assert port_is_free("127.0.0.1", engine.port)
            assert ProcessRegistry().records() == []
            assert verify_checkout(path) == tree.tree_hash

    @pytest.fixture
    def client(self, engine: EngineProcess) -> EngineClient:
        return engine.client()

    def request(self, count: int = 16, **options: Any) -> GenerationRequest:
        return GenerationRequest("r", self.prompt_ids, count, ignore_eos=True, **options)

    def test_driver_names_itself(self, setting: Setting) -> None:
        driver = engine_driver(self.engine_name)
        assert driver.name == self.engine_name
        assert driver.stock_source().is_dir()
        command = driver.command(setting, self.arm, Path("t"), Path("m"), "127.0.0.1", 9, "h")
        assert "9" in command and "m" in command

    def test_server_info_states_what_runs(
        self, client: EngineClient, engine: EngineProcess
    ) -> None:
        info = client.server_info()
        assert info["tree_hash"] == engine.tree_hash
        assert info["arm"] == self.arm
        assert info.get("replayed", False) is False

    def test_stream_equals_generate_and_repeats(self, client: EngineClient) -> None:
        whole = client.generate(self.request())
        streamed = client.stream(self.request())
        assert len(whole.output_ids) == 16 and whole.finish_reason == "length"
        assert streamed.output_ids == whole.output_ids == client.generate(self.request()).output_ids
        assert streamed.arrivals[-1][1] == 16

    def test_a_stop_token_ends_the_answer(self, client: EngineClient) -> None:
        ids = client.generate(self.request()).output_ids
        # Without ignore_eos: SGLang lets that flag switch off stop_token_ids too.
        request = GenerationRequest("r", self.prompt_ids, 16, stop_token_ids=(ids[5],))
        answer = client.generate(request)
        assert answer.finish_reason == "stop"
        assert answer.output_ids == ids[: ids.index(ids[5]) + 1]

    def test_forcing_agrees_with_its_own_answer(self, client: EngineClient) -> None:
        ids = client.generate(self.request()).output_ids
        if not self.serves_logprobs:
            with pytest.raises(BadRequest):
                force(client, self.prompt_ids, ids)
            return
        positions = force(client, self.prompt_ids, ids)
        assert len(positions) == 17
        for position in positions[:-1]:
            assert position.token_logit is not None
            assert position.top[0][1] - position.token_logit <= self.near_tie
        wrong = [*ids[:8], (ids[8] + 1) % 100, *ids[9:]]
        value = force(client, self.prompt_ids, wrong)[8].token_logit
        assert value is not None and value < positions[8].top[0][1]

    def test_caches_can_be_flushed(self, client: EngineClient) -> None:
        before = client.generate(self.request()).output_ids
        client.flush_cache()
        assert client.generate(self.request()).output_ids == before

    def test_a_list_of_prompts_gives_a_list(
        self, engine: EngineProcess, client: EngineClient
    ) -> None:
        prompts = [self.prompt_ids, self.prompt_ids[:9]]
        alone = [
            client.generate(GenerationRequest("r", ids, 8, ignore_eos=True)).output_ids
            for ids in prompts
        ]
        sampling = {"temperature": 0.0, "max_new_tokens": 8, "ignore_eos": True}
        payload = {"input_ids": [list(ids) for ids in prompts], "sampling_params": sampling}
        reply = httpx.post(f"{engine.url}/generate", json=payload, timeout=client.timeout_s)
        assert [tuple(answer["output_ids"]) for answer in reply.json()] == alone
        for ids, answer in zip(prompts, reply.json(), strict=True):
            meta = answer["meta_info"]
            assert meta["finish_reason"] == {"type": "length", "length": 8} and meta["id"]
            assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(ids), 8)

    @pytest.mark.parametrize("path", ["/health", "/health_generate", "/flush_cache", "/v1/models"])
    def test_sglangs_clients_find_what_they_ask(
        self, engine: EngineProcess, client: EngineClient, path: str
    ) -> None:
        reply = httpx.get(engine.url + path, timeout=client.timeout_s)
        assert reply.status_code == 200
        if path == "/v1/models":
            name = load_setting(self.setting_name).target.name
            assert [model["id"] for model in reply.json()["data"]] == [name]

    def test_a_client_that_hangs_up_leaves_it_serving(self, client: EngineClient) -> None:
        before = client.generate(self.request()).output_ids
        cut = client.stream(self.request(100), cut=4)
        assert before[:4] == cut.output_ids[:4]
        assert client.generate(self.request()).output_ids == before

    @pytest.mark.parametrize("bad", BAD_REQUESTS)
    def test_bad_requests_are_refused_and_survived(self, client: EngineClient, bad: str) -> None:
        if bad in self.fatal:
            pytest.skip(f"{self.engine_name} is known to die of it")
        with pytest.raises(BadRequest):
            client.post("/generate", BAD_REQUESTS[bad])
        assert client.health()
