# SPDX-License-Identifier: Apache-2.0
"""Images and sounds prepared for models: transformers, timm and torchvision on the same data, with the ratio of CPU time that we promise."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import torch_ndd as ndd
from torch_ndd.transformers import from_naflex, from_processor

from .._photos import photographs

_IMAGES, _CLIPS, _EXTENTS, _SECONDS = 16, 16, 10_000, 10


@dataclass(frozen=True)
class Pair:
    """The same work in both libraries.

    Attributes:
        name: of the row.
        ours, theirs: take nothing and return what they have computed, finished.
        items: images, seconds of sound or sizes of a call.
        bar: the least ratio of their CPU time to ours.
    """

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    items: int
    bar: float


def photographs_of_any_size(count: int = _IMAGES, pixels: int = 460_000) -> list[np.ndarray]:
    """Return photographs (H, W, 3) of changing sizes and aspect ratios, with so many pixels on average."""
    generator, originals = np.random.default_rng(0), photographs()
    images = []
    for k in range(count):
        area, aspect = pixels * generator.uniform(0.5, 1.5), generator.uniform(0.6, 1.6)
        size = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        images.append(np.array(originals[k % len(originals)].resize(size)))
    return images


def _as_planes(images: list[np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(image).permute(2, 0, 1) for image in images]


def _evaluate(outputs: Any) -> None:
    for value in outputs.values() if isinstance(outputs, dict) else outputs:
        if hasattr(value, "torch") or hasattr(value, "evaluate"):
            value.evaluate()
        elif isinstance(value, list):
            _evaluate(value)


def _of_processor(name: str, label: str, bar: float, images: list[np.ndarray], **settings: Any) -> Pair:
    transformers = importlib.import_module("transformers")
    processor = getattr(transformers, name)(**settings)
    batch, planes, fn = ndd.batch(images, layout="HWC"), _as_planes(images), from_processor(processor)
    return Pair(label, lambda: _evaluate(fn(batch)), lambda: processor(planes, return_tensors="pt"), len(images), bar)


def _of_files(images: list[np.ndarray]) -> Pair:
    transformers, image_module = importlib.import_module("transformers"), importlib.import_module("PIL.Image")
    processor = transformers.Qwen2VLImageProcessor()
    files = []
    for image in images:
        file = io.BytesIO()
        image_module.fromarray(image).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    batch, fn = ndd.batch([np.frombuffer(file, np.uint8) for file in files]), from_processor(processor)

    def theirs() -> Any:
        return processor([image_module.open(io.BytesIO(file)).convert("RGB") for file in files], return_tensors="pt")

    return Pair("Qwen2-VL from JPEG files", lambda: _evaluate(fn(batch)), theirs, len(files), 4)


def _of_naflex(images: list[np.ndarray]) -> Pair:
    transforms, datasets = importlib.import_module("timm.data.naflex_transforms"), importlib.import_module("timm.data.naflex_dataset")
    image_module, vision = importlib.import_module("PIL.Image"), importlib.import_module("torchvision.transforms")
    normalize = vision.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    resize, patchify = transforms.ResizeToSequence(16, 256, interpolation="bicubic"), transforms.Patchify(16)
    steps = vision.Compose([resize, vision.ToTensor(), normalize, patchify])
    collate, fn = datasets.NaFlexCollator(max_seq_len=256), from_naflex(16, 256)
    batch, pictures = ndd.batch(images, layout="HWC"), [image_module.fromarray(image) for image in images]
    return Pair("timm NaFlex, 256", lambda: _evaluate(fn(batch)), lambda: collate([(steps(picture), 0) for picture in pictures]), len(images), 4)


def _of_sounds(name: str, bar: float) -> Pair:
    processor = getattr(importlib.import_module("transformers"), name)()
    generator, t = np.random.default_rng(0), np.arange(_SECONDS * 16_000) / 16_000
    tone = 0.3 * np.sin(2 * np.pi * 220 * t * (1 + 0.1 * np.sin(t)))
    clips = [(tone + 0.01 * generator.standard_normal(len(t))).astype(np.float32) for _ in range(_CLIPS)]
    batch, fn = ndd.batch(clips), from_processor(processor)

    def theirs() -> Any:
        return processor(clips, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)

    return Pair(name.removesuffix("FeatureExtractor"), lambda: _evaluate(fn(batch)), theirs, _CLIPS * _SECONDS, bar)


def _of_sizes() -> list[Pair]:
    extents = np.random.default_rng(0).integers(64, 2000, (_EXTENTS, 2))
    pairs = extents.tolist()
    models = "transformers.models"
    smart = importlib.import_module(f"{models}.qwen2_vl.image_processing_qwen2_vl").smart_resize
    bisect = importlib.import_module(f"{models}.siglip2.image_processing_siglip2").get_image_size_for_max_num_patches
    best = importlib.import_module("transformers.image_processing_utils").select_best_resolution
    tiled = importlib.import_module(f"{models}.got_ocr2.image_processing_got_ocr2").get_optimal_tiled_canvas
    canvases = [[384 * i, 384 * j] for i in range(1, 7) for j in range(1, 7)]
    sizes = ndd.sizes
    rules: list[tuple[str, float, Callable[[], Any], Callable[[int, int], Any]]] = [
        ("R1 budget", 5, lambda: sizes.budget(extents, multiple_of=28, min_pixels=3136, max_pixels=1_003_520), lambda h, w: smart(h, w, 28)),
        ("R3 patches", 10, lambda: sizes.patches(extents, patch_size=16, max_patches=256), lambda h, w: bisect(h, w, 16, 256)),
        ("R6 canvas of 36", 10, lambda: sizes.canvas(extents, tile=384, canvases=canvases), lambda h, w: best((h, w), canvases)),
        ("R7 canvas of 1 to 12", 10, lambda: sizes.canvas(extents, tile=448, max_tiles=12), lambda h, w: tiled((h, w), (448, 448), 1, 12)),
    ]

    def loop(rule: Callable[[int, int], Any]) -> Callable[[], Any]:
        return lambda: [rule(height, width) for height, width in pairs]

    return [Pair(f"sizes, {name}", ours, loop(theirs), _EXTENTS, bar) for name, bar, ours, theirs in rules]


def _of_patchify() -> list[Pair]:
    """Against a copy of the tokens: patches x merged x frames."""
    found = []
    for dtype, layout, order, patch, merge, temporal in (
        ("uint8", "HWC", "CTHW", 14, 2, 2),
        ("uint8", "HWC", "CTHW", 16, 1, 1),
        ("uint8", "HWC", "HWC", 16, 1, 1),
        ("uint8", "CHW", "CTHW", 14, 2, 2),
        ("float32", "CHW", "CTHW", 14, 2, 2),
        ("float32", "HWC", "HWC", 16, 1, 1),
        ("float32", "HWC", "CTHW", 14, 2, 1),
    ):
        multiple = patch * merge
        images = [image[: len(image) // multiple * multiple, : image.shape[1] // multiple * multiple] for image in photographs_of_any_size()]
        arrays = [np.ascontiguousarray(image if layout == "HWC" else image.transpose(2, 0, 1)).astype(dtype) for image in images]
        batch = ndd.batch(arrays, layout=layout)

        def ours(batch: ndd.Batch = batch, how: Any = (patch, merge, temporal, order)) -> Any:
            return ndd.patchify(batch, patch_size=how[0], merge_size=how[1], temporal=how[2], order=how[3])[0].evaluate()

        source = ours().packed().values.torch().clone()
        copy = torch.empty_like(source)
        name = f"patchify {dtype} {layout} to {order}, {patch} x {merge} x {temporal}"
        found.append(Pair(name, ours, lambda copy=copy, source=source: copy.copy_(source), len(images), 0.5))
    return found


def _of_crops() -> Pair:
    """DINO's crops from JPEG files of 500 x 700: torchvision's on tensors, decoded once, bicubic with antialias as ours."""
    # Microseconds of CPU time for an image (EPYC of Zen 4 under load, best of 12 turns): both decode in 1,250, which no crop can save, because the
    # windows of an image reach to 98 % of its height and cover 88 % of it. torchvision takes 4,230 to 4,870 with its crops, so the bar leaves 440 to
    # 700 for the rest. It takes 800: windows 45, tables of weights 90, the width pass 380, the height pass 130, the call and its memory; 2.1 to 2.4
    # times in all. Since then weights are computed eight at a time and VNNI does the multiply-adds: of images in the caches, the kernel alone takes
    # 515 instead of 605 (tables 65 for 128, turning rows 40 as before, width 243 for 263, height 102 for 126); of a batch in memory, 655 to 675 for
    # 757.
    vision, functions = importlib.import_module("torchvision.transforms.v2"), importlib.import_module("torchvision.io")
    files, originals = [], photographs()
    for k in range(_IMAGES):
        file = io.BytesIO()
        originals[k % len(originals)].resize((700, 500)).save(file, "JPEG", quality=90)
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    cubic = vision.InterpolationMode.BICUBIC
    large, small = (vision.RandomResizedCrop(side, scale, interpolation=cubic) for side, scale in ((224, (0.4, 1.0)), (96, (0.05, 0.4))))
    crops = [large] * 2 + [small] * 8
    batch, encoded = ndd.batch(files), [torch.from_numpy(file.copy()) for file in files]

    def theirs() -> Any:
        decoded = [functions.decode_jpeg(file) for file in encoded]
        return [torch.stack([crop(image) for image in decoded]) for crop in crops]

    def ours() -> Any:
        windows = ndd.random_windows(batch)
        _evaluate(ndd.multi_crop(batch, windows=windows, sizes=[224] * 2 + [96] * 8, interp_type=ndd.types.INTERP_CUBIC))

    return Pair("multi_crop, DINO's, from JPEG files", ours, theirs, len(files), 2.5)


def _of_albumentations(images: list[np.ndarray]) -> Pair:
    """Return a typical training Compose, with and without Albumentations."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    import albumentations as A
    import cv2
    from albumentations.pytorch import ToTensorV2

    from torch_ndd.albumentations import from_albumentations

    cv2.setNumThreads(torch.get_num_threads())
    compose = A.Compose([A.RandomResizedCrop((224, 224)), A.HorizontalFlip(), A.ColorJitter(), A.Normalize(), ToTensorV2()])
    ours, batch = from_albumentations(compose), ndd.as_batch(images, layout="HWC")

    def theirs() -> torch.Tensor:
        return torch.stack([compose(image=image)["image"] for image in images])

    return Pair("Albumentations, 224", lambda: ours(batch).evaluate(), theirs, len(images), 1)


def all_pairs() -> list[Callable[[], list[Pair]]]:
    """Return what makes each group of rows: data and processors are made when their turn comes."""
    images = photographs_of_any_size()
    next_336 = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
    smol = {"size": {"longest_edge": 1024}, "max_image_size": {"longest_edge": 512}}
    rows: list[tuple[str, str, float, dict[str, Any]]] = [
        ("Qwen2VLImageProcessor", "Qwen2-VL", 4, {}),
        ("Siglip2ImageProcessor", "SigLIP 2, 256", 1.5, {}),
        ("CLIPImageProcessor", "CLIP, 224", 1.7, {}),
        ("SiglipImageProcessor", "SigLIP, 224", 1.7, {}),
        ("LlavaNextImageProcessor", "LLaVA-NeXT, 336", 3, next_336),
        ("GotOcr2ImageProcessor", "InternVL, 448", 3, {"crop_to_patches": True, "size": {"height": 448, "width": 448}}),
        ("SmolVLMImageProcessor", "SmolVLM, 1024", 3, smol),
        ("DetrImageProcessor", "DETR", 2, {}),
    ]

    def of(row: tuple[str, str, float, dict[str, Any]]) -> Callable[[], list[Pair]]:
        return lambda: [_of_processor(row[0], row[1], row[2], images, **row[3])]

    return [
        *map(of, rows),
        lambda: [_of_files(images)],
        lambda: [_of_naflex(images)],
        lambda: [_of_sounds("WhisperFeatureExtractor", 3)],
        lambda: [_of_sounds("SeamlessM4TFeatureExtractor", 10)],
        lambda: [_of_albumentations(images)],
        _of_sizes,
        _of_patchify,
        lambda: [_of_crops()],
    ]
