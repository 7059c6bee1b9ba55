"""A calibration by served engines, and outputs judged by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.answers import Answer, GenerationRequest
from engines.engine_process import EngineProcess
from engines.launcher import launch
from engines.registry import engine_driver
from engines.tree_store import TreeStore
from settings.schema import ArmName
from settings.weights import ensure_target
from tests.verifier.settings_for_tests import FOLDER, tiny
from verifier.calibrate_served import main, requests_of
from verifier.calibration_file import load_calibration
from verifier.verify_outputs import main as verify

REQUESTS = [
    GenerationRequest(f"r{n}", tuple(40 + (n * 7 + i * i) % 90 for i in range(9 + n)), 24)
    for n in range(8)
]
DTYPES = {"tiny-fp32": "fp32", "tiny": "bf16"}


@dataclass(frozen=True)
class Served:
    engines: dict[tuple[str, str], EngineProcess]
    outputs: Path

    def options(self, setting: str, tokens: int = 1000) -> list[str]:
        ar, stock = (self.engines[setting, arm].url for arm in ("ar", "stock"))
        urls = ["--ar", ar, "--stock", stock, "--restarted", stock, "--rows", f"8={ar}"]
        asked = ["--outputs", str(self.outputs), "--tokens", str(tokens), "--at-once", "2"]
        return [str(FOLDER / setting), *asked, *urls]


def line(answer: Answer) -> str:
    return json.dumps(
        {
            "id": answer.request.id,
            "prompt_ids": list(answer.request.prompt_ids),
            "output_ids": list(answer.output_ids),
            "finish_reason": answer.finish_reason,
            "max_new_tokens": answer.request.max_new_tokens,
        }
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        data = tmp_path_factory.mktemp("data")
        patch.setenv("SPECFARM_DATA", str(data))
        store = TreeStore()
        tree = store.import_stock(engine_driver("native").stock_source(), "stock")
        folder = store.checkout(tree.commit)
        arms: tuple[ArmName, ...] = ("ar", "stock")
        engines = {
            (name, arm): stack.enter_context(
                launch(tiny(dtype), arm, folder, tree.tree_hash, ensure_target(tiny(dtype)))
            )
            for name, dtype in DTYPES.items()
            for arm in arms
        }
        client = engines["tiny-fp32", "stock"].client()
        outputs = data / "outputs.jsonl"
        outputs.write_text("\n".join(line(client.generate(request)) for request in REQUESTS))
        yield Served(engines, outputs)


def test_fp32_engines_agree_in_every_shape_and_judge_outputs(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "calibration.json"
    assert main([*served.options("tiny-fp32"), "--out", str(out)]) == 0
    assert f"written to {out}" in capsys.readouterr().out
    found = load_calibration(out)
    assert found.exact and found.worst_gap == 0.0
    shapes = {row.shape: row for row in found.shapes}
    named = {"ar", "stock", "restart to restart", "2 requests at once", "8 rows a pass"}
    assert named < set(shapes)
    assert any(name.startswith("prompts of 15, 16") for name in shapes)
    assert all(row.mismatches == 0 for row in shapes.values())
    assert found.evidence["at_once"] == 2 and found.evidence["stock_tree"]
    url = served.engines["tiny-fp32", "ar"].url
    options = ["--outputs", str(served.outputs), "--calibration", str(out), "--stock", url]
    verify([str(FOLDER / "tiny-fp32"), *options, "--json"])
    total = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert total["mismatches"] == 0 and total["answers"] == len(REQUESTS)


def test_too_few_tokens_say_how_many_would_do(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "calibration.json"
    assert main([*served.options("tiny", tokens=30), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "too few to tell" in error and "calibrate with about" in error
    assert not out.exists()


def test_what_does_not_serve_what_its_option_says_is_refused(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "calibration.json")]
    options = served.options("tiny-fp32")
    swapped = [*options, "--ar", served.engines["tiny-fp32", "stock"].url, *out]
    assert main(swapped) == 2
    assert "--ar" in (error := capsys.readouterr().err) and "arm = 'stock', not 'ar'" in error
    assert main([*options, "--rows", "eight", *out]) == 2
    assert "write --rows 8=http" in capsys.readouterr().err


def test_requests_are_of_different_prompts_until_the_tokens_suffice() -> None:
    outputs = [
        Answer(GenerationRequest(f"a{n}", (n % 5, 7), 10), tuple(range(10)), "length", 0.0, ())
        for n in range(50)
    ]
    asked = requests_of(outputs, 30)
    assert len(asked) == 3 and asked == requests_of(outputs, 30)
    assert {r.prompt_ids for r in requests_of(outputs, 10**6)} == {(n, 7) for n in range(5)}
