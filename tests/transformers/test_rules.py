# SPDX-License-Identifier: Apache-2.0
"""Sizes by the rules of single processors, against their methods on 2,000 random sizes; tests/ops/geometry/test_sizes.py has the general ones."""

from typing import Any

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from torch_ndd.transformers import from_processor  # noqa: E402


def random_sizes() -> list[list[int]]:
    generator = np.random.default_rng(3)
    uniform, scaled = generator.integers(1, 3000, (1000, 2)), np.exp(generator.uniform(0, 8, (1000, 2))).astype(np.int64) + 1
    return np.concatenate([uniform, scaled]).tolist()


def empty_image(height: int, width: int) -> torch.Tensor:
    """Return an image without memory."""
    return torch.zeros(1, dtype=torch.uint8).expand(3, height, width)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("Idefics3ImageProcessor", {}), ("SmolVLMImageProcessor", {"size": {"longest_edge": 1024}, "max_image_size": {"longest_edge": 512}})],
)
def test_both_resizes_of_idefics3(name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("transformers.models.idefics3.image_processing_idefics3")
    processor = getattr(transformers, name)(**settings)
    translated = from_processor(processor, check=False)
    sizes = random_sizes()
    found = translated.sizes(torch.tensor(sizes))
    monkeypatch.setattr(type(processor), "resize", lambda self, image, size, resample: (size.height, size.width))
    compared = 0
    for (height, width), (first, second) in zip(sizes, found, strict=True):
        expected = module.get_resize_output_image_size(empty_image(height, width), processor.size["longest_edge"])
        assert first == tuple(expected)
        side = processor.max_image_size["longest_edge"]
        tiles = processor.resize_for_vision_encoder(empty_image(*expected), side)
        if min(tiles):  # an image of 4096 x 1 would be resized to nothing
            assert second == tuple(tiles)
            compared += 1
    assert compared > 1900


def test_windows_of_gemma3() -> None:
    settings = {"pan_and_scan_min_crop_size": 256, "pan_and_scan_max_num_crops": 4, "pan_and_scan_min_ratio_to_activate": 1.2}
    processor = transformers.Gemma3ImageProcessor(do_pan_and_scan=True, **settings)
    translated = from_processor(processor, check=False)
    sizes = random_sizes()
    counts = translated.tokens(sizes).tolist()
    scanned = 0
    for (height, width), count in zip(sizes, counts, strict=True):
        expected = processor.pan_and_scan_batched(empty_image(height, width)[None], **settings)
        windows = translated.windows(height, width)
        assert [tuple(crop.shape[-2:]) for crop in expected] == [window[2:] for window in windows]
        assert count == 1 + len(windows)
        scanned += bool(windows)
    assert scanned > 300


@pytest.mark.parametrize("keep", [False, True])
def test_sizes_of_dpt(keep: bool) -> None:
    module = pytest.importorskip("transformers.models.dpt.image_processing_dpt")
    settings = {"size": {"height": 518, "width": 518}, "ensure_multiple_of": 14, "keep_aspect_ratio": keep}
    translated = from_processor(transformers.DPTImageProcessor(**settings), check=False)
    sizes = random_sizes()
    rules = [module.get_resize_output_image_size(empty_image(height, width), (518, 518), keep, 14) for height, width in sizes]
    expected = [[rule.height, rule.width] for rule in rules]
    kept = [k for k, size in enumerate(expected) if min(size)]
    found = translated.target_of(torch.tensor(sizes)[kept]).torch().tolist()
    assert found == [expected[k] for k in kept]
    assert len(kept) > 1000
    for k in set(range(len(sizes))) - set(kept):  # transformers raises in its resize
        with pytest.raises(ValueError, match="would be resized to nothing"):
            translated.target_of(torch.tensor(sizes[k : k + 1]))
