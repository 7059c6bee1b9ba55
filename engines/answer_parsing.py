"""From an engine's /generate replies to an `Answer`: ids, counts and order are checked here."""

from __future__ import annotations

from typing import Any

from engines.answers import Answer, GenerationRequest
from engines.errors import BadRequest, EngineError, EngineProtocolError
from engines.json_fields import count, counts, parse_object, printable, table, token_ids

CUT = "cut"


def generate_payload(request: GenerationRequest, *, stream: bool) -> dict[str, Any]:
    """The /generate body of a greedy request."""
    sampling: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": request.max_new_tokens}
    if request.ignore_eos:
        sampling["ignore_eos"] = True
    if request.stop_token_ids:
        sampling["stop_token_ids"] = list(request.stop_token_ids)
    if request.stop:
        sampling["stop"] = list(request.stop)
    return {
        "input_ids": list(request.prompt_ids),
        "sampling_params": sampling,
        "stream": stream,
    }


def refusal(status: object, message: str) -> EngineError:
    """What a server answered in place of what was asked: BadRequest for a 4xx."""
    known = status if isinstance(status, int) else None
    bad = known is not None and 400 <= known < 500
    error: EngineError = BadRequest(message) if bad else EngineProtocolError(message)
    error.status = known
    return error


def raise_error_event(data: dict[str, Any]) -> None:
    """An `error` object in place of an answer becomes a typed error."""
    error = data.get("error")
    if error is None:
        return
    code = error.get("code") if isinstance(error, dict) else None
    message = printable(error.get("message", error) if isinstance(error, dict) else error)
    raise refusal(code, f"/generate: the engine reported an error: {message}")


def finish_type(meta: dict[str, Any], what: str) -> str | None:
    """`stop` or `length`; None in mid-stream; an abort becomes an error."""
    reason = meta.get("finish_reason")
    if reason is None:
        return None
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if kind == "abort":
        detail = reason if isinstance(reason, dict) else {}
        message = f"{what}: aborted: {printable(detail.get('message', ''))}"
        raise refusal(detail.get("status_code"), message)
    if kind not in ("stop", "length"):
        raise EngineProtocolError(f"{what}: finish_reason is {reason!r:.120}")
    return str(kind)


def finished_answer(
    request: GenerationRequest,
    ids: tuple[int, ...],
    meta: dict[str, Any],
    sent_s: float,
    arrivals: tuple[tuple[float, int], ...],
) -> Answer:
    """The answer of a complete reply.

    Raises:
        EngineProtocolError: unfinished, miscounted, longer than was asked for, or to another
            prompt than was sent.
    """
    what = f"/generate {request.id}"
    kind = finish_type(meta, what)
    if kind is None:
        raise EngineProtocolError(f"{what}: ended without a finish_reason")
    claimed = count(meta, "completion_tokens", what)
    if claimed != len(ids):
        raise EngineProtocolError(f"{what}: {len(ids)} ids, completion_tokens {claimed}")
    if len(ids) > request.max_new_tokens:
        raise EngineProtocolError(
            f"{what}: {len(ids)} tokens, max_new_tokens {request.max_new_tokens}"
        )
    prompt = meta.get("prompt_tokens")
    if prompt is not None and prompt != len(request.prompt_ids):
        raise EngineProtocolError(
            f"{what}: prompt_tokens {prompt!r:.40}, sent were {len(request.prompt_ids)}"
        )
    steps = None if meta.get("spec_verify_ct") is None else count(meta, "spec_verify_ct", what)
    counts(meta, "step_rows", what)
    return Answer(request, ids, kind, sent_s, arrivals, steps, meta)


def cut_answer(
    request: GenerationRequest,
    ids: tuple[int, ...],
    sent_s: float,
    arrivals: tuple[tuple[float, int], ...],
) -> Answer:
    """The beginning of an answer the client hung up on; `cut` is no finish reason of an engine, so
    nothing that checks whole answers lets it pass for one."""
    return Answer(request, ids, CUT, sent_s, arrivals)


class StreamAssembler:
    """Joins streamed events into one answer, whichever way the engine streams.

    SGLang's `output_ids` are cumulative by default and incremental with a flag; its
    `completion_tokens` is cumulative in both. Tokens once streamed may not change.
    """

    def __init__(self, request: GenerationRequest) -> None:
        self._what = f"/generate {request.id}"
        self._cumulative: bool | None = None
        self.ids: tuple[int, ...] = ()
        self.meta: dict[str, Any] = {}

    def add(self, body: bytes) -> int:
        """Take in one event's JSON; output tokens so far."""
        data = parse_object(body, self._what)
        raise_error_event(data)
        self.meta = table(data, "meta_info", self._what)
        new = token_ids(data, "output_ids", self._what)
        total = count(self.meta, "completion_tokens", self._what)
        known = len(self.ids)
        cumulative = total == len(new)
        incremental = total == known + len(new)
        if not (cumulative or incremental):
            raise EngineProtocolError(
                f"{self._what}: {len(new)} ids after {known}, completion_tokens {total}"
            )
        if cumulative != incremental:
            if self._cumulative not in (None, cumulative):
                raise EngineProtocolError(f"{self._what}: mixes cumulative and incremental ids")
            self._cumulative = cumulative
        if incremental and not cumulative:
            self.ids += new
        elif new[:known] != self.ids:
            raise EngineProtocolError(f"{self._what}: changed tokens that it had already sent")
        else:
            self.ids = new
        return len(self.ids)
