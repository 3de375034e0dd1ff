# SPDX-License-Identifier: Apache-2.0
"""Memory shared with worker processes: an item's arrays reach the parent in it, without a copy through a pipe.

A worker writes the arrays of an answer to a segment, an anonymous file that it shares by its descriptor: a process that is killed leaves nothing
behind. The parent's arrays lie in that memory, and once all of them have been freed, the worker may write there again. A new segment costs more than
the copy, since the system zeroes its pages.
"""

import mmap
import os
import socket
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from multiprocessing.connection import Connection

import numpy as np
import torch

MIN_BYTES = 1 << 16  # of an answer, from which a segment is quicker than the pipe
MAX_SEGMENTS = 128  # of a worker; more answers that are held at the same time come through the pipe
MAX_FREE_BYTES = 1 << 28  # that a worker keeps for later answers
_ALIGNMENT = 64


def place_arrays(sizes: Sequence[int]) -> list[int]:
    """Return where arrays of so many bytes begin in a segment, and where the last one ends."""
    return [0, *accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]


class SegmentWriter:
    """The segments of a worker, in the worker."""

    def __init__(self) -> None:
        self._segments: list[mmap.mmap] = []
        self._free: dict[int, int] = {}  # number to bytes of memory that it keeps

    def free(self, numbers: Sequence[int]) -> None:
        """Take back segments that the parent no longer reads."""
        for number in numbers:
            size = len(self._segments[number])
            if sum(self._free.values()) + size > MAX_FREE_BYTES:
                self._segments[number].madvise(mmap.MADV_REMOVE)  # gives the pages back; the segment can still be written to
                size = 0
            self._free[number] = size

    def write(self, buffers: Sequence[memoryview]) -> tuple[int, int] | None:
        """Write buffers to a free segment. Return its number and a descriptor to send to the parent, -1 if the parent has it.

        Return None if no segment is available: too many are in use, or the system refuses to create one.
        """
        starts = place_arrays([buffer.nbytes for buffer in buffers])
        found = self._find(starts[-1])
        if found is not None:
            segment = self._segments[found[0]]
            for start, buffer in zip(starts, buffers, strict=False):
                segment[start : start + buffer.nbytes] = buffer
        return found

    def _find(self, size: int) -> tuple[int, int] | None:
        fitting = [number for number in self._free if len(self._segments[number]) >= size]
        if fitting:
            number = min(fitting, key=lambda number: len(self._segments[number]))
            del self._free[number]
            return number, -1
        # Replace the smallest free segment, so that growing items do not use up the numbers.
        number = min(self._free, key=lambda number: len(self._segments[number]), default=len(self._segments))
        if number == MAX_SEGMENTS:
            return None
        size = 1 << (size - 1).bit_length()  # a later answer may be somewhat larger
        descriptor = -1
        try:
            descriptor = os.memfd_create("torch_ndd items")
            os.ftruncate(descriptor, size)
            segment = mmap.mmap(descriptor, size)
        except OSError:
            if descriptor >= 0:
                os.close(descriptor)
            return None
        self._segments[number : number + 1] = [segment]
        self._free.pop(number, None)
        return number, descriptor


class SegmentReader:
    """The segments of a worker, in the parent."""

    def __init__(self) -> None:
        self._segments: dict[int, np.ndarray] = {}
        self._leases: dict[int, weakref.ref[np.ndarray]] = {}
        self._freed: deque[int] = deque()  # appended to by any thread

    def add(self, number: int, connection: Connection) -> None:
        """Map a new segment, whose descriptor comes through a connection."""
        with _open_socket(connection) as channel:
            mark, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not mark:
            raise EOFError
        if not descriptors:
            raise RuntimeError("the system has dropped its descriptor; a process may have too few of them (ulimit -n)")
        (descriptor,) = descriptors
        try:
            # Unlike mmap.mmap it keeps no descriptor: hundreds of segments would use up those of the process.
            tensor = torch.from_file(f"/proc/self/fd/{descriptor}", shared=True, size=os.fstat(descriptor).st_size, dtype=torch.uint8)
        finally:
            os.close(descriptor)
        self._segments[number] = tensor.numpy()

    def read(self, number: int, sizes: Sequence[int]) -> list[memoryview]:
        """Return the buffers of an answer. The segment is free when all arrays in them have been freed."""
        lease = self._segments[number][:]
        freed = self._freed
        self._leases[number] = weakref.ref(lease, lambda _: freed.append(number))
        whole = lease.data
        return [whole[start : start + size] for start, size in zip(place_arrays(sizes), sizes, strict=False)]

    def take_freed(self) -> list[int]:
        """Return the segments that have been freed since the last call."""
        numbers = []
        while self._freed:
            numbers.append(self._freed.popleft())
        return numbers


def send_segment(connection: Connection, descriptor: int) -> None:
    """Send a new segment to the parent, and close its descriptor here."""
    try:
        # Not multiprocessing's send_handle, which since Python 3.14 waits until the parent has taken it.
        with _open_socket(connection) as channel:
            socket.send_fds(channel, [b"F"], [descriptor])
    finally:
        os.close(descriptor)


def _open_socket(connection: Connection) -> socket.socket:
    return socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
