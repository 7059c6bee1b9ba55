"""Keeps evaluation prompts out of training data: no shared window of 13 tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engines.training.chat_text import ChatText, bare

WINDOW = 13


class LeakageCheck:
    """Messages that share 13 tokens in a row with an evaluation message, or equal one.

    Both are compared in lower case, with single spaces, without the wording all prompts of a set
    share.
    """

    def __init__(self, chat: ChatText, evaluation: Sequence[str]) -> None:
        self._chat = chat
        texts = [_plain(message) for message in evaluation]
        self._whole = set(texts)
        self._windows = {w for ids in self._encode(texts) for w in _windows(ids)}

    def caught(self, messages: Sequence[str]) -> list[bool]:
        """For each message, whether it leaks."""
        texts = [_plain(message) for message in messages]
        return [
            text in self._whole or not self._windows.isdisjoint(_windows(ids))
            for text, ids in zip(texts, self._encode(texts), strict=True)
        ]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        # A leading space makes the first word's tokens those it has inside a text.
        return self._chat.encode([f" {text}" for text in texts])


def _windows(ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return (tuple(ids[i : i + WINDOW]) for i in range(len(ids) - WINDOW + 1))


def _plain(message: str) -> str:
    return " ".join(bare(message).lower().split())
