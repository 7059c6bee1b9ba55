"""What an engine might try. Each returns when it succeeded and raises OSError (or the error of the
program it ran) when it was stopped."""

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE = 0x4206


def _check(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# What a sandbox should stop.


def read_file(path):
    with Path(path).open("rb") as file:
        file.read(1)


def list_folder(path):
    return [entry.name for entry in Path(path).iterdir()]


def write_file(path):
    Path(path).write_text("written by an engine")


def connect(port):
    socket.create_connection(("127.0.0.1", port), 5).close()


def fast_open(port):
    with socket.socket() as client:
        client.sendto(b"hello", socket.MSG_FASTOPEN, ("127.0.0.1", port))


def connect_unix(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def listen(port):
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()


def send_datagram(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", ("127.0.0.1", port))


def send_signal(pid):
    os.kill(pid, signal.SIGCONT)


def trace(pid):
    _check(LIBC.ptrace(PTRACE_SEIZE, pid, None, None))


def set_affinity(pid):
    os.sched_setaffinity(pid, os.sched_getaffinity(0))


def make_namespace():
    subprocess.run(["unshare", "-U", "true"], check=True, stderr=subprocess.DEVNULL)


def rewrite(path):
    Path(path).write_text(Path(path).read_text())


def set_clock():
    time.clock_settime(time.CLOCK_REALTIME, time.time())


# What it must be able to do all the same.


def multiply():
    import torch

    a, b = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((8, 16), (16, 4)))
    return (a @ b).sum().item()


def use_own_folders():
    for folder in (os.environ["FAKE_CACHE"], tempfile.gettempdir(), os.environ["HOME"]):
        path = Path(folder, "inner", "file")
        path.parent.mkdir()
        path.write_text("x")
        path.replace(Path(folder, "moved"))
        path.parent.rmdir()


def use_shared_memory():
    memory = SharedMemory(create=True, size=4096)
    memory.close()
    memory.unlink()
    with multiprocessing.get_context("spawn").Lock():
        pass


def use_the_machine():
    for path in ("/proc/cpuinfo", "/proc/self/status", "/sys/devices/system/cpu/online"):
        Path(path).read_text()
    Path("/dev/null").write_text("x")
    read_file("/dev/urandom")
    os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0))
    a, b = socket.socketpair()
    a.close()
    b.close()


def compile_and_load():
    folder = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    folder.mkdir(exist_ok=True)
    source = folder / "seven.cpp"
    source.write_text(
        '#include <vector>\nextern "C" int seven() { return std::vector<int>(7).size(); }'
    )
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch, "seven.so")
        subprocess.run(["g++", "-shared", "-fPIC", "-o", built, source], check=True)
        built.replace(folder / "seven.so")
    return ctypes.CDLL(str(folder / "seven.so")).seven()


def talk_to_itself(port):
    with socket.create_server(("127.0.0.1", port)) as server:
        client = socket.create_connection(("127.0.0.1", port), 5)
        server.accept()[0].close()
        client.close()


def reduce_among_one(port):
    """As engines of several ranks do when they have one."""
    import torch
    import torch.distributed

    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    value = torch.ones(4)
    torch.distributed.all_reduce(value)
    torch.distributed.destroy_process_group()
    return value.sum().item()


# What it might leave behind. `mark` stands in the command line, for the test to find it by.


def _start(code, mark):
    subprocess.run([sys.executable, "-S", "-c", code, mark], check=True, stdin=subprocess.DEVNULL)


def leave_daemon(mark):
    """Forks twice, leaves the session and clears its environment."""
    code = """if True:
        import os, sys
        os.fork() and os._exit(0)
        os.setsid()
        os.fork() and os._exit(0)
        os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
    """
    _start(code, mark)


def leave_hopper(mark):
    """A chain of processes each of which lives for a millisecond."""
    code = """if True:
        import os, sys, time
        os.fork() and os._exit(0)
        os.setsid()
        if len(sys.argv) < 3:
            os.execve(sys.executable, [*sys.orig_argv, "again"], {})
        while True:
            os.fork() and os._exit(0)
            time.sleep(0.001)
    """
    _start(code, mark)


def leave_headless(mark):
    """A process whose first thread has ended: a zombie to all who look no further."""
    code = """if True:
        import ctypes, os, sys, threading, time
        os.fork() and os._exit(0)
        os.setsid()
        if len(sys.argv) < 3:
            os.execve(sys.executable, [*sys.orig_argv, "again"], {})
        threading.Thread(target=time.sleep, args=(600,)).start()
        ctypes.CDLL(None).pthread_exit(None)
    """
    _start(code, mark)
