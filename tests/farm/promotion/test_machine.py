import importlib.metadata
import json
import os
import platform
import socket

from farm.promotion.machine import environment_hash, hardware_id, machine_facts


def test_facts_agree_with_the_system_and_are_json() -> None:
    facts = machine_facts()
    assert facts["logical_cpus"] == os.cpu_count()
    assert facts["python"] == platform.python_version()
    assert facts["torch"] == importlib.metadata.version("torch")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(facts["memory_gib"] - pages / 2**30) < 0.1
    assert None not in facts.values()
    assert socket.gethostname() not in json.dumps(facts)


def test_two_calls_agree_so_that_a_resumed_unit_keeps_its_key() -> None:
    facts = machine_facts()
    assert machine_facts() == facts
    assert hardware_id(facts) != hardware_id({**facts, "cpu": "another"})
    assert hardware_id(facts) == hardware_id({**facts, "torch": "another"})
    assert environment_hash() == environment_hash()
