# SPDX-License-Identifier: Apache-2.0
"""``from_processor``: the function of a loader from a processor of transformers."""

from typing import Any

import torch

from .._core.context.device import DeviceLike
from . import _dense, _tiles, _tokens
from ._check import check_translation
from ._translation import Translation

# Classes with a size rule or outputs of their own, by their names without the suffix of the backend.
TRANSLATIONS: dict[str, type[Translation]] = {
    "ConvNextImageProcessor": _dense.ConvNext,
    "DINOv3ViTImageProcessor": _dense.RescaledFirst,
    "DPTImageProcessor": _dense.Dpt,
    "DetrImageProcessor": _dense.Detr,
    "Gemma3ImageProcessor": _tiles.Gemma3,
    "Gemma4ImageProcessor": _tokens.Gemma4,
    "GotOcr2ImageProcessor": _tiles.InternVL,
    "Idefics3ImageProcessor": _tiles.Idefics3,
    "LlavaNextImageProcessor": _tiles.LlavaNext,
    "LlavaOnevisionImageProcessor": _tiles.LlavaOneVision,
    "PixtralImageProcessor": _dense.Pixtral,
    "Qwen2VLImageProcessor": _tokens.QwenVL,
    "RTDetrImageProcessor": _dense.Detr,
    "SamImageProcessor": _dense.Sam,
    "Siglip2ImageProcessor": _tokens.Siglip2,
    "SmolVLMImageProcessor": _tiles.Idefics3,
}
BACKENDS = ("TorchvisionBackend", "PilBackend")
SUFFIXES = ("Pil", "Fast")
# Overridden without a change of what is computed: they set defaults and call the backend's.
HARMLESS = {"__init__", "preprocess"}


def from_processor(
    processor: Any,
    *,
    check: bool = True,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    packed: bool = False,
    repeat_temporal: bool = True,
) -> Any:
    """Return a function of a :class:`torch_ndd.DataLoader` that does to a batch what a processor of transformers does to a list of images.

    The function takes one Batch, of encoded files or of images of any size, and returns a dict with the names, shapes and dtypes that the processor
    returns with ``return_tensors="pt"``; a list where images differ in size and transformers does not stack them. ``fn.tokens(extents)`` counts the
    tokens of images from their heights and widths, ``fn.steps`` and ``repr(fn)`` list the steps.

    Args:
        processor: an image processor, such as ``AutoImageProcessor.from_pretrained(...)``.
        check: run both on three small images, and raise RuntimeError if their outputs differ by more than 2e-5: another version of transformers
            cannot change pixels unnoticed.
        device: where files are decoded and images are processed, see :func:`torch_ndd.decoders.image`.
        dtype: type of the pixels: float32 or bfloat16, or uint8 to leave out rescaling and normalization.
        packed: return sequences of patches as :class:`Batch.packed` does, instead of padding them (SigLIP 2, Gemma 4), or a ragged Batch (Pixtral).
        repeat_temporal: False leaves out the copies that Qwen-VL makes of still images for all frames of a token.

    Raises:
        TypeError: a string, or a class that overrides methods of its backend and is not translated; the message names them.
        ValueError: a setting that is not translated, such as another filter.
        RuntimeError: the check found a difference.
    """
    if isinstance(processor, str):
        raise TypeError(
            f"from_processor: got the text {processor!r}; load it first: AutoImageProcessor.from_pretrained({processor!r}), "
            "or AutoProcessor for a whole one"
        )
    if dtype not in (None, torch.float32, torch.bfloat16, torch.float16, torch.uint8):
        raise ValueError(f"from_processor: dtype must be a type of floats, or uint8, got {dtype}")
    options: dict[str, Any] = {"device": device, "dtype": dtype, "packed": packed}
    kind = find_translation(processor)
    if kind is _tokens.QwenVL:
        options["repeat_temporal"] = repeat_temporal
    translation = kind(processor, **options)
    if check:
        check_translation(processor, kind(processor, **{**options, "device": None, "dtype": None, "packed": False, **({"repeat_temporal": True} if kind is _tokens.QwenVL else {})}))
    return translation


def find_translation(processor: Any) -> type[Translation]:
    """Return the translation of a processor's class, or of its first base class that has one."""
    for base in type(processor).__mro__:
        name = base.__name__
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix)
        if name in TRANSLATIONS:
            return TRANSLATIONS[name]
    overridden: list[str] = []
    for base in type(processor).__mro__:
        if base.__name__ in BACKENDS:
            break
        overridden += [name for name, value in vars(base).items() if callable(value) and not isinstance(value, type) and name not in HARMLESS]
    else:
        raise TypeError(f"from_processor: {type(processor).__name__} is not an image processor of transformers with a torchvision or a PIL backend")
    if overridden:
        methods = ", ".join(sorted(set(overridden)))
        raise TypeError(f"from_processor: {type(processor).__name__} is not translated: it overrides {methods} of its backend")
    return _dense.Plain
