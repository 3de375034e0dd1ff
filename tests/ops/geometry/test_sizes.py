# SPDX-License-Identifier: Apache-2.0
"""Size rules, against the functions of transformers and timm that models were trained with."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd

Rule = Callable[[int, int], tuple[int, int]]


def random_sizes() -> np.ndarray:
    """Return 2,000 sizes: half of them uniform, half of them of any magnitude and aspect ratio."""
    generator = np.random.default_rng(0)
    return np.concatenate([generator.integers(1, 3000, (1000, 2)), np.exp(generator.uniform(0, 8, (1000, 2))).astype(np.int64) + 1])


def assert_follows(rule: Rule, size: Callable[[np.ndarray], Any]) -> None:
    """Compare with a rule on all sizes that it accepts."""
    accepted, expected = [], []
    for height, width in random_sizes().tolist():
        try:
            expected.append([int(side) for side in rule(height, width)])
        except ValueError:
            continue
        accepted.append((height, width))
    assert len(accepted) > 1500
    np.testing.assert_array_equal(size(np.array(accepted)).torch(), expected)


@pytest.mark.parametrize(
    ("multiple", "low", "high"), [(28, 3136, 1_003_520), (32, 65_536, 200_000), (28, 56 * 56, 14 * 14 * 4 * 1280), (14, 100_000, 100_000_000)]
)
def test_budget_follows_qwen2_vl(multiple: int, low: int, high: int) -> None:
    rule = pytest.importorskip("transformers.models.qwen2_vl.image_processing_qwen2_vl").smart_resize
    assert_follows(lambda h, w: rule(h, w, multiple, low, high), lambda s: ndd.sizes.budget(s, multiple_of=multiple, min_pixels=low, max_pixels=high))


@pytest.mark.parametrize("frames", [2, 3, 5, 8, 33])
def test_budget_of_videos_follows_qwen3_vl(frames: int) -> None:
    rule = pytest.importorskip("transformers.models.qwen3_vl.video_processing_qwen3_vl").smart_resize
    low, high = 128 * 1024, 768 * 1024
    assert_follows(
        lambda h, w: rule(frames, h, w, 2, 32, low, high),
        lambda s: ndd.sizes.budget(s, multiple_of=32, min_pixels=low, max_pixels=high, frames=frames),
    )


def test_budget_takes_frames_for_each_sample() -> None:
    sizes = np.array([[400, 600], [400, 600]])
    both = ndd.sizes.budget(sizes, multiple_of=32, min_pixels=0, max_pixels=768 * 1024, frames=[4, 16]).torch()
    alone = [ndd.sizes.budget(sizes[:1], multiple_of=32, max_pixels=768 * 1024, frames=n).torch()[0].tolist() for n in (4, 16)]
    assert both.tolist() == alone


def test_filled_budget_follows_gemma4() -> None:
    rule = pytest.importorskip("transformers.models.gemma4.image_processing_gemma4").get_aspect_ratio_preserving_size
    assert_follows(
        lambda h, w: rule(h, w, 16, 2520, 3), lambda s: ndd.sizes.budget(s, multiple_of=48, max_pixels=2520 * 256, fill=True, max_aspect=1e9)
    )


@pytest.mark.parametrize(("patch", "most"), [(16, 256), (14, 729), (32, 64)])
def test_patches_follow_siglip2(patch: int, most: int) -> None:
    rule = pytest.importorskip("transformers.models.siglip2.image_processing_siglip2").get_image_size_for_max_num_patches
    assert_follows(lambda h, w: rule(h, w, patch, most), lambda s: ndd.sizes.patches(s, patch_size=patch, max_patches=most))


@pytest.mark.parametrize("ratio", [None, 1.0, 2.5])
@pytest.mark.parametrize("patch", [16, (14, 28)])
def test_patches_follow_timm(ratio: float | None, patch: Any) -> None:
    rule = pytest.importorskip("timm.data.naflex_transforms").get_image_size_for_seq
    sides = list(patch) if isinstance(patch, tuple) else patch
    assert_follows(
        lambda h, w: rule((h, w), patch, 576, max_ratio=ratio)[1], lambda s: ndd.sizes.patches(s, patch_size=sides, max_patches=576, max_ratio=ratio)
    )


def test_fit_follows_detr() -> None:
    rule = pytest.importorskip("transformers.image_transforms").get_size_with_aspect_ratio
    assert_follows(lambda h, w: rule((h, w), 800, 1333), lambda s: ndd.sizes.fit(s, shortest=800, longest=1333))


def scale_shortest(height: int, width: int) -> tuple[int, int]:
    other = int(224 * max(height, width) / min(height, width))
    return (224, other) if height <= width else (other, 224)


def scale_longest_half_up(height: int, width: int) -> tuple[int, int]:
    scale = 1024 * 1.0 / max(height, width)
    return max(1, int(height * scale + 0.5)), max(1, int(width * scale + 0.5))


def shrink_longest_to_multiples(height: int, width: int) -> tuple[int, int]:
    ratio = max(height / 1024, width / 1024)
    sides = (math.floor(side / ratio) if ratio > 1 else side for side in (height, width))
    high, wide = (16 * max(1, -(-side // 16)) for side in sides)
    return high, wide


def fit_box(height: int, width: int) -> tuple[int, int]:
    scale = min(300 / height, 500 / width)
    return max(1, int(height * scale)), max(1, int(width * scale))


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        (scale_shortest, {"shortest": 224}),
        (scale_longest_half_up, {"longest": 1024, "rounding": "half_up"}),
        (shrink_longest_to_multiples, {"longest": 1024, "multiple_of": 16, "enlarge": False}),
        (fit_box, {"box": [300, 500]}),
    ],
)
def test_fit_follows_its_formula(rule: Rule, arguments: dict[str, Any]) -> None:
    assert_follows(rule, lambda s: ndd.sizes.fit(s, **arguments))


CANVASES = {336: [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)], 384: [(384 * i, 384 * j) for i in range(1, 7) for j in range(1, 7)]}


@pytest.mark.parametrize("tile", CANVASES)
def test_canvas_follows_llava_next(tile: int) -> None:
    module = pytest.importorskip("transformers.image_processing_utils")
    canvases = CANVASES[tile]

    def inner(height: int, width: int) -> tuple[int, int]:
        canvas = module.select_best_resolution((height, width), canvases)
        return module.get_patch_output_size(torch.empty((1, height, width)), canvas, "channels_first")

    assert_follows(
        lambda h, w: tuple(side // tile for side in module.select_best_resolution((h, w), canvases)),  # type: ignore[return-value]
        lambda s: ndd.sizes.canvas(s, tile=tile, canvases=canvases)[0],
    )
    assert_follows(inner, lambda s: ndd.sizes.canvas(s, tile=tile, canvases=canvases)[1])


@pytest.mark.parametrize(("low", "high"), [(1, 12), (2, 6), (1, 40)])
def test_canvas_follows_internvl(low: int, high: int) -> None:
    rule = pytest.importorskip("transformers.models.got_ocr2.image_processing_got_ocr2").get_optimal_tiled_canvas
    assert_follows(lambda h, w: rule((h, w), (448, 448), low, high)[::-1], lambda s: ndd.sizes.canvas(s, tile=448, min_tiles=low, max_tiles=high)[0])


def test_extents_come_from_images_headers_and_numbers() -> None:
    images = ndd.batch([np.zeros((100, 200, 3), np.uint8), np.zeros((50, 60, 3), np.uint8)], layout="HWC")
    planes = ndd.transpose(images, perm=[2, 0, 1])
    expected = [[84, 196], [56, 56]]
    for extents in (images, planes, np.array([[100, 200], [50, 60]]), [[100, 200], [50, 60]], ndd.batch([[100, 200, 3], [50, 60, 3]])):
        assert ndd.sizes.budget(extents, multiple_of=28, min_pixels=56 * 56).torch().tolist() == [[112, 196], [56, 56]] != expected
    single = ndd.sizes.budget(ndd.tensor(np.zeros((100, 200, 3), np.uint8), layout="HWC"), multiple_of=28)
    assert single.torch().tolist() == [112, 196]
    video = ndd.batch([np.zeros((4, 100, 200, 3), np.uint8)], layout="FHWC")
    assert ndd.sizes.fit(video, shortest=50).torch().tolist() == [[50, 100]]


def test_sizes_are_arguments_of_resize() -> None:
    images = ndd.batch([np.zeros((100, 200, 3), np.uint8), np.zeros((50, 60, 3), np.uint8)], layout="HWC")
    resized = ndd.resize(images, size=ndd.sizes.budget(images, multiple_of=28, min_pixels=3136))
    tokens, grid = ndd.patchify(resized, patch_size=14, merge_size=2)
    assert resized.shape == [(112, 196, 3), (56, 56, 3)]
    assert grid.torch().tolist() == [[1, 8, 14], [1, 4, 4]]
    assert [sample.shape for sample in tokens.tensors] == [(112, 588), (16, 588)]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ndd.sizes.budget([[10, 3000]], multiple_of=28), r"sample 0: 10 x 3000 has an aspect ratio of 300"),
        (lambda: ndd.sizes.budget([[100, 100], [0, 5]], multiple_of=28), "sample 1 has no pixels"),
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=0), "multiple_of"),
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28), "raise min_pixels"),
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28, min_pixels=100, max_pixels=10), "less than min_pixels"),
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28, fill=True), "needs max_pixels"),
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28, max_pixels=100, fill=True), "less than one square"),
        (lambda: ndd.sizes.budget([[100, 100]], multiple_of=28, frames=1), "fewer than temporal=2"),
        (lambda: ndd.sizes.budget([[100, 100]], multiple_of=28, frames=[1, 2, 3]), "frames"),
        (lambda: ndd.sizes.budget([[100, 100]], multiple_of=28, frames="many"), "frames must be an integer.*got 'many'"),
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28, min_pixels="1"), "min_pixels must be a non-negative integer.*got '1'"),  # type: ignore[arg-type]
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28, min_pixels=math.nan), "min_pixels must be a non-negative integer.*got nan"),  # type: ignore[arg-type]
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28, min_pixels=-1), "min_pixels must be a non-negative integer, got -1"),
        (lambda: ndd.sizes.budget([[10, 10]], multiple_of=28, max_aspect=None), "max_aspect must be a number.*got None"),  # type: ignore[arg-type]
        (lambda: ndd.sizes.patches([[10, 10]], patch_size=16, max_patches=9, max_ratio="2"), "max_ratio must be a positive number"),  # type: ignore[arg-type]
        (lambda: ndd.sizes.patches([[10, 10]], patch_size=16, max_patches=0), "max_patches"),
        (lambda: ndd.sizes.patches([[10, 10]], patch_size=[16, 0], max_patches=9), "patch_size"),
        (lambda: ndd.sizes.patches([[10, 10]], patch_size=16, max_patches=9, max_ratio=0), "max_ratio"),
        (lambda: ndd.sizes.fit([[10, 10]]), "give shortest"),
        (lambda: ndd.sizes.fit([[10, 10]], shortest=3, box=[3, 3]), "give shortest"),
        (lambda: ndd.sizes.fit([[10, 10]], shortest=-3), "shortest"),
        (lambda: ndd.sizes.fit([[10, 10]], shortest=3, rounding="up"), "rounding"),  # type: ignore[arg-type]
        (lambda: ndd.sizes.fit([[1 << 40, 1]], shortest=1 << 20), "too large"),
        (lambda: ndd.sizes.canvas([[10, 10]], tile=4, canvases=[]), "empty"),
        (lambda: ndd.sizes.canvas([[10, 10]], tile=4, canvases=[[4, 6]]), "does not consist of tiles"),
        (lambda: ndd.sizes.canvas([[10, 10]], tile=4), "give either"),
        (lambda: ndd.sizes.canvas([[10, 10]], tile=4, min_tiles=3, max_tiles=2), "range"),
        (lambda: ndd.sizes.canvas([[10, 10]], tile=4, max_tiles=1 << 40), "max_tiles"),
        (lambda: ndd.sizes.budget([[1, 2, 3, 4]], multiple_of=28), "extents must be"),
        (lambda: ndd.sizes.budget(ndd.batch([[[1.0, 2.0]]], layout="fX"), multiple_of=28), "axes H and W"),
    ],
)
def test_wrong_arguments_are_rejected(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
