"""What a kind of engine needs of its sandbox beyond one port and its own folders."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from settings.schema import Setting


@runtime_checkable
class InternalPorts(Protocol):
    """A driver whose engine is made of several processes that talk over loopback."""

    def internal_ports(self, port: int) -> tuple[int, ...]:
        """TCP ports that its processes bind and connect to, for the server on `port`. With any,
        connect(2) is open to the engine: TCP to these ports only where Landlock has ABI 4, and Unix
        sockets (docs/sandbox.md)."""
        ...


def internal_ports(driver: object, port: int) -> tuple[int, ...]:
    """The driver's internal ports; none for most."""
    return driver.internal_ports(port) if isinstance(driver, InternalPorts) else ()


@runtime_checkable
class OwnEnvironment(Protocol):
    """A driver whose engine does not run in specfarm's Python environment."""

    def readable_folders(self, setting: Setting) -> tuple[Path, ...]:
        """Folders of its environment, to read and execute from."""
        ...


def readable_folders(driver: object, setting: Setting) -> tuple[Path, ...]:
    """The driver's further folders; none for most."""
    return driver.readable_folders(setting) if isinstance(driver, OwnEnvironment) else ()
