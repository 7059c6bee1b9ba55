"""The raw data of a measurement: what was asked, what came back, and when. JSON in and out.

A recording is kept whole (every output id, every arrival), so that any estimator can be run on it
again and the verifier can force exactly the tokens that were timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engines.answers import Answer, GenerationRequest
from farm.bench.errors import MeasurementError
from farm.bench.running_clock import running_seconds

SCHEMA = "specfarm-recording-1"
PREFILL_TURN = -1


@dataclass(frozen=True)
class Slice:
    """One span in which the arm ran, in wall seconds since its request was sent. `turn` pairs it
    with the other arms' slices of the same turn; `PREFILL_TURN` is the span up to the first token.
    """

    turn: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Run:
    """One timed answer of one arm.

    Arrival i (one per streamed event) came `wall_s[i]` seconds after the request was sent, of
    which the arm ran `running_s[i]` seconds, and brought the output to `tokens[i]` tokens.
    `ttft_s` is the running time to the first token (prefill), which no ratio contains.
    `step_rows` are the rows each step verified, where the engine states them (its own claim).
    `block` numbers the block of concurrent requests it belongs to, `sent_s` is when it was sent,
    in seconds after the block began; None where requests were asked one at a time.
    """

    arm: str
    request: int
    repeat: int
    launch: int
    output_ids: tuple[int, ...]
    finish_reason: str
    verify_steps: int | None
    ttft_s: float
    wall_s: tuple[float, ...]
    running_s: tuple[float, ...]
    tokens: tuple[int, ...]
    slices: tuple[Slice, ...] = ()
    step_rows: tuple[int, ...] | None = None
    block: int | None = None
    sent_s: float = 0.0


@dataclass(frozen=True)
class Recording:
    """Everything one `measure` saw. `trees` maps arm to tree hash; `plan` is the plan as JSON."""

    mode: str
    requests: tuple[GenerationRequest, ...]
    runs: tuple[Run, ...]
    trees: dict[str, str]
    seed: int
    seconds: float
    plan: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def arms(self) -> tuple[str, ...]:
        return tuple(self.trees)

    def answers(self, arm: str) -> tuple[Answer, ...]:
        """The timed answers of an arm, in the order they were timed (for token forcing)."""
        return tuple(
            Answer(
                request=self.requests[run.request],
                output_ids=run.output_ids,
                finish_reason=run.finish_reason,
                arrivals=tuple(zip(run.wall_s, run.tokens, strict=True)),
                verify_steps=run.verify_steps,
            )
            for run in self.runs
            if run.arm == arm
        )

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


def run_from_answer(
    answer: Answer,
    *,
    arm: str,
    request: int,
    repeat: int,
    launch: int = 0,
    spans: Sequence[tuple[int, float, float]] = (),
    block: int | None = None,
    block_start: float = 0.0,
) -> Run:
    """A run from what the client returned.

    Args:
        spans: (turn, resumed, paused) on the client's clock while this answer was under way;
            empty means that the arm was never stopped.
        block, block_start: the block of concurrent requests, and when it began.

    Raises:
        MeasurementError: the answer carries no arrivals, or they are not ascending.
    """
    times = [time for time, _ in answer.arrivals]
    counts = tuple(count for _, count in answer.arrivals)
    if not times:
        raise MeasurementError(
            f"arm {arm}, prompt {answer.request.id}: the answer has no arrivals",
            "Only streamed answers can be timed.",
        )
    if any(b < a for a, b in itertools.pairwise(times)) or any(
        b < a for a, b in itertools.pairwise(counts)
    ):
        raise MeasurementError(
            f"arm {arm}, prompt {answer.request.id}: arrivals go backwards",
            "The client must stamp events in order and count tokens up.",
        )
    sent = answer.sent_s
    slices = tuple(Slice(turn, start - sent, end - sent) for turn, start, end in spans)
    wall = tuple(time - sent for time in times)
    # The arm may have been running before the request was sent; only time since then counts.
    intervals = [(max(s.start_s, 0.0), s.end_s) for s in slices if s.end_s > 0.0]
    running = tuple(float(x) for x in running_seconds(wall, intervals)) if intervals else wall
    rows = answer.meta.get("step_rows")
    return Run(
        arm=arm,
        request=request,
        repeat=repeat,
        launch=launch,
        output_ids=answer.output_ids,
        finish_reason=answer.finish_reason,
        verify_steps=answer.verify_steps,
        ttft_s=running[0],
        wall_s=wall,
        running_s=running,
        tokens=counts,
        slices=slices,
        step_rows=tuple(int(x) for x in rows) if isinstance(rows, list | tuple) else None,
        block=block,
        sent_s=0.0 if block is None else sent - block_start,
    )


def merge_launches(recordings: Sequence[Recording]) -> Recording:
    """One recording out of several of the same prompts and arms; run.launch counts them up.

    Raises:
        MeasurementError: nothing to merge.
    """
    if not recordings:
        raise MeasurementError("no recording was given", "Measure at least once.")
    first = recordings[0]
    requests: list[GenerationRequest] = []
    index: dict[GenerationRequest, int] = {}
    runs: list[Run] = []
    base = 0
    trees: dict[str, str] = {}
    for recording in recordings:
        trees.update(recording.trees)
        top = base
        for request in recording.requests:
            if request not in index:
                index[request] = len(requests)
                requests.append(request)
        for run in recording.runs:
            place = index[recording.requests[run.request]]
            runs.append(replace(run, request=place, launch=base + run.launch))
            top = max(top, base + run.launch + 1)
        base = top
    return Recording(
        mode=first.mode,
        requests=tuple(requests),
        runs=tuple(runs),
        trees=trees,
        seed=first.seed,
        seconds=sum(r.seconds for r in recordings),
        plan=first.plan,
        notes=tuple(note for r in recordings for note in r.notes),
    )


def recording_from_json(data: Mapping[str, Any], where: str = "recording") -> Recording:
    """Inverse of `Recording.to_json`.

    Raises:
        MeasurementError: names the missing or malformed field as `<where>.<field>`.
    """
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        raise MeasurementError(f"{where}.schema is not {SCHEMA!r}", "Measure again.")
    reader = _Reader(where)
    requests = tuple(
        reader.build(GenerationRequest, item, f"requests[{i}]", ("prompt_ids", "stop_token_ids"))
        for i, item in enumerate(reader.items(data, "requests"))
    )
    runs = tuple(
        _run(reader, item, f"runs[{i}]", len(requests))
        for i, item in enumerate(reader.items(data, "runs"))
    )
    rest = {key: value for key, value in data.items() if key not in ("schema", "requests", "runs")}
    for key in ("mode", "trees", "seed", "seconds"):
        if key not in rest:
            raise MeasurementError(f"{where}.{key} is missing", "Measure again.")
    if not isinstance(rest["trees"], dict):
        raise MeasurementError(f"{where}.trees is not a table of arm to hash", "Measure again.")
    rest["notes"] = tuple(rest.get("notes", ()))
    built: Recording = reader.build(Recording, {**rest, "requests": requests, "runs": runs}, "", ())
    return built


def _run(reader: _Reader, item: Any, where: str, n_requests: int) -> Run:
    item = dict(item) if isinstance(item, Mapping) else item
    if isinstance(item, dict):
        item["slices"] = tuple(
            reader.build(Slice, s, f"{where}.slices[{i}]", ())
            for i, s in enumerate(item.get("slices", ()))
        )
        if item.get("step_rows") is not None:
            item["step_rows"] = tuple(item["step_rows"])
    run: Run = reader.build(Run, item, where, ("output_ids", "wall_s", "running_s", "tokens"))
    if not 0 <= run.request < n_requests:
        raise MeasurementError(f"{reader.where}.{where}.request is out of range", "Measure again.")
    if not len(run.wall_s) == len(run.running_s) == len(run.tokens) > 0:
        raise MeasurementError(
            f"{reader.where}.{where}: wall_s, running_s and tokens differ in length or are empty",
            "Measure again.",
        )
    return run


@dataclass(frozen=True)
class _Reader:
    where: str

    def items(self, data: Mapping[str, Any], key: str) -> Sequence[Any]:
        value = data.get(key)
        if not isinstance(value, list | tuple):
            raise MeasurementError(f"{self.where}.{key} is missing or no list", "Measure again.")
        return value

    def build(self, kind: Any, item: Any, where: str, tuples: Sequence[str]) -> Any:
        path = f"{self.where}.{where}" if where else self.where
        if not isinstance(item, Mapping):
            raise MeasurementError(f"{path} is no table", "Measure again.")
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in item.items()}
        for key in tuples:
            if not isinstance(values.get(key), tuple):
                raise MeasurementError(f"{path}.{key} is missing or no list", "Measure again.")
        try:
            return kind(**values)
        except TypeError as error:
            raise MeasurementError(f"{path}: {error}", "Measure again.") from error
