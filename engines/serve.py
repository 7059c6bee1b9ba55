"""Serve one arm in the foreground: `python -m engines.serve SETTING {final|stock|ar} {cpu|GPU}`.

An optional last argument is the port (default 30000). Ends on Ctrl-C, SIGTERM or
`scripts/stop.sh PORT`, and takes the engine with it.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import cast

from engines.engine_process import EngineProcess
from engines.errors import EngineCrashed, EngineError
from engines.launcher import launch
from engines.process_registry import ProcessRegistry
from engines.resolve import resolve_arm
from settings.errors import SpecfarmError
from settings.hardware import HARDWARE
from settings.loading import load_setting
from settings.one_line_parser import OneLineParser, port_number
from settings.schema import ArmName, Setting
from settings.weights import ensure_target


class _EndedError(Exception):
    """A signal asked the server to end."""


def present_hardware(device: str) -> str:
    """Our name of `cpu` or of the GPU with that index (by its NVML product name).

    Raises:
        EngineError: not an index, no such GPU, or a GPU that settings.hardware does not list.
    """
    if device == "cpu":
        return "cpu"
    if not device.isdigit():
        raise EngineError(
            f"device {device!r} is neither cpu nor a GPU index", "Use cpu or 0, 1, ..."
        )
    query = ["nvidia-smi", "-i", device, "--query-gpu=name", "--format=csv,noheader"]
    try:
        product = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        raise EngineError(f"there is no GPU {device} here", "Use cpu, or see nvidia-smi") from None
    for row in HARDWARE.values():
        if product in row.nvml_names:
            return row.name
    raise EngineError(f"GPU {device} is a {product}, which settings/hardware.py does not list")


def start(
    setting: Setting,
    arm: ArmName,
    device: str,
    port: int,
    host: str = "127.0.0.1",
    other_hardware: bool = False,
    revoked: bool = False,
) -> EngineProcess:
    """Resolve, provide the weights, launch on a fixed port; says on stdout which tree it took."""
    hardware_name = present_hardware(device)
    if hardware_name != setting.hardware.gpu and not other_hardware:
        raise EngineError(
            f"{setting.name} is a setting for {setting.hardware.gpu}, this is {hardware_name}",
            "Pass --other-hardware to run it all the same",
        )
    tree = resolve_arm(
        setting,
        arm,
        hardware_name=hardware_name,
        allow_other_hardware=other_hardware,
        allow_revoked=revoked,
    )
    print(f"{arm}: {tree.origin}, tree {tree.tree_hash}", flush=True)
    model_dir = ensure_target(setting)
    env = {"CUDA_VISIBLE_DEVICES": "" if device == "cpu" else device}
    return launch(
        setting,
        arm,
        tree.path,
        tree.tree_hash,
        model_dir,
        port=port,
        host=host,
        env_extra=env,
        purpose="serve",
    )


def example_request(url: str, model: str) -> str:
    """A curl line that asks the served model something."""
    body = (
        f'{{"model": "{model}", "stream": true, "max_tokens": 64, '
        '"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
    )
    return f"curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def _on_signal(number: int, frame: FrameType | None) -> None:
    for again in (signal.SIGTERM, signal.SIGINT):
        signal.signal(again, signal.SIG_IGN)
    raise _EndedError


def run(options: argparse.Namespace) -> None:
    """Serve until a signal comes or the engine ends by itself."""
    for ended in ProcessRegistry().reap_leftovers():
        print(f"ended a leftover {ended.arm} engine (pid {ended.pid}, port {ended.port})")
    setting = load_setting(options.setting)
    with start(
        setting,
        cast(ArmName, options.arm),
        options.device,
        options.port,
        options.host,
        options.other_hardware,
        options.revoked,
    ) as engine:
        print(f"serving {setting.target.name} at {engine.url} (pid {engine.pid})")
        print(f"log: {engine.log}\ntry: {example_request(engine.url, setting.target.name)}")
        print(f"stop: scripts/stop.sh {options.port}", flush=True)
        while engine.is_running():
            time.sleep(0.5)
        raise EngineCrashed(f"the engine ended; the end of its log: {engine.log_tail()}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = OneLineParser(prog="serve.sh", description="Serve one arm of a setting.")
    parser.add_argument("setting")
    parser.add_argument("arm", choices=("final", "stock", "ar"))
    parser.add_argument("device", help="cpu or a GPU index")
    parser.add_argument("port", nargs="?", type=port_number, default=30000)
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine only")
    parser.add_argument(
        "--other-hardware",
        action="store_true",
        help="serve on other hardware than the setting or the certificate names",
    )
    parser.add_argument(
        "--revoked",
        action="store_true",
        help="serve a final whose certificate was revoked by specfarm certify",
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)
    try:
        run(parser.parse_args(argv))
    except _EndedError:
        print("stopped")
        return 0
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
