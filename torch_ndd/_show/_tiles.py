# SPDX-License-Identifier: Apache-2.0
"""Pictures of samples, one for each, from values of many types."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from . import _sound
from ._overlay import draw_boxes, draw_mask

_CHANNELS = (1, 3, 4)
MAX_FRAMES = 8
_GAP = 2  # pixels between frames
_SHORTEST_SOUND = 64  # samples; a shorter vector is not a sound


def next_batch(value: Any) -> tuple[Any, Any]:
    """Return the samples and labels of a reader's or loader's next batch without moving it; any other value unchanged."""
    if not hasattr(value, "state_dict") or isinstance(value, torch.nn.Module):
        return value, None
    # The loader continues afterwards as if it had not been asked.
    state = value.state_dict()
    try:
        outputs = next(iter(value)) if hasattr(value, "fn") else value(batch_size=value.max_batch_size or 16)
    except StopIteration:
        raise ValueError("show: the loader has no batch") from None
    finally:
        value.load_state_dict(state)
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    if not isinstance(outputs, tuple | list) or not outputs:
        return outputs, None
    return outputs[0], outputs[1] if len(outputs) > 1 and _are_labels(outputs[1], len(_samples(outputs[0])[0])) else None


def _are_labels(value: Any, samples: int) -> bool:
    try:
        return [label.numel() for label in _samples(value)[0]] == [1] * samples
    except (TypeError, ValueError):  # text, for example
        return False


def tiles(value: Any, *, boxes: Any, masks: Any, sample_rate: float | None) -> list[torch.Tensor]:
    """Return one picture per sample: uint8, HW or HWC."""
    samples, layout = _samples(value)
    if not samples:
        raise ValueError("show: the batch has no images")
    kinds = {_kind(sample, layout) for sample in samples}
    if len(kinds) > 1:
        raise ValueError(f"show: the samples must be of one kind, got {', '.join(sorted(kinds))}")
    kind = kinds.pop()
    if kind in ("sound", "spectrogram"):
        if boxes is not None or masks is not None:
            raise ValueError("show: boxes and masks need images")
        if kind == "sound":
            return [_sound.picture(sample, sample_rate) for sample in samples]
        return [_sound.heat_map(sample.float()) for sample in samples]
    if kind == "encoded":
        samples, layout, kind = _decode(samples), "HWC", "image"
    if kind == "frames":
        if boxes is not None or masks is not None:
            raise ValueError("show: boxes and masks need images; draw single frames")
        inner = layout.replace("F", "").replace("D", "")
        strips = [_channels_last(frame, inner) for sample in samples for frame in _frames(sample, layout)]
        counts = [len(_frames(sample, layout)) for sample in samples]
        frames = iter(_as_bytes(strips))
        return [_side_by_side([next(frames) for _ in range(count)]) for count in counts]
    images = _as_bytes([_channels_last(sample, layout) for sample in samples])
    images = _with(images, masks, "masks", draw_mask)
    return _with(images, boxes, "boxes", draw_boxes)


def _samples(value: Any) -> tuple[list[torch.Tensor], str]:
    """Return the samples, in host memory, and their layout, "" if unknown."""
    if hasattr(value, "tensors"):  # a Batch
        samples, layout = [sample.torch() for sample in value.tensors], value.layout or ""
    elif hasattr(value, "torch"):  # a Tensor
        whole, layout = value.torch(), value.layout or ""
        samples = list(whole) if whole.ndim == 4 and not layout else [whole]
    elif isinstance(value, torch.Tensor):
        layout = ""
        samples = list(value) if value.ndim in (4, 5) or (value.ndim == 2 and value.is_floating_point() and _is_sound(value[0])) else [value]
    elif hasattr(value, "__array__"):
        return _samples(torch.as_tensor(value))
    elif isinstance(value, Sequence):
        samples, layout = [torch.as_tensor(sample) for sample in value], ""
    else:
        raise ValueError(f"show: cannot draw a {type(value).__name__}; give a Batch, a Tensor, tensors, a reader or a loader")
    return [sample.detach().cpu() for sample in samples], layout


def _is_sound(sample: torch.Tensor) -> bool:
    return sample.ndim == 1 and len(sample) >= 1000  # a row of an image is shorter


def _kind(sample: torch.Tensor, layout: str) -> str:
    if layout == "ft":
        return "spectrogram"
    if "F" in layout or "D" in layout:
        return "frames"
    if sample.ndim == 1 and sample.dtype == torch.uint8:
        return "encoded"
    if sample.ndim == 1 and len(sample) >= _SHORTEST_SOUND and (sample.is_floating_point() or sample.dtype == torch.int16):
        return "sound"
    if sample.ndim == 2 and (layout.lower() == "tc" or (not layout and sample.shape[1] <= 2 and sample.shape[0] >= _SHORTEST_SOUND)):
        return "sound"
    if sample.ndim == 4:
        return "frames"
    return "image"


def _decode(samples: list[torch.Tensor]) -> list[torch.Tensor]:
    """Decode files with Pillow, not with torch_ndd.decoders: this package lies below the core, whose values notebooks show."""
    from PIL import Image, ImageOps

    pictures = []
    for k, sample in enumerate(samples):
        try:
            picture = ImageOps.exif_transpose(Image.open(io.BytesIO(sample.numpy().tobytes()))).convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"show: sample {k}: Pillow cannot decode it ({error}); decode it with torch_ndd.decoders.image first") from None
        pictures.append(torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(picture.height, picture.width, 3))
    return pictures


def _frames(sample: torch.Tensor, layout: str) -> list[torch.Tensor]:
    axis = max(0, layout.find("F"), layout.find("D"))
    count = sample.shape[axis]
    # Frames at equal distances, the first and the last among them.
    chosen = sorted({round(k * (count - 1) / max(1, MAX_FRAMES - 1)) for k in range(MAX_FRAMES)}) if count else []
    if not chosen:
        raise ValueError("show: the sequence has no frames")
    return [sample.select(axis, k) for k in chosen]


def _side_by_side(frames: list[torch.Tensor]) -> torch.Tensor:
    gap = torch.full_like(frames[0][:, :_GAP], 255)
    parts = [part for frame in frames for part in (frame, gap)][:-1]
    return torch.cat(parts, dim=1)


def _channels_last(image: torch.Tensor, layout: str) -> torch.Tensor:
    if image.ndim == 3 and (layout == "CHW" or (layout != "HWC" and image.shape[2] not in _CHANNELS)):
        image = image.permute(1, 2, 0)
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in _CHANNELS) or image.numel() == 0:
        raise ValueError(f"show: an image is HWC, CHW or HW with 1, 3 or 4 channels; got the shape {tuple(image.shape)}")
    return image.squeeze(2) if image.ndim == 3 and image.shape[2] == 1 else image


def _as_bytes(images: list[torch.Tensor]) -> list[torch.Tensor]:
    """Keep uint8; map other numbers from the range of the whole batch to 0..255."""
    if all(image.dtype == torch.uint8 for image in images):
        return images
    floats = [image.float() for image in images]
    # One range for the whole batch, so pictures can be compared.
    least = min(float(image.min()) for image in floats)
    spread = max(float(image.max()) for image in floats) - least
    return [((image - least) * (255 / (spread or 1.0))).round().to(torch.uint8) for image in floats]


def _with(images: list[torch.Tensor], marks: Any, name: str, draw: Any) -> list[torch.Tensor]:
    """Draw the boxes or masks of every image into it."""
    if marks is None:
        return images
    drawings, _ = _samples(marks) if not isinstance(marks, torch.Tensor) else ([mark.cpu() for mark in marks], "")
    if len(drawings) != len(images):
        raise ValueError(f"show: {len(drawings)} {name} for {len(images)} images")
    return [draw(image, mark) for image, mark in zip(images, drawings, strict=True)]
