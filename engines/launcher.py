"""Starts an engine from a checked-out tree and waits until it serves.

Own session and process group, fresh port, scrubbed environment, compile caches per tree hash, the
sandbox in force (`engines.sandbox`), the same for every arm. It dies with this process
(PR_SET_PDEATHSIG) and is on record (`engines.process_registry`) in case it does not.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from engines.child_environment import child_environment
from engines.engine_process import EngineProcess, fresh_port, log_tail, port_is_free
from engines.errors import EngineCrashed, EngineError, EngineProtocolError, EngineTimeout
from engines.http_client import EngineClient
from engines.process_registry import LAUNCH_ID, ProcessRegistry, new_record
from engines.registry import engine_driver
from engines.sandbox.allow_list import SHARED_MEMORY, allow_list
from engines.sandbox.level import active_level
from engines.sandbox.needs import internal_ports, readable_folders
from engines.sandbox.start import start_confined
from settings.paths import shared_dir, work_dir
from settings.schema import ArmName, Setting
from settings.weights import ensure_drafter

_PORT_ATTEMPTS = 4
_PROBE_TIMEOUT_S = 5.0


def launch(
    setting: Setting,
    arm: ArmName,
    tree_dir: Path,
    tree_hash: str,
    model_dir: Path,
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    log_dir: Path | None = None,
    cpus: Sequence[int] | None = None,
    env_extra: Mapping[str, str] | None = None,
    purpose: str = "farm",
) -> EngineProcess:
    """A serving engine.

    Args:
        tree_dir: a checkout of the tree `tree_hash`; the engine's working directory.
        model_dir: the target's weights and tokenizer.
        port: a fixed port; None takes a fresh one, and another if that is lost to a race.
        cpus: CPUs to stay on (sched_setaffinity); None leaves them to the kernel.
        env_extra: added to the scrubbed environment, e.g. CUDA_VISIBLE_DEVICES.
        purpose: `farm` or `serve`; `scripts/stop.sh` only ends the latter.

    Raises:
        EngineCrashed: it ended before it served; carries the log's tail.
        EngineTimeout: not serving within `engine.startup_deadline_s`; carries the log's tail.
        EngineProtocolError: it serves, but `/server_info` is not what was launched.
        EngineError: the port asked for is in use.
        SandboxUnavailable: `SPECFARM_SANDBOX` is no level, or one that does not work here.
    """
    if port is not None and not port_is_free(host, port):
        raise EngineError(
            f"port {port} on {host} is in use", f"Stop its owner (stop.sh {port}) or take another"
        )
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        process = _start(
            setting,
            arm,
            tree_dir,
            tree_hash,
            model_dir,
            port or fresh_port(host),
            host,
            log_dir or work_dir("logs", "engines"),
            cpus,
            env_extra,
            purpose,
        )
        try:
            _wait_until_serving(process, setting.engine.startup_deadline_s)
            _check_identity(process, setting)
        except EngineCrashed as error:
            lost_port = "address already in use" in error.message.lower()
            process.stop(grace_s=0.0)
            if port is None and lost_port and attempt < _PORT_ATTEMPTS:
                continue
            raise
        except BaseException:
            process.stop(grace_s=0.0)
            raise
        return process
    raise AssertionError("unreachable")


def _start(
    setting: Setting,
    arm: ArmName,
    tree_dir: Path,
    tree_hash: str,
    model_dir: Path,
    port: int,
    host: str,
    log_dir: Path,
    cpus: Sequence[int] | None,
    env_extra: Mapping[str, str] | None,
    purpose: str,
) -> EngineProcess:
    driver = engine_driver(setting.engine.name)
    ports = internal_ports(driver, port)
    level = active_level(connects=bool(ports))
    registry = ProcessRegistry()
    scratch = Path(tempfile.mkdtemp(prefix="engine-", dir=work_dir("scratch")))
    cache_dir = shared_dir("caches", tree_hash)
    # Arm ar decodes without one: nothing need be there.
    drafter_dir = None if arm == "ar" else ensure_drafter(setting)
    also = (*readable_folders(driver, setting), *([] if drafter_dir is None else [drafter_dir]))
    writable = (cache_dir, scratch, Path(SHARED_MEMORY))
    allowed = allow_list(tree_dir, model_dir, writable, also=also)
    record = new_record(
        setting=setting.name,
        arm=arm,
        tree_hash=tree_hash,
        port=port,
        purpose=purpose,
        scratch=str(scratch),
        sandbox=level.name,
    )
    path = allowed.search_path(os.environ.get("PATH", os.defpath))
    env = child_environment(
        threads=setting.hardware.threads,
        cache_dir=cache_dir,
        scratch=scratch,
        driver=driver.environment(tree_dir, cache_dir),
        extra=env_extra,
        inherited={**os.environ, "PATH": path},
    )
    log_dir.mkdir(parents=True, exist_ok=True)
    log = log_dir / f"{time.strftime('%Y%m%d-%H%M%S')}-{arm}-{tree_hash[:12]}-{port}.log"
    registry.write(record)
    try:
        with log.open("ab") as output:
            started = start_confined(
                level,
                allowed,
                driver.command(setting, arm, tree_dir, model_dir, host, port, tree_hash),
                tree=tree_dir,
                model_dir=model_dir,
                environment=env,
                variables={LAUNCH_ID: record.launch_id},
                port=port,
                internal_ports=ports,
                cpus=tuple(cpus or ()),
                output=output,
            )
    except (OSError, EngineCrashed) as error:
        registry.forget(record)
        raise EngineCrashed(
            f"{arm} could not be started: {error}; the end of {log.name}: "
            f"{log_tail(log) or '(empty)'}"
        ) from error
    record = registry.started(record, started.engine, started.keeper)
    return EngineProcess(
        started.popen, record, registry, host, log, setting.engine.request_deadline_s
    )


def _wait_until_serving(process: EngineProcess, deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    with EngineClient(process.url, min(_PROBE_TIMEOUT_S, deadline_s)) as probe:
        while True:
            if not process.is_running():
                raise EngineCrashed(
                    f"{process.arm} ended before it served; the end of {process.log.name}: "
                    f"{process.log_tail() or '(empty)'}"
                )
            # Another engine may have won the port: its health is not ours.
            if probe.health() and process.owns_port():
                return
            if time.monotonic() > deadline:
                raise EngineTimeout(
                    f"{process.arm} did not serve within {deadline_s:g} s; the end of "
                    f"{process.log.name}: {process.log_tail() or '(empty)'}",
                    "Raise engine.startup_deadline_s if it was still loading",
                )
            time.sleep(0.05)


def _check_identity(process: EngineProcess, setting: Setting) -> None:
    with EngineClient(process.url, setting.engine.startup_deadline_s) as probe:
        served = probe.server_info().get("tree_hash", process.tree_hash)
    if served != process.tree_hash:
        raise EngineProtocolError(
            f"/server_info says tree_hash {served!r}, launched was {process.tree_hash}"
        )
