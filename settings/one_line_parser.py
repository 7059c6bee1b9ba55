"""Arguments of the scripts: a mistake is one line on stderr and exit code 2, as in `specfarm`."""

from __future__ import annotations

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """argparse prints its whole usage above an error; here the error says where to find it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def port_number(text: str) -> int:
    """argparse type of a TCP port; 0 is refused, since `stop.sh 0` could name no engine."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)
