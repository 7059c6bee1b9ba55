"""The training loop: anchors, one pass over all blocks, AdamW; resumable exactly.

What step i reads and samples depends on i and the seed alone, so a state is weights, moments and
the number of steps. Nothing in a step waits for the device; reports do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engines.training.blocks import make_blocks, sample_anchors
from engines.training.checkpoint import load_state, save_state
from engines.training.drafter_layers import DraftLayer
from engines.training.drafter_model import DrafterModel
from engines.training.errors import TrainingError
from engines.training.features import CachedFeatures, FrozenTarget
from engines.training.losses import PARTS, Losses, drafter_losses
from engines.training.optimisers import make_optimisers, step_all
from engines.training.options import TrainOptions
from engines.training.pace import MEASURED, SETTLING, Pace


@dataclass(frozen=True)
class Places:
    """Where a run writes. `log`: one JSON line a report. Seconds between states and reports."""

    folder: Path
    log: Path | None = None
    state_every_s: float = 60.0
    report_every_s: float = 5.0


@dataclass
class Progress:
    """`spent_s`: seconds of training, those before a resume included. `last`: latest report."""

    step: int = 0
    spent_s: float = 0.0
    last: dict[str, Any] = field(default_factory=dict)


class Trainer:
    """Trains `model` in place; `exported` are the weights to keep (averaged, if asked for)."""

    def __init__(
        self,
        options: TrainOptions,
        model: DrafterModel,
        target: FrozenTarget,
        features: CachedFeatures,
        places: Places,
        say: Callable[[str], None] = print,
    ) -> None:
        self.options, self.model, self.target, self.features = options, model, target, features
        self.places, self.say = places, say
        self.device = target.device
        self.pace, self.progress = Pace.of(options), Progress()
        self.optimisers = make_optimisers(model, options)
        self.averaged = [p.detach().clone() for p in model.parameters()] if options.ema else []
        self._generator = torch.Generator(self.device)
        if options.compile:
            for layer in model.layers:
                assert isinstance(layer, DraftLayer)
                layer.before = torch.compile(layer.before)  # type: ignore[method-assign]
                layer.after = torch.compile(layer.after)  # type: ignore[method-assign]

    def run(self, stop_at: int | None = None) -> None:
        """Train to the end (or to step `stop_at`, state saved). Resumes where a state is found."""
        self._resume()
        began = reported = saved = time.monotonic()
        before_s, first = self.progress.spent_s, self.progress.step
        sums, counted = self._zeros(), 0
        measuring = began
        while not self.pace.done(self.progress.step) and self.progress.step != stop_at:
            losses, rows = self._step(self.progress.step)
            seen = (losses.parts, losses.hits, losses.tries, rows)
            sums = [a + b for a, b in zip(sums, seen, strict=True)]
            self.progress.step += 1
            counted += 1
            now = time.monotonic()
            if self.pace.measures and self.progress.step - first in (SETTLING, SETTLING + MEASURED):
                measuring, began_measuring = self._synchronised(), measuring
                self.progress.spent_s = before_s + measuring - began
                if self.progress.step - first == SETTLING + MEASURED:
                    rate = (measuring - began_measuring) / MEASURED
                    self.pace.fix(self.progress.step, rate, self.progress.spent_s)
            if now - reported > self.places.report_every_s or self.pace.done(self.progress.step):
                now = self._synchronised()
                self.progress.spent_s = before_s + now - began
                self._report(sums, counted, now - reported)
                sums, counted, reported = self._zeros(), 0, now
            if now - saved > self.places.state_every_s:
                self._save()
                saved = time.monotonic()
        if not self.pace.done(self.progress.step):
            self.progress.spent_s = before_s + self._synchronised() - began
            self._save()

    def exported(self) -> dict[str, Tensor]:
        """Weights by published name, FP32."""
        names = [name for name, _ in self.model.named_parameters()]
        values = self.averaged or [p.detach().clone() for p in self.model.parameters()]
        return self.model.published(dict(zip(names, values, strict=True)))

    def _step(self, step: int) -> tuple[Losses, Tensor]:
        """One optimiser step; its losses, and the tokens of its batch."""
        options, config = self.options, self.model.config
        batch, features = self.features.at(step)
        self._generator.manual_seed(options.seed * 1_000_003 + step)
        anchors, fresh = sample_anchors(batch, options.anchors, self._generator)
        blocks = make_blocks(
            batch, anchors, fresh, config.block_size, config.max_drafts, config.mask_token_id
        )
        half = self.target.dtype == torch.bfloat16
        with torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext():
            hidden = self.model(features.taps, anchors, self.target.embed(blocks.ids))
            rows = self.model.drafting(hidden)
            losses = drafter_losses(
                self.model, rows, blocks, self.target.head, features.final, options
            )
        losses.total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), options.clip)
        step_all(self.optimisers, self.pace.lr(step))
        if self.averaged:
            # Early weights are forgotten quickly.
            decay = min(options.ema, (step + 1) / (step + 10))
            current = [p.detach() for p in self.model.parameters()]
            torch._foreach_lerp_(self.averaged, current, 1 - decay)
        return losses, batch.lengths.sum()

    def _report(self, sums: list[Tensor], steps: int, seconds: float) -> None:
        parts, hits, tries = (s.tolist() for s in sums[:3])
        tokens = int(sums[3])
        step, spent = self.progress.step, self.progress.spent_s
        self.pace.keep(step, seconds / steps, spent)
        total = self.pace.total
        means = {name: value / steps for name, value in zip(PARTS, parts, strict=True)}
        self.progress.last = {
            "step": step,
            "steps": total,
            "seconds": round(spent, 2),
            **{name: round(value, 5) for name, value in means.items()},
            "hits": [round(hit / max(1, n), 4) for hit, n in zip(hits, tries, strict=True)],
            "tokens_per_s": round(tokens / seconds),
            "ms_per_step": round(1000 * seconds / steps, 2),
            "lr": self.pace.lr(step),
        }
        if not all(value == value and abs(value) != float("inf") for value in means.values()):
            raise TrainingError(
                f"step {step}: the loss is not a number", "Lower --lr or --clip; delete the state"
            )
        left = "?" if total is None else f"{(total - step) * seconds / steps / 60:.1f}"
        self.say(
            f"step {step}/{total or '?'} "
            + " ".join(f"{name} {value:.3f}" for name, value in means.items() if value)
            + f" hits {'/'.join(f'{100 * h:.0f}' for h in self.progress.last['hits'])}"
            + f" {self.progress.last['tokens_per_s']} tokens/s"
            + f" {self.progress.last['ms_per_step']} ms/step, {left} min left"
        )
        if self.places.log is not None:
            self.places.log.parent.mkdir(parents=True, exist_ok=True)
            with self.places.log.open("a") as file:
                file.write(json.dumps(self.progress.last) + "\n")

    def _zeros(self) -> list[Tensor]:
        slots, device = self.model.config.max_drafts, self.device
        whole = torch.zeros(slots, dtype=torch.int64, device=device)
        parts = torch.zeros(len(PARTS), device=device)
        return [parts, whole, whole, torch.zeros((), dtype=torch.int64, device=device)]

    def _synchronised(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.monotonic()

    def _save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "averaged": self.averaged,
            "tap_scale": self.model.tap_scale,
            "step": self.progress.step,
            "spent_s": self.progress.spent_s,
            "total": self.pace.total,
        }
        save_state(self.places.folder, self.options, state)

    def _resume(self) -> None:
        state = load_state(self.places.folder, self.options, self.device)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.model.tap_scale.copy_(state["tap_scale"])
        for optimiser, held in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(held)
        for ours, average in zip(self.averaged, state["averaged"], strict=True):
            ours.copy_(average)
        self.progress = Progress(state["step"], state["spent_s"])
        self.pace.total = state["total"]
        self.say(f"resumed at step {self.progress.step}")
