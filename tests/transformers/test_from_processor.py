# SPDX-License-Identifier: Apache-2.0
"""Translated processors return what transformers returns, on photographs of different sizes."""

import functools
import io
import re
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_images

import torch_ndd as ndd

transformers = pytest.importorskip("transformers")

from torch_ndd.transformers import from_processor  # noqa: E402
from torch_ndd.transformers._check import compare_outputs  # noqa: E402

CLIP = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
SQUARE_336 = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
PAN_AND_SCAN = {
    "do_pan_and_scan": True,
    "pan_and_scan_min_crop_size": 64,
    "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}
# By default 64 photographs are 856 tiles, for which transformers takes 4 GB. Smaller tiles follow the same rule.
SMALL_TILES = {"size": {"longest_edge": 512}, "max_image_size": {"longest_edge": 128}}
# 64 photographs padded to the default sizes take 8 GB in both libraries.
SMALL_SIDES: dict[str, dict[str, Any]] = {
    "DetrImageProcessor": {"size": {"shortest_edge": 200, "longest_edge": 333}},
    "SamImageProcessor": {"size": {"longest_edge": 256}, "pad_size": {"height": 256, "width": 256}},
}
PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("CLIPImageProcessor", {}),
    ("CLIPImageProcessor", {"resample": 0}),
    ("CLIPImageProcessor", {"resample": 1, "do_center_crop": False, "size": {"height": 96, "width": 160}}),
    ("CLIPImageProcessor", {"crop_size": {"height": 400, "width": 90}}),
    ("CLIPImageProcessor", {"do_normalize": False}),
    ("CLIPImageProcessor", {"do_rescale": False}),
    ("CLIPImageProcessor", {"do_rescale": False, "do_normalize": False}),
    ("CLIPImageProcessor", {"do_resize": False}),
    ("SiglipImageProcessor", {}),
    ("ViTImageProcessor", {}),
    ("BitImageProcessor", {"size": {"shortest_edge": 256}, "crop_size": 224}),
    ("ConvNextImageProcessor", {}),
    ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}}),
    ("RTDetrImageProcessor", {}),
    ("DINOv3ViTImageProcessor", {}),
    ("DetrImageProcessor", {}),
    ("SamImageProcessor", {}),
    ("DPTImageProcessor", {"size": {"height": 518, "width": 518}, "ensure_multiple_of": 14, "keep_aspect_ratio": True}),
    ("DPTImageProcessor", {"size": {"height": 60, "width": 90}, "do_pad": True, "size_divisor": 32}),
    ("DPTImageProcessor", {"size": {"height": 60, "width": 90}, "do_pad": True, "size_divisor": 7}),
    ("DPTImageProcessor", {"do_resize": False, "do_pad": True, "size_divisor": 28}),
    ("DPTImageProcessor", {"size": {"height": 60, "width": 90}, "do_center_crop": True, "crop_size": {"height": 50, "width": 100}}),
    ("PixtralImageProcessor", {}),
    ("PixtralImageProcessor", {"size": {"longest_edge": 200}, "patch_size": {"height": 14, "width": 14}}),
    ("Qwen2VLImageProcessor", {}),
    ("Qwen2VLImageProcessor", {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}),
    ("Siglip2ImageProcessor", {}),
    ("Gemma4ImageProcessor", {}),
    ("Gemma3ImageProcessor", {}),
    ("Gemma3ImageProcessor", PAN_AND_SCAN),
    ("GotOcr2ImageProcessor", {}),
    ("GotOcr2ImageProcessor", {"crop_to_patches": True, "size": {"height": 96, "width": 96}}),
    ("LlavaNextImageProcessor", SQUARE_336),
    ("LlavaNextImageProcessor", {}),
    ("LlavaNextImageProcessor", {"size": {"height": 224, "width": 224}}),
    ("LlavaOnevisionImageProcessor", {}),
    ("Idefics3ImageProcessor", SMALL_TILES),
    ("Idefics3ImageProcessor", {"do_image_splitting": False}),
    ("SmolVLMImageProcessor", SMALL_TILES),
]
LARGE_TILES: list[tuple[str, dict[str, Any]]] = [
    ("Idefics3ImageProcessor", {}),
    ("SmolVLMImageProcessor", {"size": {"longest_edge": 1024}, "max_image_size": {"longest_edge": 512}}),
]


@functools.cache
def photographs(count: int) -> list[np.ndarray]:
    """Return photographs of different sizes and aspect ratios, (H, W, 3)."""
    generator = np.random.default_rng(2)
    originals = [data.astronaut(), data.coffee(), data.chelsea(), *load_sample_images().images]
    images = []
    for k in range(count):
        height, width = generator.integers(60, 420, 2).tolist()
        image = ndd.tensor(np.ascontiguousarray(originals[k % len(originals)]), layout="HWC")
        images.append(np.asarray(ndd.resize(image, size=[height, width])).copy())
    return images


def expected_outputs(processor: Any, images: Any) -> Any:
    tensors = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
    try:
        return processor(tensors, return_tensors="pt")
    except ValueError:
        return processor(tensors)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *PROCESSORS,
        *(pytest.param(*row, marks=pytest.mark.slow) for row in LARGE_TILES),
        *(
            pytest.param(f"{name}Pil", settings, marks=pytest.mark.slow)
            for name, settings in PROCESSORS + LARGE_TILES
            if hasattr(transformers, f"{name}Pil")
        ),
    ],
)
def test_images_equal_transformers(name: str, settings: dict[str, Any]) -> None:
    processor = getattr(transformers, name)(**settings)
    images = photographs(4)
    translated = from_processor(processor)
    compare_outputs(name, expected_outputs(processor, images), translated(ndd.batch(images, layout="HWC")), translated.tolerance)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("name", ["CLIPImageProcessor", "CLIPImageProcessorPil", "Qwen2VLImageProcessor", "PixtralImageProcessor"])
def test_levels_that_are_normalized_without_rescaling_equal_transformers_bit_by_bit(name: str, layout: str) -> None:
    # Values reach 1,136, where neighboring float32 are 1.2e-4 apart, so one rounding more would pass only a relative tolerance.
    image = photographs(1)[0][:56, :56]
    processor = getattr(transformers, name)(do_rescale=False, do_resize=False, do_center_crop=False)
    expected = processor([torch.from_numpy(image).permute(2, 0, 1)], return_tensors="pt")["pixel_values"]
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))
    found = from_processor(processor, check=False)(ndd.batch([image if layout == "HWC" else planes], layout=layout))["pixel_values"].torch()
    assert expected.abs().max() > 500
    assert torch.equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), PROCESSORS)
def test_ragged_batches_of_64_photographs_equal_transformers(name: str, settings: dict[str, Any]) -> None:
    processor = getattr(transformers, name)(**{**SMALL_SIDES.get(name, {}), **settings})
    images = photographs(64)
    translated = from_processor(processor, check=False)
    compare_outputs(name, expected_outputs(processor, images), translated(ndd.batch(images, layout="HWC")), translated.tolerance)


@pytest.mark.parametrize("wrong", [np.nan, 1.0])
@pytest.mark.parametrize("position", [0, (1 << 20) - 1, 1 << 20, -1])
def test_comparison_finds_one_wrong_value_in_any_part(position: int, wrong: float) -> None:
    expected = np.zeros((2, (1 << 20) + 5), np.float32)
    found = expected.copy()
    compare_outputs("zeros", {"pixel_values": expected}, {"pixel_values": found})
    found.reshape(-1)[position] = wrong
    with pytest.raises(RuntimeError, match="pixel_values differs from transformers by"):
        compare_outputs("zeros", {"pixel_values": expected}, {"pixel_values": found})
    with pytest.raises(RuntimeError, match="pixel_values differs from transformers by"):
        compare_outputs("zeros", {"pixel_values": [expected, expected]}, {"pixel_values": [expected, found]})


def test_encoded_files_equal_decoded_images() -> None:
    images = photographs(4)
    files = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    translated = from_processor(transformers.Qwen2VLImageProcessor())
    compare_outputs("files", translated(ndd.batch(images, layout="HWC")), translated(ndd.batch(files)))


def test_channels_become_rgb() -> None:
    generator = np.random.default_rng(1)
    images = [generator.integers(0, 256, (50, 70, channels), np.uint8) for channels in (1, 3, 4)]
    processor = transformers.CLIPImageProcessor()
    compare_outputs("channels", expected_outputs(processor, images), from_processor(processor)(ndd.batch(images, layout="HWC")))


def test_an_empty_batch_is_refused() -> None:
    for name in ("Qwen2VLImageProcessor", "Idefics3ImageProcessor", "LlavaNextImageProcessor"):
        with pytest.raises(ValueError, match=f"{name} needs at least one image"):
            from_processor(getattr(transformers, name)(), check=False)(ndd.batch(photographs(1), layout="HWC").select([]))


def test_planes_are_accepted() -> None:
    images = photographs(3)
    translated = from_processor(transformers.Siglip2ImageProcessor())
    planes = ndd.batch([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images], layout="CHW")
    compare_outputs("planes", translated(ndd.batch(images, layout="HWC")), translated(planes))


def test_several_images_of_a_sample() -> None:
    images = photographs(5)
    tensors = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
    nested = [tensors[:2], tensors[2:3], tensors[3:]]
    batch = ndd.batch(images, layout="HWC")
    for processor in (transformers.LlavaOnevisionImageProcessor(), transformers.Idefics3ImageProcessor(**SMALL_TILES)):
        found = from_processor(processor)(batch, counts=[2, 1, 2])
        compare_outputs("nested", processor(nested, return_tensors="pt"), found)
        for counts in ([2, 1], [6, -1], "x", 5):
            with pytest.raises(ValueError, match="counts"):
                from_processor(processor, check=False)(batch, counts=counts)


def test_rows_and_columns_of_tiles() -> None:
    images = photographs(4)
    processor = transformers.Idefics3ImageProcessor(**SMALL_TILES)
    expected = processor([torch.from_numpy(image).permute(2, 0, 1) for image in images], return_tensors="pt", return_row_col_info=True)
    found = from_processor(processor)(ndd.batch(images, layout="HWC"), return_row_col_info=True)
    assert (found["rows"], found["cols"]) == (expected["rows"], expected["cols"])


def count_tiles(outputs: Any, k: int) -> int:
    """Return how many tiles of an image are not padding, which is zero."""
    return int((outputs["pixel_values"][k] != 0).flatten(1).any(1).sum())


def count_splits(outputs: Any, k: int) -> int:
    """Return the tiles of an image of a sample, and the whole one behind several."""
    rows, columns = outputs["rows"][0][k], outputs["cols"][0][k]
    return rows * columns + 1 if rows else 1


@pytest.mark.parametrize(
    ("name", "settings", "tokens"),
    [
        ("Qwen2VLImageProcessor", {}, lambda out, k: int(out["image_grid_thw"][k].prod()) // 4),
        ("Qwen2VLImageProcessor", {"patch_size": 16, "merge_size": 4}, lambda out, k: int(out["image_grid_thw"][k].prod()) // 16),
        ("Siglip2ImageProcessor", {}, lambda out, k: int(out["pixel_attention_mask"][k].sum())),
        ("Gemma4ImageProcessor", {}, lambda out, k: int(out["num_soft_tokens_per_image"][k])),
        ("PixtralImageProcessor", {}, lambda out, k: int((out["image_sizes"][k] // 16).prod())),
        ("GotOcr2ImageProcessor", {}, lambda out, k: int(out["num_patches"][k])),
        ("GotOcr2ImageProcessor", {"crop_to_patches": True, "size": {"height": 224, "width": 224}}, lambda out, k: int(out["num_patches"][k])),
        ("Gemma3ImageProcessor", {}, lambda out, k: 1),
        ("Gemma3ImageProcessor", PAN_AND_SCAN, lambda out, k: 1 + int(out["num_crops"][k])),
        ("LlavaNextImageProcessor", SQUARE_336, count_tiles),
        ("LlavaNextImageProcessor", {}, count_tiles),
        ("LlavaOnevisionImageProcessor", {}, count_tiles),
        ("Idefics3ImageProcessor", {"return_row_col_info": True, **SMALL_TILES}, count_splits),
        ("Idefics3ImageProcessor", {"return_row_col_info": True, "do_image_splitting": False}, count_splits),
        ("SmolVLMImageProcessor", {"return_row_col_info": True, **SMALL_TILES}, count_splits),
    ],
)
def test_tokens_are_those_of_the_outputs(name: str, settings: dict[str, Any], tokens: Any) -> None:
    images = photographs(7)
    processor = getattr(transformers, name)(**settings)
    counted = from_processor(processor, check=False).tokens([image.shape[:2] for image in images])
    outputs = expected_outputs(processor, images)
    assert counted.tolist() == [tokens(outputs, k) for k in range(len(images))]


def test_processors_without_a_patch_size_do_not_count_tokens() -> None:
    with pytest.raises(TypeError, match="the patch size belongs to its model"):
        from_processor(transformers.CLIPImageProcessor(), check=False).tokens([[30, 40]])


def test_options_of_the_outputs() -> None:
    images = ndd.batch(photographs(3), layout="HWC")
    qwen = transformers.Qwen2VLImageProcessor()
    plain, single = from_processor(qwen)(images), from_processor(qwen, repeat_temporal=False)(images)
    assert plain["pixel_values"].shape[1] == 2 * single["pixel_values"].shape[1]
    levels = from_processor(qwen, dtype=torch.uint8)(images)["pixel_values"]
    assert levels.dtype is torch.uint8
    mean = torch.tensor(CLIP["mean"]).repeat_interleave(2 * 14 * 14) * 255
    std = torch.tensor(CLIP["std"]).repeat_interleave(2 * 14 * 14) * 255
    torch.testing.assert_close((levels.torch() - mean) / std, plain["pixel_values"].torch(), rtol=1e-5, atol=2e-5)
    packed = from_processor(transformers.Siglip2ImageProcessor(), packed=True)(images)
    assert packed["pixel_values"].cu_seqlens.torch()[-1] == len(packed["pixel_values"].values.torch())
    packed = from_processor(transformers.Gemma4ImageProcessor(), packed=True)(images)
    padded = from_processor(transformers.Gemma4ImageProcessor())(images)["image_position_ids"].torch()
    assert torch.equal(packed["image_position_ids"].values.torch(), padded[padded[..., 0] >= 0])
    assert torch.equal(packed["image_position_ids"].cu_seqlens.torch(), packed["pixel_values"].cu_seqlens.torch())


def test_a_loader_delivers_the_outputs(tmp_path: Any) -> None:
    for k, image in enumerate(photographs(6)):
        Image.fromarray(image).save(tmp_path / f"{k}.png")
    reader = ndd.readers.File(file_root=str(tmp_path), files=[f"{k}.png" for k in range(6)])
    translated = from_processor(transformers.Qwen2VLImageProcessor())
    batches = list(ndd.DataLoader(reader, lambda files, labels: translated(files), batch_size=3))
    assert len(batches) == 2
    for batch in batches:
        assert isinstance(batch["pixel_values"], torch.Tensor)
        assert len(batch["pixel_values"]) == int(batch["image_grid_thw"].prod(1).sum())


def test_what_is_not_translated_is_named() -> None:
    with pytest.raises(TypeError, match=r"AutoImageProcessor\.from_pretrained"):
        from_processor("openai/clip-vit-base-patch32")
    with pytest.raises(TypeError, match=r"CLIPImageProcessor\w* is a class; pass an instance"):
        from_processor(transformers.CLIPImageProcessor)
    with pytest.raises(TypeError, match="object is not a processor"):
        from_processor(object())
    with pytest.raises(TypeError, match="LayoutLMv2ImageProcessor is not translated: it overrides"):
        from_processor(transformers.LayoutLMv2ImageProcessor(apply_ocr=False))
    for number, name in ((4, "box"), (5, "hamming")):
        with pytest.raises(ValueError, match=f"resample={number} is not supported: the filter is {name}"):
            from_processor(transformers.CLIPImageProcessor(resample=number))
    with pytest.raises(ValueError, match="do_center_crop"):
        from_processor(transformers.Gemma3ImageProcessor(do_center_crop=True))
    with pytest.raises(ValueError, match="size_divisor=None"):
        from_processor(transformers.DPTImageProcessor(do_pad=True))
    with pytest.raises(ValueError, match="size_divisor=0"):
        from_processor(transformers.DPTImageProcessor(do_pad=True, size_divisor=0))
    with pytest.raises(ValueError, match="canvases must consist of tiles"):
        from_processor(transformers.LlavaNextImageProcessor(do_center_crop=False))
    with pytest.raises(ValueError, match="dtype"):
        from_processor(transformers.CLIPImageProcessor(), dtype=torch.int32)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CLIPImageProcessor", {"packed": True}),
        ("Qwen2VLImageProcessor", {"packed": True}),
        ("Siglip2ImageProcessor", {"repeat_temporal": False}),
        ("Qwen2VLVideoProcessor", {"device": "cpu"}),
        ("WhisperFeatureExtractor", {"device": "cpu"}),
        ("WhisperFeatureExtractor", {"dtype": torch.bfloat16}),
    ],
)
def test_options_without_use_are_refused(name: str, options: dict[str, Any]) -> None:
    ((option, value),) = options.items()
    with pytest.raises(ValueError, match=re.escape(f"{name} has no use for {option}={value!r}: ")):
        from_processor(getattr(transformers, name)(), check=False, **options)


def test_the_check_finds_a_difference() -> None:
    class Changed(transformers.CLIPImageProcessor):  # type: ignore[name-defined,misc]
        def preprocess(self, images: Any, **arguments: Any) -> Any:
            outputs = super().preprocess(images, **arguments)
            outputs["pixel_values"] = outputs["pixel_values"] + 1e-3
            return outputs

    with pytest.raises(RuntimeError, match=r"pixel_values differs from transformers by 0\.001"):
        from_processor(Changed())
    assert "crop the center" in repr(from_processor(Changed(), check=False))


def videos() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 255, (frames, height, width, 3), np.uint8) for frames, height, width in ((5, 60, 90), (4, 121, 77), (8, 200, 310))]


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("name", ["Qwen2VLVideoProcessor", "Qwen3VLVideoProcessor"])
def test_videos_equal_transformers(name: str, capped: bool) -> None:
    processor = getattr(transformers, name)(cap_pixels_per_frame=capped, do_sample_frames=False)
    expected = processor([torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos()], return_tensors="pt")
    translated = from_processor(processor)
    compare_outputs(name, expected, translated(ndd.batch(videos(), layout="FHWC")))
    assert translated.tokens([video.shape[:3] for video in videos()]).tolist() == (expected["video_grid_thw"].prod(1) // 4).tolist()


def test_videos_of_videomae_equal_transformers() -> None:
    module = pytest.importorskip("transformers.models.videomae.video_processing_videomae")
    processor, clips = module.VideoMAEVideoProcessor(), [video[:4] for video in videos()]
    expected = processor([torch.from_numpy(video).permute(0, 3, 1, 2) for video in clips], return_tensors="pt")
    compare_outputs("VideoMAE", expected, from_processor(processor)(ndd.batch(clips, layout="FHWC")))


@pytest.mark.parametrize(
    "settings", [{}, {"do_center_crop": False, "size": {"height": 50, "width": 60}}, {"do_rescale": False, "do_normalize": False}]
)
@pytest.mark.parametrize("name", ["VideoMAEImageProcessor", "VideoMAEImageProcessorPil"])
def test_image_processor_of_videomae_equals_transformers(name: str, settings: dict[str, Any]) -> None:
    processor, clips = getattr(transformers, name)(**settings), [video[:4] for video in videos()]
    expected = processor([list(clip) for clip in clips], return_tensors="pt")
    compare_outputs(name, expected, from_processor(processor)(ndd.batch(clips, layout="FHWC")))


@pytest.mark.parametrize("name", ["Qwen2VLVideoProcessor", "Qwen3VLVideoProcessor"])
def test_frames_are_those_that_transformers_samples(name: str) -> None:
    metadata = pytest.importorskip("transformers.video_utils").VideoMetadata
    processor = getattr(transformers, name)(cap_pixels_per_frame=False)
    translated = from_processor(processor, check=False)
    compared = 0
    for total in (*range(1, 40), 100, 777, 5000):
        for rate in (1.0, 10.0, 24.0, 29.97):
            for fps in (1, 2, 5.5):
                try:
                    expected = np.asarray(processor.sample_frames(metadata(total_num_frames=total, fps=rate), fps=fps)).tolist()
                except (ValueError, ZeroDivisionError):
                    with pytest.raises(ValueError, match="frames"):
                        translated.frames(total, rate, fps=fps)
                    continue
                assert translated.frames(total, rate, fps=fps) == expected
                compared += 1
    assert compared > 200


def sounds(seconds: tuple[float, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    times = [np.arange(int(16_000 * length)) / 16_000 for length in seconds]
    return [(0.3 * np.sin(2 * np.pi * 220 * t * (1 + 0.1 * np.sin(t))) + 0.01 * generator.standard_normal(len(t))).astype(np.float32) for t in times]


@pytest.mark.parametrize(
    ("name", "settings", "seconds", "tolerance"),
    [
        ("WhisperFeatureExtractor", {}, (0.02, 3.01, 10, 29.99, 31), 1e-4),
        ("WhisperFeatureExtractor", {"feature_size": 128}, (5, 30), 1e-4),
        ("SeamlessM4TFeatureExtractor", {}, (1.003, 4, 7.7), 2e-5),
        # A band of a short steady tone hardly deviates, so that the rounding of transformers' mean, in float32, is 8e-5 of its deviation.
        ("SeamlessM4TFeatureExtractor", {}, (0.1, 0.3), 1e-4),
    ],
)
def test_sounds_equal_transformers(name: str, settings: dict[str, Any], seconds: tuple[float, ...], tolerance: float) -> None:
    processor = getattr(transformers, name)(**settings)
    expected = processor(sounds(seconds), sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)
    found = from_processor(processor)(ndd.batch(sounds(seconds)))
    compare_outputs(name, expected, found, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["WhisperFeatureExtractor", "SeamlessM4TFeatureExtractor"])
def test_ragged_batches_of_64_sounds_equal_transformers(name: str) -> None:
    processor = getattr(transformers, name)()
    clips = sounds(tuple(np.random.default_rng(4).uniform(0.1, 6, 64).tolist()))
    expected = processor(clips, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)
    compare_outputs(name, expected, from_processor(processor)(ndd.batch(clips)), tolerance=1e-4)


@pytest.mark.parametrize("samples", [560, 720, 4_000, 16_000, 16_161])
@pytest.mark.parametrize("level", [0.0, 0.5])
def test_silence_equals_transformers(samples: int, level: float) -> None:
    # What is left of silence after its mean is the rounding of that mean, as much as a deviation: the order of additions matters.
    processor, clips = transformers.SeamlessM4TFeatureExtractor(), [np.full(samples, level, np.float32)]
    expected = processor(clips, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)
    compare_outputs("silence", expected, from_processor(processor, check=False)(ndd.batch(clips)))


def noise(amplitude: float, offset: float = 0.0) -> np.ndarray:
    return (offset + amplitude * np.random.default_rng(1).standard_normal(20_000)).astype(np.float32)


# What is hard on a transform and on logarithms: sounds below the floor, next to silence, clipped, far from zero, and single samples.
HARD_SOUNDS = {
    "faint": noise(1e-5),
    "below the floor": noise(1e-9),
    "clipped": np.clip(noise(3.0), -1, 1),
    "offset": noise(1e-5, offset=0.9),
    "silent half": np.concatenate([np.zeros(10_000, np.float32), noise(0.1)]),
    "faint end": np.concatenate([noise(0.1), noise(1e-6)]),
    "impulse": np.eye(1, 20_000, 5_000, dtype=np.float32)[0],
    "last bit": np.sign(noise(1.0)) / np.float32(32_768),
    "pure tone": np.sin(2 * np.pi * 440 / 16_000 * np.arange(20_000)).astype(np.float32),
    "loud": noise(1_000.0),
}


@pytest.mark.parametrize("name", HARD_SOUNDS)
def test_hard_sounds_equal_transformers(name: str) -> None:
    processor, clips = transformers.SeamlessM4TFeatureExtractor(), [HARD_SOUNDS[name]]
    expected = processor(clips, sampling_rate=16_000, return_tensors="pt", return_attention_mask=True)
    compare_outputs(name, expected, from_processor(processor, check=False)(ndd.batch(clips)), tolerance=2e-6)


def test_sounds_of_float64_equal_those_of_float32() -> None:
    clips = sounds((0.5, 1.2))
    for name in ("WhisperFeatureExtractor", "SeamlessM4TFeatureExtractor"):
        translated = from_processor(getattr(transformers, name)(), check=False)
        compare_outputs(name, translated(ndd.batch(clips)), translated(ndd.batch([clip.astype(np.float64) for clip in clips])))


def test_sounds_reject_what_they_cannot_take() -> None:
    whisper = from_processor(transformers.WhisperFeatureExtractor())
    with pytest.raises(ValueError, match="one channel"):
        whisper(ndd.batch([np.zeros((100, 2), np.float32)]))
    with pytest.raises(ValueError, match="sample 1 has 300 values"):
        from_processor(transformers.SeamlessM4TFeatureExtractor())(ndd.batch([np.zeros(1000, np.float32), np.zeros(300, np.float32)]))


def test_parts_of_a_whole_processor() -> None:
    class Whole:
        image_processor = transformers.Qwen2VLImageProcessor()
        video_processor = transformers.Qwen2VLVideoProcessor(cap_pixels_per_frame=False)
        feature_extractor = transformers.WhisperFeatureExtractor()
        tokenizer = None

    whole = from_processor(Whole())
    images = ndd.batch(photographs(2), layout="HWC")
    outputs = whole(images=images, sounds=ndd.batch(sounds((1, 2))))
    assert set(outputs) == {"pixel_values", "image_grid_thw", "input_features", "attention_mask"}
    assert whole.tokens(images).tolist() == (outputs["image_grid_thw"].torch().prod(1) // 4).tolist()
    assert whole.frames(4, 2.0, num_frames=2) == [0, 2]
    assert whole.steps[0].startswith("images: ")
    with pytest.raises(TypeError, match="not text"):
        whole(text="hello")
    levels = from_processor(Whole(), check=False, device="cpu", dtype=torch.uint8, repeat_temporal=False)(images=images)["pixel_values"]
    assert (levels.dtype, 2 * levels.shape[1]) == (torch.uint8, outputs["pixel_values"].shape[1])
    with pytest.raises(ValueError, match="Whole has no use for packed=True"):
        from_processor(Whole(), check=False, packed=True)


def test_a_whole_processor_passes_the_options_of_its_images() -> None:
    class SmolVlm:
        image_processor = transformers.SmolVLMImageProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})
        video_processor = transformers.SmolVLMVideoProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})

    whole, images = from_processor(SmolVlm()), photographs(3)
    planes = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
    expected = SmolVlm.image_processor([planes[:1], planes[1:]], return_tensors="pt", return_row_col_info=True)
    found = whole(images=ndd.batch(images, layout="HWC"), counts=[1, 2], return_row_col_info=True)
    assert found["rows"] == expected["rows"]
    assert found["cols"] == expected["cols"]
    compare_outputs("SmolVLM", {"pixel_values": expected["pixel_values"]}, {"pixel_values": found["pixel_values"]})
    with pytest.raises(TypeError, match="counts given without images"):
        whole(videos=ndd.batch(videos(), layout="FHWC"), counts=[1])
    # The outputs of both parts have the same names.
    with pytest.raises(ValueError, match="returns pixel_values for videos and for another part"):
        whole(images=ndd.batch(images, layout="HWC"), videos=ndd.batch(videos(), layout="FHWC"))


def test_a_whole_processor_with_a_part_that_is_not_translated_names_the_others() -> None:
    class Whole:
        image_processor = transformers.CLIPImageProcessor()
        video_processor = transformers.VivitVideoProcessor()

    with pytest.raises(TypeError, match=r"VivitVideoProcessor is not translated: .*alone, such as from_processor\(processor.image_processor\)"):
        from_processor(Whole())
