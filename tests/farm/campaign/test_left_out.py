"""A search that the memory hardly fits says which mechanisms it passed over, and why."""

from __future__ import annotations

from pathlib import Path

from explorers.protocol import ExplorerContext
from tests.farm.campaign.simulation import Effect, FakeExplorer, Farm, World, proposal


class Choosy(FakeExplorer):
    """Knows one more mechanism than the setting can use."""

    def left_out(self, context: ExplorerContext) -> dict[str, str]:
        return {"table": f"target is {context.setting.target.name}, needs another"}


SAID = "table is not for this setting: target is none, needs another"


def test_it_stands_in_the_report_whatever_was_found(tmp_path: Path) -> None:
    for name, proposals in (("something", [proposal("a")]), ("nothing", [])):
        folder = tmp_path / name
        folder.mkdir()
        farm = Farm(folder, World({"a": Effect(1.2)}), {1: proposals})
        assert isinstance(farm.context.explorers, list)
        farm.context.explorers[:] = [Choosy(farm.rounds)]
        end = farm.run()
        assert end.report.notes == (SAID,)
        assert farm.observer.reports[0].notes == (SAID,)
        assert (end.report.promoted is None) == (name == "nothing")
