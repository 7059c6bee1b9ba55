"""Engines that somebody has started already, here or on another machine's GPU, as stock.

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

DEADLINE_S = 600.0


@contextmanager
def served_engine(option: str, url: str, setting: Setting, arm: str) -> Iterator[EngineClient]:
    """A client of the engine at `url`, which goes on serving after the block.

    Args:
        option: what the command line calls it, for errors.
        arm: `ar` (without speculation) or `stock`.

    Raises:
        ForcingError: nothing serves there, or what does says that it is not the setting's target
            as that arm.
    """
    remedy = f"start the setting's target there with --arm {arm} and the setting's dtype"
    with EngineClient(url, DEADLINE_S) as client:
        try:
            info = client.server_info()
        except EngineError as error:
            raise ForcingError(f"{option} {url}: nothing serves there ({error})", remedy) from error
        stated = str(info.get("tree_hash", ""))
        fault = served_fault(
            setting, arm=arm, tree_hash=stated, info=info, stock_info={}, owned=frozenset()
        )
        if "arm" not in info or fault is not None:
            said = "/server_info states no arm" if fault is None else fault.sentence()
            raise ForcingError(f"{option} {url}: {said}", remedy)
        yield client


@contextmanager
def served_stock_forcer(url: str, setting: Setting) -> Iterator[Forcer]:
    """A forcer on the stock at `url`.

    Raises:
        ForcingError: as `served_engine`.
    """
    with served_engine("--stock", url, setting, "ar") as client:
        yield forcer_on(client)


def forcer_on(client: EngineClient) -> Forcer:
    """Forces on that engine."""

    def forcer(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> Sequence[Position]:
        return force(client, prompt_ids, output_ids, top_k=TOP_K)

    return forcer
