"""`specfarm verify --stock URL`: outputs forced by an engine that somebody has started already."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.answers import GenerationRequest
from engines.engine_process import EngineProcess, fresh_port
from engines.launcher import launch
from engines.registry import engine_driver
from engines.tree_store import TreeStore
from settings.weights import ensure_target
from tests.verifier.settings_for_tests import FOLDER, tiny
from verifier.verify_outputs import main

SETTING = tiny("fp32")
REQUESTS = [
    GenerationRequest(f"r{n}", tuple(40 + (n * 7 + i * i) % 90 for i in range(9 + n)), 24)
    for n in range(6)
]


@dataclass(frozen=True)
class Served:
    ar: EngineProcess
    stock: EngineProcess
    outputs: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        data = tmp_path_factory.mktemp("data")
        patch.setenv("SPECFARM_DATA", str(data))
        store = TreeStore()
        tree = store.import_stock(engine_driver("native").stock_source(), "stock")
        folder, model_dir = store.checkout(tree.commit), ensure_target(SETTING)
        with (
            launch(SETTING, "ar", folder, tree.tree_hash, model_dir) as ar,
            launch(SETTING, "stock", folder, tree.tree_hash, model_dir) as stock,
        ):
            client = stock.client()
            lines = []
            for request in REQUESTS:
                answer = client.generate(request)
                lines.append(
                    {
                        "id": request.id,
                        "prompt_ids": list(request.prompt_ids),
                        "output_ids": list(answer.output_ids),
                        "finish_reason": answer.finish_reason,
                        "max_new_tokens": request.max_new_tokens,
                    }
                )
            outputs = data / "outputs.jsonl"
            outputs.write_text("".join(json.dumps(line) + "\n" for line in lines))
            yield Served(ar, stock, outputs)


def totals(
    capsys: pytest.CaptureFixture[str], outputs: Path, url: str, setting: str = "tiny-fp32"
) -> tuple[int, dict[str, object]]:
    arguments = [str(FOLDER / setting), "--outputs", str(outputs), "--stock", url, "--json"]
    code = main(arguments)
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_served_stock_forces_and_goes_on_serving(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, whole = totals(capsys, served.outputs, served.ar.url)
    assert whole["mismatches"] == 0 and int(str(whole["tokens_checked"])) >= 60
    lines = [json.loads(line) for line in served.outputs.read_text().splitlines()]
    lines[2]["output_ids"][4] = (lines[2]["output_ids"][4] + 1) % 200
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, found = totals(capsys, wrong, served.ar.url)
    assert code == 1 and found["verdict"] == "not_lossless"
    assert found["first_bad_position"] == "r2:4"
    assert served.ar.client().health()


@pytest.mark.parametrize(
    ("arm", "setting", "said"),
    [
        ("stock", "tiny-fp32", "states arm = 'stock', not 'ar'"),
        ("ar", "tiny", "states"),
        (None, "tiny-fp32", "nothing serves there"),
    ],
)
def test_what_is_not_this_settings_stock_is_refused(
    served: Served,
    capsys: pytest.CaptureFixture[str],
    arm: str | None,
    setting: str,
    said: str,
) -> None:
    nobody = f"http://127.0.0.1:{fresh_port('127.0.0.1')}"
    url = nobody if arm is None else getattr(served, arm).url
    code, event = totals(capsys, served.outputs, url, setting)
    assert code == 2 and event["event"] == "error"
    assert said in str(event["message"])


def test_it_needs_nothing_that_a_lent_gpu_machine_lacks() -> None:
    absent = ("git", "ray", "mlflow", "optuna", "anthropic")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
    code += "import verifier.verify_outputs, verifier.served_stock"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
