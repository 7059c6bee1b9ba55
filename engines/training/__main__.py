"""`python -m engines.training COMMAND`: prompts, answers, a trained drafter, its accept length."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

import engines.training  # noqa: F401  (puts the engine on the path)
from native_engine.errors import NativeEngineError
from settings.errors import SpecfarmError

COMMANDS = {
    "evaluation-prompts": ("evaluation_prompts", "prompts that training must not have seen"),
    "prompts": ("prompts_command", "training prompts, written by the target"),
    "answer": ("answer_command", "the target's greedy answers, as shards"),
    "train": ("train_command", "train one drafter"),
    "measure": ("measure_command", "accept length of a checkpoint on evaluation prompts"),
    "tries": ("tries_command", "many short trainings, one JSON line each"),
}


def main(arguments: Sequence[str]) -> int:
    """Exit code: 2 for what the user can repair."""
    parser = argparse.ArgumentParser(prog="python -m engines.training", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = arguments[0] if arguments else ""
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        # Only the command asked for is imported: each has its own needs.
        if name == asked:
            implementation = importlib.import_module(f"engines.training.{module}")
            implementation.add_arguments(command)
            command.set_defaults(run=implementation.run)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except (SpecfarmError, NativeEngineError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
