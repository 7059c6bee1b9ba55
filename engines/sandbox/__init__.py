"""What an engine process may touch: three nested levels, the best one that works here is used.

`bubblewrap` adds namespaces to `landlock`, which adds file and TCP rules to `rlimits`, which is
always applied. docs/sandbox.md says what each stops and what none of them stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.sandbox.level import SandboxLevel


def active_level() -> SandboxLevel:
    """The level engines are started under now, with what it enforces and what it does not.

    Raises:
        SandboxUnavailable: `SPECFARM_SANDBOX` is no level, or one that does not work here.
    """
    # Not at the top: the confined child imports this package, and has only the standard library.
    from engines.sandbox.level import active_level as chosen

    return chosen()
