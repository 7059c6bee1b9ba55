"""A running engine: pause it, resume it, talk to it, end it with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType

from engines.errors import EngineError
from engines.http_client import EngineClient
from engines.proc_files import is_running, listens
from engines.process_registry import ProcessRecord, ProcessRegistry, end_processes

LOG_TAIL_BYTES = 4000


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now (lingering closed connections do not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def fresh_port(host: str) -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def log_tail(path: Path, limit: int = LOG_TAIL_BYTES) -> str:
    """The last `limit` bytes of a log, decoded leniently."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - limit))
            return log.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


class EngineProcess:
    """Made by `engines.launcher.launch`; a context manager that stops at its end.

    Attributes:
        url: `http://host:port`.  pid: leader of the engine's own session and process group.
        start_time: /proc start time in clock ticks.  log: file with its stdout and stderr.
        sandbox: name of the level it runs under (`engines.sandbox.active_level` says what that is).
        escaped: after `stop`, names of commands that had left its session and outlived it.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        record: ProcessRecord,
        registry: ProcessRegistry,
        host: str,
        log: Path,
        request_deadline_s: float,
    ) -> None:
        self._popen = popen
        self._record = record
        self._registry = registry
        self._host = host
        self._request_deadline_s = request_deadline_s
        self._client: EngineClient | None = None
        self._stopped = False
        self._held_port = False
        self.log = log
        self.pid = record.pid
        self.start_time = record.start_time
        self.sandbox = record.sandbox
        self.escaped: tuple[str, ...] = ()
        self.arm = record.arm
        self.tree_hash = record.tree_hash
        self.port = record.port
        self.url = f"http://{host}:{record.port}"

    def client(self) -> EngineClient:
        """One client, shared by all callers (it may be used from several threads)."""
        if self._client is None:
            self._client = EngineClient(self.url, self._request_deadline_s)
        return self._client

    def is_running(self) -> bool:
        """False once the engine's main process has ended."""
        # Its keeper leaves it unreaped: its pid, and so its session, stay ours until `stop`.
        return not self._stopped and is_running(self.pid, self.start_time)

    def owns_port(self) -> bool:
        """Whether it is one of this engine's processes that listens on `port`."""
        self._held_port = listens(self._record.members(), self.port)
        return self._held_port

    def pause(self) -> None:
        """SIGSTOP the process group. Requests in flight wait; the caller's clocks run on."""
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT the process group."""
        self._signal_group(signal.SIGCONT)

    def _signal_group(self, number: signal.Signals) -> None:
        # One that has ended is noticed by whoever talks to it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def log_tail(self) -> str:
        return log_tail(self.log)

    def stop(self, grace_s: float = 5.0) -> None:
        """SIGTERM, after `grace_s` seconds SIGKILL; then check that all of it is gone.

        Raises:
            EngineTimeout: a process survived SIGKILL.
            EngineError: someone else holds the port.
        """
        if self._stopped:
            return
        if self._client is not None:
            self._client.close()
        self.escaped = end_processes(self._record, grace_s)
        self._popen.wait()
        self._stopped = True
        self._registry.forget(self._record)
        if self._held_port and not port_is_free(self._host, self.port):
            raise EngineError(
                f"port {self.port} is still in use after {self.arm} ended",
                "See `ss -ltnp` for its owner",
            )

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # An error on its way out says more than a failed clean-up after it.
        with contextlib.suppress(EngineError) if error else contextlib.nullcontext():
            self.stop()
