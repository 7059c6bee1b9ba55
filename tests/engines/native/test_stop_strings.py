"""The engine looks for stop strings in the tail of an answer, the verifier in all of it: both find
the same end, whatever the tokens are."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engines.answers import Answer, GenerationRequest
from native_engine.engine import Engine
from native_engine.requests import GenerateRequest, GenerateResult
from settings.random_model import SPECIAL_TOKENS, byte_level_tokenizer
from verifier.ending import StopRules, check_ending

VOCAB = 512
Decode = Callable[[Sequence[int]], str]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    byte_level_tokenizer(VOCAB).save(str(path))
    return Tokenizer.from_file(str(path))


def engine_end(ids: Sequence[int], stops: tuple[str, ...], decode: Decode) -> int | None:
    """Tokens the engine commits before a stop string ends the answer, fed a few at a time."""
    engine = Engine(None, None, None, decode)  # type: ignore[arg-type]
    request = GenerateRequest("r", (1,), len(ids) + 1, stop_texts=stops)
    result = GenerateResult()
    rng = random.Random(len(ids))
    rest = list(ids)
    while rest and result.finish is None:
        step = rng.randint(1, 8)
        engine._commit(request, result, rest[:step], lambda tokens: None)
        rest = rest[step:]
    return None if result.finish is None else len(result.output_ids)


def brute_force(ids: Sequence[int], stops: tuple[str, ...], decode: Decode) -> int | None:
    """The first prefix whose whole text holds a stop string."""
    return next(
        (n for n in range(1, len(ids) + 1) if any(s in decode(ids[:n]) for s in stops)), None
    )


def verifier_agrees(ids: Sequence[int], end: int, stops: tuple[str, ...], decode: Decode) -> bool:
    rules = StopRules(VOCAB, detokenize=decode)
    request = GenerationRequest("r", (1,), len(ids) + 1, stop=stops)
    right = check_ending(Answer(request, tuple(ids[:end]), "stop"), rules)
    late = check_ending(Answer(request, tuple(ids[: end + 1]), "stop"), rules)
    return right.ok and (end == len(ids) or not late.ok)


def texts(rng: random.Random) -> str:
    alphabet = rng.choice(["abc ", "etaoin \n", "äöüß€", "😀😁日本語", "a😀b "])
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(8, 60)))


@pytest.mark.parametrize("seed", range(40))
def test_engine_verifier_and_brute_force_find_the_same_end(tokenizer: Tokenizer, seed: int) -> None:
    rng = random.Random(seed)
    text = texts(rng)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    # Special tokens add no text: they may lie inside a stop string.
    for _ in range(rng.randint(0, 12)):
        at = rng.randint(0, len(ids))
        ids[at:at] = [rng.randrange(len(SPECIAL_TOKENS))] * rng.choice([1, 3, 40])
    start = rng.randrange(len(text))
    stops = [text[start : start + rng.randint(1, 12)]]
    stops += ["never in it"] * rng.randint(0, 1)
    end = brute_force(ids, tuple(stops), tokenizer.decode)
    assert end is not None
    assert engine_end(ids, tuple(stops), tokenizer.decode) == end
    assert verifier_agrees(ids, end, tuple(stops), tokenizer.decode)


def test_a_stop_string_of_many_tokens_a_character_is_found(tokenizer: Tokenizer) -> None:
    """Four bytes a character, a token each: more tokens than characters and some to spare."""
    text = "x" + "😀" * 12 + "y"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    stop = "😀" * 12
    assert len(ids) > len(stop) + 8
    assert engine_end(ids, (stop,), tokenizer.decode) == len(ids) - 1


def test_text_that_never_matches_goes_on(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("nothing to see", add_special_tokens=False).ids
    assert engine_end(ids, ("sea",), tokenizer.decode) is None


def test_it_is_the_models_own_tokenizer_file(tmp_path: Path) -> None:
    """The engine's tokenizer and the verifier's read the same file the same way."""
    from native_engine.tokenizer import Tokenizer as EngineTokenizer
    from verifier.target_rules import _Detokenizer

    byte_level_tokenizer(VOCAB).save(str(tmp_path / "tokenizer.json"))
    engine, verifier = EngineTokenizer(tmp_path), _Detokenizer(tmp_path / "tokenizer.json")
    rng = random.Random(3)
    for _ in range(50):
        ids = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 30))]
        assert engine.decode(ids) == verifier(ids)
