# SPDX-License-Identifier: Apache-2.0
"""The frame sequences of a set of videos."""

import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..._core.process.files import text_of
from ..._core.process.workers import Workers
from ...decoders._video import Video, reason
from ...io._urls import is_url, list_names, read_all

_VIDEO = re.compile(rb"(?s).*\.(3gp|avi|flv|m4v|mkv|mov|mp4|mpeg|mpg|ogv|ts|webm|wmv)\Z", re.IGNORECASE)
_THREADS = 2 + len(os.sched_getaffinity(0))


class Listed(NamedTuple):
    """A video and the part of it to use, as given by the arguments."""

    path: str
    label: int
    start: float | None = None
    end: float | None = None


class Span(NamedTuple):
    """The frames of a video from ``start`` up to ``end``, exclusive."""

    video: int  # its index among the listed videos
    start: int
    end: int


@dataclass
class VideoIndex:
    """All sequences, as arrays: ten million take 120 MB."""

    listed: list[Listed]
    video: np.ndarray  # int32, index of the listed video
    start: np.ndarray  # int64, the first frame
    end: np.ndarray  # int64, after the last frame that may be used

    @property
    def size(self) -> int:
        return len(self.video)

    def source(self, sample: int) -> str:
        return f"{self.listed[self.video[sample]].path}, from frame {self.start[sample]}"


class Limits(NamedTuple):
    """Interpretation of the start and the end of a listed video."""

    frames: bool  # frame numbers rather than seconds
    start_up: bool  # a time between two frames means the second one
    end_up: bool


def spans(op: str, listed: Sequence[Listed], limits: Limits, most: int, bad: Callable[[str, str], None]) -> list[Span]:
    """Return the part of each video to use. ``bad`` is called with the path of a video that cannot be opened, and the reason.

    ``most``: the bytes of a sample.
    """

    def span(number: int) -> Span | tuple[str, str]:
        entry = listed[number]
        try:
            video = Video(entry.path, max_bytes=most)
            count = video.count
            if limits.frames or (entry.start is None and entry.end is None):
                start, end = (0 if entry.start is None else int(entry.start)), (count if entry.end is None else int(entry.end))
                # Negative numbers count from the end.
                start, end = start + count * (start < 0), end + count * (end < 0)
                if start < 0 or end < 0:
                    raise ValueError(f"frames {entry.start:g} to {entry.end:g} begin before the first of {count}")
            else:
                start, end = _frames_of_times(video, entry, limits)
        except Exception as error:  # torchcodec has several types
            return entry.path, reason(error)
        # A list may claim more frames than the video has.
        return Span(number, min(start, count), min(end, count))

    with Workers(_THREADS, op) as pool:
        spans = list(pool.map(span, range(len(listed))))
    for result in spans:
        if not isinstance(result, Span):
            bad(*result)
    return [result for result in spans if isinstance(result, Span)]


def _frames_of_times(video: Video, entry: Listed, limits: Limits) -> tuple[int, int]:
    start = 0 if entry.start is None else video.frame_at(entry.start, limits.start_up)
    return start, video.count if entry.end is None else video.frame_at(entry.end, limits.end_up)


def sequences(found: Sequence[Span], length: int, step: int, stride: int, padded: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return video, first frame and end of each sequence. ``padded``: also the first incomplete sequence of a video."""
    videos, starts, ends = [], [], []
    for span in found:
        # Number of positions at which a whole sequence fits, minus one; negative if none does.
        room = span.end - span.start - (length - 1) * stride
        count = max(-(-room // step), 0)
        # One more sequence, which begins before the end and is filled up.
        if padded and span.start + count * step < span.end:
            count += 1
        videos.append(np.full(count, span.video, np.int32))
        starts.append(span.start + step * np.arange(count, dtype=np.int64))
        ends.append(np.full(count, span.end, np.int64))
    nothing = np.empty(0, np.int64)
    return np.concatenate([nothing.astype(np.int32), *videos]), np.concatenate([nothing, *starts]), np.concatenate([nothing, *ends])


def uniform_frames(start: int, end: int, length: int) -> np.ndarray:
    """Return ``length`` equidistant frames from the first to the last one; half a frame is rounded up."""
    # floor(x + 0.5), because np.rint rounds halves to even.
    return np.floor(np.linspace(start, end - 1, length) + 0.5).astype(np.int64)


def from_list(op: str, path: str) -> list[Listed]:
    """Parse the lines ``path label [start [end]]`` of a file. If it is at a URL, relative paths start there."""
    folder = path.rpartition("/")[0] if is_url(path) else ""
    entries = []
    try:
        lines = io.StringIO(text_of(read_all(path)).decode(), newline=None).readlines()
    except OSError as error:
        raise RuntimeError(f'{op}: file_list "{path}" cannot be read: {error.strerror}') from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        parsed = _parse_line(line.split())
        if parsed is None:
            raise RuntimeError(f'{op}: "{path}", line {number}: expected path, label and perhaps start and end, got {line.strip()!r}')
        entries.append(parsed._replace(path=f"{folder}/{parsed.path}") if folder and not _stands_alone(parsed.path) else parsed)
    if not entries:
        raise RuntimeError(f'{op}: No files found in "{path}"')
    return entries


def _stands_alone(path: str) -> bool:
    return is_url(path) or os.path.isabs(path)


def _parse_line(words: list[str]) -> Listed | None:
    """Parse a line from its end, because the path may contain blanks."""
    numbers: list[float] = []
    while words and len(numbers) < 3:
        try:
            numbers.insert(0, float(words[-1]))
        except ValueError:
            break
        # Up to three numbers from the end: label, start, end; the rest is the path, even if it has blanks.
        words.pop()
    if not words or not numbers or not numbers[0].is_integer():
        return None
    return Listed(" ".join(words), int(numbers[0]), *numbers[1:])


def from_folder(op: str, root: str) -> list[Listed]:
    """List the videos in the subdirectories of a folder, which have the labels 0, 1, ..."""
    try:
        folders = list_names(os.fsencode(root), re.compile(b""), True)
        files = [list_names(os.path.join(os.fsencode(root), name), _VIDEO, False) for name in folders]
    except OSError as error:
        raise RuntimeError(f'{op}: file_root "{os.fsdecode(error.filename)}" cannot be opened: {error.strerror}') from None
    entries = [
        Listed(os.path.join(root, os.fsdecode(folder), os.fsdecode(name)), label) for label, folder in enumerate(folders) for name in files[label]
    ]
    if not entries:
        raise RuntimeError(f'{op}: No videos found in the subdirectories of "{root}"')
    return entries
