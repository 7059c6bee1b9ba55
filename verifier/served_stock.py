"""A `Forcer` on stock that somebody has started already, here or on another machine's GPU.

Rounding differs between machines, so outputs are forced where they were made: start the setting's
target there without speculation (`--arm ar`) and name its address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engines.errors import EngineError
from engines.forcing import force
from engines.http_client import EngineClient
from settings.schema import Setting
from verifier.errors import ForcingError
from verifier.forced import TOP_K, Forcer, Position
from verifier.served import served_fault

FORCING_DEADLINE_S = 600.0
_REMEDY = "start the setting's target there with --arm ar and the setting's dtype, or drop --stock"


@contextmanager
def served_stock_forcer(url: str, setting: Setting) -> Iterator[Forcer]:
    """A forcer on the engine at `url`, which goes on serving after the block.

    Raises:
        ForcingError: nothing serves there, or what does says that it is not the setting's target
            without speculation.
    """
    with EngineClient(url, FORCING_DEADLINE_S) as client:
        try:
            info = client.server_info()
        except EngineError as error:
            raise ForcingError(f"--stock {url}: nothing serves there ({error})", _REMEDY) from error
        stated = str(info.get("tree_hash", ""))
        fault = served_fault(
            setting, arm="ar", tree_hash=stated, info=info, stock_info={}, owned=frozenset()
        )
        if "arm" not in info or fault is not None:
            said = "/server_info states no arm" if fault is None else fault.sentence()
            raise ForcingError(f"--stock {url}: {said}", _REMEDY)

        def forcer(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> Sequence[Position]:
            return force(client, prompt_ids, output_ids, top_k=TOP_K)

        yield forcer
