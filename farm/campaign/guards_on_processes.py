"""Guards on what ran: the harness, the engine's processes, what the engine says it serves."""

from __future__ import annotations

from farm.bench.recording import Recording
from farm.campaign.guard_case import CONTROL, SUBJECT, Case, Finding
from farm.verdicts import Decision, Verdict
from settings.hardware import hardware
from verifier.served import served_fault

# Processor seconds over the threads given: a share, and seconds for what is not timed (a flush).
_MORE_THREADS = 1.15
_SPARE_CPU_S = 1.0


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
    """No more processor time than the setting's threads give while the engine runs: neither on
    other cores, nor by a process that goes on while its engine is stopped."""
    recording, given = case.recording, case.setting.hardware.threads
    if recording is None or hardware(case.setting.hardware.gpu).is_gpu:
        return Finding()
    used: dict[str, float] = {}
    over: set[str] = set()
    for label in (SUBJECT, CONTROL):
        spent = sum(o.cpu_s.get(label, 0.0) for o in case.outcomes)
        ran = _running_s(recording, label)
        if ran is None or ran <= 0.0 or spent <= 0.0:
            return Finding()
        used[label] = spent / ran
        if spent > given * ran * _MORE_THREADS + _SPARE_CPU_S:
            over.add(label)
    evidence = {"given": given, "used": used}
    # Where stock is over too, it is the clock of this machine that cannot tell.
    if over != {SUBJECT}:
        return Finding(evidence)
    reason = (
        f"used {used[SUBJECT]:.2f} processors where the setting gives {given} "
        f"(stock {used[CONTROL]:.2f})"
    )
    return Finding(evidence, Decision(Verdict.CHEATING, reason))


def _running_s(recording: Recording, arm: str) -> float | None:
    """Seconds the arm ran in the timed part; None where requests overlapped."""
    runs = [run for run in recording.runs if run.arm == arm]
    if any(run.block is not None for run in runs):
        return None
    return sum(
        sum(s.end_s - s.start_s for s in run.slices) if run.slices else run.wall_s[-1]
        for run in runs
    )
