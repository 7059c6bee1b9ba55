"""`python -m native_tools.shape_check CONFIG_DIR ...`: a target at its full shape on this device.

Weights are random (no checkpoint is needed), so sizes, times and the agreement of a verify step
with one-row steps are real; what is generated means nothing. Prints one JSON object a target.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from native_engine.drafters.load import load_drafter
from native_engine.drafters.protocol import Ask
from native_engine.errors import NativeEngineError
from native_engine.targets.load import load_target
from native_engine.targets.protocol import Rows, Target, TargetState

PROMPT_ROWS = 512
PREFILL_CHUNK = 256
STEPS = 8


class Device:
    """Clock and memory of one device."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name)
        self._cuda = self.device.type == "cuda"

    def clock(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return perf_counter()

    def milliseconds(self, work: Callable[[], object], repeats: int = 3) -> float:
        """Fastest of `repeats` after one that warms."""
        times = []
        for _ in range(repeats + 1):
            began = self.clock()
            work()
            times.append(1e3 * (self.clock() - began))
        return round(min(times[1:]), 2)

    def peak_gb(self) -> float | None:
        return round(torch.cuda.max_memory_allocated() / 1e9, 2) if self._cuda else None


def rows_of(target: Target, ids: list[list[int]], starts: list[int]) -> Rows:
    flat = torch.tensor([i for part in ids for i in part]).to(target.device)
    return Rows(flat, tuple(range(len(ids))), tuple(starts), tuple(map(len, ids)))


def read_prompt(target: Target, state: TargetState, prompts: list[list[int]]) -> None:
    for begin in range(0, PROMPT_ROWS, PREFILL_CHUNK):
        chunk = [ids[begin : begin + PREFILL_CHUNK] for ids in prompts]
        target.forward(rows_of(target, chunk, [begin] * len(chunk)), state)
        for slot in range(len(prompts)):
            state.commit(slot, min(PROMPT_ROWS, begin + PREFILL_CHUNK))


def decode(target: Target, state: TargetState, token: int) -> tuple[list[int], Tensor]:
    """STEPS one-row steps of slot 0 after the prompt: the tokens chosen and their logits."""
    chosen, logits = [token], []
    for step in range(STEPS):
        rows = rows_of(target, [chosen[-1:]], [PROMPT_ROWS + step])
        logits.append(target.logits(target.forward(rows, state).hidden))
        state.commit(0, PROMPT_ROWS + step + 1)
        chosen.append(int(logits[-1].argmax()))
    return chosen, torch.cat(logits)


def agreement(one_by_one: Tensor, together: Tensor) -> dict[str, Any]:
    """How far a verify step's logits are from those of one-row steps on the same tokens. A choice
    agrees when its logit is the other row's largest, whatever the id (ties)."""
    a, b = one_by_one.float(), together.float()
    choice = b.argmax(-1, keepdim=True)
    behind = (a.amax(-1, keepdim=True) - a.gather(1, choice)).squeeze(1)
    return {
        "rows": len(a),
        "same_choice": int((behind == 0).sum()),
        "furthest_behind": round(float(behind.max()), 5),
        "largest_difference": round(float((a - b).abs().max()), 5),
        "logit_scale": round(float(a.abs().max()), 3),
    }


@torch.inference_mode()
def check(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Load, prefill, decode, verify in part, at one sequence and at `args.batch`."""
    device = Device(args.device)
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[args.dtype]
    began = device.clock()
    target = load_target(folder, dtype, device.device, "dummy")
    found: dict[str, Any] = {
        "target": folder.name,
        "dtype": args.dtype,
        "load_s": round(device.clock() - began, 1),
        "weights_gb": device.peak_gb(),
    }
    slots, capacity = args.batch, PROMPT_ROWS + 2 * STEPS
    state = target.new_state(slots, capacity)
    generator = torch.Generator().manual_seed(0)
    shape = (slots, PROMPT_ROWS + STEPS)
    ids = torch.randint(0, target.vocab_size, shape, generator=generator).tolist()
    prompts, drafts = [i[:PROMPT_ROWS] for i in ids], [i[PROMPT_ROWS:] for i in ids]

    began = device.clock()
    read_prompt(target, state, prompts[:1])
    found["prefill_ms"] = round(1e3 * (device.clock() - began), 1)
    chosen, one_by_one = decode(target, state, drafts[0][0])

    def step(batch: int, rows: int, begin: list[list[int]]) -> Tensor:
        some = [part[:rows] for part in begin[:batch]]
        return target.logits(
            target.forward(rows_of(target, some, [PROMPT_ROWS] * batch), state).hidden
        )

    for slot in range(slots):
        state.reset(slot)
    read_prompt(target, state, prompts)
    found["verify_against_steps"] = agreement(one_by_one, step(1, STEPS, [chosen]))
    # Half of the draft is rejected: what follows must not depend on it.
    step(1, STEPS, [chosen[: STEPS // 2] + drafts[0][: STEPS // 2]])
    state.commit(0, PROMPT_ROWS + STEPS // 2)
    rest = rows_of(target, [chosen[STEPS // 2 : STEPS]], [PROMPT_ROWS + STEPS // 2])
    after = target.logits(target.forward(rest, state).hidden)
    found["after_rejection"] = agreement(one_by_one[STEPS // 2 :], after)
    state.reset(0)
    read_prompt(target, state, prompts[:1])
    for batch in sorted({1, slots}):
        for rows in (1, STEPS):
            name = f"step_ms_c{batch}_rows{rows}"
            found[name] = device.milliseconds(partial(step, batch, rows, drafts))
    if args.drafter:
        found |= draft_times(target, args, device, prompts)
    found["peak_gb"] = device.peak_gb()
    return found


def draft_times(
    target: Target, args: argparse.Namespace, device: Device, prompts: list[list[int]]
) -> dict[str, Any]:
    """A drafter of random weights reads the taps of a prompt and proposes."""
    drafter = load_drafter(args.drafter, target, target.dtype, target.device, "dummy")
    slots = len(prompts)
    state = target.new_state(slots, PROMPT_ROWS)
    drafter.open(slots, PROMPT_ROWS + 2 * STEPS)
    for slot in range(slots):
        drafter.reset(slot)
    for begin in range(0, PROMPT_ROWS, PREFILL_CHUNK):
        chunk = [ids[begin : begin + PREFILL_CHUNK] for ids in prompts]
        rows = rows_of(target, chunk, [begin] * slots)
        drafter.observe(rows, target.forward(rows, state, drafter.taps).taps)
        for slot in range(slots):
            state.commit(slot, begin + PREFILL_CHUNK)
    asks = [Ask(slot, [*ids, 1], drafter.draft_tokens) for slot, ids in enumerate(prompts)]
    tokens = drafter.propose(asks[:1]).tokens[0]
    return {
        "drafter": args.drafter,
        "draft_tokens": len(tokens),
        "draft_ms_c1": device.milliseconds(lambda: drafter.propose(asks[:1])),
        f"draft_ms_c{slots}": device.milliseconds(lambda: drafter.propose(asks)),
    }


def main(argv: list[str] | None = None) -> int:
    """Exit 2 with one line for a folder, a drafter or a device that will not do."""
    parser = argparse.ArgumentParser(prog="native_tools.shape_check", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--drafter", help="published name or a checkpoint folder")
    args = parser.parse_args(argv)
    for folder in args.folders:
        try:
            print(json.dumps(check(folder, args)), flush=True)
        except NativeEngineError as error:
            print(f"shape_check: {error}", file=sys.stderr)
            return 2
        if args.device == "cuda":
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
