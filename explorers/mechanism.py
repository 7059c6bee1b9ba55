"""A mechanism: a reusable idea with its hypothesis, scope and change, one folder each.

`<name>/mechanism.toml` (schema below) and, for a source patch, `<name>/change.patch`, a unified
diff relative to the engine tree's root.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from explorers.protocol import Change, Prediction, Proposal
from settings.errors import SpecfarmError
from settings.schema import Setting


class MechanismError(SpecfarmError):
    """A mechanism folder cannot be read."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Preconditions(_Section):
    """Setting features the mechanism needs; an empty list means any."""

    engine: list[str] = Field(default_factory=list)
    drafter: list[str] = Field(default_factory=list)
    target: list[str] = Field(default_factory=list)
    hardware: list[str] = Field(default_factory=list)
    max_concurrency: int | None = None
    compiler: bool = False

    def unmet(self, setting: Setting, *, has_compiler: bool) -> str | None:
        """The first precondition `setting` does not meet, in words; None when all hold."""
        facts = {
            "engine": (self.engine, setting.engine.name),
            "drafter": (self.drafter, setting.drafter.kind),
            "target": (self.target, setting.target.name),
            "hardware": (self.hardware, setting.hardware.gpu),
        }
        for name, (wanted, has) in facts.items():
            if wanted and has not in wanted:
                return f"{name} is {has}, needs {' or '.join(wanted)}"
        if self.max_concurrency is not None and setting.serving.concurrency > self.max_concurrency:
            return f"concurrency {setting.serving.concurrency} above {self.max_concurrency}"
        if self.compiler and not has_compiler:
            return "needs a C++ compiler (g++) on this machine"
        return None


class Predicted(_Section):
    speed_ratio: float = Field(gt=0)
    reason: str


class Mechanism(_Section):
    """One record of the mechanism memory."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    kind: Literal["mechanism", "canary_noop", "canary_lossy", "canary_cheat"] = "mechanism"
    component: str
    hypothesis: str
    priority: int = Field(default=50, description="lower is tried earlier")
    round: int = Field(default=1, description="the first round it is proposed in")
    preconditions: Preconditions = Preconditions()
    predicted: Predicted
    knobs: dict[str, int | float | str | bool] = Field(default_factory=dict)
    patch: str | None = Field(default=None, description="file beside mechanism.toml")

    def proposal(self, folder: Path, explorer: str) -> Proposal:
        """The change as a proposal; reads the patch file.

        Raises:
            MechanismError: the patch file is missing, or there is neither patch nor knob.
        """
        text = ""
        if self.patch is not None:
            path = folder / self.patch
            if not path.is_file():
                raise MechanismError(
                    f"{folder.name}: patch = {self.patch!r} is not a file in {folder}"
                )
            text = path.read_text()
        if not text and not self.knobs:
            raise MechanismError(f"{folder.name}: neither patch nor knobs", "Give one of them")
        return Proposal(
            mechanism=self.name,
            component=self.component,
            hypothesis=self.hypothesis,
            change=Change(patch=text, knobs=dict(self.knobs)),
            prediction=Prediction(self.predicted.speed_ratio, self.predicted.reason),
            kind=self.kind,
            explorer=explorer,
        )


def load_mechanism(folder: Path) -> Mechanism:
    """Reads `<folder>/mechanism.toml`.

    Raises:
        MechanismError: missing, malformed or unknown keys; names file and field.
    """
    path = folder / "mechanism.toml"
    try:
        return Mechanism.model_validate(tomllib.loads(path.read_text()))
    except FileNotFoundError:
        raise MechanismError(f"{path} does not exist") from None
    except tomllib.TOMLDecodeError as error:
        raise MechanismError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise MechanismError(f"{path}: {field}: {first['msg']}") from None


def load_catalogue(root: Path) -> list[tuple[Path, Mechanism]]:
    """Every mechanism folder below `root`, by priority, then name."""
    folders = sorted(p.parent for p in root.glob("*/mechanism.toml"))
    loaded = [(folder, load_mechanism(folder)) for folder in folders]
    return sorted(loaded, key=lambda item: (item[1].priority, item[1].name))
