# SPDX-License-Identifier: Apache-2.0
"""Dense optical flow of sequences by OpenCV."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ... import types
from ..._core.context.context import EvalContext
from ..._core.operators.operator import DeviceLike, T, launch, operator
from ..._core.optional import import_optional
from ..._core.process.workers import Workers
from ..._core.values.batch import Batch, empty_batch

_OUTPUT_GRIDS, _HINT_GRIDS = (1, 2, 4), (1, 2, 4, 8)
_CHANNELS = {types.RGB: 3, types.BGR: 3, types.GRAY: 1}
# OpenCV's search uses patches of 8 pixels and computes something only if the longer side has 16 of them.
_PATCH, _LEAST = 8, 16


class _Quality(NamedTuple):
    """Settings of OpenCV's search: a preset, and the pyramid level at which it ends (0 is full resolution)."""

    preset: str
    finest: int


# By the upper end of `preset`, with DALI's limits. For a photo of 512x512 rotated by 3 degrees they take 240, 30 and 2 ms, with mean errors of 0.14,
# 0.31 and 0.75 pixels.
_QUALITIES = ((0.375, _Quality("MEDIUM", 0)), (0.75, _Quality("FAST", 1)), (math.inf, _Quality("ULTRAFAST", 2)))


@operator(layouts=("FHWC",), reads_values=True, kernel=None)
def optical_flow(
    input_0: T,
    input_1: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    enable_external_hints: bool = False,
    enable_temporal_hints: bool = False,
    hint_grid: int = 4,
    image_type: types.DALIImageType = types.RGB,
    output_format: int | None = None,
    output_grid: int = 4,
    preset: float = 0.0,
) -> T:
    """Compute the optical flow from each frame of a sequence to the frame before.

    A sequence of F frames has F - 1 fields. Vector (x, y) of field f is the displacement, in pixels of the input, from frame f + 1 back to frame f:
    ``frame[f + 1][y, x]`` looks like ``frame[f][y + v[1], x + v[0]]``. This is DALI's direction.

    DALI uses the GPU's optical flow engine. Here OpenCV's dense inverse search runs on the CPU (Kroeger et al., "Fast Optical Flow using Dense
    Inverse Search", 2016), at the call, with the threads of the context: ``pip install torch_ndd[flow]``. Both find the same motion, but with
    different digits.

    Args:
        input_0: uint8 sequences ``FHWC`` of at least two frames, with the channels of ``image_type``.
        input_1: With ``enable_external_hints``, approximate fields: (F - 1, rows, columns, 2), one vector per cell of ``hint_grid``. Otherwise
            ignored.
        batch_size: Number of samples, if no argument determines it.
        device: Where to compute; the CPU only.
        enable_external_hints: Start the search from ``input_1``.
        enable_temporal_hints: Start the search of every field except the first from the field before, unless there are external hints. The fields of
            a sequence are then computed sequentially instead of in parallel.
        hint_grid: Width and height in pixels of a cell of ``input_1``: 1, 2, 4 or 8.
        image_type: ``types.RGB``, ``types.BGR`` or ``types.GRAY``. The search uses the luma.
        output_format: Old name of ``output_grid``.
        output_grid: Width and height in pixels of a cell of the output: 1, 2 or 4. Its vector is the mean over the cell.
        preset: From 0, the best and slowest, through 0.5 to 1, the fastest.

    Returns:
        float32 ``FHWC``: (F - 1, ceil(H / output_grid), ceil(W / output_grid), 2).

    Raises:
        ImportError: OpenCV is not installed.
        RuntimeError: a wrong type, number of channels, number of frames, or grid; hints that are missing, not finite or of another size; input on a
            GPU.

    >>> y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    >>> frames = [(127 + 120 * torch.sin((x + shift) / 5) * torch.cos(y / 6))[..., None].to(torch.uint8) for shift in (0, 2)]
    >>> flow = optical_flow(torch.stack(frames), image_type=types.GRAY).torch()
    >>> flow.shape, flow[0, 8, 8].round()
    (torch.Size([1, 16, 16, 2]), tensor([2., 0.]))
    """
    frames: Batch = input_0  # type: ignore[assignment]
    hints: Batch | None = input_1 if enable_external_hints else None  # type: ignore[assignment]
    if output_format is not None:
        if isinstance(output_format, bool) or not isinstance(output_format, int):
            raise TypeError(f"optical_flow: output_format must be an int, got {output_format!r}")
        if output_grid != 4 and output_grid != output_format:
            raise TypeError("optical_flow: output_format is an old name of output_grid; give only one of them")
        output_grid = output_format
    _check(frames, hints, enable_external_hints, hint_grid, image_type, output_grid, preset)
    quality = next(quality for limit, quality in _QUALITIES if preset < limit)
    cv2 = import_optional("cv2", "optical_flow on the CPU needs OpenCV", "flow", ImportError)

    shapes = [tuple(sequence.shape) for sequence in frames]
    sizes = [(f - 1, math.ceil(h / output_grid), math.ceil(w / output_grid), 2) for f, h, w, _ in shapes]
    extents = list(sizes[0]) if len(set(sizes)) == 1 else [torch.tensor(column) for column in zip(*sizes, strict=True)] if sizes else [0, 0, 0, 2]
    out = empty_batch(frames.batch_size, extents, torch.float32, torch.device("cpu"), "FHWC")
    out.sources = frames.sources

    def work() -> Iterator[Callable[[], None]]:
        for i, (video, fields) in enumerate(zip(frames, out, strict=True)):
            if fields.buffer.numel() == 0:
                continue
            hint = None if hints is None else hints.select(i).buffer.float().numpy()
            sequence = _Sequence(
                cv2, quality, _name(frames, i), video.buffer.numpy(), hint, hint_grid, int(image_type), output_grid, fields.buffer.numpy()
            )
            yield from sequence.tasks(enable_temporal_hints)

    with Workers(max(1, EvalContext.current().num_threads), "optical_flow") as pool:
        try:
            for done in [pool.submit(task) for task in work()]:
                done.result()
        # Tasks that have not begun are dropped after an error.
        finally:
            pool.shutdown(cancel_futures=True)
    return launch((), also=(out,))


class _Sequence:
    """One sample: its frames, its hints, and the output of its fields."""

    def __init__(
        self,
        cv2: Any,
        quality: _Quality,
        name: str,
        frames: np.ndarray,
        hints: np.ndarray | None,
        hint_grid: int,
        image_type: int,
        output_grid: int,
        fields: np.ndarray,
    ) -> None:
        self.cv2, self.quality, self.name, self.frames, self.hints, self.fields = cv2, quality, name, frames, hints, fields
        self.hint_grid, self.image_type, self.output_grid = hint_grid, image_type, output_grid

    def tasks(self, temporal: bool) -> Iterator[Callable[[], None]]:
        """Return the tasks that can run in parallel."""
        # With temporal hints each field starts from the one before.
        if temporal and self.hints is None:
            yield self._one_after_the_other
        else:
            for f in range(len(self.fields)):
                yield lambda f=f: self._store(f, self._flow(f, self._hint(f)))

    def _one_after_the_other(self) -> None:
        field = None
        for f in range(len(self.fields)):
            field = self._flow(f, field)
            self._store(f, field)

    def _flow(self, f: int, start: np.ndarray | None) -> np.ndarray:
        """Return the field of two frames, in every pixel, after padding them to a sufficient size."""
        # With fewer patches than the coarsest level of its pyramid needs, OpenCV 5.0.0 ends the process.
        later, earlier = self._gray(f + 1), self._gray(f)
        height, width = later.shape
        coarsest = min(int(math.log2(max(height, width) / (4 * _PATCH)) + 0.5), int(math.log2(min(height, width) / _PATCH)))
        try:
            search = self.cv2.DISOpticalFlow.create(getattr(self.cv2, "DISOPTICAL_FLOW_PRESET_" + self.quality.preset))
            search.setFinestScale(max(0, min(self.quality.finest, coarsest)))
            return search.calc(later, earlier, start)
        except self.cv2.error as error:
            raise RuntimeError(f"optical_flow: {self.name}, frame {f + 1}: {error}") from None

    def _gray(self, f: int) -> np.ndarray:
        frame = self.frames[f]
        if self.image_type == types.GRAY:
            gray = frame[..., 0]
        else:
            gray = self.cv2.cvtColor(frame, self.cv2.COLOR_RGB2GRAY if self.image_type == types.RGB else self.cv2.COLOR_BGR2GRAY)
        height, width = gray.shape
        more = (0, max(0, _LEAST - height)), (0, max(0, _LEAST - width))
        return np.ascontiguousarray(np.pad(gray, more, "edge") if more != ((0, 0), (0, 0)) else gray)

    def _hint(self, f: int) -> np.ndarray | None:
        """Return the hints at full resolution; vectors that leave the image are dropped, because OpenCV must not get them."""
        if self.hints is None:
            return None
        height, width = (max(_LEAST, extent) for extent in self.frames.shape[1:3])
        rows, columns = self.hints.shape[1:3]
        limit = max(height, width)
        enlarged = self.cv2.resize(
            np.clip(self.hints[f], -limit, limit), (columns * self.hint_grid, rows * self.hint_grid), interpolation=self.cv2.INTER_LINEAR
        )
        down, right = max(0, height - enlarged.shape[0]), max(0, width - enlarged.shape[1])
        return np.ascontiguousarray(np.pad(enlarged, ((0, down), (0, right), (0, 0)), "edge")[:height, :width])

    def _store(self, f: int, field: np.ndarray) -> None:
        """Return means over cells; those at the lower and right borders may have fewer pixels."""
        height, width = self.frames.shape[1:3]
        n = self.output_grid
        field = field[:height, :width]
        if n > 1:
            field = (
                np.pad(field, ((0, -height % n), (0, -width % n), (0, 0)), "constant", constant_values=np.nan) if height % n or width % n else field
            )
            cells = field.reshape(field.shape[0] // n, n, field.shape[1] // n, n, 2)
            # NaN in the padding leaves it out of the means.
            field = np.nanmean(cells, (1, 3)) if height % n or width % n else cells.mean((1, 3))
        self.fields[f] = field


def _name(batch: Batch, i: int) -> str:
    return f"sample {i} ({batch.sources[i]})" if batch.sources else f"sample {i}"


def _check(frames: Batch, hints: Batch | None, hinted: bool, hint_grid: int, image_type: int, output_grid: int, preset: float) -> None:
    if frames.buffer.device.type != "cpu":
        raise RuntimeError(
            "optical_flow: on a GPU this needs the optical flow engine through NVIDIA's Optical Flow SDK, which is not part of torch_ndd; "
            "call .cpu() on the sequence and .gpu() on the result"
        )
    for what, grid, known in (("output_grid", output_grid, _OUTPUT_GRIDS), ("hint_grid", hint_grid, _HINT_GRIDS)):
        if grid not in known:
            raise RuntimeError(f"optical_flow: {what} must be one of {', '.join(map(str, known))}, got {grid}")
    if not 0 <= preset <= 1:
        raise RuntimeError(f"optical_flow: preset must be from 0 (best) to 1 (fastest), got {preset}")
    if image_type not in _CHANNELS:
        raise RuntimeError(f"optical_flow: image_type must be types.RGB, types.BGR or types.GRAY, got {image_type!r}")
    if frames.dtype is not torch.uint8:
        raise RuntimeError(f"optical_flow: the input must be uint8, got {frames.dtype}")
    if hinted and hints is None:
        raise RuntimeError("optical_flow: enable_external_hints needs a second input, the hints")
    channels = _CHANNELS[types.DALIImageType(image_type)]
    for i, (count, height, width, found) in enumerate(sequence.shape for sequence in frames):
        name = f"optical_flow: {_name(frames, i)}"
        if count < 2:
            raise RuntimeError(f"{name} must have at least 2 frames, got {count}")
        if found != channels:
            raise RuntimeError(f"{name} must have {channels} channel{'s'[: channels > 1]} for image_type {image_type}, got {found}")
        if hints is None:
            continue
        wanted = (count - 1, math.ceil(height / hint_grid), math.ceil(width / hint_grid), 2)
        hint = hints.select(i)
        if hint.shape != wanted:
            raise RuntimeError(f"{name} needs hints of shape {wanted} for hint_grid {hint_grid}, got {hint.shape}")
        if not bool(torch.isfinite(hint.buffer.float()).all()):
            raise RuntimeError(f"{name} has hints that are not finite")
