"""/health, /health_generate, /server_info, /flush_cache, /metrics."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from native_engine.config import ServedModel
from native_engine.decode import PhaseTimes
from native_engine.requests import GenerateRequest
from native_engine.server.calls import results, submit
from native_engine.server.state import Counters, ServerState

STALLED_S = 30.0
HEALTH_DEADLINE_S = 20.0
_COUNTS = ("steps", "rows", "drafted", "committed", "prompt_tokens")


def add_admin_api(app: FastAPI, state: ServerState) -> None:
    """Route what launchers and monitors ask for."""
    scheduler = state.scheduler

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if scheduler.alive else 503)

    @app.get("/health_generate")
    async def health_generate(http: Request) -> Response:
        """Generate one token; while others are served, recent progress is proof enough."""
        if any(scheduler.load):
            stalled = time.monotonic() - scheduler.last_progress > STALLED_S
            return Response(status_code=503 if stalled or not scheduler.alive else 200)
        calls = submit(state, (GenerateRequest(f"health-{uuid.uuid4().hex}", (0,), 1),))
        try:
            await asyncio.wait_for(results(calls, http), HEALTH_DEADLINE_S)
        except TimeoutError:
            return Response(status_code=503)
        return Response(status_code=200)

    @app.get("/server_info")
    @app.get("/get_server_info")
    async def server_info() -> JSONResponse:
        return JSONResponse(describe(state))

    @app.api_route("/flush_cache", methods=["GET", "POST"])
    async def flush_cache() -> Response:
        """Forget reusable prefixes and reset the counters; 400 while requests run."""
        if any(scheduler.load):
            return PlainTextResponse("requests are running; flush when idle", status_code=400)
        if state.batch is not None:
            state.batch.flush()
        state.counters = Counters()
        scheduler.engine.decoder.times = PhaseTimes()
        return PlainTextResponse("Cache flushed.")

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(
            prometheus_text(state), media_type="text/plain; version=0.0.4; charset=utf-8"
        )


def describe(state: ServerState) -> dict[str, Any]:
    """What is served, how, and where the time went since the last flush. `dtype` is what is
    computed in; `weights_dtype` differs where the checkpoint is quantised."""
    scheduler = state.scheduler
    model = scheduler.engine.model_config
    quantised = isinstance(model, ServedModel) and model.quantised
    return {
        **asdict(state.facts),
        "engine": "native",
        "replayed": False,
        "engine_config": asdict(state.knobs),
        "weights_dtype": "fp8" if quantised else state.facts.dtype,
        "model_config": asdict(model),
        "max_total_num_tokens": state.facts.max_total_tokens,
        "component_times": component_times(scheduler.engine.decoder.times),
        "internal_states": [
            {
                "avg_spec_accept_length": state.counters.accept_length,
                "requests": state.counters.requests,
                "effective_max_running_requests_per_dp": state.facts.max_running_requests,
            }
        ],
        **({"replayed": True} if state.replayed else {}),
        **({"slots": state.batch.gauges()} if state.batch is not None else {}),
    }


def component_times(times: PhaseTimes) -> dict[str, Any]:
    """Seconds per component and their counts since the last flush. `layers` is the decoder's
    forward as a whole; `python -m native_tools.bench` splits it by operator."""
    return {
        "unit": "s",
        **{name: getattr(times, name) for name in _COUNTS},
        "components": {
            "prefill": times.prefill_s,
            "layers": times.forward_s,
            "lm_head": times.head_s,
            "draft": times.draft_s,
            "accept": times.accept_s,
        },
    }


def prometheus_text(state: ServerState) -> str:
    """Text exposition format 0.0.4, under SGLang's metric names."""
    running, waiting = state.scheduler.load
    counters, times = state.counters, state.scheduler.engine.decoder.times
    rows: list[tuple[str, str, float]] = [
        ("num_running_reqs", "gauge", running),
        ("num_queue_reqs", "gauge", waiting),
        ("num_requests_total", "counter", counters.requests),
        ("num_failed_requests_total", "counter", counters.failed),
        ("num_aborted_requests_total", "counter", counters.aborted),
        ("prompt_tokens_total", "counter", counters.prompt_tokens),
        ("generation_tokens_total", "counter", counters.output_tokens),
        ("spec_verify_calls_total", "counter", counters.verify_steps),
        ("spec_accept_length", "gauge", counters.accept_length),
        ("decode_seconds_total", "counter", times.forward_s + times.head_s),
        ("draft_seconds_total", "counter", times.draft_s),
    ]
    if state.batch is not None:
        rows.append(("replayed", "gauge", int(state.replayed)))
        rows.extend((gauge, "gauge", value) for gauge, value in state.batch.gauges().items())
    name = state.facts.served_model_name.replace("\\", "\\\\").replace('"', '\\"')
    lines = []
    for metric, kind, value in rows:
        lines.append(f"# TYPE sglang:{metric} {kind}")
        lines.append(f'sglang:{metric}{{model_name="{name}"}} {value}')
    return "\n".join(lines) + "\n"
