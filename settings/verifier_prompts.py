"""The verifier-only set: prompts that nobody else has seen, drawn by the secret seed.

Weak inputs hide bugs, so the set holds what timed prompts lack: text that cannot be copied, prompts
longer than 512 tokens and up to the context limit, lengths beside page borders, answers past 700
tokens, ends of every kind, and the same requests alone and many at once. Long text that can be
copied is there too: a lax rule for drafts shows only where drafts are nearly right. Ids at random
follow the token that every prompt of the setting begins with: without it BF16 was seen far from the
target that it rounds (docs/losslessness.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from settings.prompts import Prompt, chat_renderer, heldout_prompts, tokenizer_of
from settings.schema import Setting

StopCase = Literal["token", "string", "ignored"]

# Page sizes of KV caches in use: 16 and 64 tokens.
PAGE_BORDERS = (15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257)
SHORT_ANSWERS = (1, 2, 7)
STOP_CASES: tuple[StopCase, ...] = ("token", "string", "ignored")
_NEW_TOKENS = 1000
_ANSWER = 48
# The prompt ends before position 700 of the context, its answer after it.
_LONG_PROMPT = 690
_LONG_ANSWER = 720
_RANDOM_PROMPT = (24, 48)
# Too long to be asked a second time.
_ASKED_ALONE = ("near_limit", "long_answer", "long_text", "longer_text")


@dataclass(frozen=True)
class VerifierPrompt:
    """One request of the set.

    `kind` groups them in reports. `clients`: 1 is asked alone, more are under way together. With a
    `stop_case` the verifier first lets stock answer without stops and takes a token or a string
    from the middle of that answer: the request must end there (`token`, `string`), or go on past
    the token because it ignores stop ids (`ignored`).
    """

    id: str
    kind: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    ignore_eos: bool = True
    clients: int = 1
    stop_case: StopCase | None = None


@dataclass(frozen=True)
class VerifierSizes:
    """In tokens, but for `clients`. `longest_prompt` and `last_answer` fill the context exactly."""

    answer: int
    long_prompt: int
    long_answer: int
    longest_prompt: int
    last_answer: int
    new_tokens: int
    clients: int


def verifier_sizes(setting: Setting) -> VerifierSizes:
    """`[verification]` where it says something, else what the limits of serving and decoding leave
    room for: a tiny context gets a small set."""
    wanted, total = setting.verification, setting.serving.max_total_tokens
    answer = wanted.answer_tokens or min(setting.decoding.max_new_tokens, _ANSWER)
    longest = total - setting.decoding.max_new_tokens
    return VerifierSizes(
        answer=answer,
        long_prompt=wanted.long_prompt_tokens or min(_LONG_PROMPT, longest),
        long_answer=wanted.long_answer_tokens or min(_LONG_ANSWER, total // 2),
        longest_prompt=longest,
        last_answer=setting.decoding.max_new_tokens,
        new_tokens=wanted.new_tokens or min(_NEW_TOKENS, 4 * total),
        clients=wanted.clients,
    )


def verifier_prompts(
    setting: Setting, tokenizer_dir: Path, seed: int | str
) -> tuple[VerifierPrompt, ...]:
    """The set of one candidate; the same seed gives the same prompts.

    Raises: as `settings.prompts.heldout_prompts`.
    """
    draw = _Draw(setting, tokenizer_dir, seed)
    sizes = draw.sizes
    halfway = (sizes.long_prompt + sizes.longest_prompt) // 2
    alone = [
        *draw.ordinary(4),
        *draw.random_ids(3),
        *draw.shuffled(2),
        draw.exact_length("long_prompt", sizes.long_prompt, sizes.answer),
        draw.exact_length("near_limit", sizes.longest_prompt, sizes.last_answer),
        draw.running_text("long_text", sizes.long_prompt, 2 * sizes.last_answer),
        draw.running_text("longer_text", halfway, 2 * sizes.last_answer),
        replace(draw.random_ids(1)[0], kind="long_answer", max_new_tokens=sizes.long_answer),
        *draw.page_borders(),
        *draw.stops(2),
    ]
    planned = sum(prompt.max_new_tokens for prompt in alone)
    missing = -(-max(0, sizes.new_tokens - planned) // sizes.answer)
    alone += draw.random_ids(missing)
    draw.rng.shuffle(alone)
    # What is right alone may not be so among others: one of each kind again, then any.
    again = _of_each_kind([p for p in alone if p.kind not in _ASKED_ALONE])
    together = [
        *again[: sizes.clients],
        *draw.ordinary(sizes.clients // 4),
        *draw.random_ids(sizes.clients // 2),
        *draw.shuffled(sizes.clients - sizes.clients // 4 - sizes.clients // 2),
    ]
    draw.rng.shuffle(together)
    return (
        *(replace(p, id=f"1/{p.kind}/{n}") for n, p in enumerate(alone)),
        *(
            replace(p, id=f"{sizes.clients}/{p.kind}/{n}", clients=sizes.clients)
            for n, p in enumerate(together)
        ),
    )


def common_start(prompts: Sequence[Prompt]) -> tuple[int, ...]:
    """The token that all of them begin with; () where they begin with different ones."""
    firsts = {prompt.prompt_ids[0] for prompt in prompts}
    return tuple(firsts) if len(firsts) == 1 else ()


def plain_ids(tokenizer: Any) -> list[int]:
    """The ids of its vocabulary but special ones, in order."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    return sorted(set(tokenizer.get_vocab().values()) - special)


def _of_each_kind(prompts: Sequence[VerifierPrompt]) -> list[VerifierPrompt]:
    """The first of each kind before the others."""
    first = {prompt.kind: prompt for prompt in reversed(prompts)}
    return [*first.values(), *(p for p in prompts if first[p.kind] is not p)]


class _Draw:
    """Prompts of each kind from one seed."""

    def __init__(self, setting: Setting, folder: Path, seed: int | str) -> None:
        self.sizes = verifier_sizes(setting)
        self.rng = random.Random(f"verifier:{seed}")
        self._total = setting.serving.max_total_tokens
        self._ignore_eos = setting.decoding.ignore_eos
        self._tokenizer: Any = tokenizer_of(folder)
        self._render: Callable[[str], tuple[int, ...] | None] = chat_renderer(setting, folder)
        self._plain = plain_ids(self._tokenizer)
        self._held: list[Prompt] = heldout_prompts(setting, folder, seed)
        self.rng.shuffle(self._held)
        self._start = common_start(self._held)
        self._next = 0

    def ordinary(self, count: int) -> list[VerifierPrompt]:
        """Held-out prompts under the setting's own rules."""
        return [
            self._prompt("ordinary", p.prompt_ids, self.sizes.answer, self._ignore_eos)
            for p in self._held_out(count)
        ]

    def random_ids(self, count: int) -> list[VerifierPrompt]:
        """Ids of the vocabulary at random, special ones left out, after the common first one."""
        low, high = (min(n, self._total - self.sizes.long_answer) for n in _RANDOM_PROMPT)
        lengths = [self.rng.randint(low, high) for _ in range(count)]
        return [self._random("random_ids", n, self.sizes.answer) for n in lengths]

    def shuffled(self, count: int) -> list[VerifierPrompt]:
        """The words of held-out prompts in another order, as a chat."""
        found = []
        for prompt in self._held_out(count):
            ids = self._render(self._shuffle(prompt.text)) or prompt.prompt_ids
            found.append(self._prompt("shuffled", ids, self.sizes.answer))
        return found

    def exact_length(self, kind: str, length: int, new: int) -> VerifierPrompt:
        """Shuffled text cut to `length` tokens."""
        return self._text(kind, length, new, " ", self._shuffle)

    def running_text(self, kind: str, length: int, new: int) -> VerifierPrompt:
        """Held-out prompts one after the other, as they are, cut to `length` tokens."""
        return self._text(kind, length, new, "\n\n", str)

    def page_borders(self) -> list[VerifierPrompt]:
        """Lengths at and beside multiples of a page, with very short answers."""
        fitting = [n for n in PAGE_BORDERS if n <= self.sizes.longest_prompt]
        return [
            self._random("page_border", length, SHORT_ANSWERS[i % len(SHORT_ANSWERS)])
            for i, length in enumerate(fitting)
        ]

    def stops(self, count: int) -> list[VerifierPrompt]:
        """The three stop cases of each of `count` prompts."""
        return [
            replace(prompt, kind=f"stop_{case}", stop_case=case, ignore_eos=case == "ignored")
            for prompt in self.shuffled(count)
            for case in STOP_CASES
        ]

    def _held_out(self, count: int) -> list[Prompt]:
        """The next `count`, from the beginning again where there are too few."""
        first, self._next = self._next, self._next + count
        return [self._held[i % len(self._held)] for i in range(first, self._next)]

    def _random(self, kind: str, length: int, new: int) -> VerifierPrompt:
        drawn = self.rng.choices(self._plain, k=length - len(self._start))
        return self._prompt(kind, (*self._start, *drawn), new)

    def _text(
        self, kind: str, length: int, new: int, between: str, change: Callable[[str], str]
    ) -> VerifierPrompt:
        ids: list[int] = []
        while len(ids) < length:
            texts = [p.text for p in self.rng.sample(self._held, len(self._held))]
            text = change(between.join(texts)) + between
            ids += self._tokenizer.encode(text, add_special_tokens=False) or self._plain[:1]
        return self._prompt(kind, ids[:length], new)

    def _shuffle(self, text: str) -> str:
        words = text.split()
        self.rng.shuffle(words)
        return " ".join(words)

    def _prompt(
        self, kind: str, ids: Sequence[int], new: int, ignore_eos: bool = True
    ) -> VerifierPrompt:
        room = self._total - len(ids)
        return VerifierPrompt("", kind, tuple(ids), min(new, room), ignore_eos)
