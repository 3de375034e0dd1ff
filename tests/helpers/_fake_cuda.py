# SPDX-License-Identifier: Apache-2.0
"""Two fake GPUs: ``torch.cuda`` is replaced by a log of its calls, so stream rules can be tested without a GPU."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torch_ndd._core.context import cuda


class FakeCuda:
    """Replaces ``torch.cuda``; ``log`` records the operations on streams."""

    def __init__(self, devices: int = 2) -> None:
        self.devices = devices
        self.log: list[tuple[Any, ...]] = []
        self.local = threading.local()
        self.forked = False
        self.capturing = False
        self.problem: bytes | None = None  # why the library has no streams
        self.next_handle = 0x1000
        fake = self

        class Stream:
            def __init__(self, device: Any = None, handle: int | None = None) -> None:
                self.device_index = fake.current_device() if device is None else torch.device("cuda", device).index
                if handle is None:
                    fake.next_handle += 16
                    handle = fake.next_handle
                self.cuda_stream = self.stream_id = handle
                self.device_type = 1

            @property
            def device(self) -> torch.device:
                return torch.device("cuda", self.device_index)

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (other.cuda_stream, other.device_index)

            def __hash__(self) -> int:
                return hash(self.cuda_stream)

            def synchronize(self) -> None:
                fake.log.append(("synchronize", self.cuda_stream))

            def wait_stream(self, other: Any) -> None:
                fake.log.append(("wait_stream", self.cuda_stream, other.cuda_stream))

            def wait_event(self, event: Any) -> None:
                fake.log.append(("wait_event", self.cuda_stream, event.stream))

        class Event:
            def record(self, stream: Any) -> None:
                self.stream = stream.cuda_stream

        class Guard:
            def __init__(self, device: Any) -> None:
                self.device = device if isinstance(device, int) else torch.device(device).index

            def __enter__(self) -> None:
                self.before, fake.local.device = fake.current_device(), self.device

            def __exit__(self, *error: object) -> None:
                fake.local.device = self.before

        self.Stream, self.Event, self.Guard = Stream, Event, Guard
        self.defaults = [Stream(k, 0) for k in range(devices)]

    def current_device(self) -> int:
        return getattr(self.local, "device", 0)

    def current_stream(self, device: Any = None) -> Any:
        index = self.current_device() if device is None else torch.device(device).index
        return getattr(self.local, "streams", {}).get(index, self.defaults[index])

    def set_stream(self, stream_id: int, device_index: int, device_type: int) -> None:
        stream = next((default for default in self.defaults if (stream_id, device_index) == (0, default.device_index)), None)
        self.local.streams = {**getattr(self.local, "streams", {}), device_index: stream or self.Stream(device_index, stream_id)}

    def find_own_stream(self, device: int, handle: Any) -> bytes | None:
        """Do what ``ndd_cuda_stream`` does."""
        handle._obj.value = None if self.problem else self.Stream(device).cuda_stream
        return self.problem

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before = dict(getattr(self.local, "streams", {}))
        self.local.streams = {**before, stream.device_index: stream}
        yield
        self.local.streams = before

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replaced = {
            "is_available": lambda: True,
            "device_count": lambda: self.devices,
            "_is_in_bad_fork": lambda: self.forked,
            "is_current_stream_capturing": lambda: self.capturing,
            "current_device": self.current_device,
            "device": self.Guard,
            "current_stream": self.current_stream,
            "default_stream": lambda device=None: self.defaults[self.current_device() if device is None else device],
            "stream": self.stream,
            "Stream": self.Stream,
            "Event": self.Event,
            "ExternalStream": lambda handle, device=None: self.Stream(device, handle),
        }
        for name, value in replaced.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(cuda, "_cuda_stream", self.find_own_stream)
        of_torch = {
            "_cuda_getDevice": self.current_device,
            "_cuda_getCurrentRawStream": lambda index: self.current_stream(f"cuda:{index}").cuda_stream,
            "_cuda_getCurrentStream": lambda index: (self.current_stream(f"cuda:{index}").cuda_stream, index, 1),
            "_cuda_setStream": self.set_stream,
        }
        for name, value in of_torch.items():
            monkeypatch.setattr(torch._C, name, value, raising=False)


class FakeTensor:
    """A tensor on a fake GPU, as far as streams are concerned."""

    def __init__(self, fake: FakeCuda, name: str, device: int = 0) -> None:
        self.fake, self.name, self.device = fake, name, torch.device("cuda", device)

    def record_stream(self, stream: Any) -> None:
        self.fake.log.append(("record", self.name, stream.cuda_stream))
