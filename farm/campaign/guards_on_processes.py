"""Guards on what ran: the harness, the engine's processes, what the engine says it serves."""

from __future__ import annotations

from farm.bench.processor_use import processor_use
from farm.campaign.guard_case import CONTROL, SUBJECT, Case, Finding
from farm.verdicts import Decision, Verdict
from settings.hardware import hardware
from verifier.served import served_fault


def harness(case: Case) -> Finding:
    """The code that measures and judges is what it was when the campaign began."""
    then, now = case.harness
    evidence = {"at_start": then, "now": now}
    if then == now:
        return Finding(evidence)
    reason = (
        f"the harness changed while the campaign ran ({then[:12]} -> {now[:12]}): restore the "
        "checkout, then specfarm resume measures this candidate again"
    )
    return Finding(evidence, Decision(Verdict.INVALID_ENVIRONMENT, reason))


def stray_process(case: Case) -> Finding:
    """No process of the candidate left its session and outlived the end of its engine."""
    found: dict[str, list[str]] = {}
    for outcome in case.outcomes:
        for label, names in outcome.escaped.items():
            found.setdefault(label, []).extend(names)
    if not any(found.values()):
        return Finding({"escaped": {}})
    ours = ", ".join(found.get(SUBJECT, ()))
    if not ours:
        reason = (
            f"processes of {', '.join(sorted(found))}, not the candidate's, outlived their engine"
        )
        return Finding({"escaped": found}, Decision(Verdict.INVALID_ENVIRONMENT, reason))
    reason = f"processes left the engine's session and outlived it: {ours}"
    return Finding({"escaped": found}, Decision(Verdict.CHEATING, reason))


def served_configuration(case: Case) -> Finding:
    """/server_info states what was launched, and what stock states beside it."""
    spec = next((arm for arm in case.arms if arm.label == SUBJECT), None)
    for outcome in case.outcomes:
        info = outcome.served.get(SUBJECT)
        if spec is None or info is None:
            continue
        fault = served_fault(
            case.setting,
            arm=spec.arm,
            tree_hash=spec.tree_hash,
            info=info,
            stock_info=outcome.served.get(CONTROL, {}),
            owned=case.owned,
        )
        if fault is not None:
            verdict = Verdict.CHEATING if fault.kind == "cheating" else Verdict.REFUSED
            evidence = {"field": fault.field, "launched": fault.launched, "stated": fault.stated}
            return Finding(evidence, Decision(verdict, fault.sentence()))
    return Finding()


def threads(case: Case) -> Finding:
    """No more processor time than the setting's threads give while the engine runs."""
    if case.recording is None or hardware(case.setting.hardware.gpu).is_gpu:
        return Finding()
    spent = {
        label: sum(o.cpu_s.get(label, 0.0) for o in case.outcomes) for label in (SUBJECT, CONTROL)
    }
    given = case.setting.hardware.threads
    found = processor_use(case.recording, spent, given, SUBJECT, CONTROL)
    if found is None:
        return Finding()
    if not found.too_many:
        return Finding(found.to_json())
    reason = (
        f"its processes used {found.used:.2f} processors ({found.spent_s:.1f} s) where the setting "
        f"gives {given} and stock used {found.stock_used:.2f} ({found.stock_spent_s:.1f} s)"
    )
    return Finding(found.to_json(), Decision(Verdict.CHEATING, reason))
