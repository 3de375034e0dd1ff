# SPDX-License-Identifier: Apache-2.0
"""A fake of torchcodec's decoders whose frames are known: frame k of a video is gray of level ``10 + 3 * k``, as NVDEC would return it."""

import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from torch_ndd.decoders import _frame_sources

HEIGHT, WIDTH = 64, 96
RATE = 10


def level_of(number: int) -> int:
    return 10 + 3 * number


@dataclass
class FakeVideo:
    """A video, and what is wrong with it."""

    count: int = 25
    group: int = 8  # frames from key frame to key frame
    delay: int = 2  # packets that the decoder takes before it returns the first frame
    present: int | None = None  # frames that the file has, if fewer than its index promises
    lost: tuple[int, ...] = ()  # frames that the decoder leaves out
    damaged: tuple[int, ...] = ()  # packets that the decoder rejects
    large: tuple[int, ...] = ()  # frames of another size
    pixel_format: str = "nv12"
    rotation: float = 0.0
    has_length: bool = True  # in its header, which opening it without a scan needs
    codec: str = "h264"


@dataclass
class FakeTorchcodec:
    """Replaces the module ``torchcodec.decoders``. Sources are paths and contents of files, whose first byte selects the video."""

    videos: dict[int, FakeVideo] = field(default_factory=lambda: {0: FakeVideo()})
    fallback: str = ""  # why torchcodec decodes on the CPU
    error: str = ""  # of creating a decoder for a GPU
    has_packets: bool = True
    late: int = 0  # bytes that are copied on the GPU's stream before each frame, so it comes later
    packets: list[int] = field(default_factory=list)  # decoded for a device
    seeks: list[float] = field(default_factory=list)
    open: int = 0  # decoders for a device
    most_open: int = 0
    probes: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "FakeTorchcodec":
        fake = self

        def find_video(source: Any) -> FakeVideo:
            if isinstance(source, torch.Tensor):
                return fake.videos[int(source[-1])]
            if hasattr(source, "read"):
                return fake.videos[source.read(1 << 20)[-1]]
            with open(source, "rb") as file:
                return fake.videos[file.read()[-1]]

        class Stream:
            def __init__(self, source: Any) -> None:
                self.video = find_video(source)
                self.metadata = SimpleNamespace(codec=self.video.codec, pixel_format="yuv420p", height=HEIGHT, width=WIDTH)

            def scan(self) -> Any:
                times = np.arange(self.video.count) / RATE
                keys = np.arange(0, self.video.count, self.video.group)
                return SimpleNamespace(
                    pts_seconds=torch.from_numpy(times),
                    key_frame_indices=torch.from_numpy(keys),
                    average_fps_from_content=float(RATE),
                    key_frame_seconds_for=lambda seconds: float(times[keys[np.searchsorted(keys, round(seconds * RATE), "right") - 1]]),
                )

            def make_decoder(self, device: str) -> Any:
                return PacketDecoder(self.video, torch.device(device))

        class Demuxer:
            def __init__(self, source: Any) -> None:
                self.streams = (Stream(source),)
                self.at = 0

            def __next__(self) -> int:
                video = self.streams[0].video
                if self.at >= (video.count if video.present is None else video.present):
                    raise StopIteration
                self.at += 1
                return self.at - 1

            def seek(self, seconds: float) -> None:
                fake.seeks.append(seconds)
                self.at = round(seconds * RATE)

        class PacketDecoder:
            def __init__(self, video: FakeVideo, device: torch.device) -> None:
                self.video, self.device, self.waiting = video, device, list[int]()
                fake.open += 1
                fake.most_open = max(fake.most_open, fake.open)

            def __del__(self) -> None:
                fake.open -= 1

            def decode(self, packet: int) -> list[Any]:
                fake.packets.append(packet)
                if packet in self.video.damaged:
                    raise RuntimeError("decode, /src/x.cpp:7, Failed to send packet to decoder (status -542398533)")
                self.waiting.append(packet)
                return self.take(len(self.waiting) - self.video.delay)

            def take(self, count: int) -> list[Any]:
                numbers = [self.waiting.pop(0) for _ in range(count)]
                if fake.late and numbers:
                    torch.empty(fake.late, dtype=torch.uint8, device=self.device).copy_(torch.empty(fake.late, dtype=torch.uint8, device=self.device))
                return [raw_frame(self.video, number, self.device) for number in numbers if number not in self.video.lost]

            def drain(self) -> list[Any]:
                return self.take(len(self.waiting))

            def reset(self) -> None:
                self.waiting.clear()

        class VideoDecoder:
            """Decodes on the CPU."""

            def __init__(self, source: Any, *, device: str, seek_mode: str, dimension_order: str = "NCHW", num_ffmpeg_threads: int = 1) -> None:
                if dimension_order == "NCHW":
                    fake.probes += 1
                    if fake.error:
                        raise RuntimeError(fake.error)
                self.video, self.cpu_fallback = find_video(source), fake.fallback
                if seek_mode == "approximate" and not self.video.has_length:
                    raise ValueError("the header has no length")
                count = self.video.count
                self.metadata = SimpleNamespace(num_frames=count, average_fps=float(RATE), height=HEIGHT, width=WIDTH, begin_stream_seconds=0.0)

            def _get_key_frame_indices(self) -> torch.Tensor:
                return torch.arange(0, self.video.count, self.video.group)

            def get_frame_at(self, number: int) -> Any:
                return SimpleNamespace(data=torch.full((HEIGHT, WIDTH, 3), level_of(number), dtype=torch.uint8), pts_seconds=number / RATE)

            def get_frames_at(self, numbers: torch.Tensor) -> Any:
                frames = [self.get_frame_at(number).data for number in numbers.tolist()]
                return SimpleNamespace(data=torch.stack(frames), pts_seconds=numbers.double() / RATE)

            def get_frames_in_range(self, start: int, stop: int, step: int) -> Any:
                return self.get_frames_at(torch.arange(start, stop, step))

        module = SimpleNamespace(VideoDecoder=VideoDecoder, set_cuda_backend=lambda name: contextlib.nullcontext())
        if self.has_packets:
            module.Demuxer = Demuxer
        monkeypatch.setitem(sys.modules, "torchcodec.decoders", module)  # type: ignore[arg-type]
        monkeypatch.setattr(_frame_sources, "_refusals", {})
        monkeypatch.setattr(_frame_sources, "_warned", set())
        return self


def raw_frame(video: FakeVideo, number: int, device: torch.device) -> Any:
    """Return a frame like torchcodec's RawFrame: views of the planes in one buffer, with padded rows unless chroma has full size."""
    height = HEIGHT + 2 * (number in video.large)
    deep = video.pixel_format.startswith(("p01", "yuv444p16"))
    kind, scale = (np.uint16, 256) if deep else (np.uint8, 1)
    if video.pixel_format.startswith("yuv444"):
        surface = np.full((3, height, WIDTH), 128 * scale, kind)
        surface[0] = level_of(number) * scale
        planes = torch.from_numpy(surface).to(device, non_blocking=True).unbind()
    else:
        surface = np.zeros((height * 3 // 2, 128), kind)
        surface[:height, :WIDTH] = level_of(number) * scale
        surface[height:, :WIDTH] = 128 * scale
        memory = torch.from_numpy(surface).to(device, non_blocking=True)
        planes = (memory[:height, :WIDTH], *memory[height:, :WIDTH].unflatten(1, (WIDTH // 2, 2)).unbind(2))
    return SimpleNamespace(
        planes=planes,
        pixel_format=video.pixel_format,
        bit_depth=16 if "16" in video.pixel_format else 10 if deep else 8,
        color_space="bt709",
        color_range="pc",
        rotation=video.rotation,
        pts_seconds=number / RATE,
        duration_seconds=1 / RATE,
    )


def read_levels(frames: Any) -> list[int]:
    """Return the numbers of gray frames, (F, H, W, 3); -1 for another color."""
    pixels = np.asarray(frames)
    levels = pixels.reshape(len(pixels), -1)
    assert (levels == levels[:, :1]).all()
    return [(int(level) - 10) // 3 if (int(level) - 10) % 3 == 0 else -1 for level in levels[:, 0]]


def contents_of(number: int) -> bytes:
    """Return the contents of a file that selects a video; it begins like MP4."""
    return b"\0\0\0\x18ftypisom" + bytes([number])


def write(folder: Path, count: int = 1) -> list[str]:
    """Write the files of the first videos."""
    paths = [folder / f"{number}.mp4" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(contents_of(number))
    return list(map(str, paths))
