"""Starts a real SGLang server (`engines/sglang`) from SGLang's own environment.

The setting's fields become SGLang's flags, the same for every arm, so that a baseline and what is
compared with it may hold as many tokens and requests. Needs an environment with SGLang in it:
`make sglang-cpu` here, or `SPECFARM_SGLANG_PYTHON` where there is a GPU.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from engines.errors import EngineError
from engines.protocol import arm_args
from engines.server_driver import SETTING_OWNED_KEYS, refuse_owned_flags
from settings.hardware import hardware
from settings.paths import checkout_root
from settings.schema import ArmName, Setting
from settings.weights import ensure_drafter

PYTHON_VARIABLE = "SPECFARM_SGLANG_PYTHON"
REMEDY = (
    "In an environment of its own: pip install sglang==VERSION, and set "
    f"{PYTHON_VARIABLE}=/path/to/its/python; without a GPU, for tests only: make sglang-cpu"
)
_OWNED = SETTING_OWNED_KEYS | {
    "context_length",
    "device",
    "kv_cache_dtype",
    "model_path",
    "nccl_port",
    "speculative_draft_model_path",
    "speculative_draft_model_revision",
    # These make it accept what the target would not choose.
    "speculative_accept_threshold_acc",
    "speculative_accept_threshold_single",
}
_DTYPE = {"fp32": "float32", "bf16": "bfloat16", "fp8": "bfloat16"}
_KV_DTYPE = {"fp32": "auto", "bf16": "bfloat16", "fp8": "fp8_e4m3"}
# What a draft may overshoot a request's last token by, in slots of the pool.
_OVERSHOOT = 256
_CPU_FLAGS = (
    *("--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch"),
    *("--mem-fraction-static", "0.2"),
    "--disable-overlap-schedule",
)


def sglang_python(gpu: str) -> Path:
    """The interpreter that has SGLang for our `gpu` (or `cpu`, which `make sglang-cpu` serves).

    Raises:
        EngineError: none is named or made.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    made = checkout_root() / ".venv-sglang-cpu" / "bin" / "python"
    if not named and hardware(gpu).is_gpu:
        raise EngineError(f"{PYTHON_VARIABLE} names no Python with SGLang for {gpu}", REMEDY)
    python = Path(named).expanduser() if named else made
    if not python.is_file():
        raise EngineError(f"SGLang's Python is not there: {python}", REMEDY)
    return python


@cache
def sglang_version(python: Path) -> str | None:
    """The version of SGLang that this interpreter would import; None where it has none."""
    script = "from importlib.metadata import version; print(version('sglang'))"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


class SglangDriver:
    name = "sglang"
    setting_owned_keys = _OWNED

    def stock_source(self) -> Path:
        return checkout_root() / "engines" / "sglang"

    def command(
        self,
        setting: Setting,
        arm: ArmName,
        tree: Path,
        model_dir: Path,
        host: str,
        port: int,
        tree_hash: str,
    ) -> tuple[str, ...]:
        """argv that serves the arm.

        Raises:
            EngineError: the arm's args set what the setting owns, or SGLang is not there in the
                version that the setting's baseline names.
        """
        given = arm_args(setting, arm)
        refuse_owned_flags(setting, arm, given, _OWNED)
        python = sglang_python(setting.hardware.gpu)
        _check_version(setting, python)
        on_gpu = hardware(setting.hardware.gpu).is_gpu
        serving = setting.serving
        flags: dict[str, object] = {
            "--model-path": model_dir,
            "--served-model-name": setting.target.name,
            "--host": host,
            "--port": port,
            "--nccl-port": self.internal_ports(port)[1],
            "--device": "cuda" if on_gpu else "cpu",
            "--dtype": _DTYPE[setting.target.weights_dtype],
            "--kv-cache-dtype": _KV_DTYPE[setting.target.kv_dtype],
            "--context-length": serving.max_total_tokens,
            "--max-running-requests": serving.max_running_requests,
            "--max-total-tokens": serving.max_running_requests
            * (serving.max_total_tokens + _OVERSHOOT),
        }
        drafter = ensure_drafter(setting) if "--speculative-algorithm" in given else None
        if drafter is not None:
            flags["--speculative-draft-model-path"] = drafter
        identity = ("--arm", arm, "--tree-hash", tree_hash)
        owned = [str(part) for pair in flags.items() for part in pair]
        extra = () if on_gpu else _CPU_FLAGS
        return (str(python), "-m", "sglang_engine.server", *identity, *extra, *given, *owned)

    def environment(self, tree: Path, cache_dir: Path) -> dict[str, str]:
        return {
            "PYTHONPATH": str(tree),
            "SGLANG_DG_CACHE_DIR": str(cache_dir / "deep_gemm"),
            # Without it a cold FP8 start compiles for a quarter of an hour.
            "SGLANG_JIT_DEEPGEMM_FAST_WARMUP": "1",
        }

    def internal_ports(self, port: int) -> tuple[int, ...]:
        """Its HTTP process asks itself once to warm up; its schedulers meet on the second."""
        return (port, port + 1 if port < 65535 else port - 1)

    def readable_folders(self, setting: Setting) -> tuple[Path, ...]:
        """SGLang's environment, and the Python it was made from."""
        prefix = sglang_python(setting.hardware.gpu).parent.parent
        config = prefix / "pyvenv.cfg"
        lines = config.read_text().splitlines() if config.is_file() else []
        homes = [line.partition("=")[2].strip() for line in lines if line.startswith("home")]
        return (prefix, *(Path(home).parent for home in homes))


def _check_version(setting: Setting, python: Path) -> None:
    found = sglang_version(python)
    wanted = None if setting.baseline is None else setting.baseline.version
    if found is None or (wanted is not None and found != wanted):
        raise EngineError(
            f"{python} has {'no SGLang' if found is None else f'SGLang {found}'}, "
            f"baseline.version is {wanted or 'not given'}",
            REMEDY.replace("VERSION", wanted or "0.5.21"),
        )
