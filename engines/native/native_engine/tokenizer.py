"""Text to ids and back, and the chat template, from a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as FastTokenizer

from native_engine.errors import BadRequest, ConfigError

REPLACEMENT = "�"


class Tokenizer:
    """tokenizer.json with the chat template beside it (tokenizer_config.json or
    chat_template.jinja). Special tokens in plain text are recognised and none is added."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ConfigError(f"{path}: missing; text needs it")
        config = folder / "tokenizer_config.json"
        try:
            self._fast = FastTokenizer.from_file(str(path))
            raw: dict[str, Any] = json.loads(config.read_text()) if config.exists() else {}
        # tokenizers has no type of error of its own.
        except Exception as error:
            raise ConfigError(f"{path} or {config.name}: {error}") from error
        self._special = {
            key: value if isinstance(value, str) else value.get("content", "")
            for key, value in raw.items()
            if key in ("bos_token", "eos_token", "pad_token", "unk_token") and value
        }
        self._template = _template(folder, raw)

    def encode(self, text: str) -> list[int]:
        """Raises BadRequest for text that is not valid Unicode (a lone surrogate)."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRequest("text", f"not valid Unicode: {error}") from error
        ids: list[int] = self._fast.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens are left out."""
        text: str = self._fast.decode(list(ids), skip_special_tokens=True)
        return text

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation rendered for the assistant's next turn.

        Raises BadRequest when the folder has no template or the template refuses the messages."""
        if self._template is None:
            raise BadRequest("messages", "this model has no chat template; use /v1/completions")
        try:
            given = {"messages": list(messages), "add_generation_prompt": True}
            text = self._template.render(given | self._special)
        except TemplateError as error:
            raise BadRequest("messages", f"the chat template refused them: {error}") from error
        return self.encode(text)


class TextStream:
    """Incremental decoding: the work of each call is the new tokens', not the answer's.

    Text is held back while its last character is incomplete (a token may end inside one)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._prefix = 0
        self._read = 0
        self.text = ""

    def push(self, ids: Sequence[int]) -> str:
        """Add tokens; the text so far."""
        self._ids.extend(ids)
        before = self._tokenizer.decode(self._ids[self._prefix : self._read])
        after = self._tokenizer.decode(self._ids[self._prefix :])
        if len(after) > len(before) and not after.endswith(REPLACEMENT):
            self.text += after[len(before) :]
            self._prefix, self._read = self._read, len(self._ids)
        return self.text


def _template(folder: Path, raw: Mapping[str, Any]) -> Any:
    separate = folder / "chat_template.jinja"
    source = separate.read_text() if separate.exists() else raw.get("chat_template")
    if not isinstance(source, str):
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    environment.filters["tojson"] = to_json
    return environment.from_string(source)
