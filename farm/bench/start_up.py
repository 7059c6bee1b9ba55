"""Start-up and memory of a served engine: `python -m farm.bench.start_up CONFIG_DIR ...`.

Starts `native_engine.server` once a folder with random weights of its shape, waits until it serves,
asks for one answer a slot at once, and prints one JSON object a folder: seconds from the start of
the process to /health, seconds of the first answers, memory. Needs no checkpoint, and a device that
nobody else uses. Exit 1 where a server did not come up or did not answer.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from engines.answers import GenerationRequest
from engines.engine_process import fresh_port, log_tail
from engines.errors import EngineCrashed, EngineError, EngineTimeout
from engines.http_client import EngineClient
from engines.json_fields import printable
from farm.timing_lock import timing_lock
from settings.one_line_parser import OneLineParser
from settings.paths import checkout_root

TREE = checkout_root() / "engines" / "native"
ANSWER_TOKENS = 16
_PROMPT_TOKENS = 64
_PDEATHSIG = 1
_MOST_LINES, _MOST_CHARACTERS = 12, 400


@dataclass(frozen=True)
class Served:
    """A server that answers at `url`, `start_s` seconds after its process began."""

    url: str
    pid: int
    start_s: float


@contextmanager
def served(command: Sequence[str], deadline_s: float) -> Iterator[Served]:
    """Runs `command` with a free port; ended with the block.

    Raises:
        EngineCrashed, EngineTimeout: it ended, or does not serve by the deadline; with the log's
            tail.
    """
    port = fresh_port("127.0.0.1")
    url = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=TREE,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_this_process,
        )
        try:
            while not _serves(url):
                took = time.monotonic() - began
                if process.poll() is not None:
                    raise EngineCrashed(f"the server ended after {took:.0f} s", _end_of(log.name))
                if took > deadline_s:
                    raise EngineTimeout(f"no server after {took:.0f} s", _end_of(log.name))
                time.sleep(0.05)
            yield Served(url, process.pid, time.monotonic() - began)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _end_of(log: str) -> str:
    lines = log_tail(Path(log)).splitlines()[-_MOST_LINES:]
    return "its log ends: " + "\n".join(printable(line, _MOST_CHARACTERS) for line in lines)


def _end_with_this_process() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def measured(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One folder's row.

    Raises:
        EngineError: the server did not come up, did not answer, or ended.
    """
    with (
        timing_lock("start-up times"),
        tempfile.TemporaryDirectory() as scratch,
        served(_command(folder, args, Path(scratch)), args.deadline_s) as server,
    ):
        asked = [
            GenerationRequest(
                str(n), tuple(range(1, _PROMPT_TOKENS + n + 1)), ANSWER_TOKENS, ignore_eos=True
            )
            for n in range(args.slots)
        ]
        began = time.monotonic()
        with EngineClient(server.url) as client, ThreadPoolExecutor(args.slots) as pool:
            answers = list(pool.map(client.generate, asked))
        first_s = time.monotonic() - began
        return {
            "target": folder.name,
            "drafter": args.drafter,
            "dtype": args.dtype,
            "slots": args.slots,
            "tokens_a_slot": args.tokens,
            "start_s": round(server.start_s, 2),
            "first_answers_s": round(first_s, 2),
            "answered_tokens": sum(len(answer.output_ids) for answer in answers),
            "process_gb": _process_gb(server.pid),
            "device_gb": _device_gb(args.device),
        }


def _command(folder: Path, args: argparse.Namespace, scratch: Path) -> list[str]:
    command = [sys.executable, "-m", "native_engine.server", "--model-dir", str(folder.resolve())]
    command += ["--load-format", "dummy", "--device", args.device, "--dtype", args.dtype]
    command += ["--max-running-requests", str(args.slots), "--max-total-tokens", str(args.tokens)]
    if args.drafter:
        config = Path(args.drafter) / "config.json"
        says = config.read_text() if config.is_file() else args.drafter
        kind = "dspark" if "dspark" in says.lower() else "dflash"
        knobs = (TREE / "engine.toml").read_text()
        changed = knobs.replace('drafter = "ngram"', f'drafter = "{kind}"')
        if changed == knobs:
            raise EngineError(f"{TREE / 'engine.toml'} does not name the n-gram drafter")
        (scratch / "engine.toml").write_text(changed)
        drafter = str(config.parent.resolve()) if config.is_file() else args.drafter
        command += ["--draft-model-dir", drafter]
        command += ["--engine-config", str(scratch / "engine.toml")]
    return command


def _serves(url: str) -> bool:
    with EngineClient(url, timeout_s=2.0) as client:
        try:
            return client.health()
        except EngineError:
            return False


def _process_gb(pid: int) -> float:
    try:
        return round(psutil.Process(pid).memory_info().rss / 1e9, 2)
    except psutil.Error as error:
        raise EngineCrashed(f"the server ended after its answers: {error}") from error


def _device_gb(device: str) -> float | None:
    """Memory in use on the first device, as nvidia-smi says; None on a CPU."""
    if device == "cpu":
        return None
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        used = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        return round(int(used.splitlines()[0]) * 2**20 / 1e9, 2)
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        raise EngineError(f"nvidia-smi does not say how much memory is in use: {error}") from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(prog="farm.bench.start_up", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--slots", type=_positive, default=16)
    parser.add_argument("--tokens", type=_positive, default=1024, help="of every slot")
    parser.add_argument("--drafter", help="a published drafter's name, or its folder")
    parser.add_argument("--deadline-s", type=float, default=300.0)
    args = parser.parse_args(argv)
    code = 0
    for folder in args.folders:
        try:
            print(json.dumps(measured(folder, args)), flush=True)
        except EngineError as error:
            print(f"error: {folder}: {error}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
