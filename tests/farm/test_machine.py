import importlib.metadata
import json
import os
import platform
import socket
import time
from pathlib import Path

from farm.machine import clocks, environment_hash, hardware_id, machine_facts, moment


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


def test_what_changes_from_minute_to_minute_is_kept_apart() -> None:
    now = moment()
    assert now["load_average"] == [round(x, 2) for x in os.getloadavg()]
    assert time.strptime(now["utc"], "%Y-%m-%dT%H:%M:%SZ").tm_year >= 2026
    assert not set(now) & set(machine_facts())


def test_clocks_are_the_mean_of_what_the_kernel_says() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    stated = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    found = clocks()
    assert ("cpu_mhz" in found) is bool(stated)
    if stated:
        assert min(stated) * 0.5 <= found["cpu_mhz"] <= max(stated) * 2
    assert json.loads(json.dumps(found)) == found
