# SPDX-License-Identifier: Apache-2.0
"""When events are recorded after work on CUDA streams, with streams and events that only count."""

import contextlib
from typing import Any

import pytest
import torch

from torch_ndd._core.work import cuda_work
from torch_ndd._core.work.cuda_work import StreamWork


class FakeStream:
    """A stream with a handle, and the events that it waits for."""

    device_index, device = 0, torch.device("cuda:0")

    def __init__(self, handle: int) -> None:
        self.cuda_stream, self.waits = handle, []

    def wait_event(self, event: Any) -> None:
        self.waits.append(event)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FakeStream, str]]:
    """The events recorded so far: their streams and names."""
    events: list[tuple[FakeStream, str]] = []

    def record(stream: Any) -> Any:
        events.append((stream, f"event {len(events)}"))
        return events[-1][1]

    monkeypatch.setattr(cuda_work, "record_event", record)
    monkeypatch.setattr(cuda_work, "Switch", contextlib.nullcontext)
    monkeypatch.setattr(cuda_work, "_latest_events", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return events


def wait_on(work: StreamWork, stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: stream.cuda_stream, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    work.wait()


def test_event_is_recorded_when_another_stream_waits(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours: Any = FakeStream(1)
    other: Any = FakeStream(2)
    work = StreamWork(ours, [])
    wait_on(work, ours, monkeypatch)
    assert not events
    wait_on(work, other, monkeypatch)
    wait_on(work, other, monkeypatch)  # has waited already
    assert events == [(ours, "event 0")]
    assert other.waits == ["event 0"]


def test_results_share_an_event_until_the_next_launch(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours: Any = FakeStream(1)
    other: Any = FakeStream(2)
    works = [StreamWork(ours, []) for _ in range(3)]
    for work in reversed(works):
        wait_on(work, other, monkeypatch)
    assert other.waits == ["event 0"] * 3
    later = StreamWork(ours, [])
    wait_on(later, other, monkeypatch)
    assert other.waits[3:] == ["event 1"]
    elsewhere: Any = FakeStream(3)
    wait_on(StreamWork(elsewhere, []), other, monkeypatch)
    assert events[2:] == [(elsewhere, "event 2")]


def test_no_event_is_recorded_on_a_stream_under_capture(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event would draw the stream that waits for it into the graph; the work has ended when the capture begins."""
    other: Any = FakeStream(2)
    work = StreamWork(FakeStream(1), [])  # type: ignore[arg-type]
    states = iter([False, True])  # of the stream that waits, then of the one that did the work
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: next(states))
    wait_on(work, other, monkeypatch)
    assert not events
    assert not other.waits
