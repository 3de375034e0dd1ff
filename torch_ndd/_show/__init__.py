# SPDX-License-Identifier: Apache-2.0
"""Pictures of data: images with boxes and masks, videos, volumes, sounds and spectrograms.

``show`` draws a Batch, a Tensor, torch tensors, or the next batch of a reader or a loader as one labeled picture.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from .._core.optional import import_optional
from ._grid import grid
from ._saving import save_picture
from ._tiles import next_batch, tiles

if TYPE_CHECKING:
    from PIL.Image import Image


def show(
    value: Any,
    path: str | PathLike[str] | None = None,
    labels: Any = None,
    columns: int | None = None,
    *,
    boxes: Any = None,
    masks: Any = None,
    sample_rate: float | None = None,
) -> Image:
    """Draw data as one picture: a grid with one tile per sample. A notebook displays the result.

    >>> import tempfile, torch, torch_ndd as ndd
    >>> images = torch.rand(6, 3, 32, 48)
    >>> ndd.show(images, tempfile.mkdtemp() + "/batch.png", labels=["cat", "dog", "cat", "owl", "owl", "dog"]).size
    (304, 172)
    >>> ndd.show(torch.rand(16000) - 0.5, sample_rate=16000).size  # a wave and its spectrogram
    (328, 212)

    Args:
        value: a Batch (dense or ragged), a Tensor, a torch tensor or a sequence of samples; or a reader or a loader, whose next batch is drawn and
            stays the next one. A sample is

            - an image: HWC, CHW or HW with 1, 3 or 4 channels. Without a layout, the axis of such a length is the channel. uint8 is shown unchanged;
              floats (normalized images, for example) are scaled so that the smallest value of the whole batch is black and the largest white;
            - an encoded image: uint8 of shape (bytes,), as readers return it;
            - a video or a volume (layouts with ``F`` or ``D``): up to 8 frames or slices side by side;
            - a sound: a float or int16 vector, or (samples, channels) with layout ``tc`` or at most 2 channels: the wave and its spectrogram;
            - a spectrogram: layout ``ft``, low frequencies at the bottom.
        path: the image file to write; its extension determines the format. None: only return the picture.
        labels: one text or number per sample, written below it: a sequence, a torch tensor or a Batch.
        columns: samples per row; by default the grid is about square.
        boxes: boxes of every image, (boxes, 4) with left, top, right, bottom, in pixels, or as fractions of the image if none is larger than 1.
        masks: masks of every image, integers of shape HW or HW1, drawn in one color per number, 0 being the background; or one mask for each object,
            (objects, H, W), drawn in one color per object.
        sample_rate: samples per second of sounds, for the label of the time axis.

    Raises:
        ImportError: Pillow is not installed (``pip install torch_ndd[demo]``).
        ValueError: there are no samples, something is none of the above, or the number of labels, boxes or masks is not that of the samples.
    """
    import_optional("PIL", "show needs Pillow", "demo", ImportError)
    value, found = next_batch(value)
    labels = found if labels is None else labels
    pictures = tiles(value, boxes=boxes, masks=masks, sample_rate=sample_rate)
    picture = grid(pictures, labels, columns)
    if path is not None:
        save_picture(picture, path)
    return picture
