"""evaluate, verify, bench, serve, stop, ui: one engine at a time."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from settings.errors import SpecfarmError

SettingName = Annotated[str, typer.Argument(help="a folder name below settings/, or a path")]
Port = Annotated[int, typer.Option(help="on 127.0.0.1", min=1, max=65535)]
Json = Annotated[bool, typer.Option("--json", help="JSON lines instead of text")]


def register(app: typer.Typer) -> None:
    for command in (evaluate, verify, bench, serve, stop, ui):
        app.command()(command)
    app.command(
        "kernels",
        help="The engine's CUDA kernels: list, check, bench, w12-pack (see kernels --help).",
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "help_option_names": [],
        },
    )(kernels)


def evaluate(
    setting: SettingName,
    patch: Annotated[
        list[Path] | None, typer.Option(help="a unified diff on the stock tree; may be repeated")
    ] = None,
    tree: Annotated[Path | None, typer.Option(help="a folder: the whole candidate tree")] = None,
    commit: Annotated[str | None, typer.Option(help="a commit of the tree store")] = None,
    as_json: Json = False,
) -> int:
    """Take candidates through the whole gate; exit code 1 unless every one is accepted."""
    from farm.cli.terminal import terminal
    from farm.report.evaluation import evaluation_text
    from farm.search.evaluate import evaluate as through_the_gate
    from farm.search.evaluate import from_commit, from_folder, from_patch

    given = [
        name
        for name, value in (("--patch", patch), ("--tree", tree), ("--commit", commit))
        if value
    ]
    if len(given) != 1:
        what = "none was given" if not given else f"{' and '.join(given)} were given"
        raise SpecfarmError(f"evaluate: {what}", "Give exactly one of --patch, --tree, --commit")
    candidates = [from_patch(path) for path in patch or ()]
    candidates += [from_folder(tree)] if tree else []
    candidates += [from_commit(commit)] if commit else []
    results = through_the_gate(setting, candidates, terminal(as_json))
    if as_json:
        for result in results:
            print(json.dumps({"event": "verdict", **asdict(result)}))
    else:
        print(evaluation_text(results), end="")
    return 0 if all(r.decision.verdict.value == "accepted" for r in results) else 1


def verify(
    setting: SettingName,
    outputs: Annotated[Path, typer.Option(help="JSON lines, see docs/losslessness.md")],
    stock: Annotated[
        str | None, typer.Option(help="URL of a served stock (arm ar); else one is launched here")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="A/A calibration to judge by; else the setting's latest")
    ] = None,
    as_json: Json = False,
) -> int:
    """Token-force given outputs on the stock target; exit code 1 when they are not lossless."""
    from verifier.verify_outputs import main as verify_main

    arguments = [setting, "--outputs", str(outputs)] + (["--json"] if as_json else [])
    for name, value in (("--stock", stock), ("--calibration", calibration)):
        arguments += [] if value is None else [name, str(value)]
    return verify_main(arguments)


def bench(
    setting: SettingName,
    arm: Annotated[str, typer.Argument(help="ar, stock or final")],
    label: Annotated[str | None, typer.Option(help="default: ARM-1")] = None,
    out: Annotated[Path | None, typer.Option(help="default: work/bench/LABEL.json")] = None,
    gpu: Annotated[str, typer.Option(help="cpu or a GPU index")] = "cpu",
) -> int:
    """Launch an arm, warm it, time it over the setting's prompts."""
    from farm.bench.cli import arm_of
    from farm.bench.cli import main as bench_main

    if label is not None and arm_of(label) != arm:
        raise SpecfarmError(
            f"--label: {label!r} names the arm {arm_of(label)}, not {arm}",
            f"Begin it with {arm}-",
        )
    arguments = [setting, label or f"{arm}-1", gpu] + (["--out", str(out)] if out else [])
    return bench_main(arguments)


def serve(
    setting: SettingName,
    arm: Annotated[str, typer.Argument(help="final, stock or ar")],
    gpu: Annotated[str, typer.Option(help="cpu or a GPU index")] = "cpu",
    port: Port = 30000,
    host: Annotated[
        str, typer.Option(help="address to listen on; anyone who reaches it can ask")
    ] = "127.0.0.1",
    other_hardware: Annotated[
        bool,
        typer.Option(
            "--other-hardware", help="on other hardware than setting and certificate name"
        ),
    ] = False,
    revoked: Annotated[
        bool, typer.Option("--revoked", help="a final whose certificate was revoked")
    ] = False,
) -> int:
    """Serve an engine in the foreground (SGLang's and OpenAI's HTTP surface)."""
    from engines.serve import main as serve_main

    arguments = [setting, arm, gpu, str(port), "--host", host]
    arguments += ["--other-hardware"] if other_hardware else []
    arguments += ["--revoked"] if revoked else []
    return serve_main(arguments)


def stop(
    port: Annotated[int, typer.Argument(help="the port `serve` was given", min=1, max=65535)],
) -> int:
    """End the engine that serves on PORT, and only that one."""
    from engines.stop import main as stop_main

    return stop_main([str(port)])


def ui(port: Port = 5000) -> int:
    """Open the MLflow views of all campaigns (Ctrl-C ends it)."""
    from farm.tracking.store import store_uri, tracking_root

    root = tracking_root()
    root.mkdir(parents=True, exist_ok=True)
    print(f"MLflow on http://127.0.0.1:{port} (about half a minute to start); Ctrl-C ends it")
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store_uri(root)]
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)


def kernels(context: typer.Context) -> int:
    """Passes the rest of the line on: the tool also runs where nothing else is installed."""
    from kernel_tuner.kernels.__main__ import main as kernels_main

    return kernels_main(context.args)
