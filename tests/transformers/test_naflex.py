# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms

import torch_ndd as ndd
from torch_ndd.transformers import from_naflex
from torch_ndd.transformers._check import compare_outputs, make_images

TENSORS = ("patches", "patch_coord", "patch_valid")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize("options", [{}, {"max_ratio": 1.0}, {"interpolation": "bilinear"}])
def test_outputs_equal_timm(options: dict[str, Any]) -> None:
    module = pytest.importorskip("timm.data.naflex_transforms")
    collate = pytest.importorskip("timm.data.naflex_dataset").NaFlexCollator(256)
    generator = np.random.default_rng(0)
    images = [generator.integers(0, 255, (height, width, 3), np.uint8) for height, width in ((60, 90), (121, 77), (400, 310))]
    steps = [module.ResizeToSequence(16, 256, **options), transforms.ToTensor(), transforms.Normalize(MEAN, STD), module.Patchify(16)]
    expected, _ = collate([(transforms.Compose(steps)(Image.fromarray(image)), 0) for image in images])
    found = from_naflex(16, 256, **options)(ndd.batch(images, layout="HWC"))
    assert found["seq_len"] == expected["seq_len"]
    for key in TENSORS:
        np.testing.assert_allclose(np.asarray(found[key]), expected[key].numpy(), atol=2e-5)
        assert np.asarray(found[key]).dtype == expected[key].numpy().dtype


@pytest.mark.slow
@pytest.mark.parametrize("max_seq_len", [64, 256])
def test_ragged_batches_of_64_images_equal_timm(max_seq_len: int) -> None:
    module = pytest.importorskip("timm.data.naflex_transforms")
    collate = pytest.importorskip("timm.data.naflex_dataset").NaFlexCollator(max_seq_len)
    images = make_images([(int(height), int(width)) for height, width in np.random.default_rng(5).integers(20, 500, (64, 2))])
    steps = transforms.Compose(
        [module.ResizeToSequence(16, max_seq_len), transforms.ToTensor(), transforms.Normalize(MEAN, STD), module.Patchify(16)]
    )
    expected, _ = collate([(steps(Image.fromarray(image)), 0) for image in images])
    found = from_naflex(16, max_seq_len)(ndd.batch(images, layout="HWC"))
    compare_outputs("NaFlex", {key: expected[key] for key in TENSORS}, {key: found[key] for key in TENSORS})


def test_tokens_count_the_valid_patches() -> None:
    images = ndd.batch([np.zeros((60, 90, 3), np.uint8), np.zeros((121, 77, 3), np.uint8)], layout="HWC")
    fn = from_naflex(16, 64)
    assert fn.tokens(images).tolist() == fn(images)["patch_valid"].torch().sum(1).tolist()


def test_labels_pass_through_and_packed_sequences_have_no_padding() -> None:
    images = ndd.batch([np.zeros((60, 90, 3), np.uint8), np.zeros((121, 77, 3), np.uint8)], layout="HWC")
    out, labels = from_naflex(16, 64, packed=True)(images, [1, 2])
    assert labels == [1, 2]
    assert len(out["patches"].values.torch()) == len(out["patch_coord"].torch()) == int(from_naflex(16, 64).tokens(images).sum())


@pytest.mark.parametrize(
    ("arguments", "text"), [({"interpolation": "box"}, "box"), ({"patch_size": 0}, "patch_size"), ({"max_seq_len": 0}, "max_patches")]
)
def test_wrong_arguments_are_rejected(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        from_naflex(**arguments)
