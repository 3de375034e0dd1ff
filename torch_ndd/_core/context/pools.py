# SPDX-License-Identifier: Apache-2.0
"""CPU threads: their default number, and thread pools."""

import operator
import os
from typing import Any

from torch.utils.data import get_worker_info

from .. import native
from ..process.fork_locks import new_lock
from .device import Device


def _default_threads() -> int:
    text = os.environ.get("DALI_NUM_THREADS")
    if text:
        try:
            return check_threads(int(text))
        except ValueError as error:
            raise ValueError(f"DALI_NUM_THREADS={text!r}: {error}") from None
    return available_cpus()


def available_cpus() -> int:
    """Return this process's share of the CPUs."""
    # The affinity mask counts: containers and schedulers restrict it.
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cpus // _processes_here())


def _processes_here() -> int:
    """Return how many processes share the CPUs: those started by torchrun and similar launchers on this machine, times the DataLoader's workers."""
    text, worker = os.environ.get("LOCAL_WORLD_SIZE", ""), get_worker_info()
    # The larger of the two, because share_cpus() may count the same processes as the launcher does.
    ranks = int(text) if text.isdecimal() else 1
    return max(1, ranks, _Threads.sharing) * (1 if worker is None else worker.num_workers)


def check_threads(number: Any, least: int = 1) -> int:
    """Return ``number`` as an int. Raise TypeError or ValueError unless it is a sensible number of threads."""
    try:
        # True is an index, but a number of threads it is not.
        if isinstance(number, bool):
            raise TypeError
        count = operator.index(number)
    except TypeError:
        raise TypeError(f"the number of threads must be an int, got {number!r}") from None
    cpus = os.cpu_count() or 1
    # More would exhaust the limits of the system long before it helped.
    if not least <= count <= 100 * cpus:
        raise ValueError(f"the number of threads must be from {least} to {100 * cpus} (100 for each CPU), got {count}")
    return count


class ThreadPool:
    """A pool of CPU threads for the contexts that share it: at most this many of their tasks run at a time.

    Args:
        num_threads: Number of threads; by default :func:`get_num_threads`. With 0 there are no threads: the thread that needs a result runs the work.
        device_id: The GPU of the pool; by default that of the current device, None for none.

    Raises:
        TypeError: not an int.
        ValueError: a negative number, one far above the number of CPUs, or a GPU that does not exist.

    >>> ThreadPool(2).num_threads
    2
    """

    def __init__(self, num_threads: int | None = None, *, device_id: int | None = -1) -> None:
        # A pool of its own may have no threads: the thread that waits for a result then does the work.
        self._num_threads = get_num_threads() if num_threads is None else check_threads(num_threads, 0)
        self._device_id = _gpu_or_none(device_id)
        self._handle = native.pool_make(self._num_threads)
        self._owner = native.own_handle(self._handle, native.OF_POOL)

    @property
    def num_threads(self) -> int:
        """Number of threads."""
        return self._num_threads

    @property
    def device_id(self) -> int | None:
        """The GPU of the pool; None for none."""
        return self._device_id

    @property
    def _most_running(self) -> int:
        """Largest number of tasks that ran at a time."""
        return native.pool_most_running(self._handle)

    def __repr__(self) -> str:
        return f"ThreadPool({self.num_threads}, device_id={self.device_id})"


def _gpu_or_none(device_id: int | None) -> int | None:
    if device_id is None:
        return None
    return Device.current().device_id if device_id == -1 else Device("gpu", device_id).device_id


class _Threads:
    """The number set by :func:`set_num_threads`, and the pools of contexts without their own, by GPU."""

    sharing = 1  # processes on this machine, if known from elsewhere than the environment

    def __init__(self) -> None:
        self.lock = new_lock()
        self.set(_default_threads(), chosen=False)

    def set(self, number: int, chosen: bool) -> None:
        with self.lock:
            self.number, self.chosen = number, chosen
            pool = ThreadPool(number, device_id=None)
            self.pools: dict[int | None, ThreadPool] = {None: pool}
            native.pool_set_default(pool._handle)  # queued work keeps the pool of its call

    def pool(self, device_id: int | None) -> ThreadPool:
        with self.lock:
            if device_id not in self.pools:
                self.pools[device_id] = ThreadPool(self.number, device_id=device_id)
            return self.pools[device_id]


_threads = _Threads()


unsettled = True


def settle() -> None:
    """Update the default number of threads before the first work of a process: at import, a DataLoader worker is not yet recognizable as one."""
    global unsettled
    unsettled = False
    if not _threads.chosen and (number := _default_threads()) != _threads.number:
        _threads.set(number, chosen=False)


def share_cpus(processes: int) -> None:
    """Divide the CPUs among this many processes on this machine; the default number of threads follows."""
    _Threads.sharing = processes
    settle()


def get_num_threads() -> int:
    """Return the number of CPU threads of operators: :func:`set_num_threads`, else ``DALI_NUM_THREADS``, else this process's share of the CPUs.

    The share is all CPUs divided by ``LOCAL_WORLD_SIZE``, which ``torchrun`` sets to the number of processes that it starts on a machine, and in a
    worker of ``torch.utils.data.DataLoader`` by the number of workers. It is at least 1.
    """
    if unsettled:
        settle()
    return _threads.number


def set_num_threads(n: int | None) -> None:
    """Set the number of CPU threads of operators, for all contexts without their own number; None restores the default.

    Earlier calls keep the number of their time.

    Raises:
        TypeError: not an int.
        ValueError: below 1, or more than 100 per CPU.

    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    >>> set_num_threads(None)
    """
    _threads.set(_default_threads() if n is None else check_threads(n), chosen=n is not None)


def _in_child() -> None:
    """Recompute the default after a fork: the child may be one of several workers."""
    global unsettled
    unsettled = True


os.register_at_fork(after_in_child=_in_child)


def default_pool(device_id: int | None) -> ThreadPool:
    """Return the pool of contexts without their own."""
    if unsettled:
        settle()
    return _threads.pool(device_id)
