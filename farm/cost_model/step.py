"""The cost model of a setting's stock engine: target, drafter, and what was measured of both."""

from __future__ import annotations

from farm.cost_model.gaps import CostModel, Limits, cost_model
from farm.cost_model.measured import component_ms, stream_bytes_per_s
from farm.cost_model.traffic import Traffic, drafter_traffic, target_tensors, target_traffic
from farm.timing_lock import timing_lock
from settings.errors import SpecfarmError
from settings.hardware import ceiling, hardware
from settings.schema import Setting
from settings.weights import ensure_drafter, ensure_target

_BYTES = {"fp32": 4, "bf16": 2, "fp8": 1}
_DRAFTS = 7  # of the native engine where a setting does not say


def step_cost(setting: Setting, device: str | None, context: int) -> CostModel:
    """What a step of the stock engine costs after `context` tokens: measured on this machine's CPU,
    or against the datasheet of `device` (else of the setting's GPU), where nothing is measured.

    Raises:
        SpecfarmError: not the native engine's, weights that are not to be had, a failed benchmark.
    """
    if setting.engine.name != "native":
        raise SpecfarmError(
            f"{setting.name} is served by {setting.engine.name}: components are known of the "
            "native engine alone"
        )
    traffic = step_traffic(setting, context)
    name = device or setting.hardware.gpu
    if device is None and not hardware(name).is_gpu:
        with timing_lock(f"measuring gaps of {setting.name}"):
            threads = setting.hardware.threads
            rate = stream_bytes_per_s(threads)
            limits = Limits(
                rate,
                ceiling(name, threads).flops,
                f"read-only stream of {rate / 1e9:.1f} GB/s measured here, {threads} thread(s)",
            )
            measured = component_ms(setting, ensure_target(setting), context)
        return cost_model(traffic, limits, measured)
    top = ceiling(name, setting.hardware.threads)
    origin = f"{top.bytes_per_s / 1e12:.2f} TB/s, the datasheet's; nothing measured"
    return cost_model(traffic, Limits(top.bytes_per_s, top.flops, origin))


def step_traffic(setting: Setting, context: int) -> list[Traffic]:
    """What a step of the setting's stock engine reads, target and drafter."""
    drafter, dtype = setting.drafter, setting.target.weights_dtype
    folder = ensure_drafter(setting)
    tensors, tied = target_tensors(ensure_target(setting), dtype)
    config = None
    if folder is not None:
        from native_engine.drafters.describe import checked_folder
        from native_engine.errors import NativeEngineError

        try:
            config = checked_folder(folder).config
        except NativeEngineError as error:
            raise SpecfarmError(str(error)) from error
    drafts = drafter.draft_tokens or (config.max_drafts if config else _DRAFTS)
    kv = _BYTES[setting.target.kv_dtype]
    many = setting.serving.concurrency
    found = target_traffic(tensors, tied, 1 + drafts, context, kv, many)
    if config is None:
        return found
    head = next(item for item in found if item.component == "lm_head")
    width = _BYTES["fp32" if dtype == "fp32" else "bf16"]
    return [*found, *drafter_traffic(config, context, width, head, many)]
