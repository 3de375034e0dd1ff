# SPDX-License-Identifier: Apache-2.0
"""Every boolean setting of every processor that is translated, switched: outputs are those of transformers, or the setting is refused by name."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd

transformers = pytest.importorskip("transformers")

from torch_ndd.transformers import from_processor  # noqa: E402
from torch_ndd.transformers._check import compare_outputs, make_images  # noqa: E402
from torch_ndd.transformers._from_processor import TRANSLATIONS, VIDEOS, base_name  # noqa: E402

STEPS = ("do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_pad")
# Which frames of a video are taken, and what is returned beside them.
NOT_OF_PIXELS = {"do_sample_frames", "return_metadata", "disable_grouping"}
# Small tiles follow the rule of large ones.
SMALL_TILES = {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 64}}
SETTINGS: dict[str, dict[str, Any]] = {"Idefics3ImageProcessor": SMALL_TILES, "SmolVLMImageProcessor": SMALL_TILES}
NAMES = [name for name in dir(transformers) if name.endswith(("ImageProcessor", "ImageProcessorPil", "VideoProcessor"))]
# Sizes of which some processors take only one kind: any, equal ones, and whole patches.
SIZES = [((40, 60), (61, 37), (33, 90)), ((56, 84), (56, 84)), ((224, 224),), ((96, 192), (192, 96))]


def expected_outputs(processor: Any, inputs: list[Any], options: dict[str, Any]) -> Any:
    """Return the processor's outputs; None where it raises."""
    for tensors in ("pt", None):
        try:
            return processor(inputs, return_tensors=tensors, **options)
        except (ValueError, RuntimeError, TypeError):
            continue
    return None


def compare_switched(name: str, settings: dict[str, Any]) -> int:
    """Return how many batches are equal; 0 if the settings are refused by name."""
    processor = getattr(transformers, name)(**SETTINGS.get(name.removesuffix("Pil"), {}), **settings)
    try:
        translated = from_processor(processor)
    except (ValueError, RuntimeError) as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert name in refusal
        return 0
    compared = 0
    for sizes in SIZES:
        images, options = make_images(sizes), {}
        layout = "HWC"
        inputs: list[Any] = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
        if hasattr(translated, "frames"):
            videos = [np.stack([image, image[::-1], image[:, ::-1], image]) for image in images]
            images, layout = videos, "FHWC"
            is_video = hasattr(processor, "sample_frames")
            inputs = [torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos] if is_video else [list(video) for video in videos]
            options = {"do_sample_frames": False} if is_video else {}
        expected = expected_outputs(processor, inputs, options)
        if expected is not None:
            compare_outputs(name, expected, translated(ndd.batch(images, layout=layout)), translated.tolerance)
            compared += 1
    return compared


@pytest.mark.parametrize(
    ("name", "multiple"), [("Qwen2VLImageProcessor", 28), ("Siglip2ImageProcessor", 16), ("Gemma4ImageProcessor", 48), ("PixtralImageProcessor", 16)]
)
@pytest.mark.parametrize("suffix", ["", "Pil"])
def test_images_of_whole_patches_need_no_resize(name: str, multiple: int, suffix: str) -> None:
    processor = getattr(transformers, name + suffix)(do_resize=False)
    images = make_images([(2 * multiple, 3 * multiple), (3 * multiple, multiple), (multiple, multiple)])
    expected = processor([torch.from_numpy(image).permute(2, 0, 1) for image in images], return_tensors="pt")
    compare_outputs(name, expected, from_processor(processor)(ndd.batch(images, layout="HWC")))


def test_images_that_are_not_whole_patches_are_named() -> None:
    translated = from_processor(transformers.Qwen2VLImageProcessor(do_resize=False))
    images = make_images([(56, 84), (56, 80)])
    with pytest.raises(RuntimeError, match=r"sample 1.*80.*28"):
        translated(ndd.batch(images, layout="HWC"))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Qwen2VLImageProcessor", {"do_center_crop": True}, "crop_size is missing"),
        ("DINOv3ViTImageProcessor", {"do_rescale": False}, "normalizes floats only"),
        ("Gemma3ImageProcessor", {"do_pan_and_scan": True}, "pan_and_scan_min_crop_size=None"),
    ],
)
def test_settings_for_which_transformers_raises_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        from_processor(getattr(transformers, name)(**settings))


def test_other_sizes_than_those_of_transformers_are_named() -> None:
    expected, found = [np.zeros((3, 40, 60)), np.zeros((3, 61, 37))], ndd.tensor(np.zeros((2, 3, 61, 60)))
    with pytest.raises(RuntimeError, match=r"ViT: pixel_values is .*\(2, 3, 61, 60\), in transformers .*\(3, 40, 60\), .*\(3, 61, 37\)"):
        compare_outputs("ViT", {"pixel_values": expected}, {"pixel_values": found})


def test_images_larger_than_the_padding_are_named() -> None:
    translated = from_processor(transformers.PI0ImageProcessor(do_resize=False))
    with pytest.raises(ValueError, match=r"sample 1 of \[300, 40\] pixels is larger than pad_size"):
        translated(ndd.batch(make_images([(40, 50), (300, 40)]), layout="HWC"))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("PixtralImageProcessor", {"do_pad": False}),
        ("GotOcr2ImageProcessor", {"do_resize": False}),
        ("Gemma3ImageProcessor", {"do_resize": False}),
        ("LlavaOnevisionImageProcessor", {"do_resize": False}),
        ("Idefics3ImageProcessor", {"do_rescale": False, "do_normalize": False}),
        ("Qwen2VLImageProcessorPil", {"do_rescale": False, "do_normalize": False}),
        ("DINOv3ViTImageProcessor", {"do_rescale": False, "do_normalize": False}),
        ("DINOv3ViTImageProcessor", {"do_resize": False, "do_pad": True}),
        ("ConvNextImageProcessor", {"do_resize": False, "do_pad": True}),
        ("ConvNextImageProcessorPil", {"do_resize": False, "do_pad": True, "pad_size": {"height": 100, "width": 100}}),
        ("ConvNextImageProcessor", {"do_pad": True, "pad_size": {"height": 400, "width": 400}}),
        ("ViTImageProcessor", {"do_resize": False, "do_pad": True}),
    ],
)
def test_outputs_with_another_step_equal_transformers(name: str, settings: dict[str, Any]) -> None:
    assert compare_switched(name, settings) >= 2


GRAY = [np.ascontiguousarray(image[None, ..., 0], np.float32) / 255 for image in make_images()]


def compare_images(name: str, settings: dict[str, Any], images: list[np.ndarray]) -> None:
    """Compare the outputs for images ``CHW``."""
    processor = getattr(transformers, name)(**settings)
    expected = expected_outputs(processor, [torch.from_numpy(image) for image in images], {})
    compare_outputs(name, expected, from_processor(processor)(ndd.batch(images, layout="CHW")))


@pytest.mark.parametrize("name", ["ViTImageProcessor", "ViTImageProcessorPil", "Qwen2VLImageProcessor", "PixtralImageProcessor"])
@pytest.mark.parametrize("settings", [{"rescale_factor": 1}, {"rescale_factor": 1, "do_normalize": False}, {"rescale_factor": 2}])
def test_whole_factors_equal_transformers(name: str, settings: dict[str, Any]) -> None:
    """torch multiplies bytes by a Python int to bytes, NumPy to floats."""
    assert compare_switched(name, settings) >= 2


def test_whole_factors_that_wrap_around_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ViTImageProcessor with rescale_factor=2 is not supported: .*wrap around; set a float"):
        from_processor(transformers.ViTImageProcessor(rescale_factor=2, do_normalize=False))
    assert compare_switched("ViTImageProcessor", {"rescale_factor": 2.0, "do_normalize": False}) >= 2
    assert compare_switched("ViTImageProcessorPil", {"rescale_factor": 2, "do_normalize": False}) >= 2


@pytest.mark.parametrize("name", ["ViTImageProcessor", "CLIPImageProcessor", "DINOv3ViTImageProcessor"])
def test_gray_floats_are_normalized_by_each_mean(name: str) -> None:
    for settings in ({}, {"do_rescale": False}) if name != "DINOv3ViTImageProcessor" else ({},):
        compare_images(name, {"do_convert_rgb": False, **settings}, GRAY)
        if name != "DINOv3ViTImageProcessor":
            compare_images(name, {"do_convert_rgb": False, **settings}, [GRAY[0], np.repeat(GRAY[1], 3, 0)])


def test_gray_images_that_transformers_cannot_normalize_are_named() -> None:
    levels = [(image * 255).astype(np.uint8) for image in GRAY]
    for name, images in (("ViTImageProcessor", levels), ("ViTImageProcessorPil", levels), ("ViTImageProcessorPil", GRAY)):
        for settings in ({}, {"do_rescale": False}):
            processor = getattr(transformers, name)(do_convert_rgb=False, **settings)
            assert expected_outputs(processor, [torch.from_numpy(image) for image in images], {}) is None
            with pytest.raises(ValueError, match=f"{name}: sample 0 has one channel, .*do_convert_rgb=True"):
                from_processor(processor)(ndd.batch(images, layout="CHW"))


@pytest.mark.parametrize("name", ["PixtralImageProcessor", "PixtralImageProcessorPil"])
@pytest.mark.parametrize("pads", [True, False])
@pytest.mark.parametrize("size", [(50, 70), (30, 30)])
def test_cropped_images_of_pixtral(name: str, pads: bool, size: tuple[int, int]) -> None:
    settings = {"do_center_crop": True, "crop_size": dict(zip(("height", "width"), size, strict=True)), "do_pad": pads}
    compare_images(name, settings, [image.transpose(2, 0, 1) for image in make_images([(40, 60)] * 2)])
    different = [image.transpose(2, 0, 1) for image in make_images()]
    if pads and name == "PixtralImageProcessor":
        processor = transformers.PixtralImageProcessor(**settings)
        assert expected_outputs(processor, [torch.from_numpy(image) for image in different], {}) is None
        with pytest.raises(ValueError, match=r"PixtralImageProcessor with do_center_crop=True .*do_pad=False"):
            from_processor(processor)(ndd.batch(different, layout="CHW"))
    else:
        compare_images(name, settings, different)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_switched_settings_equal_transformers_or_are_refused(name: str) -> None:
    try:
        processor = getattr(transformers, name)(**SETTINGS.get(name.removesuffix("Pil"), {}))
        from_processor(processor)
    except Exception as error:  # whatever a class raises that needs arguments, or is not translated
        if base_name(getattr(transformers, name)) in {**TRANSLATIONS, **VIDEOS}:
            raise
        pytest.skip(f"not translated: {error}")
    switches = dict.fromkeys([*STEPS, *(key for key, value in vars(processor).items() if isinstance(value, bool) and key not in NOT_OF_PIXELS)])
    compared = 0
    for switch in switches:
        compared += compare_switched(name, {switch: not getattr(processor, switch, False)})
    for pair in itertools.combinations(STEPS, 2):
        compared += compare_switched(name, dict.fromkeys(pair, False))
    # Images of their own sizes show whether they are padded.
    compared += compare_switched(name, {"do_resize": False, "do_pad": True})
    assert compared > 20
