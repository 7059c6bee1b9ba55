"""Everything the confined child needs to know, handed to it as JSON on its standard input.

Not on its command line, which every process of the machine may read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class SandboxPlan:
    """One engine's confinement.

    Attributes:
        command: argv of the engine.  variables: added to the environment it is given.
        owner: pid of the farm's process, at whose death everything ends.
        ready_fd: inherited descriptor; one byte on it says that the engine's process exists.
        cpus: CPUs to stay on; empty leaves them to the kernel.
        required: what it cannot start without; a clear error where it cannot be opened.
        readable, listable, writable: folders or files (with all below them) that may be read and
            executed, only listed, changed.  devices: device files or folders of them.
        internal_ports: TCP ports its own processes bind and connect to, beside `port`.
        landlock_abi: 0 where Landlock is not to be used.  seccomp: whether the filter is.
        protect_settings: whether the kernel's settings are still to be made read-only.
    """

    command: tuple[str, ...]
    variables: dict[str, str]
    owner: int
    ready_fd: int
    cpus: tuple[int, ...]
    required: tuple[str, ...]
    readable: tuple[str, ...]
    listable: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...]
    port: int
    internal_ports: tuple[int, ...]
    landlock_abi: int
    seccomp: bool
    protect_settings: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SandboxPlan:
        fields: dict[str, Any] = json.loads(text)
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        return cls(**fields)
