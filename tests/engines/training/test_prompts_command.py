"""Training prompts: the settings' rendering, what is refused, the command on a tiny target."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import pytest

from engines.training import prompts_command as command
from engines.training.candidates import Candidate, complete, parse_weights
from engines.training.chat_text import CODE_FENCE, ChatText, bare, code_completion, maths_question
from engines.training.errors import TrainingError
from engines.training.leakage import LeakageCheck
from engines.training.library_functions import functions_of
from engines.training.opening_lines import OPENINGS, STUBS
from engines.training.openings import FAMILIES, Opening, draw_opening
from engines.training.prompt_filter import Limits, PromptFilter
from engines.training.shards import Shard, read_shard, write_shard
from settings.prompt_sets import PROMPT_SETS, RowSet
from settings.prompts import tokenizer_of
from tests.engines.native.tiny import add_tokenizer, make_folder

SECRET = "Nora sells seven sealed boxes of copper wire to a shop in the old town by the sea"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    make_folder(folder)
    add_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def chat(target: Path) -> ChatText:
    return ChatText(target)


def _evaluation(folder: Path, chat: ChatText) -> Path:
    prompt = chat.prompts([maths_question(SECRET)])[0]
    path = folder / "evaluation.safetensors"
    write_shard(path, Shard.of([prompt], [len(prompt)], [0], ("gsm8k",)))
    return path


@pytest.mark.parametrize("text", ["", "Hi", " two  words ", "def f(x): return x"])
def test_rendering_is_the_settings_own(target: Path, chat: ChatText, text: str) -> None:
    message = [{"role": "user", "content": text}]
    whole = tokenizer_of(target).apply_chat_template(
        message, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert chat.prompts([text]) == [list(whole)]
    assert chat.messages([whole]) == [text]


def test_opening_is_the_beginning_of_a_prompt(chat: ChatText) -> None:
    opening, whole = chat.openings(["Tom has"])[0], chat.prompts(["Tom has two."])[0]
    assert whole[: len(opening)] == opening


def test_wording_is_that_of_the_prompt_sets() -> None:
    gsm8k, humaneval = PROMPT_SETS["gsm8k"], PROMPT_SETS["humaneval"]
    assert isinstance(gsm8k, RowSet) and isinstance(humaneval, RowSet)
    assert maths_question("How many?") == gsm8k.text({"prompt": "How many?"})
    stub = '\ndef f(x):\n    """Double x."""\n'
    assert code_completion(stub) == humaneval.text({"prompt": stub})
    assert bare(maths_question("How many?")) == "How many?"
    assert bare(code_completion(stub)) == stub.strip()
    assert code_completion(stub).startswith(CODE_FENCE)


def test_leakage_catches_a_planted_evaluation_prompt(chat: ChatText) -> None:
    check = LeakageCheck(chat, [maths_question(SECRET), "Short one"])
    planted = [
        SECRET,
        f"Long ago {SECRET.upper()} again.",
        maths_question(f"Hm: {SECRET[:30]}"),
        "short  ONE",
        maths_question("Another problem about nothing of the kind"),
        "Something else",
    ]
    assert check.caught(planted) == [True, True, True, True, False, False]


def test_filter_counts_what_it_drops(tmp_path: Path, chat: ChatText) -> None:
    sieve = PromptFilter(chat, [_evaluation(tmp_path, chat)], Limits(4, 120))
    offered = ["Good question", "good  question", "Hm", "x" * 200, f"{SECRET}!", None, "Another"]
    sieve.offer([Candidate("chat", text) for text in offered])
    assert chat.messages([ids for _, ids in sieve.kept]) == ["Good question", "Another"]
    assert sieve.dropped == {"duplicate": 1, "short": 1, "long": 1, "leakage": 1, "unfinished": 1}
    assert sieve.tried == len(offered)


def test_stub_is_cut_after_its_docstring() -> None:
    rng = random.Random(0)
    opening = Opening("code", CODE_FENCE + "def f(x):", stub=True)
    written = '\n    """Give x back.\n    """\n    return x\n```\nSure'
    stub = 'def f(x):\n    """Give x back.\n    """'
    assert complete(opening, written, False, rng).message == code_completion(stub)
    assert complete(opening, "\n    return x", True, rng).message is None
    assert complete(opening, '\n    """Give x ba', False, rng).message is None


def test_text_that_does_not_end_is_dropped() -> None:
    rng = random.Random(0)
    assert complete(Opening("chat", "Tell"), " me more ", True, rng).message == "Tell me more"
    assert complete(Opening("chat", "Tell"), " me", False, rng).message is None


def test_openings_are_many_and_filled() -> None:
    rng = random.Random(0)
    assert sum(map(len, OPENINGS.values())) + len(STUBS) > 200
    for family in FAMILIES:
        drawn = {draw_opening(family, rng).text for _ in range(2000)}
        assert len(drawn) > 300
        assert not any("{" in text or text.endswith(" ") for text in drawn)


def test_functions_of_a_module() -> None:
    source = (
        b'class A:\n    def f(self, x):\n        """Long enough a docstring, this one.\n\n'
        b'        More.\n        """\n        return x\n\n\ndef g():\n    return 1\n'
    )
    expected = 'def f(self, x):\n    """Long enough a docstring, this one.\n\n    More.\n    """'
    assert list(functions_of(source)) == [expected]
    assert list(functions_of(b"def f(:")) == []


def test_weights() -> None:
    assert parse_weights("maths=1,chat=3") == {"maths": 1.0, "code": 0.0, "chat": 3.0}
    for wrong in ("poems=1", "maths=x", "maths=0", "maths=-1,chat=2"):
        with pytest.raises(ValueError):
            parse_weights(wrong)


def _prompts(target: Path, out: Path, evaluation: Path, **options: object) -> Shard:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = {"count": 12, "seed": 3, "device": "cpu", "dtype": "fp32", "slots": 6, **options}
    given |= {"target": target, "out": out, "max-new-tokens": 30, "exclude": evaluation}
    words = [f"--{name}={value}" for name, value in given.items() if name != "exclude"]
    command.run(parser.parse_args([*words, "--exclude", str(evaluation)]))
    return read_shard(out)


def test_command_is_reproduced_by_its_seed(tmp_path: Path, target: Path, chat: ChatText) -> None:
    evaluation = _evaluation(tmp_path, chat)
    first, again, other = (
        _prompts(target, tmp_path / f"{i}", evaluation, seed=seed, weights="maths=1,chat=1")
        for i, seed in enumerate((3, 3, 4))
    )
    assert first.tokens.tolist() == again.tokens.tolist() != other.tokens.tolist()
    assert len(first) == 12
    assert first.lengths.tolist() == first.prompt_lengths.tolist()
    assert first.counts()["code"] == 0
    assert set(json.loads(first.metadata["dropped"])) >= {"unfinished"}


def test_command_says_what_is_wrong(tmp_path: Path, target: Path, chat: ChatText) -> None:
    evaluation = _evaluation(tmp_path, chat)
    with pytest.raises(TrainingError, match="--weights"):
        _prompts(target, tmp_path / "out", evaluation, weights="poems=1")
    with pytest.raises(TrainingError, match="none"):
        _prompts(target, tmp_path / "out", tmp_path / "none")
    with pytest.raises(TrainingError, match="--device"):
        _prompts(target, tmp_path / "out", evaluation, device="abacus")
