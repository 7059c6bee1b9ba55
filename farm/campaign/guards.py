"""Everything but token forcing that can end a candidate: one named function a check.

Each looks at what a measurement brought home and returns a verdict or none, and the numbers it
looked at, which the candidate's evidence shows in any case. Adding a guard is a function and a line
in `GUARDS`. What each is for, and what it cannot see: docs/guards.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from farm.campaign import guards_on_answers as answers
from farm.campaign import guards_on_processes as processes
from farm.campaign.guard_case import Case, Guard, Guarded
from farm.verdicts import Decision, Verdict

# In order: where several refuse, the first one's verdict stands.
GUARDS: dict[str, Guard] = {
    "harness": processes.harness,
    "stray_process": processes.stray_process,
    "served_configuration": processes.served_configuration,
    "requests": answers.requests,
    "physics": answers.physics,
    "threads": processes.threads,
    "cache_probe": answers.cache_probe,
    "memoisation": answers.remembered_prompts,
    "moved_work": answers.work_before_the_first_token,
    "determinism": answers.repeatability,
}


def check(case: Case) -> Guarded:
    """Every guard, in order; `caught_by` in the verdict's evidence names the one that decided."""
    evidence: dict[str, Any] = {}
    decisions: list[Decision] = []
    for name, guard in GUARDS.items():
        finding = guard(case)
        if finding.evidence is not None:
            evidence[name] = finding.evidence
        if finding.decision is not None:
            named: dict[str, object] = {"caught_by": name, "guards": evidence}
            decisions.append(replace(finding.decision, evidence=named))
    sure = [d for d in decisions if d.verdict is not Verdict.INCONCLUSIVE]
    return Guarded(next(iter([*sure, *decisions]), None), evidence)
