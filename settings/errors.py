"""The base of every error a user can cause or repair: it says what is wrong and what to do."""

from __future__ import annotations


class SpecfarmError(Exception):
    """A usage or environment error (exit code 2).

    Args:
        message: what is wrong, naming the field, file or command.
        remedy: the one thing to do about it.
    """

    exit_code = 2

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}. {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class SettingError(SpecfarmError):
    """A setting.toml (or a name given for one) cannot be used."""


class ProvisionError(SpecfarmError):
    """Weights, a tokenizer or prompts could not be fetched or do not match their recorded hash."""
