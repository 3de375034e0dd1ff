# SPDX-License-Identifier: Apache-2.0
"""Each translated transform does to photographs, masks, boxes and points what Albumentations does with the same parameters."""

from typing import Any

import numpy as np
import pytest
import torch
from _album_rows import DISTORTIONS, GEOMETRY, NOISE, PIXELS, A, describe, fix_parameters, make, photographs

import torch_ndd as ndd
from torch_ndd.albumentations import from_albumentations
from torch_ndd.albumentations._registry import STEPS
from torch_ndd.albumentations._sample import Rows, Sample
from torch_ndd.albumentations._step import Step
from torch_ndd.torchvision._draws import Draws

# The part of the values that may differ by more than one level, with the reason.
TOLERANCES = {
    "Downscale": 1e-2,  # rounding decides between two columns or rows
    "CLAHE": 1e-4,  # the 8-bit L*a*b* of OpenCV comes from tables
    "ColorJitter": 2e-3,  # OpenCV rounds HSV in the last columns, which do not fill a vector, and the next step multiplies the difference
    "UnsharpMask": 1e-4,  # rounding decides whether a pixel exceeds the threshold
    # Rounding decides between two pixels.
    "Affine": 1e-4,
    "Perspective": 1e-4,
    "Rotate": 1e-4,
    "SafeRotate": 1e-4,
    "ShiftScaleRotate": 1e-4,
}
# Of masks, which are resized to the nearest pixel: rounding decides where a corner of the output is on a pixel of the input.
MASK_TOLERANCES = dict.fromkeys(
    ("RandomResizedCrop", "RandomSizedCrop", "RandomSizedBBoxSafeCrop", "CropAndPad", "Resize", "LongestMaxSize", "SmallestMaxSize", "RandomScale"),
    0.02,
)
BOXES = [
    [[20.5, 30.0, 110.0, 90.0], [150.0, 100.0, 260.0, 250.0], [200.0, 20.0, 440.0, 60.0]],
    [[100.0, 50.0, 300.0, 280.0]],
    [],
]
POINTS = [[[30.0, 40.0, 10.0, 2.0], [200.0, 150.0, 100.0, 1.0], [440.0, 290.0, 300.0, 3.0]], [], [[5.0, 6.0, 200.0, 1.5]]]


def make_targets(images: list[np.ndarray]) -> dict[str, Any]:
    masks = [np.ascontiguousarray(image[..., 0] // 50) for image in images]
    boxes, points = ([np.asarray(rows, np.float32).reshape(-1, 4) for rows in all_rows] for all_rows in (BOXES, POINTS))
    labels = [np.arange(len(rows), dtype=np.int64) + 10 * i for i, rows in enumerate(boxes)]
    return {"image": images, "mask": masks, "bboxes": boxes, "keypoints": points, "labels": labels}


def as_batches(targets: dict[str, Any]) -> dict[str, Any]:
    return {name: ndd.as_batch(values, layout={"image": "HWC", "mask": "HW"}.get(name)) for name, values in targets.items()}


def record_draws(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Step, dict[str, torch.Tensor]]]:
    """Return a list to which every call of a step adds its parameters."""
    calls: list[tuple[Step, dict[str, torch.Tensor]]] = []
    change = Step.change

    def record_change(self: Step, sample: Sample, params: dict[str, torch.Tensor]) -> Sample:
        calls.append((self, params))
        return change(self, sample, params)

    monkeypatch.setattr(Step, "change", record_change)
    return calls


def assert_close_pixels(found: np.ndarray, expected: np.ndarray, part: float) -> None:
    assert found.shape == expected.shape
    assert found.dtype.kind == expected.dtype.kind  # Albumentations returns float64 here and there
    levels = 1.0 if found.dtype == np.uint8 else 1e-3
    different = np.abs(found.astype(np.float64) - expected) > levels
    assert different.mean() <= part, f"{different.mean():.2g} of the values differ by up to {np.abs(found.astype(float) - expected).max()}"


@pytest.mark.parametrize("row", GEOMETRY, ids=describe)
def test_targets_equal_albumentations(row: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    name, settings = row
    targets = make_targets(photographs())
    options = {
        "bbox_params": A.BboxParams("pascal_voc", label_fields=["labels"], min_visibility=0.05),
        "keypoint_params": A.KeypointParams("xyas"),
    }
    fn = from_albumentations(A.Compose([make(name, settings)], **options), check=False)
    calls = record_draws(monkeypatch)
    found = fn(**as_batches(targets))
    ((step, params),) = [call for call in calls if call[0].name == name][:1]
    for i in range(3):
        compose = A.Compose([fix_parameters(make(name, settings), step.arguments(params, i))], **options)
        expected = compose(**{target: values[i].copy() for target, values in targets.items()})
        part = TOLERANCES.get(name, 0.0)
        assert_close_pixels(found["image"].nth(i).torch().numpy(), expected["image"], part)
        # Masks have levels that do not follow each other: a pixel more or less at their edges is a decision of rounding.
        mask = found["mask"].nth(i).torch().numpy()
        assert mask.shape == expected["mask"].shape
        assert (mask != expected["mask"]).mean() <= MASK_TOLERANCES.get(name, part)
        for target, columns in (("bboxes", 4), ("keypoints", 4)):
            rows, theirs = found[target].nth(i).torch().numpy(), np.asarray(expected[target]).reshape(-1, columns)
            np.testing.assert_allclose(rows, theirs, rtol=1e-4, atol=2e-2, err_msg=target)
        assert found["labels"].nth(i).torch().tolist() == list(expected["labels"])


@pytest.mark.parametrize("row", [*DISTORTIONS, *PIXELS], ids=describe)
def test_pixels_equal_albumentations(row: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    name, settings = row
    images = photographs()
    if name == "ElasticTransform":
        images = [image[:300, :400] for image in images]
    if name == "FromFloat":
        images = [(image / 255).astype(np.float32) for image in images]
    if name == "ToRGB":
        images = [np.ascontiguousarray(image[..., :1]) for image in images]
    masks = [np.ascontiguousarray(image[..., 0] // 50) for image in images]
    fn = from_albumentations(make(name, settings))
    calls = record_draws(monkeypatch)
    found = fn(image=ndd.as_batch([np.ascontiguousarray(image) for image in images], layout="HWC"), mask=ndd.as_batch(masks, layout="HW"))
    ((step, params),) = calls
    for i, (image, mask) in enumerate(zip(images, masks, strict=True)):
        fixed = fix_parameters(make(name, settings), {**step.arguments(params, i)})
        expected = fixed(image=image.copy(), mask=mask.copy())
        theirs, ours = np.asarray(expected["image"]), found["image"].nth(i).torch().numpy()
        assert_close_pixels(ours, theirs.reshape(ours.shape) if theirs.ndim < 3 else theirs, TOLERANCES.get(name, 0.0))
        assert (found["mask"].nth(i).torch().numpy() == np.asarray(expected["mask"])).mean() >= 1 - 1e-4


@pytest.mark.parametrize("row", NOISE, ids=describe)
def test_noise_has_the_distribution_of_albumentations(row: tuple[str, dict[str, Any]]) -> None:
    image = photographs()[1][:200, :300]
    found = from_albumentations(make(*row))(ndd.as_batch([image] * 24, layout="HWC")).torch().numpy().astype(np.float64) - image
    transform = make(*row)
    transform.set_random_seed(1)
    expected = np.stack([transform(image=image)["image"].astype(np.float64) - image for _ in range(24)])
    # Statistics of single images vary with the parameters that each draws: the means over images are compared, in units of their spread.
    for statistic in (lambda x: x.mean((1, 2, 3)), lambda x: x.std((1, 2, 3)), lambda x: (x != 0).mean((1, 2, 3))):
        ours, theirs = statistic(found), statistic(expected)
        spread = np.sqrt((ours.var() + theirs.var()) / 24) + 0.02
        assert abs(ours.mean() - theirs.mean()) < 4 * spread


def flatten(value: Any) -> list[float]:
    """Return numbers that describe a parameter."""
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in flatten(value[key])]
    if value is None:
        return [0.0] * 4
    if isinstance(value, bool | int | float | np.number):
        return [float(value)]
    if isinstance(value, tuple | list) and len(value) <= 4 and all(isinstance(number, int | float | np.number) for number in value):
        return [float(number) for number in value]
    array = np.asarray(value, np.float64) if not isinstance(value, str) else np.zeros(0)
    return [float(array.size), float(array.mean()), float(array.std())] if array.size else [0.0, 0.0, 0.0]


# Not random, or described differently: symmetries by names, one channel set, seeds.
SKIPPED_PARAMETERS = {"channels_shuffled", "channels_to_drop", "fill", "fill_mask", "group_element", "order", "pad_params", "seed", "shape"}


@pytest.mark.slow
@pytest.mark.parametrize("row", [*GEOMETRY, *DISTORTIONS[:4], *PIXELS], ids=describe)
def test_parameters_have_the_distribution_of_albumentations(row: tuple[str, dict[str, Any]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    name, settings = row
    # Maps are as large as images.
    count, height, width = (100, 24, 32) if name in ("OpticalDistortion", "GridDistortion") else (300, 300, 451)
    image = photographs()[1][:height, :width]
    channels = image[..., :1] if name == "ToRGB" else image
    boxes = torch.tensor([[0.2, 0.3, 0.5, 0.6], [0.6, 0.1, 0.9, 0.4]], dtype=torch.float64)
    mask = image[..., 0] // 50 * (np.arange(image.shape[1]) < 150)
    step = STEPS["RGBShift" if name == "AdditiveNoise" else name](make(name, settings))
    owners = torch.arange(count).repeat_interleave(2)
    sample = Sample(
        {"image": ndd.as_batch(np.broadcast_to(channels, (count, *channels.shape)).copy(), layout="HWC")},
        {"mask": ndd.as_batch(np.broadcast_to(mask[..., None], (count, *mask.shape, 1)).copy(), layout="HWC")},
        {"bboxes": Rows(boxes.repeat(count, 1), owners, torch.arange(2 * count))},
    )
    params = step.draw(sample, Draws(count))
    transform = make(name, settings)
    transform.set_random_seed(3)
    ours, theirs = [], []
    for i in range(count):
        found = step.arguments(params, i)
        data = {"image": channels, "mask": mask, "bboxes": boxes.numpy()}
        drawn = {**transform.get_params(), **transform.get_params_dependent_on_data({"shape": channels.shape}, data)}
        names = sorted(set(found) - SKIPPED_PARAMETERS)
        assert set(names) <= set(drawn), "the original has no such parameter"
        ours.append([number for key in names for number in flatten(found[key])])
        theirs.append([number for key in names for number in flatten(drawn[key])])
    for k, (a, b) in enumerate(zip(np.array(ours).T, np.array(theirs).T, strict=True)):
        # Constants agree up to rounding; the others have the same distribution.
        if np.ptp(a) < 1e-6 and np.ptp(b) < 1e-6:
            np.testing.assert_allclose(a[0], b[0], rtol=1e-4, atol=1e-4)
        else:
            found, expected = (f"{x.mean():.4g} +- {x.std():.4g}" for x in (a, b))
            assert stats.ks_2samp(a, b, method="asymp").pvalue > 1e-4, f"number {k} of {names}: {found}, not {expected}"


def test_at_least_sixty_transforms_are_compared() -> None:
    compared = {name for name, _ in [*GEOMETRY, *DISTORTIONS, *PIXELS]}
    assert len(compared) >= 60
    assert compared | {name for name, _ in NOISE} == set(STEPS)
