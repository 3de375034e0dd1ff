# SPDX-License-Identifier: Apache-2.0
"""``from_processor``: the function of a loader from a processor of transformers."""

from collections.abc import Mapping
from typing import Any

import torch

from .._core.context.device import DeviceLike
from . import _dense, _sounds, _tiles, _tokens, _videos
from ._check import check_images, check_sounds, check_videos
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
VIDEOS: dict[str, type[_videos.Video]] = {
    "InternVLVideoProcessor": _videos.InternVLVideo,
    "Qwen2VLVideoProcessor": _videos.QwenVideo,
    "Qwen3VLVideoProcessor": _videos.Qwen3Video,
    "SmolVLMVideoProcessor": _videos.SmolVlmVideo,
    "VideoMAEImageProcessor": _videos.VideoMae,  # what AutoImageProcessor loads for VideoMAE: it takes lists of frames
    "VideoMAEVideoProcessor": _videos.VideoMae,
}
SOUNDS: dict[str, type[_sounds.Sound]] = {"SeamlessM4TFeatureExtractor": _sounds.SeamlessM4T, "WhisperFeatureExtractor": _sounds.Whisper}
IMAGE_BACKENDS = {"TorchvisionBackend", "PilBackend"}
VIDEO_BACKENDS = {"BaseVideoProcessor"}
SUFFIXES = ("Pil", "Fast")
# Overridden without a change of what is computed: they set defaults and call the backend's.
HARMLESS = {"__init__", "preprocess"}
# Why a processor has no use for an option.
NO_USE = {
    "device": "it decodes no images, and videos and sounds are processed where they are",
    "dtype": "sounds become float32",
    "packed": "it pads no sequences of patches",
    "repeat_temporal": "its tokens do not repeat still images",
}
PARTS = {"image_processor": "images", "video_processor": "videos", "feature_extractor": "sounds"}
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


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

    The function takes one Batch, of encoded files or of images of any size, of videos ``FHWC`` or of waveforms, and returns a dict with the names,
    shapes and dtypes that the processor returns with ``return_tensors="pt"``; a list where images differ in size and transformers does not stack
    them. ``fn.tokens(extents)`` counts the tokens of images from their heights and widths, ``fn.frames(total, rate)`` returns the frames to decode
    of a video, ``fn.steps`` and ``repr(fn)`` list the steps.

    Args:
        processor: an image processor, such as ``AutoImageProcessor.from_pretrained(...)``; a video processor; the feature extractor of Whisper or
            SeamlessM4T; or a whole processor, whose parts are called by name: ``fn(images=..., videos=..., sounds=...)``. Text is left to the
            program.
        check: run both on small data, and raise RuntimeError if their outputs differ by more than rounding: another version of transformers cannot
            change pixels unnoticed.
        device: where files are decoded and images are processed, see :func:`torch_ndd.decoders.image`.
        dtype: type of the pixels: float32, bfloat16 or float16, or uint8 to leave out rescaling and normalization.
        packed: return sequences of patches as :meth:`Batch.packed` does, instead of padding them (SigLIP 2, Gemma 4), or a ragged Batch (Pixtral).
        repeat_temporal: False leaves out the copies that Qwen-VL makes of still images for all frames of a token.

    Raises:
        TypeError: a string, or a class that overrides methods of its backend and is not translated; the message names them.
        ValueError: a setting that is not translated, such as another filter; ``device``, ``dtype``, ``packed`` or ``repeat_temporal`` for a processor
            that has no use for it.
        RuntimeError: the check found a difference.
    """
    if isinstance(processor, str):
        raise TypeError(
            f"from_processor: got the text {processor!r}; load it first: AutoImageProcessor.from_pretrained({processor!r}), "
            "or AutoProcessor for a whole one"
        )
    if dtype not in (None, torch.uint8, *FLOATS):
        raise ValueError(f"from_processor: dtype must be float32, bfloat16, float16 or uint8, got {dtype}")
    options: dict[str, Any] = {} if device is None else {"device": device}
    options |= {} if dtype is None else {"dtype": dtype}
    options |= {"packed": True} if packed else {}
    options |= {} if repeat_temporal else {"repeat_temporal": False}
    parts = {name: getattr(processor, attribute) for attribute, name in PARTS.items() if getattr(processor, attribute, None) is not None}
    if not parts:
        kind = find_kind(processor)
        require_use(type(processor).__name__, options, kind.takes)
        return translate(processor, kind, check, options)
    kinds = find_kinds(parts)
    require_use(type(processor).__name__, options, frozenset().union(*(kind.takes for kind in kinds.values())))
    # An option goes to those parts that it concerns.
    chosen = {name: {key: value for key, value in options.items() if key in kind.takes} for name, kind in kinds.items()}
    return Parts(type(processor).__name__, {name: translate(parts[name], kind, check, chosen[name]) for name, kind in kinds.items()})


def find_kind(processor: Any) -> type[Any]:
    """Return the translation of a processor's class."""
    name = base_name(type(processor))
    if name in SOUNDS:
        return SOUNDS[name]
    if takes_videos(processor):
        return find_translation(processor, VIDEOS, _videos.PlainVideo, VIDEO_BACKENDS)
    return find_translation(processor, TRANSLATIONS, _dense.Plain, IMAGE_BACKENDS)


def find_kinds(parts: Mapping[str, Any]) -> dict[str, type[Any]]:
    """Return the translations of the parts of a whole processor."""
    kinds = {}
    for name, part in parts.items():
        try:
            kinds[name] = find_kind(part)
        except TypeError as error:
            if len(parts) == 1:
                raise
            raise TypeError(f"{error}; the other parts can be translated alone, such as from_processor(processor.image_processor)") from error
    return kinds


def require_use(name: str, options: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise ValueError for an option that changes nothing of what a processor returns."""
    for option, value in options.items():
        if option not in known:
            raise ValueError(f"from_processor: {name} has no use for {option}={value!r}: {NO_USE[option]}; leave it out")


def translate(processor: Any, kind: type[Any], check: bool, options: Mapping[str, Any]) -> Any:
    """Return the translation of a processor, after a check."""
    if check:
        # Without the options: device, dtype and packing change outputs that the processor has not.
        compare = check_sounds if issubclass(kind, _sounds.Sound) else check_videos if issubclass(kind, _videos.Video) else check_images
        compare(processor, kind(processor))
    return kind(processor, **options)


class Parts:
    """The translated parts of a whole processor: call it with ``images``, ``videos`` or ``sounds``; the outputs are in one dict."""

    def __init__(self, name: str, parts: dict[str, Any]) -> None:
        self.name, self.parts = name, parts
        self.steps = [f"{part}: {step}" for part, translation in parts.items() for step in translation.steps]

    def __call__(self, *, counts: Any = None, return_row_col_info: bool | None = None, **inputs: Any) -> dict[str, Any]:
        """Return the outputs of the parts whose inputs are given.

        Args:
            counts, return_row_col_info: as of the image processor.
            inputs: ``images``, ``videos`` and ``sounds``.
        """
        of_images = {key: value for key, value in (("counts", counts), ("return_row_col_info", return_row_col_info)) if value is not None}
        if of_images and "images" not in inputs:
            raise TypeError(f"from_processor: {' and '.join(of_images)} given without images")
        outputs: dict[str, Any] = {}
        for name, value in inputs.items():
            if name not in self.parts:
                raise TypeError(f"from_processor: {self.name} takes {', '.join(self.parts)}, not {name}")
            for key, output in self.parts[name](value, **(of_images if name == "images" else {})).items():
                # SmolVLM's images and videos have the same names.
                if key in outputs:
                    raise ValueError(f"from_processor: {self.name} returns {key} for {name} and for another part; call it for each part alone")
                outputs[key] = output
        return outputs

    def __getattr__(self, name: str) -> Any:
        part = {"tokens": "images", "frames": "videos"}.get(name, "")
        if part in self.__dict__.get("parts", {}):
            return getattr(self.parts[part], name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"{self.name}: {'; '.join(self.steps)}"


def base_name(kind: type) -> str:
    """Return the name of a class without the suffix of its backend."""
    name = kind.__name__
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def takes_videos(processor: Any) -> bool:
    return any(base.__name__ in VIDEO_BACKENDS or base_name(base) in VIDEOS for base in type(processor).__mro__)


def find_translation(processor: Any, known: Mapping[str, Any], plain: Any, backends: set[str]) -> Any:
    """Return the translation of a processor's class, or of its first base class that has one; ``plain`` if no method of the backend is overridden."""
    defined: set[str] = set()
    # A derived class is translated like its base only if it changes nothing in between.
    for base in type(processor).__mro__:
        if base_name(base) in known:
            return known[base_name(base)]
        if base.__name__ in backends:
            # Methods that the class adds do not matter, unless the backend calls them by these names.
            overridden = {name for name in defined if callable(getattr(base, name, None))}
            break
        defined |= {name for name, value in vars(base).items() if callable(value) and not isinstance(value, type) and name not in HARMLESS}
    else:
        if isinstance(processor, type):
            raise TypeError(f"from_processor: {processor.__name__} is a class; pass an instance, such as {processor.__name__}.from_pretrained(...)")
        raise TypeError(
            f"from_processor: {type(processor).__name__} is not a processor of images, videos or sounds of transformers that can be translated"
        )
    if overridden:
        raise TypeError(f"from_processor: {type(processor).__name__} is not translated: it overrides {', '.join(sorted(overridden))} of its backend")
    return plain
