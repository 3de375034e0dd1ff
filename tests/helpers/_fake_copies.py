# SPDX-License-Identifier: Apache-2.0
"""A fake GPU that performs copies: those from pinned memory later, in stream order, the others at the call, like CUDA."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from _fake_cuda import FakeCuda

PLAIN_TO, PLAIN_EMPTY, PLAIN_COPY = torch.Tensor.to, torch.empty, torch.Tensor.copy_


class GpuTensor(torch.Tensor):
    """Host memory that claims to be on the GPU."""

    fake: "FakeCopies"
    device = property(lambda self: torch.device("cuda", 0))

    def record_stream(self, stream: Any) -> None:
        self.fake.log.append(("record", stream.cuda_stream))

    @classmethod
    def __torch_function__(cls, function: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.copy_ and not isinstance(args[0], GpuTensor):
            return PLAIN_COPY(args[0], cls.fake.download(args[1]))
        return super().__torch_function__(function, classes, args, kwargs or {})


class FakeCopies(FakeCuda):
    """``queued`` holds the copies that the device has not performed yet; ``log`` also records when the host waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: list[Callable[[], Any]] = []
        self.made = 0
        self.pinned: dict[int, torch.UntypedStorage] = {}  # never freed, so no other memory gets the address
        self.pinned_left = 1 << 40
        fake = self

        class Event:
            def record(self, stream: Any) -> None:
                self.stream, self.behind = stream.cuda_stream, fake.made + len(fake.queued)

            def query(self) -> bool:
                return fake.made >= self.behind

            def synchronize(self) -> None:
                fake.log.append("host waits for an event")
                while not self.query():
                    fake.step()

        self.Event = Event

    def step(self) -> None:
        self.queued.pop(0)()
        self.made += 1

    def finish(self) -> None:
        while self.queued:
            self.step()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().install(monkeypatch)
        GpuTensor.fake = self
        monkeypatch.setattr(torch, "empty", self.empty)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda values: values.untyped_storage().data_ptr() in self.pinned)
        monkeypatch.setattr(torch.Tensor, "to", lambda values, *args, **kwargs: self.to(values, *args, **kwargs))

    def download(self, values: GpuTensor) -> torch.Tensor:
        self.log.append("host waits for a download")
        self.finish()
        return values.as_subclass(torch.Tensor)

    def empty(self, *args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        result = PLAIN_EMPTY(*args, **kwargs)
        if pin_memory:
            if result.nbytes > self.pinned_left:
                raise RuntimeError("CUDA error: out of memory")
            self.pinned_left -= result.nbytes
            self.pinned[result.untyped_storage().data_ptr()] = result.untyped_storage()
        return result

    def to(self, values: torch.Tensor, target: Any, *args: Any, copy: bool = False, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
        if isinstance(values, GpuTensor):
            return self.download(values).clone()
        if isinstance(target, torch.dtype) or torch.device(target).type != "cuda":
            return PLAIN_TO(values, target, *args, copy=copy, non_blocking=non_blocking, **kwargs)
        result = torch.full_like(values, 77)
        self.queued.append(lambda: result.copy_(values))
        if not (values.is_pinned() and non_blocking):
            self.log.append("host waits for an upload" if values.is_pinned() else "the driver stages an upload")
            self.finish()
        return result.as_subclass(GpuTensor)
