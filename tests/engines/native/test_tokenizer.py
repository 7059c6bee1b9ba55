"""Text streams and the chat template against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from native_engine.errors import BadRequest
from native_engine.tokenizer import TextStream, Tokenizer
from tests.engines.native.tiny import add_tokenizer, make_folder

TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi {{ there }} <b>"},
]


def byte_tokenizer(folder: Path) -> Tokenizer:
    """One token a byte: every non-ASCII character is split over several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = FastTokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


def test_a_stream_never_shows_half_a_character(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    text = "naïve – 你好, 🙂 ok"
    stream = TextStream(tokenizer)
    seen = [stream.push([token]) for token in tokenizer.encode(text)]
    assert seen[-1] == text
    assert all(text.startswith(part) for part in seen)


def test_the_chat_template_renders_as_transformers_does(tmp_path: Path) -> None:
    make_folder(tmp_path)
    add_tokenizer(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    expected = theirs.apply_chat_template(TURNS, add_generation_prompt=True, tokenize=False)
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.chat(TURNS) == tokenizer.encode(expected)


def test_without_a_template_chat_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no chat template"):
        byte_tokenizer(tmp_path).chat(TURNS)
