"""SGLang's launch command from a setting, what it may not be told, what its info gains."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engines import sglang_driver
from engines.errors import EngineError
from engines.registry import engine_driver
from engines.resolve import import_stock, store_for
from engines.sandbox.needs import internal_ports, readable_folders
from engines.sglang.sglang_engine.identity import IdentityMiddleware
from engines.sglang.sglang_engine.tree_flags import tree_flags
from engines.sglang_driver import PYTHON_VARIABLE
from settings.baseline import as_baseline
from settings.loading import load_setting
from settings.schema import Arm, ArmName, Setting

BATCHED = "h100_c16_qwen3.8-27b-fp8_dflash2"


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that has SGLang 0.5.21, in a virtual environment made from /base."""
    found = tmp_path / "venv" / "bin" / "python"
    found.parent.mkdir(parents=True)
    found.write_text("#!/bin/sh\necho 0.5.21\n")
    found.chmod(0o755)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /base/bin\nversion = 3.11\n")
    monkeypatch.setenv(PYTHON_VARIABLE, str(found))
    monkeypatch.setattr(sglang_driver, "ensure_drafter", lambda _: Path("/drafter"))
    sglang_driver.sglang_version.cache_clear()
    return found


def command(setting: Setting, arm: ArmName) -> tuple[str, ...]:
    driver = engine_driver("sglang")
    return driver.command(setting, arm, Path("/t"), Path("/m"), "127.0.0.1", 40000, "hash")


def value(words: tuple[str, ...], flag: str) -> str:
    assert words.count(flag) == 1, flag
    return words[words.index(flag) + 1]


def test_both_arms_may_hold_the_same(python: Path) -> None:
    setting = as_baseline(load_setting(BATCHED))
    ar, stock = command(setting, "ar"), command(setting, "stock")
    assert stock[:3] == (str(python), "-m", "sglang_engine.server")
    for words in (ar, stock):
        assert value(words, "--model-path") == "/m" and value(words, "--port") == "40000"
        assert value(words, "--device") == "cuda" and value(words, "--dtype") == "bfloat16"
        assert value(words, "--kv-cache-dtype") == "bfloat16"
        assert value(words, "--context-length") == "4096"
        assert value(words, "--max-running-requests") == "16"
        assert int(value(words, "--max-total-tokens")) >= 16 * 4096
        assert value(words, "--nccl-port") == "40001"
        assert value(words, "--served-model-name") == "Qwen3.8-27B-FP8"
    assert value(stock, "--speculative-draft-model-path") == "/drafter"
    assert not any(word.startswith("--speculative") for word in ar)
    assert "torch_native" not in ar


def test_on_a_cpu_it_is_told_to_do_without_kernels(python: Path) -> None:
    tiny = load_setting("tests/data/settings/tiny-fp32")
    arms = {"ar": Arm(), "stock": Arm()}
    engine = tiny.engine.model_copy(update={"name": "sglang", "arms": arms})
    words = command(tiny.model_copy(update={"engine": engine}), "ar")
    assert value(words, "--device") == "cpu" and value(words, "--dtype") == "float32"
    assert value(words, "--attention-backend") == "torch_native"


@pytest.mark.parametrize(
    "flag", ["--dtype", "--max-running-requests", "--speculative-accept-threshold-single=0.9"]
)
def test_an_arm_may_not_set_what_the_setting_owns(python: Path, flag: str) -> None:
    setting = as_baseline(load_setting(BATCHED))
    arms = {**setting.engine.arms, "stock": Arm(args=(flag, "x"))}
    engine = setting.engine.model_copy(update={"arms": arms})
    with pytest.raises(EngineError, match=r"engine\.arms\.stock\.args may not set --"):
        command(setting.model_copy(update={"engine": engine}), "stock")


def test_another_version_or_none_is_refused(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = as_baseline(load_setting(BATCHED))
    python.write_text("#!/bin/sh\necho 0.5.19\n")
    with pytest.raises(EngineError, match=r"SGLang 0\.5\.19, baseline\.version is 0\.5\.21"):
        command(setting, "ar")
    sglang_driver.sglang_version.cache_clear()
    python.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(EngineError, match=r"no SGLang.*pip install sglang==0\.5\.21"):
        command(setting, "ar")
    monkeypatch.setenv(PYTHON_VARIABLE, "/nowhere/python")
    with pytest.raises(EngineError, match=PYTHON_VARIABLE):
        command(setting, "ar")
    monkeypatch.delenv(PYTHON_VARIABLE)
    with pytest.raises(EngineError, match="for h100"):
        command(setting, "ar")


def test_the_sandbox_lets_it_read_its_environment_and_meet_itself(python: Path) -> None:
    driver = engine_driver("sglang")
    setting = as_baseline(load_setting(BATCHED))
    assert readable_folders(driver, setting) == (python.parent.parent, Path("/base"))
    assert internal_ports(driver, 65535) == (65535, 65534)
    assert readable_folders(engine_driver("native"), setting) == ()


def test_engine_toml_becomes_flags(tmp_path: Path) -> None:
    (tmp_path / "engine.toml").write_text(
        "[flags]\nchunked_prefill_size = 4096\nlog_requests = true\nmore = false\nsizes = [1, 2]\n"
    )
    words = ["--chunked-prefill-size", "4096", "--log-requests", "--sizes", "1", "2"]
    assert tree_flags(tmp_path / "engine.toml") == words
    assert tree_flags(engine_driver("sglang").stock_source() / "engine.toml") == []


@pytest.mark.parametrize(
    ("path", "status", "added"),
    [("/server_info", 200, True), ("/server_info", 503, False), ("/health", 200, False)],
)
def test_identity_is_added_to_server_info_alone(path: str, status: int, added: bool) -> None:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"8")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"a"', "more_body": True})
        await send({"type": "http.response.body", "body": b": 1}"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {}

    middleware = IdentityMiddleware(app, {"arm": "stock"})
    asyncio.run(middleware({"type": "http", "path": path}, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    assert json.loads(body) == ({"a": 1, "arm": "stock"} if added else {"a": 1})
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(body)).encode()


def test_a_native_stock_tree_names_the_settings_drafter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path))
    monkeypatch.setattr("engines.native_driver.ensure_drafter", lambda _: Path("/drafter"))
    setting = load_setting("rtxpro6000_c1_muse-glimmer-30b_dflash2")
    store = store_for(setting)
    text = store.read_file(import_stock(setting, store).commit, "engine.toml").decode()
    assert 'drafter = "dflash"' in text and "draft_tokens = 15" in text
    driver = engine_driver("native")
    words = driver.command(setting, "stock", tmp_path, Path("m"), "127.0.0.1", 9, "h")
    assert value(words, "--device") == "cuda" and value(words, "--draft-model-dir") == "/drafter"
    words = driver.command(setting, "ar", tmp_path, Path("m"), "127.0.0.1", 9, "h")
    assert "--draft-model-dir" not in words
    embedded = load_setting("cpu_c1_smollm2-135m_ngram")
    text = store.read_file(import_stock(embedded, store).commit, "engine.toml").decode()
    assert text == (driver.stock_source() / "engine.toml").read_text()
    words = driver.command(embedded, "stock", tmp_path, Path("m"), "127.0.0.1", 9, "h")
    assert "--device" not in words
