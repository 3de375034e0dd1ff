# SPDX-License-Identifier: Apache-2.0
"""Processes forked from one that has imported everything: importing torch takes each test process 4 CPU seconds.

A server imports modules and then only forks. A child runs a program like ``python -c``, from its first line to the end of the interpreter, and may be
killed. Tests of what the import imports cannot use it. What was imported is hidden from the garbage collector, which would go through all objects at
the end of the interpreter, and so copy their memory: an empty program takes 0.35 CPU seconds instead of 1.1.
"""

import contextlib
import faulthandler
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

SERVER = """
import gc, importlib, json, os, sys
[importlib.import_module(name) for name in sys.argv[1:]]
gc.collect()
gc.freeze()
code = None
for line in sys.stdin:
    request = json.loads(line)
    if request is None:
        break
    if "pid" in request:
        pid, status = os.waitpid(request["pid"], os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        continue
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        for fd, name, flags in ((0, os.devnull, os.O_RDONLY), (1, request["out"], os.O_WRONLY), (2, request["err"], os.O_WRONLY)):
            os.dup2(os.open(name, flags), fd)
        os.environ.update(request["variables"])
        sys.argv, sys.path[:] = request["arguments"], request["path"]
        code = request["code"]
        break
    print(pid, flush=True)
if code is None:
    os._exit(0)
exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
"""
# With the path of a script as first argument.
SCRIPT = """
import os, runpy, sys
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# What Triton 3.9 prints at the end of an interpreter whose collector cannot reach what the import has created.
_LEAKS = re.compile(r"nanobind: leaked .*?/refleaks\.html\n?", re.DOTALL)

# Imports the package again, for a variable of the environment that its import reads.
IMPORT_AGAIN = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "torch_ndd"]:
    del sys.modules[name]
import torch_ndd
"""


def run_in_child(work: Callable[[], bool]) -> int:
    """Return the exit code of a forked child: 0 if ``work`` returns True there, -SIGKILL if it takes 60 s, after it has printed where it is."""
    faulthandler.register(signal.SIGUSR2, all_threads=False)  # prints from the signal handler, wherever the child hangs
    child = os.fork()
    if child == 0:
        code = 1
        torch.set_num_threads(1)  # the OpenMP threads of torch do not survive a fork, and its large copies would wait for them
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGUSR2)
            time.sleep(1)
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


def find_port() -> int:
    """Return a free port that the system gives to no other process before a program uses it, as it may do with those that it chooses itself."""
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(limits.read_text().split()[0]) if limits.exists() else 32768
    chooser = random.SystemRandom()  # the global generator is seeded, so two processes that run tests would choose alike
    while True:
        # Ray's processes have ports up to 19999.
        port = chooser.randrange(20000, first) if first > 21000 else chooser.randrange(20000, 60000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def torchrun_variables(processes: int) -> list[dict[str, str]]:
    """Return what ``torchrun`` sets for each of its processes on one machine; without torchrun's own process, which takes a third of the time."""
    port = find_port()
    of_all = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    of_all |= {"GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": port}
    return [{name: str(value) for name, value in {**of_all, "RANK": rank, "LOCAL_RANK": rank}.items()} for rank in range(processes)]


class Forks:
    """A server that has imported ``modules``. It ends with the context, and with the process that created it."""

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, "-W", "ignore", "-c", SERVER, *modules]
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}  # OpenMP reads it when torch is imported
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
        self._folder = tempfile.TemporaryDirectory(prefix="torch_ndd_forks_")
        self._count = 0

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        # Closing the pipe is not enough: processes that were forked in the meantime have it open too.
        with contextlib.suppress(BrokenPipeError):
            print("null", file=self._server.stdin, flush=True)
        with contextlib.suppress(BrokenPipeError):
            self._server.stdin.close()
        self._server.wait(60)
        assert self._server.stdout is not None
        self._server.stdout.close()
        self._folder.cleanup()

    def run(self, code: str, *arguments: object, variables: Mapping[str, str] | None = None) -> "Forked":
        """Start a program with ``sys.argv[1:]``."""
        self._count += 1
        out, err = (Path(self._folder.name, f"{self._count}.{name}") for name in ("out", "err"))
        out.touch(), err.touch()
        request = {"code": code, "arguments": ["-c", *map(str, arguments)], "variables": dict(variables or {}), "path": sys.path}
        return Forked(self, self.ask({**request, "out": str(out), "err": str(err)}), out, err)

    def ask(self, request: Any) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())


class Forked:
    """A process, with the methods of ``subprocess.Popen``."""

    def __init__(self, forks: Forks, pid: int, out: Path, err: Path) -> None:
        self._forks, self.pid, self._out, self._err = forks, pid, out, err
        self.returncode: int | None = None

    @property
    def output(self) -> str:
        """Return what it has printed so far."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        return _LEAKS.sub("", self._err.read_text())

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = 120) -> int:
        """Wait until it has ended; kill it on timeout."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                self.kill()
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout, self.output, self.errors)
            time.sleep(0.005)
        return code

    def wait_for(self, text: str, timeout: float = 120) -> None:
        """Wait until it has printed a text."""
        end = time.monotonic() + timeout
        while text not in self.output:
            assert self.poll() is None, self.errors
            assert time.monotonic() < end, f"it has not printed {text!r}"
            time.sleep(0.002)

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
