# SPDX-License-Identifier: Apache-2.0
"""Batches of up to 64 short videos of changing size, in each video processor that is translated."""

from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd

transformers = pytest.importorskip("transformers")

from torch_ndd.transformers import from_processor  # noqa: E402
from torch_ndd.transformers._check import compare_outputs, make_images  # noqa: E402

# Small areas follow the rules of large ones; by default 64 videos would take gigabytes.
SMALL_AREAS = {"size": {"shortest_edge": 4 * 1024, "longest_edge": 64 * 1024}}
SMALL = {"size": {"height": 96, "width": 96}}
VIDEO_PROCESSORS: list[tuple[str, dict[str, Any], bool]] = [  # the last: whether videos may have different numbers of frames
    ("Qwen2VLVideoProcessor", SMALL_AREAS, True),
    ("Qwen3VLVideoProcessor", SMALL_AREAS, True),
    ("LlavaOnevisionVideoProcessor", SMALL, False),
    ("LlavaNextVideoVideoProcessor", {"size": {"shortest_edge": 96}, "crop_size": {"height": 96, "width": 96}}, False),
    ("VideoLlavaVideoProcessor", {"size": {"shortest_edge": 96}, "crop_size": {"height": 96, "width": 96}}, False),
    ("VideoMAEVideoProcessor", {"size": {"shortest_edge": 96}, "crop_size": {"height": 96, "width": 96}}, False),
    ("VideoMAEImageProcessor", {"size": {"shortest_edge": 96}, "crop_size": {"height": 96, "width": 96}}, False),
    ("VJEPA2VideoProcessor", {"crop_size": 96}, False),
    ("PerceptionLMVideoProcessor", SMALL, False),
    ("InternVLVideoProcessor", SMALL, False),
    ("InternVLVideoProcessor", {**SMALL, "do_center_crop": True, "crop_size": {"height": 70, "width": 80}, "do_normalize": False}, False),
    ("SmolVLMVideoProcessor", {"size": {"longest_edge": 150}, "max_image_size": {"longest_edge": 64}}, True),
    ("SmolVLMVideoProcessor", {"size": {"height": 120, "width": 70}, "max_image_size": {"longest_edge": 64}, "resample": 2}, True),
    ("SmolVLMVideoProcessor", {"do_resize": False}, True),
    ("SmolVLMVideoProcessor", {"size": {"longest_edge": 150}, "max_image_size": {"longest_edge": 64}, "do_pad": False}, False),
    ("SmolVLMVideoProcessor", {"size": {"longest_edge": 150}, "do_rescale": False, "do_normalize": False}, True),
]


def clips(count: int, frames_differ: bool) -> list[np.ndarray]:
    """Return short videos (F, H, W, 3) of 2 to 5 frames."""
    generator = np.random.default_rng(3)
    images = make_images([(int(height), int(width)) for height, width in generator.integers(30, 200, (count, 2))])
    frames = generator.integers(2, 6, count) if frames_differ else np.full(count, 2)
    return [np.stack([np.roll(image, 5 * k, 1) for k in range(number)]) for image, number in zip(images, frames, strict=True)]


@pytest.mark.parametrize("count", [1, 8, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "settings", "frames_differ"), VIDEO_PROCESSORS)
def test_ragged_batches_of_videos_equal_transformers(name: str, settings: dict[str, Any], frames_differ: bool, count: int) -> None:
    if not hasattr(transformers, name):
        pytest.skip(f"this version of transformers has no {name}")
    processor = getattr(transformers, name)(**settings)
    videos = clips(count, frames_differ)
    options: dict[str, Any] = {}
    inputs: list[Any] = [list(video) for video in videos]
    if hasattr(processor, "sample_frames"):
        inputs, options = [torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos], {"do_sample_frames": False}
    expected = processor(inputs, return_tensors="pt", **options)
    compare_outputs(name, expected, from_processor(processor, check=False)(ndd.batch(videos, layout="FHWC")))


def test_videos_of_one_frame() -> None:
    videos = [clip[:1] for clip in clips(2, False)]
    inputs = [torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos]
    processor = transformers.Qwen2VLVideoProcessor(**SMALL_AREAS, do_sample_frames=False)
    compare_outputs("Qwen2-VL", processor(inputs, return_tensors="pt"), from_processor(processor)(ndd.batch(videos, layout="FHWC")))
    # Qwen3-VL refuses them, here as in transformers.
    processor = transformers.Qwen3VLVideoProcessor(**SMALL_AREAS, do_sample_frames=False)
    with pytest.raises(ValueError, match="larger than temporal_factor"):
        processor(inputs, return_tensors="pt")
    with pytest.raises(ValueError, match="Qwen3VLVideoProcessor: a video has 1 frames, fewer than the 2 of a token"):
        from_processor(processor)(ndd.batch(videos, layout="FHWC"))


@pytest.mark.parametrize("name", ["VivitVideoProcessor", "InstructBlipVideoVideoProcessor"])
def test_video_processors_with_methods_of_their_own_are_refused(name: str) -> None:
    if not hasattr(transformers, name):
        pytest.skip(f"this version of transformers has no {name}")
    with pytest.raises(TypeError, match=f"{name} is not translated: it overrides "):
        from_processor(getattr(transformers, name)())


@pytest.mark.parametrize("settings", [{}, {"num_frames": 8}, {"initial_shift": False}, {"initial_shift": 2}, {"num_frames": 3, "initial_shift": 1.5}])
def test_frames_of_internvl_are_those_that_transformers_samples(settings: dict[str, Any]) -> None:
    metadata = pytest.importorskip("transformers.video_utils").VideoMetadata
    processor = transformers.InternVLVideoProcessor(**settings)
    translated = from_processor(processor, check=False)
    compared = 0
    for total in (*range(3, 30), 100, 777, 5000):
        for choice in ({"num_frames": 3}, {"num_frames": 16}, {"fps": 1}, {"fps": 2.5}):
            try:
                expected = processor.sample_frames(metadata(total_num_frames=total, fps=24.0), **choice).tolist()
            except (ValueError, ZeroDivisionError):
                with pytest.raises(ValueError, match="frames"):
                    translated.frames(total, 24.0, **choice)
                continue
            assert translated.frames(total, 24.0, **choice) == expected
            compared += 1
    assert compared > 50
    with pytest.raises(ValueError, match="initial_shift=7 must be a frame of the video, which has 5"):
        from_processor(transformers.InternVLVideoProcessor(initial_shift=7), check=False).frames(5, 24.0)


def test_frames_of_smolvlm_are_those_that_transformers_samples() -> None:
    metadata = pytest.importorskip("transformers.video_utils").VideoMetadata
    processor = transformers.SmolVLMVideoProcessor(num_frames=10, fps=1)
    translated = from_processor(processor, check=False)
    for total in (*range(1, 30), 100, 777, 5000):
        for rate in (1.0, 10.0, 24.0, 29.97):
            for choice in ({}, {"num_frames": 3}, {"fps": 2}, {"fps": 0.2, "num_frames": 64}):
                video = metadata(total_num_frames=total, fps=rate, duration=total / rate)
                assert translated.frames(total, rate, **choice) == processor.sample_frames(video, **choice).tolist()
    with pytest.raises(ValueError, match="SmolVLMVideoProcessor needs both num_frames and fps, got num_frames=None and fps=2"):
        from_processor(transformers.SmolVLMVideoProcessor(), check=False).frames(100, 24.0, fps=2)
    with pytest.raises(ValueError, match="needs a video with frames and a rate"):
        translated.frames(0, 24.0)


@pytest.mark.parametrize("name", ["LlavaOnevisionVideoProcessor", "VideoMAEVideoProcessor"])
def test_frames_of_plain_processors_are_those_that_transformers_samples(name: str) -> None:
    metadata = pytest.importorskip("transformers.video_utils").VideoMetadata
    processor = getattr(transformers, name)()
    translated = from_processor(processor, check=False)
    compared = 0
    for total in (*range(1, 30), 100, 777, 5000):
        for choice in ({}, {"num_frames": 7}, {"fps": 0.1}, {"fps": 2}, {"fps": 9.3}):
            try:
                expected = processor.sample_frames(metadata(total_num_frames=total, fps=24.0), **choice).tolist()
            except ValueError:
                with pytest.raises(ValueError, match="cannot be taken"):
                    translated.frames(total, 24.0, **choice)
                continue
            assert translated.frames(total, 24.0, **choice) == expected
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("channels", ["gray", "opaque", "alpha"])
@pytest.mark.parametrize("name", ["Qwen2VLVideoProcessor", "InternVLVideoProcessor", "SmolVLMVideoProcessor"])
def test_videos_of_other_channels_become_rgb(name: str, channels: str) -> None:
    settings = {"Qwen2VLVideoProcessor": {**SMALL_AREAS, "cap_pixels_per_frame": False}, "InternVLVideoProcessor": SMALL}.get(name, {})
    processor = getattr(transformers, name)(**settings)
    generator = np.random.default_rng(2)
    videos = clips(3, False)
    if channels == "gray":
        videos = [np.ascontiguousarray(video[..., :1]) for video in videos]
    else:
        levels = (255, 256) if channels == "opaque" else (0, 256)
        videos = [np.concatenate([video, generator.integers(*levels, (*video.shape[:3], 1), np.uint8)], -1) for video in videos]
    planes = [torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos]
    expected = processor(planes, return_tensors="pt", do_sample_frames=False, input_data_format="channels_first")
    translated = from_processor(processor, check=False)
    # Two bicubic resizes of floats, and torchvision's is up to 4e-6 of the largest value off.
    compare_outputs(name, expected, translated(ndd.batch(videos, layout="FHWC")), tolerance=1e-4)
    compare_outputs(name, expected, translated(ndd.batch([plane.contiguous() for plane in planes], layout="FCHW")), tolerance=1e-4)


def test_videos_of_several_channels_are_refused() -> None:
    translated = from_processor(transformers.InternVLVideoProcessor(**SMALL), check=False)
    frames = np.full((2, 40, 60, 4), 255, np.uint8)
    with pytest.raises(ValueError, match=r"must have 1, 3 or 4 channels, got \[3, 4\]"):
        translated(ndd.batch([frames, frames[..., :3].copy()], layout="FHWC"))
    with pytest.raises(ValueError, match="some videos are opaque and others not"):
        translated(ndd.batch([frames, frames // 2], layout="FHWC"))


def test_videos_without_frames_are_refused() -> None:
    translated = from_processor(transformers.InternVLVideoProcessor(**SMALL), check=False)
    with pytest.raises(ValueError, match=r"InternVLVideoProcessor: sample 1 of shape \(0, 40, 60, 3\) has no pixels"):
        translated(ndd.batch([np.zeros((2, 40, 60, 3), np.uint8), np.zeros((0, 40, 60, 3), np.uint8)], layout="FHWC"))
