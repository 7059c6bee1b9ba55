"""What token forcing costs beside generating: `python -m farm.bench.forcing_cost SETTING`.

Stock without speculation answers each prompt, one after the other, and is asked to force that
answer right after: the two times of an answer lie seconds apart, so drift of the machine meets
both. Wall clock of the client, HTTP and parsing included. Forcing is what `specfarm verify` does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from engines.answers import GenerationRequest
from engines.forcing import ForcedPosition, force
from engines.http_client import EngineClient
from engines.launcher import launch
from engines.resolve import import_stock, store_for
from farm.bench.errors import MeasurementError
from farm.search.prompts import as_requests
from farm.timing_lock import timing_lock
from settings.errors import SpecfarmError
from settings.loading import load_setting
from settings.one_line_parser import OneLineParser
from settings.prompts import search_prompts
from settings.schema import Setting
from settings.weights import ensure_target
from verifier.forced import TOP_K

_WARM_TOKENS = 16


@dataclass(frozen=True)
class Cost:
    """One answer: its prompt and output tokens, seconds to generate and to force it, and how many
    of its tokens are not stock's best when forced (near-ties)."""

    prompt_tokens: int
    tokens: int
    generate_s: float
    force_s: float
    not_best: int


@dataclass(frozen=True)
class CostReport:
    """`ratio` is seconds of forcing over seconds of generating, all answers together."""

    setting: str
    tree_hash: str
    answers: tuple[Cost, ...]

    @property
    def generate_s(self) -> float:
        return sum(cost.generate_s for cost in self.answers)

    @property
    def force_s(self) -> float:
        return sum(cost.force_s for cost in self.answers)

    @property
    def ratio(self) -> float:
        return self.force_s / self.generate_s


def forcing_cost(setting_name: str, answers: int, tokens: int) -> CostReport:
    """Launches stock's `ar` arm and measures.

    Raises:
        MeasurementError: the setting's prompts leave no room for so many tokens.
        EngineError: stock does not start or serve.
    """
    setting = load_setting(setting_name)
    model_dir = ensure_target(setting)
    requests = _requests(setting, as_requests(setting, search_prompts(setting, model_dir)), tokens)
    store = store_for(setting)
    tree = import_stock(setting, store)
    path = store.checkout(tree.commit)
    with (
        timing_lock("the cost of forcing"),
        launch(setting, "ar", path, tree.tree_hash, model_dir) as engine,
    ):
        client = engine.client()
        _measure(client, replace(requests[0], max_new_tokens=_WARM_TOKENS))
        found = tuple(_measure(client, requests[n % len(requests)]) for n in range(answers))
    return CostReport(setting.name, tree.tree_hash, found)


def _requests(
    setting: Setting, requests: Sequence[GenerationRequest], tokens: int
) -> list[GenerationRequest]:
    room = setting.serving.max_total_tokens - tokens
    found = [
        replace(request, max_new_tokens=tokens, ignore_eos=True)
        for request in requests
        if len(request.prompt_ids) <= room
    ]
    if not found:
        raise MeasurementError(
            f"no search prompt of {setting.name} leaves room for {tokens} tokens in "
            f"serving.max_total_tokens = {setting.serving.max_total_tokens}",
            "Give fewer --tokens.",
        )
    return found


def _measure(client: EngineClient, request: GenerationRequest) -> Cost:
    start = time.monotonic()
    answer = client.generate(request)
    middle = time.monotonic()
    positions = force(client, request.prompt_ids, answer.output_ids, top_k=TOP_K)
    end = time.monotonic()
    return Cost(
        prompt_tokens=len(request.prompt_ids),
        tokens=len(answer.output_ids),
        generate_s=middle - start,
        force_s=end - middle,
        not_best=sum(_below_best(position) for position in positions[:-1]),
    )


def _below_best(position: ForcedPosition) -> bool:
    return position.token_logit is None or position.token_logit < position.top[0][1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 with the reason on stderr."""
    parser = OneLineParser(prog="python -m farm.bench.forcing_cost", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("--answers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512, help="of each answer")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(arguments)
    if options.answers < 1 or options.tokens < 1:
        parser.error("--answers and --tokens: 1 or more")
    try:
        report = forcing_cost(options.setting, options.answers, options.tokens)
    except SpecfarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps({**asdict(report), "ratio": report.ratio}) if options.json else _text(report))
    return 0


def _text(report: CostReport) -> str:
    lines = [f"{report.setting}, stock {report.tree_hash[:12]}: AR, then forcing, answer by answer"]
    for cost in report.answers:
        lines.append(
            f"  {cost.prompt_tokens:5d} + {cost.tokens:4d} tokens: generated in "
            f"{cost.generate_s:7.2f} s, forced in {cost.force_s:6.2f} s "
            f"(x{cost.force_s / cost.generate_s:.3f}), {cost.not_best} below stock's best"
        )
    lines.append(
        f"total: generated in {report.generate_s:.2f} s, forced in {report.force_s:.2f} s: "
        f"forcing costs x{report.ratio:.3f} of generating"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
