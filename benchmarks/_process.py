# SPDX-License-Identifier: Apache-2.0
"""One competitor in one process: thread pools, allocators and imported libraries of one cannot slow down another."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import psutil

Handler = Callable[[Any], Any]

# Seconds that an answer may take: thirteen competitors that start together on two busy cores need 40 of them.
PATIENCE = 180


class PeerError(RuntimeError):
    """What went wrong in a competitor's process, as text."""


class Peer:
    """Runs ``factory(*args)`` in a fresh process and sends requests to the function that it returns."""

    def __init__(self, name: str, factory: Callable[..., Handler], *args: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # Not a daemon: the DataLoader's own workers are children of this process.
        self._process = context.Process(target=_serve, args=(theirs, factory, args))
        self._process.start()
        theirs.close()

    def ask(self, request: Any) -> Any:
        """The answer to `request`, or a `PeerError`."""
        try:
            self._connection.send(request)
        except OSError as error:
            raise PeerError(f"the process of {self.name} ended") from error
        return self.answer()

    def answer(self) -> Any:
        """Wait for the next message; the first one after the start says that the process is ready."""
        if not self._connection.poll(PATIENCE):
            self._end()  # a late answer would be taken for that to another question
            raise PeerError(f"{self.name} gave no answer within {PATIENCE} seconds")
        try:
            failed, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise PeerError(f"the process of {self.name} ended") from error
        if failed:
            raise PeerError(value)
        return value

    def settle(self, limit: float = 6.0) -> None:
        """Wait until the process has computed what it fetches ahead, so it does not disturb the next one."""
        deadline = time.perf_counter() + limit
        before = cpu_seconds(self._process.pid)
        while time.perf_counter() < deadline:
            time.sleep(0.04)  # the system counts CPU time in steps of 10 ms
            now = cpu_seconds(self._process.pid)
            if now - before < 0.015:
                return
            before = now

    def stop(self) -> None:
        """Ask the process to end."""
        with contextlib.suppress(OSError):
            self._connection.send(None)

    def close(self) -> None:
        """Wait for the end of the process that was asked to stop; end it if it does not."""
        self._process.join(5)
        self._end()
        self._connection.close()

    def _end(self) -> None:
        if self._process.is_alive():
            for process in [*psutil.Process(self._process.pid).children(recursive=True), self._process]:
                process.kill()
            self._process.join()


@contextlib.contextmanager
def running(
    peers: dict[str, tuple[Callable[..., Handler], tuple[Any, ...]]],
) -> Iterator[tuple[list[Peer], dict[str, str]]]:
    """Start all competitors, and end them at the end; gives those that are ready, and the errors of the others."""
    started: list[Peer] = []
    ready: list[Peer] = []
    failed: dict[str, str] = {}
    try:
        for name, (factory, args) in peers.items():
            started.append(Peer(name, factory, *args))
        for peer in started:
            try:
                peer.answer()
                ready.append(peer)
            except PeerError as error:
                failed[peer.name] = str(error)
        yield ready, failed
    finally:
        for peer in started:
            peer.stop()
        for peer in started:
            peer.close()


def cpu_seconds(pid: int | None = None) -> float:
    """Return the CPU seconds used by a process and its children; by default by this process."""
    process = psutil.Process(pid)
    # The system counts that of other processes in steps of 10 ms, a third of what a round of a fast reader takes.
    total, others = (time.process_time(), []) if pid is None else (0.0, [process])
    for member in [*others, *process.children(recursive=True)]:
        try:
            times = member.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def is_installed(module: str) -> bool:
    """Whether `module` can be imported (its parent packages are imported to find out, it is not)."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def limit_threads(count: int) -> None:
    """For the processes that are started after this: no library takes more threads than `count`."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "DALI_NUM_THREADS"):
        os.environ[name] = str(count)


def _serve(connection: Connection, factory: Callable[..., Handler], args: tuple[Any, ...]) -> None:
    """The other process: answer requests until None comes or the parent is gone."""
    handler: Handler | None = None
    while True:
        try:
            # The first pass builds the handler; its answer says that the process is ready.
            if handler is None:
                handler = factory(*args)
                reply = False, None
            else:
                request = connection.recv()
                if request is None:
                    return
                reply = False, handler(request)
        except (EOFError, KeyboardInterrupt):
            return
        except Exception:
            reply = True, traceback.format_exc(limit=-3)
        connection.send(reply)
        if handler is None:
            return
