"""Which candidate prompts are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.training.candidates import Candidate
from engines.training.chat_text import ChatText
from engines.training.leakage import LeakageCheck
from engines.training.shards import read_shard


@dataclass(frozen=True)
class Limits:
    """Tokens: of the user's message at least, of the whole rendered chat at most."""

    shortest_message: int
    longest_prompt: int


class PromptFilter:
    """Keeps each different, fitting prompt that shares nothing with evaluation prompts."""

    def __init__(self, chat: ChatText, exclude: Sequence[Path], limits: Limits) -> None:
        """`exclude`: shard files of evaluation prompts."""
        self._chat, self._limits = chat, limits
        shards = [read_shard(path) for path in exclude]
        prompts = [shard.prompt(i) for shard in shards for i in range(len(shard))]
        self._leakage = LeakageCheck(chat, chat.messages(prompts))
        self._seen: set[str] = set()
        self.kept: list[tuple[str, list[int]]] = []
        self.dropped: Counter[str] = Counter()

    @property
    def tried(self) -> int:
        return len(self.kept) + self.dropped.total()

    def offer(self, candidates: Sequence[Candidate]) -> None:
        """Keep those of use, in order; count why others are dropped."""
        whole = [(c.family, c.message) for c in candidates if c.message is not None]
        self.dropped["unfinished"] += len(candidates) - len(whole)
        messages = [message for _, message in whole]
        prompts = self._chat.prompts(messages)
        leaks = self._leakage.caught(messages)
        for (family, message), ids, leak in zip(whole, prompts, leaks, strict=True):
            reason = "leakage" if leak else self._refused(message, ids)
            if reason:
                self.dropped[reason] += 1
            else:
                self.kept.append((family, ids))

    def _refused(self, message: str, ids: list[int]) -> str | None:
        if len(ids) - sum(self._chat.sizes) < self._limits.shortest_message:
            return "short"
        if len(ids) > self._limits.longest_prompt:
            return "long"
        key = " ".join(message.lower().split())
        if key in self._seen:
            return "duplicate"
        self._seen.add(key)
        return None
