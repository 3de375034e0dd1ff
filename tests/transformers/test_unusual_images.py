# SPDX-License-Identifier: Apache-2.0
"""Unusual images in translated processors: single pixels, lines, extreme aspect ratios, gray, alpha, floats, constant colors."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd

transformers = pytest.importorskip("transformers")

from torch_ndd.transformers import from_processor  # noqa: E402
from torch_ndd.transformers._check import compare_outputs, make_images  # noqa: E402

SMALL_TILES = {"size": {"longest_edge": 256}, "max_image_size": {"longest_edge": 64}}
PAN_AND_SCAN = {
    "do_pan_and_scan": True,
    "pan_and_scan_min_crop_size": 64,
    "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}
SQUARE_96 = {"size": {"shortest_edge": 96}, "crop_size": {"height": 96, "width": 96}, "image_grid_pinpoints": [[96, 192], [192, 96], [192, 192]]}
PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("CLIPImageProcessor", {}),
    ("SiglipImageProcessor", {}),
    ("ViTImageProcessor", {}),
    ("BitImageProcessor", {"size": {"shortest_edge": 256}, "crop_size": 224}),
    ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}}),
    ("RTDetrImageProcessor", {}),
    ("DINOv3ViTImageProcessor", {}),
    ("DetrImageProcessor", {"size": {"shortest_edge": 100, "longest_edge": 200}}),
    ("SamImageProcessor", {"size": {"longest_edge": 256}, "pad_size": {"height": 256, "width": 256}}),
    ("DPTImageProcessor", {"size": {"height": 518, "width": 518}, "ensure_multiple_of": 14, "keep_aspect_ratio": True}),
    ("PixtralImageProcessor", {}),
    ("Qwen2VLImageProcessor", {}),
    ("Qwen2VLImageProcessor", {"patch_size": 16, "size": {"shortest_edge": 4096, "longest_edge": 65536}}),
    ("Siglip2ImageProcessor", {}),
    ("Gemma4ImageProcessor", {}),
    ("Gemma3ImageProcessor", PAN_AND_SCAN),
    ("GotOcr2ImageProcessor", {"crop_to_patches": True, "size": {"height": 96, "width": 96}}),
    ("LlavaNextImageProcessor", SQUARE_96),
    ("LlavaOnevisionImageProcessor", {}),
    ("Idefics3ImageProcessor", SMALL_TILES),
]
SIZES: dict[str, list[tuple[int, int]]] = {
    "a pixel": [(1, 1)],
    "lines": [(1, 57), (64, 1)],
    "tiny": [(2, 3)],
    "150 times as wide": [(10, 1500)],
    "199 times as wide": [(7, 1393)],
    "202 times as wide": [(5, 1010)],
    "108 times as high": [(1400, 13)],
    "large": [(1300, 1700)],
    "equal": [(50, 70)] * 3,
    "mixed": [(31, 200), (200, 31), (97, 97), (28, 28), (27, 29)],
    "whole patches": [(28, 28), (56, 84)],
    "squares of the model": [(224, 224), (384, 384)],
}


def unusual_images(label: str) -> list[np.ndarray]:
    images = make_images(SIZES.get(label, [(40, 60), (61, 37)]))
    if label == "gray":
        return [image[..., :1].copy() for image in images]
    if label == "alpha":
        return [np.concatenate([image, image[::-1, :, :1]], -1) for image in images]
    if label == "floats from 0 to 1":
        return [image.astype(np.float32) / 255 for image in images]
    if label == "whole floats":
        return [image.astype(np.float32) for image in images]
    if label == "constant":
        return [np.full((50, 80, 3), 255, np.uint8), np.zeros((33, 44, 3), np.uint8)]
    return images


def evaluate(translated: Any, batch: ndd.Batch) -> list[np.ndarray]:
    return [np.asarray(value) for value in translated(batch).values()]


@pytest.mark.parametrize("label", [*SIZES, "gray", "alpha", "floats from 0 to 1", "whole floats", "constant"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(PROCESSORS[k] for k in (0, 11)),
        ("CLIPImageProcessorPil", {}),
        *(pytest.param(*row, marks=pytest.mark.slow) for k, row in enumerate(PROCESSORS) if k not in (0, 11)),
        *(
            pytest.param(f"{name}Pil", settings, marks=pytest.mark.slow)
            for k, (name, settings) in enumerate(PROCESSORS)
            if k and hasattr(transformers, f"{name}Pil")
        ),
    ],
)
def test_unusual_images_equal_transformers(name: str, settings: dict[str, Any], label: str) -> None:
    processor = getattr(transformers, name)(**settings)
    images = unusual_images(label)
    translated = from_processor(processor, check=False)
    batch = ndd.batch(images, layout="HWC")
    expected: Any = None
    for tensors in ("pt", None):
        try:
            expected = processor([torch.from_numpy(image).permute(2, 0, 1) for image in images], return_tensors=tensors)
            break
        except (ValueError, RuntimeError, TypeError):
            continue
    # Without a conversion to RGB Pillow multiplies colors by alpha before it resizes, which is not translated.
    blends = label == "alpha" and name.endswith("Pil") and not getattr(processor, "do_convert_rgb", None)
    if expected is None or blends:  # refused
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            evaluate(translated, batch)
        return
    compare_outputs(name, expected, translated(batch), translated.tolerance)


def test_files_with_alpha_are_blended_as_pillow_does() -> None:
    pictures, files = [], []
    for image in unusual_images("alpha"):
        pictures.append(Image.fromarray(image))
        file = io.BytesIO()
        pictures[-1].save(file, "PNG")
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    for name in ("Qwen2VLImageProcessor", "CLIPImageProcessorPil"):
        processor = getattr(transformers, name)()
        compare_outputs(name, processor(pictures, return_tensors="pt"), from_processor(processor)(ndd.batch(files)))


def test_floats_that_pillow_cannot_resize_are_named() -> None:
    translated = from_processor(transformers.CLIPImageProcessorPil())
    images = [np.zeros((40, 50, 3), np.float32), np.full((40, 50, 3), 1.5, np.float32)]
    with pytest.raises(ValueError, match="sample 1 must have integers"):
        translated(ndd.batch(images, layout="HWC"))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (5, 5, 0)])
@pytest.mark.parametrize("name", ["CLIP", "Siglip", "Qwen2VL", "GotOcr2", "SmolVLM", "Gemma3"])
@pytest.mark.parametrize("backend", ["", "Pil"])
def test_images_without_pixels_are_named(name: str, backend: str, shape: tuple[int, ...], dtype: Any) -> None:
    # Some processors squeeze them into images of nothing, others divide by zero.
    name = f"{name}ImageProcessor{backend}"
    translated = from_processor(getattr(transformers, name)(), check=False)
    with pytest.raises(ValueError, match=rf"{name}: sample 1 of shape \({shape[0]}, {shape[1]}, {shape[2]}\) has no pixels"):
        translated(ndd.batch([np.ones((5, 6, 3), dtype), np.ones(shape, dtype)], layout="HWC"))
