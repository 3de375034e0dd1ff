# SPDX-License-Identifier: Apache-2.0
"""Work on CUDA streams: operators and copies run on the stream of the current context, and whoever uses a result makes its own stream wait for it.

The host waits for nothing. torch's allocator is told of every stream that uses a tensor, so that memory is not used again too early.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch

from . import _context
from ._stream import EvalMode, Pending, current_mode


class Launched(Pending):
    """The work of one call on a CUDA stream, in the place of a :class:`Pending`."""

    stays = True  # each stream that uses the result waits for itself

    def __init__(self, stream: torch.cuda.Stream, tensors: Sequence[torch.Tensor]) -> None:
        self._stream = stream
        self._tensors = tensors
        self._event = torch.cuda.Event()
        self._event.record(stream)
        self._joined: set[int] = set()

    def __del__(self) -> None:
        pass

    def wait(self) -> None:
        """Have the current torch stream of the device wait for the work."""
        current = torch.cuda.current_stream(self._stream.device)
        if current == self._stream or current.cuda_stream in self._joined:
            return
        current.wait_event(self._event)
        for tensor in self._tensors:
            tensor.record_stream(current)
        self._joined.add(current.cuda_stream)

    def done(self) -> bool:
        """False: other streams have to wait, whether the work has ended or not."""
        return False


@contextlib.contextmanager
def on_stream(device: torch.device, used: Iterable[tuple[torch.Tensor, Pending | None]] = (), external: bool = False) -> Iterator[None]:
    """Within this block torch's current stream on ``device`` is that of the context.

    Args:
        device: A CUDA device.
        used: The tensors that the block reads, with the work that fills them. Those of no work of ours belong to torch's current stream.
        external: Some of them belong to the user, who may overwrite them afterwards: torch's current stream waits for the block's work.
    """
    ours, theirs = _context.launch_stream(device.index).torch, torch.cuda.current_stream(device)
    if ours == theirs:
        yield
    else:
        foreign = [tensor for tensor, pending in used if tensor.device == device and not isinstance(pending, Launched)]
        if foreign:
            ours.wait_stream(theirs)
        with torch.cuda.stream(ours):
            yield
        for tensor in foreign:
            tensor.record_stream(ours)
        if external and foreign:
            theirs.wait_stream(ours)
    if current_mode() == EvalMode.sync_full:
        ours.synchronize()


def launched(tensors: Sequence[torch.Tensor]) -> Launched:
    """What was launched within :func:`on_stream` to fill these tensors."""
    return Launched(torch.cuda.current_stream(tensors[0].device), tensors)


def moved(values: torch.Tensor, pending: Pending | None, external: bool, target: torch.device) -> tuple[torch.Tensor, Pending | None]:
    """A copy on another device and the work that makes it. On the way to a GPU the host waits only where the user might overwrite pinned memory."""
    on_gpu = values.device.type == "cuda"
    if pending is not None and not on_gpu:
        pending.wait()
    gpu = target if target.type == "cuda" else values.device
    if gpu.type != "cuda" or torch.compiler.is_compiling():
        return values.to(target, copy=True), None
    with on_stream(gpu, [(values, pending)], external):
        if pending is not None and on_gpu:
            pending.wait()
        if target.type != "cuda":
            return values.to(target), None
        made = values.to(target, copy=True, non_blocking=not (external and values.is_pinned()))
        return made, launched([made])
