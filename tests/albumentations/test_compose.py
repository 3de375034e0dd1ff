# SPDX-License-Identifier: Apache-2.0
"""Compositions, targets and their formats, probabilities, seeds, and what is refused."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from _album_rows import A, ToTensorV2, make, photographs
from PIL import Image

import torch_ndd as ndd
from torch_ndd.albumentations import from_albumentations
from torch_ndd.albumentations._registry import REFUSED, STEPS
from torch_ndd.ops.color._opencv_colors import KINDS, NUMBERS, with_color_steps, with_level_tables


def constant_images(count: int, value: int = 100) -> ndd.Batch:
    return ndd.as_batch(np.full((count, 8, 10, 3), value, np.uint8), layout="HWC")


def add(levels: int, p: float = 1.0) -> Any:
    """Return a transform that adds a number of levels, so a pixel shows which transforms acted."""
    return A.RGBShift(*[(levels, levels)] * 3, p=p)


def pixels(fn: Any, count: int = 2000) -> np.ndarray:
    """Return what each of many samples of level 100 became."""
    return fn(constant_images(count)).torch().numpy()[:, 0, 0, 0].astype(int) - 100


def share(values: np.ndarray, value: int) -> float:
    return float((values == value).mean())


def test_probability_is_drawn_for_each_sample() -> None:
    found = pixels(from_albumentations(A.Compose([add(10, p=0.3)])))
    assert set(found) == {0, 10}
    assert abs(share(found, 10) - 0.3) < 0.05


def test_probability_splits_a_batch_where_a_transform_cannot_do_nothing() -> None:
    images = ndd.as_batch([np.full((4, 6, 3), k, np.uint8) for k in range(200)], layout="HWC")
    found = from_albumentations(A.Compose([A.Resize(3, 3, p=0.5)]))(images)
    shapes = found.shape
    assert set(shapes) == {(4, 6, 3), (3, 3, 3)}
    assert [int(found.nth(k).torch().flatten()[0]) for k in range(200)] == list(range(200))  # samples keep their places


def test_compose_acts_with_its_probability() -> None:
    assert abs(share(pixels(from_albumentations(A.Compose([add(10)], p=0.4))), 10) - 0.4) < 0.05


def test_one_of_chooses_by_the_probabilities_of_its_children() -> None:
    found = pixels(from_albumentations(A.Compose([A.OneOf([add(10, p=0.2), add(20, p=0.6)], p=0.8)])))
    assert set(found) == {0, 10, 20}
    assert abs(share(found, 10) - 0.2) < 0.05
    assert abs(share(found, 20) - 0.6) < 0.05


def test_some_of_runs_children_with_their_own_probability() -> None:
    found = pixels(from_albumentations(A.Compose([A.SomeOf([add(3), add(10), add(30, p=0.5)], n=2, p=1)])))
    assert set(found) == {13, 33, 40, 3, 10}
    assert abs(share(found, 13) - 1 / 3) < 0.05
    assert abs(share(found, 33) - 1 / 6) < 0.05


def test_some_of_with_replacement_repeats_children() -> None:
    found = pixels(from_albumentations(A.Compose([A.SomeOf([add(3), add(10)], n=2, replace=True)])))
    assert set(found) == {6, 13, 20}
    assert abs(share(found, 13) - 0.5) < 0.05


def test_random_order_changes_the_order_of_steps() -> None:
    found = pixels(from_albumentations(A.Compose([A.RandomOrder([add(55), A.InvertImg(p=1)], n=2)])))
    assert set(found) == {0, 110}  # 255 - 100 + 55 = 210, or 255 - 155 = 100
    assert abs(share(found, 0) - 0.5) < 0.05


def test_one_or_other_and_sequential() -> None:
    found = pixels(from_albumentations(A.Compose([A.OneOrOther(add(10), A.Sequential([add(2), add(3)], p=1), p=0.7)])))
    assert set(found) == {10, 5}
    assert abs(share(found, 10) - 0.7) < 0.05


def test_children_with_probability_zero_never_act() -> None:
    assert set(pixels(from_albumentations(A.Compose([add(10, p=0), A.Compose([add(3)], p=0)])), 50)) == {0}


def test_seed_repeats_the_draws() -> None:
    def run() -> list[np.ndarray]:
        fn = from_albumentations(A.Compose([add(10, p=0.5), A.GaussNoise(p=1)], seed=5))
        return [fn(constant_images(40)).torch().numpy() for _ in range(2)]

    first, second = run(), run()
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
    assert not np.array_equal(first[0], first[1])
    # Without a seed the numbers are those of torch_ndd.
    fn = from_albumentations(A.Compose([A.GaussNoise(p=1)]))
    ndd.random.set_seed(1)
    a = fn(constant_images(2)).torch()
    ndd.random.set_seed(1)
    assert torch.equal(a, fn(constant_images(2)).torch())


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loader_resumes_the_draws_of_a_seed(prefetch: int) -> None:
    """The numbers of a batch are those of its place, so the state of the loader is enough; two calls for a batch differ."""

    def make_loader() -> ndd.DataLoader:
        fn = from_albumentations(A.Compose([add(10, p=0.5), A.GaussNoise(p=1)], seed=5))
        numbers = ndd.readers.Dataset(list(range(12)), random_shuffle=True, seed=1)
        views = lambda values: tuple(fn(constant_images(values.batch_size)) for _ in range(2))  # noqa: E731
        return ndd.DataLoader(numbers, views, batch_size=4, prefetch=prefetch)

    first = make_loader()
    whole = []
    states = [first.state_dict()]
    for _ in range(2):
        for views in first:
            whole.append(views)
            states.append(first.state_dict())
    assert all(not torch.equal(*views) for views in whole)
    assert len({views[0].numpy().tobytes() for views in whole}) == 6
    for k, state in enumerate(states[:-1]):
        loader = make_loader()
        loader.load_state_dict(state)
        found = [*loader, *loader]  # the rest of the epoch and the next one
        assert len(found) >= 3
        for views, expected in zip(found, whole[k:], strict=False):
            assert torch.equal(views[0], expected[0]), k
            assert torch.equal(views[1], expected[1]), k


def test_the_function_of_a_seed_has_a_state() -> None:
    fn, other = (from_albumentations(A.Compose([A.GaussNoise(p=1)], seed=5)) for _ in range(2))
    fn(constant_images(2))
    other.load_state_dict(fn.state_dict())
    assert torch.equal(fn(constant_images(2)).torch(), other(constant_images(2)).torch())
    plain = from_albumentations(A.GaussNoise(p=1))
    assert plain.state_dict() == {}
    with pytest.raises(ValueError, match="the state is of a Compose with a seed, but this one has none"):
        plain.load_state_dict(fn.state_dict())


def test_normalize_and_to_tensor_are_one_step_with_equal_results() -> None:
    fn = from_albumentations(A.Compose([A.CenterCrop(40, 50), A.Normalize(), ToTensorV2()]))
    assert repr(fn).count("\n") == 2
    photos = photographs()
    found = fn(ndd.as_batch(photos, layout="HWC"))
    assert found.layout == "CHW"
    assert found.torch().is_contiguous()
    theirs = A.Compose([A.CenterCrop(40, 50), A.Normalize(), ToTensorV2()])
    for i, photo in enumerate(photos):
        np.testing.assert_allclose(found.nth(i).torch(), theirs(image=photo)["image"], atol=1e-5)


def test_files_are_decoded() -> None:
    file = io.BytesIO()
    Image.fromarray(photographs()[1]).save(file, "png")
    encoded = np.frombuffer(file.getvalue(), np.uint8)
    found, labels = from_albumentations(A.Compose([A.CenterCrop(100, 120)]))(ndd.as_batch([encoded, encoded]), [1, 2])
    assert np.array_equal(found.nth(1).torch().numpy(), photographs()[1][100:200, 165:285])
    assert labels == [1, 2]


def test_loader_runs_the_function(tmp_path: Any) -> None:
    for k, photo in enumerate(photographs()):
        (tmp_path / str(k % 2)).mkdir(exist_ok=True)
        Image.fromarray(photo).save(tmp_path / str(k % 2) / f"{k}.png")
    fn = from_albumentations(A.Compose([A.RandomResizedCrop((32, 40)), A.HorizontalFlip(), A.ColorJitter(), A.Normalize(), ToTensorV2()]))
    images, labels = next(iter(ndd.DataLoader(ndd.ImageFolder(tmp_path), fn, batch_size=3)))
    assert images.shape == (3, 3, 32, 40)
    assert sorted(labels.tolist()) == [0, 0, 1]


@pytest.mark.parametrize("box_format", ["pascal_voc", "coco", "yolo", "albumentations"])
def test_formats_of_boxes(box_format: str) -> None:
    photo = photographs()[1]
    height, width = photo.shape[:2]
    x0, y0, x1, y1 = 20.0, 30.0, 220.0, 130.0
    rows = {
        "pascal_voc": [x0, y0, x1, y1],
        "coco": [x0, y0, x1 - x0, y1 - y0],
        "yolo": [(x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height],
        "albumentations": [x0 / width, y0 / height, x1 / width, y1 / height],
    }[box_format]
    values = np.array([[*rows, 7.0]], np.float32)  # with a column of the user
    compose = A.Compose([A.HorizontalFlip(p=1), A.Crop(10, 20, 440, 280)], bbox_params=A.BboxParams(box_format))
    expected = compose(image=photo, bboxes=values.copy())["bboxes"]
    found = from_albumentations(compose)(image=ndd.as_batch([photo], layout="HWC"), bboxes=ndd.as_batch([values]))["bboxes"]
    np.testing.assert_allclose(found.nth(0).torch(), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"min_area": 3000}, {"min_visibility": 0.5}, {"min_width": 40, "min_height": 30}, {"max_accept_ratio": 1.5}, {"check_each_transform": False}],
    ids=str,
)
def test_filters_of_boxes(options: dict[str, Any]) -> None:
    photo = photographs()[1]
    boxes = np.array([[0, 0, 60, 60], [40, 40, 160, 120], [100, 100, 400, 290], [90, 10, 140, 290], [300, 200, 320, 210]], np.float32)
    labels = np.arange(5)
    compose = A.Compose([A.Crop(50, 50, 350, 250), A.Resize(100, 150)], bbox_params=A.BboxParams("pascal_voc", label_fields=["labels"], **options))
    expected = compose(image=photo, bboxes=boxes.copy(), labels=labels)
    found = from_albumentations(compose)(image=ndd.as_batch([photo], layout="HWC"), bboxes=ndd.as_batch([boxes]), labels=ndd.as_batch([labels]))
    assert found["labels"].nth(0).torch().tolist() == [int(label) for label in expected["labels"]]
    np.testing.assert_allclose(found["bboxes"].nth(0).torch(), expected["bboxes"], atol=1e-2)


def test_clip_mends_boxes() -> None:
    photo = photographs()[1]
    boxes = np.array([[-20, 10, 500, 100], [440, 290, 470, 310]], np.float32)
    params = A.BboxParams("pascal_voc", clip=True)
    compose = A.Compose([A.NoOp()], bbox_params=params)
    found = from_albumentations(compose)(image=ndd.as_batch([photo], layout="HWC"), bboxes=ndd.as_batch([boxes]))["bboxes"]
    np.testing.assert_allclose(found.nth(0).torch(), compose(image=photo, bboxes=boxes)["bboxes"], atol=1e-3)


@pytest.mark.parametrize("point_format", ["xy", "yx", "xya", "xys", "xyas", "xysa"])
@pytest.mark.parametrize("degrees", [True, False])
def test_formats_of_points(point_format: str, degrees: bool) -> None:
    photo = photographs()[1]
    numbers = {"x": 40.0, "y": 70.0, "a": 30.0 if degrees else 0.5, "s": 2.0}
    values = np.array([[numbers[letter] for letter in point_format], [numbers[letter] * 0.5 for letter in point_format]], np.float32)
    params = A.KeypointParams(point_format, angle_in_degrees=degrees)
    compose = A.Compose([A.VerticalFlip(p=1), A.Affine(scale=1.3, rotate=20, p=1)], keypoint_params=params)
    expected = compose(image=photo, keypoints=values.copy())["keypoints"]
    found = from_albumentations(compose)(image=ndd.as_batch([photo], layout="HWC"), keypoints=ndd.as_batch([values]))["keypoints"]
    np.testing.assert_allclose(found.nth(0).torch(), expected, rtol=1e-3)


def test_invisible_points_stay_if_asked() -> None:
    photo = photographs()[1]
    points = np.array([[5.0, 5.0], [200.0, 150.0]], np.float32)
    for remove, count in ((True, 1), (False, 2)):
        compose = A.Compose([A.CenterCrop(100, 100)], keypoint_params=A.KeypointParams("xy", remove_invisible=remove))
        found = from_albumentations(compose)(image=ndd.as_batch([photo], layout="HWC"), keypoints=ndd.as_batch([points]))["keypoints"]
        assert found.shape == [(count, 2)]
        np.testing.assert_allclose(found.nth(0).torch(), compose(image=photo, keypoints=points)["keypoints"], atol=1e-3)


def test_additional_targets_move_alike() -> None:
    photo = photographs()[1]
    compose = A.Compose([A.RandomCrop(60, 70), A.D4()], additional_targets={"image2": "image", "depth": "mask"})
    batch = ndd.as_batch([photo] * 8, layout="HWC")
    depth = ndd.as_batch([photo.astype(np.int32)] * 8, layout="HWC")
    found = from_albumentations(compose)(image=batch, image2=batch, depth=depth, name="kept")
    assert found["name"] == "kept"
    for i in range(8):
        assert torch.equal(found["image"].nth(i).torch(), found["image2"].nth(i).torch())
        assert torch.equal(found["image"].nth(i).torch().int(), found["depth"].nth(i).torch())


EMPTY = [
    [A.RandomCrop(4, 4)],
    [A.ColorJitter(p=1), A.Affine(p=1), A.Normalize()],
    [A.CoarseDropout(p=0.5), A.Normalize(normalization="image"), A.ToTensorV2(transpose_mask=True)],
    [A.OneOf([A.ToFloat(p=1), A.Normalize(p=1)], p=1), A.Sequential([A.HorizontalFlip(), A.FromFloat(p=1)], p=1)],
    [A.HorizontalFlip(), A.ToFloat(p=0)],
]


@pytest.mark.parametrize("transforms", EMPTY, ids=[str(k) for k in range(len(EMPTY))])
def test_batches_without_samples_have_the_types_and_layouts_of_others(transforms: list[Any]) -> None:
    images = ndd.as_batch(np.zeros((2, 8, 8, 3), np.uint8), layout="HWC")
    targets = {"image": images, "mask": ndd.as_batch(np.zeros((2, 8, 8, 1), np.uint8), layout="HWC"), "bboxes": ndd.batch([[[1, 2, 6, 7]]] * 2)}
    fn = from_albumentations(A.Compose(transforms, A.BboxParams("pascal_voc", label_fields=[])), check=False)
    outputs, empty = fn(**targets), fn(**{name: value.select_samples([]) for name, value in targets.items()})
    for name, output in outputs.items():
        expected = (0, output.ndim, output.dtype, output.layout)
        assert (empty[name].batch_size, empty[name].ndim, empty[name].dtype, empty[name].layout) == expected, name


@pytest.mark.parametrize("name", sorted(set(REFUSED) - {"ReplayCompose", "SelectiveChannelTransform"}))
def test_refused_by_name(name: str) -> None:
    transform = object.__new__(getattr(A, name))
    with pytest.raises(TypeError, match=f"{name} is not translated: "):
        from_albumentations(transform)


def test_every_transform_is_translated_or_refused() -> None:
    bases = {"BasicTransform", "DualTransform", "ImageOnlyTransform", "Transform3D"}
    names = {name for name in dir(A) if isinstance(getattr(A, name), type) and issubclass(getattr(A, name), A.BasicTransform)} - bases
    assert names | {"ToTensorV2", "ToTensor3D", "ReplayCompose", "SelectiveChannelTransform"} == set(STEPS) | set(REFUSED)
    assert not set(STEPS) & set(REFUSED)


REFUSED_SETTINGS = [
    ("Resize", {"height": 8, "width": 8, "interpolation": 3}, "INTER_AREA"),
    ("Resize", {"height": 8, "width": 8, "area_for_downscale": "image"}, "area_for_downscale"),
    ("Affine", {"interpolation": 4}, "INTER_LANCZOS4"),
    ("CoarseDropout", {"fill": "random"}, "fill='random'"),
    ("Equalize", {"mode": "pil"}, "mode='pil'"),
    ("Equalize", {"by_channels": False}, "by_channels"),
    ("ToGray", {"method": "pca"}, "method='pca'"),
    ("Sharpen", {"method": "gaussian"}, "method='gaussian'"),
    ("GaussNoise", {"per_channel": False}, "per_channel"),
    ("GaussNoise", {"noise_scale_factor": 0.5}, "scale of the noise"),
    ("MultiplicativeNoise", {"elementwise": True}, "elementwise"),
    ("AdditiveNoise", {"noise_type": "laplace", "spatial_mode": "per_pixel"}, "laplace"),
    ("PixelDropout", {"drop_value": None}, "drop_value"),
    ("PixelDropout", {"mask_drop_value": 1}, "mask_drop_value"),
    ("ImageCompression", {"compression_type": "webp"}, "webp"),
    ("Downscale", {"interpolation_pair": {"downscale": 1, "upscale": 1}}, "interpolation_pair"),
    ("FromFloat", {"dtype": "uint16"}, "uint16"),
    ("GridDistortion", {"border_mode": 1}, "border_mode"),
    ("CropNonEmptyMaskIfExists", {"height": 4, "width": 4, "ignore_values": [1]}, "ignore_values"),
]


@pytest.mark.parametrize(("name", "settings", "message"), REFUSED_SETTINGS, ids=[f"{name}-{message}" for name, _, message in REFUSED_SETTINGS])
def test_refused_settings(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_albumentations(make(name, settings))


class Custom(A.HorizontalFlip):
    pass


def test_classes_of_users_are_refused() -> None:
    with pytest.raises(TypeError, match="Custom is not a transform of Albumentations"):
        from_albumentations(A.Compose([Custom()]))


def test_check_finds_another_version() -> None:
    transform = A.InvertImg(p=1)
    transform.apply = lambda img, **_: img
    with pytest.raises(RuntimeError, match=r"InvertImg.* differs from Albumentations"):
        from_albumentations(transform)
    from_albumentations(transform, check=False)


PHOTO = ndd.as_batch([np.zeros((20, 30, 3), np.uint8)] * 2, layout="HWC")
BOX = ndd.as_batch([np.array([[1.0, 2.0, 9.0, 9.0]], np.float32)] * 2)
ERRORS: list[tuple[str, Any, dict[str, Any], type[Exception], str]] = [
    ("no image", A.Compose([]), {"mask": PHOTO}, TypeError, "the images are missing"),
    ("an array", A.Compose([]), {"image": np.zeros((4, 4, 3), np.uint8)}, TypeError, "image must be a Batch, got ndarray"),
    ("planes", A.Compose([]), {"image": ndd.as_batch(np.zeros((1, 3, 4, 4), np.uint8), layout="CHW")}, ValueError, 'got the layout "CHW"'),
    ("a type", A.Compose([]), {"image": ndd.as_batch(np.zeros((1, 4, 4, 3), np.int32), layout="HWC")}, TypeError, "must be uint8 or float32"),
    (
        "four channels",
        A.Compose([A.ColorJitter(p=1)]),
        {"image": ndd.as_batch(np.zeros((1, 4, 4, 4), np.uint8), layout="HWC")},
        ValueError,
        "ColorJitter takes images of 1 or 3 channels, got 4",
    ),
    (
        "different channels",
        A.Compose([]),
        {"image": ndd.as_batch([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4, 1), np.uint8)], layout="HWC")},
        ValueError,
        "must have the same number of channels",
    ),
    ("masks", A.Compose([]), {"image": PHOTO, "masks": PHOTO}, TypeError, "the target 'masks' is not translated"),
    ("boxes without params", A.Compose([]), {"image": PHOTO, "bboxes": BOX}, ValueError, "bboxes need bbox_params"),
    (
        "another size",
        A.Compose([]),
        {"image": PHOTO, "mask": ndd.as_batch([np.zeros((20, 31), np.uint8)] * 2)},
        ValueError,
        "differ in size: 20x30 and 20x31",
    ),
    ("another batch size", A.Compose([]), {"image": PHOTO, "mask": ndd.as_batch([np.zeros((20, 30), np.uint8)])}, ValueError, "mask has 1 samples"),
    ("a large crop", A.Compose([A.RandomCrop(40, 10)]), {"image": PHOTO}, ValueError, "sample 0 has 20 rows and 30 columns.*40 x 10"),
    ("planes", A.Compose([ToTensorV2(), A.Transpose(p=1)]), {"image": PHOTO}, TypeError, "Transpose takes HWC images; put it in front of ToTensorV2"),
    (
        "floats",
        A.Compose([A.ToFloat(), A.ColorJitter(p=1)]),
        {"image": PHOTO},
        TypeError,
        "ColorJitter takes uint8 images, got torch.float32; put it in front of Normalize",
    ),
    (
        "no labels",
        A.Compose([A.NoOp()], bbox_params=A.BboxParams("coco", label_fields=["labels"])),
        {"image": PHOTO, "bboxes": BOX},
        ValueError,
        "the label field 'labels' of bboxes is missing",
    ),
    (
        "labels",
        A.Compose([A.NoOp()], bbox_params=A.BboxParams("coco", label_fields=["labels"])),
        {"image": PHOTO, "bboxes": BOX, "labels": ndd.as_batch([[1, 2], [1]])},
        ValueError,
        "must have one item for each row of bboxes",
    ),
    (
        "a box outside",
        A.Compose([A.NoOp()], bbox_params=A.BboxParams("pascal_voc")),
        {"image": PHOTO, "bboxes": ndd.as_batch([np.array([[1.0, 2.0, 40.0, 9.0]], np.float32)] * 2)},
        ValueError,
        "box 0 of sample 0 is from .*clip=True",
    ),
    (
        "a point outside",
        A.Compose([A.NoOp()], keypoint_params=A.KeypointParams("xy")),
        {"image": PHOTO, "keypoints": ndd.as_batch([np.array([[30.0, 2.0]], np.float32)] * 2)},
        ValueError,
        "a point of sample 0 is at .30, 2., outside its image",
    ),
    (
        "three columns",
        A.Compose([A.NoOp()], bbox_params=A.BboxParams("coco")),
        {"image": PHOTO, "bboxes": ndd.as_batch([np.zeros((1, 3), np.float32)] * 2)},
        ValueError,
        r"must have the shape \(rows, 4 or more\)",
    ),
    (
        "boxes of a distortion",
        A.Compose([A.GridDistortion(p=1)], bbox_params=A.BboxParams("coco")),
        {"image": PHOTO, "bboxes": BOX},
        ValueError,
        "GridDistortion with boxes is not translated",
    ),
    (
        "reflected boxes",
        A.Compose([A.Pad(4, border_mode=4)], bbox_params=A.BboxParams("coco")),
        {"image": PHOTO, "bboxes": BOX},
        ValueError,
        "reflecting border",
    ),
]


@pytest.mark.parametrize(("transform", "targets", "error", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_wrong_targets_are_refused(transform: Any, targets: dict[str, Any], error: type[Exception], message: str) -> None:
    fn = from_albumentations(transform)
    with pytest.raises(error, match=message):
        fn(**targets)


@pytest.mark.parametrize("transform", [A.ColorJitter(p=1), A.HueSaturationValue(p=1), A.ToGray(p=1), A.ToSepia(p=1)], ids=lambda t: type(t).__name__)
def test_gray_images_keep_one_channel(transform: Any) -> None:
    images = ndd.as_batch(np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1), layout="HWC")
    assert from_albumentations(transform)(images).shape == [(8, 8, 1)]


def test_color_steps_must_be_finite() -> None:
    steps = torch.zeros(1, 1, NUMBERS, dtype=torch.float64)
    steps[0, 0, 0], steps[0, 0, 1] = KINDS["hsv"], float("nan")
    with pytest.raises(RuntimeError, match="must be finite"):
        with_color_steps(constant_images(1), steps).evaluate()


def shift_in_hsv(pixels: np.ndarray, hue_shift: int, saturation_shift: int, value_shift: int) -> np.ndarray:
    """Shift colors (N, 3) in the 8-bit HSV space by OpenCV's integers: reciprocals with 12 bits behind the point, from tables."""
    r, g, b = (pixels[:, c].astype(np.int64) for c in range(3))
    high, difference = pixels.max(1).astype(np.int64), np.ptp(pixels, 1).astype(np.int64)
    levels = np.maximum(np.arange(256), 1)
    turns = np.where(high == r, g - b, np.where(high == g, b - r + 2 * difference, r - g + 4 * difference))
    hue = (turns * np.rint((180 << 12) / (6 * levels)).astype(np.int64)[difference] + 2048) >> 12
    hue = (hue + 180 * (hue < 0) + hue_shift) % 180
    saturation = (difference * np.rint((255 << 12) / levels).astype(np.int64)[high] + 2048) >> 12
    saturation = np.where(saturation > 0, np.clip(saturation + saturation_shift, 0, 255), 0).astype(np.float32) * np.float32(1 / 255)
    value = np.clip(high + value_shift, 0, 255).astype(np.float32) * np.float32(1 / 255)
    position = hue.astype(np.float32) * np.float32(6 / 180)
    sector = np.minimum(position.astype(np.int64), 5)
    part = position - np.floor(position)
    # Products of two float32 are exact in float64: the sums are rounded once.
    falling, rising = ((1 - saturation.astype(np.float64) * share).astype(np.float32) for share in (part, np.float32(1) - part))
    four = [(value * share * np.float32(255)).astype(np.uint8) for share in (np.float32(1), np.float32(1) - saturation, falling, rising)]
    order = np.array([[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]])
    return np.take_along_axis(np.stack(four, 1), order[sector], 1)


@pytest.mark.slow
@pytest.mark.parametrize("shifts", [(0, 0, 0), (9, 0, 0), (179, 255, -255), (90, -40, 13)])
def test_hue_steps_have_the_integers_of_opencv(shifts: tuple[int, int, int]) -> None:
    grid = np.stack(np.meshgrid(np.arange(256), np.arange(256), np.arange(0, 256, 3), indexing="ij"), -1).reshape(-1, 3).astype(np.uint8)
    steps = torch.zeros(1, 1, NUMBERS, dtype=torch.float64)
    steps[0, 0, :4] = torch.tensor([KINDS["hsv"], *shifts])
    found = with_color_steps(ndd.as_batch(grid.reshape(1, 256, -1, 3), layout="HWC"), steps).torch().numpy().reshape(-1, 3)
    np.testing.assert_array_equal(found, shift_in_hsv(grid, *shifts))


def test_level_tables_must_fit_the_channels() -> None:
    with pytest.raises(RuntimeError, match="tables for 2 channels, sample 0 has 3"):
        with_level_tables(constant_images(1), torch.zeros(1, 2, 256, dtype=torch.uint8)).evaluate()


def test_level_tables_refuse_a_table_of_no_levels_and_images_without_channels() -> None:
    no_channels = ndd.as_batch(torch.zeros(2, 4, 4, 0, dtype=torch.uint8), layout="HWC")
    with pytest.raises(RuntimeError, match="expected a table of 256 levels for each of 2 samples"):
        with_level_tables(no_channels, torch.zeros(2, 0, dtype=torch.uint8)).evaluate()
    rows = ndd.as_batch(torch.zeros(2, 4, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="tables for 3 channels, sample 0 has 1"):
        with_level_tables(rows, torch.zeros(2, 3, 256, dtype=torch.uint8)).evaluate()


def test_color_steps_refuse_images_without_dimensions() -> None:
    with pytest.raises(RuntimeError, match="sample 0 has no dimensions"):
        with_color_steps(ndd.as_batch(torch.zeros(2, dtype=torch.uint8)), torch.zeros(2, 1, NUMBERS, dtype=torch.float64)).evaluate()
