"""Prometheus text under SGLang's metric names."""

from __future__ import annotations

from native_engine.server.state import ServerState


def prometheus_text(state: ServerState) -> str:
    """Text exposition format 0.0.4."""
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
