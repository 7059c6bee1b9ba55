"""Chat prompts as token ids, in the wording the prompt sets of the settings use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from engines.training.errors import TrainingError
from native_engine.config import ModelConfig
from native_engine.errors import NativeEngineError
from native_engine.tokenizer import Tokenizer

CODE_FENCE = "Complete this Python function.\n```python\n"
_END_FENCE = "\n```"
_THINK = "\nThink step by step, then give the answer."


def maths_question(text: str) -> str:
    """The user's message of a maths word problem."""
    return f"{text}{_THINK}"


def code_completion(stub: str) -> str:
    """The user's message that asks for the body of a function."""
    return f"{CODE_FENCE}{stub.strip()}{_END_FENCE}"


def bare(message: str) -> str:
    """A message without the wording that all of its kind share."""
    text = message.removesuffix(_THINK)
    return text.removeprefix(CODE_FENCE).removesuffix(_END_FENCE) if text == message else text


class ChatText:
    """One user's message in the target's chat template, default system message included.

    The template is rendered once; messages are put into its text and encoded many at a time.
    """

    def __init__(self, target: Path) -> None:
        """Raises TrainingError where the folder has no tokenizer or no chat template."""
        try:
            shell = Tokenizer(target).chat([{"role": "user", "content": ""}])
            stops = ModelConfig.from_folder(target).eos_token_ids
        except NativeEngineError as error:
            raise TrainingError(
                f"--target {target}: {error}", "Give a folder with tokenizer and chat template"
            ) from None
        self._fast = FastTokenizer.from_file(str(target / "tokenizer.json"))
        end = max((i for i, token in enumerate(shell) if token in stops), default=len(shell))
        self._before, self._after = (
            self._fast.decode(part, skip_special_tokens=False)
            for part in (shell[:end], shell[end:])
        )
        # Tokens before and after the user's message.
        self.sizes = end, len(shell) - end

    def prompts(self, messages: Sequence[str]) -> list[list[int]]:
        """Ids up to where the assistant's answer begins."""
        return self.encode([self._before + m + self._after for m in messages])

    def openings(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids up to the end of each text, in a user's message that goes on."""
        return self.encode([self._before + text for text in texts])

    def messages(self, prompts: Sequence[Sequence[int]]) -> list[str]:
        """The user's messages in rendered prompts."""
        before, after = self.sizes
        return self.decode([ids[before : len(ids) - after] for ids in prompts])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        found = self._fast.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Special tokens are left out."""
        texts: list[str] = self._fast.decode_batch([list(i) for i in ids])
        return texts
