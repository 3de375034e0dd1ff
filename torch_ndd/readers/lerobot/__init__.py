# SPDX-License-Identifier: Apache-2.0
"""Frames of robot data in LeRobot's format."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack, override

from ..._core.context.device import DeviceLike
from ..._core.process.weak import WeakCall
from ..._core.suggestions import similar
from ..._core.values.batch import Batch, new_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...decoders._clips import MAX_GPU_THREADS, Clip, ClipDecoder, ClipRequest, Frames, VideoFacts, check_cache_bytes, join_frames
from ...decoders._video import codec, reason
from ...io._urls import is_url
from .._options import DecodingOptions, find_target
from .._threads import ThreadedReader, pack_samples
from ._columns import load_columns, select_episodes
from ._images import ImageColumns, ImageRequest
from ._layout import Episodes, Feature, Layout

_NEEDED = ("timestamp", "index", "episode_index")
_NO_FILL = torch.zeros(1, dtype=torch.uint8, device="cpu")


@dataclass(frozen=True)
class _DataSet:
    features: dict[str, Feature]
    """Those to deliver."""
    episodes: Episodes
    begins: np.ndarray
    """The first row of each episode in the columns."""
    ends: np.ndarray
    """The number of samples up to the end of each episode."""
    columns: dict[str, np.ndarray]
    tasks: dict[int, bytes] | None
    steps: dict[str, np.ndarray]
    """The frames of a window relative to the sample, by feature."""
    images: ImageColumns | None
    """The cameras that are stored as images."""
    image_rows: np.ndarray
    """The row of each frame in them."""


class _Request(NamedTuple):
    clips: ClipRequest
    images: ImageRequest | None


class LeRobot(ThreadedReader):
    """Read frames of robot data in LeRobot's format, v3.0 and v2.1: dicts of one batch for each feature.

    A sample is a frame of an episode. Features of numbers are float32, int64 or bool, in the shape that ``meta/info.json`` gives, () for ``[1]``;
    cameras are decoded videos, uint8, layout ``HWC``; ``task`` is the text of the frame's task, uint8 (length,). With ``delta_timestamps`` a feature
    is a window, with one more dimension: cameras have the layout ``FHWC``.

    Cameras that are stored as images in the Parquet files are decoded on the CPU, with the size in ``meta/info.json``; one channel there makes gray
    images. Row groups stay in memory as in :class:`Parquet`: in random order, few of them, or small ones, are read fastest.

    The frame of a video is the one with the number ``round((from_timestamp + timestamp) * average frames per second)``. A sample whose frame has
    another time is a bad sample, see ``on_error``. The frames that the samples of a batch need are decoded together: each group of pictures once,
    from its key frame to the last frame that is needed. The numbers of all frames are in memory: about 100 bytes a frame.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for consistency with the other readers.
        device: Where the outputs are, except texts, which stay in host memory. On a GPU its video decoder decodes, see :func:`decoders.video`.
        path: The folder of the data set, with ``meta``, ``data`` and ``videos``, or its URL (``hf://datasets/...``).
        delta_timestamps: For each feature that is a window, the seconds from the sample to each of its frames: ``{"action": [0, 0.1, 0.2]}``. They
            are multiples of the time between frames. A frame outside the episode is replaced by the first or the last one, and ``{name}_is_pad``,
            bool, is True for it.
        tolerance_s: The largest difference in seconds between a multiple and such a number, and between the time of a frame and the time wanted.
        episodes: Numbers of the episodes to read; by default all. They come in the order of their numbers.
        drop_first, drop_last: Frames at the beginning and the end of each episode that are not samples; windows may contain them.
        features: Names of the features to deliver; by default all but text.
        cache_bytes: Keep decoded frames up to this many bytes, for windows that overlap or come again; by default none.
        max_sample_bytes: The largest window of a camera, or row group of a Parquet file, to decode, as a protection against small files that promise
            a lot; by default the environment variable ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        ValueError: ``tolerance_s``, ``drop_first``, ``drop_last`` or ``cache_bytes`` that is not 0 or more; at the first step, a feature or episode
            that does not exist, or a number in ``delta_timestamps`` that is not a multiple of the time between frames.
        RuntimeError: at the first step, for a file that cannot be read or contradicts another one, or without pyarrow (``torch_ndd[parquet]``) or
            torchcodec (``torch_ndd[video]``); at any step, for a frame that cannot be decoded, or has another time.

    >>> reader = LeRobot(path="data/pusht", delta_timestamps={"action": [0, 0.1, 0.2]}, random_shuffle=True)  # doctest: +SKIP
    >>> batch = next(reader.next_epoch(64))  # doctest: +SKIP
    >>> batch["observation.image"].shape, batch["action"].shape, batch["action_is_pad"].shape  # doctest: +SKIP
    ((64, 96, 96, 3), (64, 3, 2), (64, 3))
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        path: str | os.PathLike[str],
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        episodes: Sequence[int] | None = None,
        drop_first: int = 0,
        drop_last: int = 0,
        features: Sequence[str] | None = None,
        cache_bytes: int | None = None,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        self._target = find_target("readers.LeRobot", device)
        super().__init__(max_batch_size, "cpu", loader)
        self._root = os.fspath(path)
        self._deltas = {key: self._as_seconds(key, seconds) for key, seconds in (delta_timestamps or {}).items()}
        for argument, value in (("tolerance_s", tolerance_s), ("drop_first", drop_first), ("drop_last", drop_last)):
            if not value >= 0:
                raise ValueError(f"{self._op}: {argument} must be 0 or more, got {value}")
        self._tolerance, self._drop_first, self._drop_last = float(tolerance_s), int(drop_first), int(drop_last)
        self._episodes = None if episodes is None else [int(episode) for episode in episodes]
        self._features = None if features is None else list(features)
        self._cache_bytes = check_cache_bytes(self._op, cache_bytes)
        self._clips = ClipDecoder(self._max_sample_bytes, self._cache_bytes, self._target)
        if self._target.type == "cuda":
            self._max_threads = MAX_GPU_THREADS
        self._data: _DataSet | None = None

    def _as_seconds(self, feature: str, value: Any) -> np.ndarray:
        """Return seconds of ``delta_timestamps`` as float64 (number of frames)."""
        try:
            seconds = np.asarray(value, np.float64)
        except (TypeError, ValueError):  # of texts, or of lists of several lengths
            seconds = np.empty(0)
        if seconds.ndim != 1 or not len(seconds) or not np.isfinite(seconds).all():
            raise ValueError(f"{self._op}: delta_timestamps of {feature!r} must be a list of seconds that is not empty, got {value!r:.200}")
        return seconds

    @property
    def stats(self) -> dict[str, dict[str, np.ndarray]]:
        """Statistics of the data set by feature: ``mean``, ``std``, ``min``, ``max`` and, in v3.0, quantiles such as ``q01`` and ``q99``.

        float32 in the shape of the feature; (channels,), in levels from 0 to 255, for a camera. Of v2.1 those of the episodes are merged.
        ``normalize(batch["action"], mean=stats["action"]["mean"], stddev=stats["action"]["std"])`` uses them.

        Raise RuntimeError if they cannot be read.
        """
        return Layout(self._op, self._root, self._max_sample_bytes).read_stats()

    @override
    def describe_bottleneck(self) -> tuple[str, str]:
        fewer = "read fewer frames (delta_timestamps, features), store smaller videos with more key frames"
        return "frames to be decoded", f"{fewer}, keep decoded frames (cache_bytes), or read further ahead (prefetch_queue_depth)"

    @override
    def scan(self) -> int:
        return int(self._load().ends[-1])

    def _load(self) -> _DataSet:
        """Return the data set, which a copy of the reader in another process loads again."""
        data = self._data
        if data is None:
            data = self._data = self._load_files()
        return data

    def _load_files(self) -> _DataSet:
        layout = Layout(self._op, self._root, self._max_sample_bytes)
        layout.add_own_columns()
        features = self._select(layout)
        steps = self._find_steps(layout, features)
        cameras = [name for name, feature in features.items() if feature.kind == "video"]
        if cameras:
            codec()
        episodes = select_episodes(layout, layout.read_episodes(cameras), self._episodes)
        missing = [name for name in _NEEDED if name not in layout.features]
        if missing:
            raise layout.error("meta/info.json", f"the features have no {missing[0]!r}")
        has_tasks = layout.features.get("task_index", Feature("", ())).kind == "int64"
        images = {name: feature for name, feature in features.items() if feature.kind == "image"}
        needed = [*_NEEDED, *(["task_index"] if has_tasks else []), *(name for name in features if name not in cameras and name not in images)]
        loaded = load_columns(layout, episodes, {name: layout.features[name] for name in dict.fromkeys(needed)})
        columns = loaded.values
        tasks = layout.read_tasks() if has_tasks else None
        unknown = set(np.unique(columns["task_index"]).tolist()) - set(tasks) if tasks is not None else None
        if unknown:
            raise layout.error("meta/tasks", f"there is no task {min(unknown)}, which frames have")
        # An episode that is shorter than what is dropped has no samples.
        kept = np.maximum(episodes.length - self._drop_first - self._drop_last, 0)
        begins = np.cumsum(episodes.length) - episodes.length
        self._remote = is_url(self._root)
        is_random = self._random_shuffle or self._shuffle_after_epoch
        stored = ImageColumns(layout, loaded.paths, loaded.total, images, self._max_sample_bytes, is_random) if images else None
        return _DataSet(features, episodes, begins, np.cumsum(kept), columns, tasks, steps, stored, loaded.rows)

    def _select(self, layout: Layout) -> dict[str, Feature]:
        names = self._features
        if names is None:
            names = [name for name, feature in layout.features.items() if feature.kind != "string"]
        for name in [*names, *self._deltas]:
            if name not in layout.features:
                raise ValueError(f"{self._op}: there is no feature {name!r}{similar(name, tuple(layout.features))}")
        features = {name: layout.features[name] for name in dict.fromkeys(names)}
        for name, feature in features.items():
            if feature.kind == "string":
                raise RuntimeError(f"{self._op}: feature {name!r} is neither a camera nor of numbers; leave it out with features=")
        return features

    def _find_steps(self, layout: Layout, features: Mapping[str, Feature]) -> dict[str, np.ndarray]:
        """Return the windows in frames. Raise ValueError for a time between two frames."""
        steps = {}
        for name, seconds in self._deltas.items():
            if name not in features:
                raise ValueError(f"{self._op}: delta_timestamps has {name!r}, which features= leaves out")
            # `~(a <= b)` below is also true for NaN.
            frames = np.rint(seconds * layout.rate)
            off = np.flatnonzero(~(np.abs(seconds - frames / layout.rate) <= self._tolerance) | (np.abs(frames) > 1 << 31))
            if len(off):
                raise ValueError(
                    f"{self._op}: delta_timestamps of {name!r}: {seconds[off[0]]} s is not a multiple of the time between frames, "
                    f"1/{layout.rate:g} s, within tolerance_s={self._tolerance}"
                )
            steps[name] = frames.astype(np.int64)
        return steps

    def _locate(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the episode of each sample, as a row of the table, and the frame in it."""
        ends = self._load().ends
        episode = np.searchsorted(ends, samples, "right")
        # Samples before each episode, with 0 for the first.
        before = np.concatenate([[0], ends])[episode]
        return episode, samples - before + self._drop_first

    def _source(self, sample: int) -> str:
        (episode,), (frame,) = self._locate(np.array([sample]))
        return f"{self._root}, frame {frame} of episode {self._load().episodes.number[episode]}"

    def _rows(self, name: str, episode: np.ndarray, frame: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the rows of a feature, (samples,) or (samples, window), and where a window leaves the episode."""
        data = self._load()
        steps = data.steps.get(name)
        if steps is None:
            return data.begins[episode] + frame, None
        wanted = frame[:, None] + steps
        # A window that leaves its episode repeats the first or last frame, and `is_pad` marks these.
        inside = np.clip(wanted, 0, data.episodes.length[episode][:, None] - 1)
        return data.begins[episode][:, None] + inside, inside != wanted

    @override
    def start(self, samples: np.ndarray) -> _Request:  # type: ignore[override]
        data = self._load()
        episode, frame = self._locate(samples)
        clips, choose = [], WeakCall(self._choose)  # the reader holds the request
        for camera, files in data.episodes.videos.items():
            rows, _ = self._rows(camera, episode, frame)
            # Times in the video: the begin of the episode there plus the time within the episode.
            times = data.episodes.video_begins[camera][episode][:, None] + data.columns["timestamp"][rows.reshape(len(samples), -1)]
            # The frames are chosen on the thread that opens the video, when its rate and length are known.
            clips += [Clip(files.paths[files.number[e]], partial(choose, seconds)) for e, seconds in zip(episode.tolist(), times, strict=True)]
        stored = None
        if data.images is not None:
            cameras = [name for name, feature in data.features.items() if feature.kind == "image"]
            stored = data.images.start({name: data.image_rows[self._rows(name, episode, frame)[0]] for name in cameras}, self._pool())
        return _Request(self._clips.start(clips, self._pool()), stored)

    def _choose(self, seconds: np.ndarray, video: VideoFacts) -> np.ndarray:
        """Return the numbers of the frames at some times."""
        video.check(len(seconds), self._max_sample_bytes)
        numbers = np.rint(seconds * video.rate)
        outside = np.flatnonzero(~((numbers >= 0) & (numbers < video.count)))
        if len(outside):
            raise RuntimeError(f"the video has {video.count} frames at {video.rate:g} per second, and none at {seconds[outside[0]]:.6f} s")
        return numbers.astype(np.int64)

    @override
    def finish(self, request: _Request, samples: np.ndarray) -> dict[str, Batch]:  # type: ignore[override]
        data = self._load()
        cameras = self._join_cameras(request, samples)
        episode, frame = self._locate(samples)
        outputs: dict[str, Batch] = {}
        for name in data.features:
            rows, is_pad = self._rows(name, episode, frame)
            outputs[name] = cameras[name] if name in cameras else new_batch(torch.from_numpy(data.columns[name][rows])).to_device(self._target)
            if is_pad is not None:
                outputs[f"{name}_is_pad"] = new_batch(torch.from_numpy(is_pad)).to_device(self._target)
        if data.tasks is not None:
            indices = data.columns["task_index"][data.begins[episode] + frame]
            outputs["task"] = pack_samples([np.frombuffer(data.tasks[task], np.uint8) for task in indices.tolist()])
        sources = tuple(map(self._source, samples.tolist()))
        for batch in outputs.values():
            # skip
            batch.sources = sources
        return outputs

    def _join_cameras(self, request: _Request, samples: np.ndarray) -> dict[str, Batch]:
        """Wait for the frames of all cameras. Raise UnreadableSamples with the camera and the file."""
        data, count = self._load(), len(samples)
        decoded = self._clips.finish(request.clips, self._pool())
        reasons: dict[int, str] = {}
        batches: dict[str, Batch] = {}
        if data.images is not None and request.images is not None:
            stored = data.images.finish(request.images, self._pool(), reasons)
            batches = {camera: batch.to_device(self._target) for camera, batch in stored.items()}
        for c, camera in enumerate(data.episodes.videos):
            clips = []
            # Clips are ordered by camera, with one per sample each.
            for k, frames in enumerate(decoded[c * count : (c + 1) * count]):
                clip = request.clips.clips[c * count + k]
                problem = reason(frames) if isinstance(frames, Exception) else self._compare_times(clip, frames)
                if problem:
                    reasons.setdefault(k, f"camera {camera!r}, {clip.path}: {problem}")
                elif isinstance(frames, Frames):
                    clips.append(frames)
            if not reasons:
                batches[camera] = join_frames(clips, _NO_FILL, "FHWC" if camera in data.steps else "HWC", self._target)
        if reasons:
            raise UnreadableSamples(reasons)
        return batches

    def _compare_times(self, clip: Clip, frames: Frames) -> str:
        """Return what is wrong with the times of frames; empty if nothing is."""
        wanted: np.ndarray = clip.choose.args[0]  # type: ignore[attr-defined]  # of a partial
        late = np.flatnonzero(~(np.abs(frames.seconds - wanted) <= self._tolerance))
        if not len(late):
            return ""
        k = late[0]
        times = f"frame {frames.numbers[k]} is at {frames.seconds[k]:.6f} s instead of {wanted[k]:.6f} s"
        return f"{times}, more than tolerance_s={self._tolerance} apart"

    def __getstate__(self) -> dict[str, Any]:
        # Decoders and open files belong to this process; the columns may take gigabytes, and are loaded again.
        return {**super().__getstate__(), "_clips": None, "_data": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._clips = ClipDecoder(self._max_sample_bytes, self._cache_bytes, self._target)
