# SPDX-License-Identifier: Apache-2.0
"""Cameras of a LeRobot data set that are stored as images in columns of its Parquet files."""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from ... import types
from ..._core.process.limits import check_sample
from ..._core.process.workers import Workers
from ..._core.values.batch import Batch, new_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...decoders.image import image
from ...io._urls import reason_of
from ..parquet import Parquet
from ..parquet._columns import with_files
from ._layout import Feature, Layout


@dataclass
class ImageRequest:
    """The images of some cameras that are being read and decoded: for each the rows of its frames, (samples,) or (samples, window)."""

    process: int
    rows: dict[str, np.ndarray]
    images: dict[str, Future[Batch]]


class _Files(Parquet):
    """The image columns of the data files, whose rows are numbered from the first file to the last."""

    def __init__(self, layout: Layout, paths: Sequence[str], cameras: Sequence[str], max_bytes: int, is_random: bool) -> None:
        super().__init__(path=paths, columns=cameras, max_sample_bytes=max_bytes, random_shuffle=is_random)
        self._op, self._root = layout.op, layout.root

    @override
    def _find_files(self, source: str) -> list[str]:
        return [source]

    def enter_process(self) -> None:
        """Forget what a forked child cannot use. Called before threads read."""
        self._check_process()

    def read(self, camera: str, rows: np.ndarray) -> Batch:
        """Return the contents of the image files of some rows of a camera."""
        # Not of all cameras: each has rows of its own, and a bad image of another one is not an error of these rows.
        return self._read_columns(rows, [column for column in self._selected if column.name == camera])[camera]

    def describe(self, row: int) -> str:
        """Return where a row is."""
        return self._source(row)

    @override
    def _read_files(self, column: Any, samples: np.ndarray, arrow: Any) -> Any:
        contents, paths = arrow.compute.struct_field(column, "bytes"), arrow.compute.struct_field(column, "path")
        missing = [k for k in np.flatnonzero(~np.asarray(contents.is_valid())).tolist() if not paths[k].as_py()]
        if missing:
            raise UnreadableSamples(dict.fromkeys(missing, "the image is missing: it has neither bytes nor a path"))
        return with_files(column, [self._root] * len(samples), arrow, self._max_sample_bytes, advice="")


class ImageColumns:
    """Read and decode the images of cameras. A request is started by the thread of the reader and computed by a pool.

    Args:
        layout: Description of the data set.
        paths: Its Parquet files; a row of an image counts from the beginning of the first one.
        rows: How many rows they have.
        cameras: The cameras and their features.
        max_bytes: The largest row group, and the largest window, to read.
        is_random: Whether frames are read in random order, which takes a larger cache of row groups.
    """

    def __init__(self, layout: Layout, paths: Sequence[str], rows: int, cameras: dict[str, Feature], max_bytes: int, is_random: bool) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[str, tuple[int, int, int]] = {}
        for name, feature in cameras.items():
            size = feature.image_size
            if size is None:
                expected = "[height, width, channels] or [channels, height, width], with 1 or 3 channels"
                raise layout.error("meta/info.json", f"camera {name!r} has the shape {list(feature.shape)} instead of {expected}")
            self._sizes[name] = size
        self._files = _Files(layout, paths, list(cameras), max_bytes, is_random)
        if self._files.scan() != rows:
            raise layout.error("data", "the files have changed while they were read")

    def start(self, rows: dict[str, np.ndarray], pool: Workers) -> ImageRequest:
        """Start reading the images of these rows, by camera."""
        self._files.enter_process()
        return ImageRequest(os.getpid(), rows, {camera: pool.submit(self._decode, camera, wanted) for camera, wanted in rows.items()})

    def finish(self, request: ImageRequest, pool: Workers, reasons: dict[int, str]) -> dict[str, Batch]:
        """Return the images, uint8, HWC, or FHWC for a window. Add the samples that cannot be read to ``reasons``."""
        if request.process != os.getpid():  # a fork inherits no threads
            request = self.start(request.rows, pool)
        images = {}
        for camera, future in request.images.items():
            try:
                images[camera] = future.result()
            except UnreadableSamples as bad:
                for k, reason in bad.reasons.items():
                    reasons.setdefault(k, f"camera {camera!r}, {reason}")
        return images

    def _decode(self, camera: str, wanted: np.ndarray) -> Batch:
        """Return the images of some rows, each decoded once. Raise UnreadableSamples with the samples to which bad ones belong."""
        height, width, channels = self._sizes[camera]
        window = wanted.reshape(len(wanted), -1)
        try:
            check_sample(f"{window.shape[1]} images of {height}x{width} have", window.shape[1] * height * width * channels, self._max_bytes)
        except (RuntimeError, MemoryError) as error:
            raise UnreadableSamples(dict.fromkeys(range(len(wanted)), str(error))) from None
        rows, places = np.unique(window, return_inverse=True)
        places = places.reshape(window.shape)
        try:
            files = self._files.read(camera, rows)
            pixels = _decode_images(files, (height, width, channels))
        except UnreadableSamples as bad:
            reasons = {}
            for k, reason in bad.reasons.items():
                source = self._files.describe(int(rows[k]))
                reasons |= dict.fromkeys(np.flatnonzero((places == k).any(1)).tolist(), f"{source}: {reason}")
            raise UnreadableSamples(reasons) from None
        if wanted.ndim == 1 and np.array_equal(places[:, 0], np.arange(len(rows))):
            return new_batch(pixels, None, "HWC")
        output = torch.from_numpy(pixels.numpy()[places])  # by NumPy: torch splits a copy among threads, which wait for each other
        return new_batch(output, None, "FHWC") if wanted.ndim == 2 else new_batch(output[:, 0], None, "HWC")


def _decode_images(files: Batch, size: tuple[int, int, int]) -> torch.Tensor:
    """Return images of one size, (images, height, width, channels). Raise UnreadableSamples for those that are damaged or have another size."""
    height, width, channels = size
    if files.buffer.dtype != torch.uint8 or len(files.shape[0]) != 1:
        raise UnreadableSamples(dict.fromkeys(range(files.batch_size), "the column does not have encoded images"))
    try:
        # An image with more pixels than the camera has is refused by its header.
        decoded = image(
            files, device="cpu", max_pixels=max(1, height * width), output_type=types.RGB if channels == 3 else types.GRAY, on_error="replace"
        ).evaluate()
    except (RuntimeError, MemoryError) as error:
        raise UnreadableSamples(dict.fromkeys(range(files.batch_size), reason_of(error))) from None
    reasons = {bad.sample: bad.reason for bad in decoded.errors}
    for k, found in enumerate(decoded.shape):
        if found != size and k not in reasons:
            reasons[k] = f"the image has the size {found[0]}x{found[1]} instead of {height}x{width}"
    if reasons:
        raise UnreadableSamples(reasons)
    return decoded.torch()
