# SPDX-License-Identifier: Apache-2.0
"""What policies draw, and that every sample of a batch, its boxes and its masks get it."""

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import augment
from torch_ndd.augment import Augmentation, _spaces
from torch_ndd.augment._augmentations import CUSTOM_POLICY, in_space

IMAGE_NET = in_space(_spaces.IMAGE_NET)

POLICIES: dict[str, Callable[..., Any]] = {
    "trivial": augment.trivial_augment,
    "rand": augment.rand_augment,
    "auto": augment.auto_augment,
    "auto, reduced": lambda images, **value: augment.auto_augment(images, policy="reduced_image_net", **value),
}
SHAPES = [(40, 50, 3), (31, 64, 3), (7, 9, 3), (50, 40, 3)]
each_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
dense_and_ragged = pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])


def images(count: int, ragged: bool, dtype: torch.dtype = torch.uint8, seed: int = 0) -> ndd.Batch:
    generator = torch.Generator().manual_seed(seed)
    shapes = [SHAPES[i % len(SHAPES)] if ragged else SHAPES[0] for i in range(count)]
    results = [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for shape in shapes]
    return ndd.batch([result if dtype is torch.uint8 else result.to(dtype) / 255 for result in results], layout="HWC")


def same(left: ndd.Batch, right: ndd.Batch) -> None:
    assert left.shape == right.shape
    for value, other in zip(left.cpu(), right.cpu(), strict=True):
        assert torch.equal(value.torch(), other.torch())


@each_policy
@dense_and_ragged
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_batch_equals_its_samples(policy: Callable[..., Any], ragged: bool, dtype: torch.dtype, device: str) -> None:
    batch = images(24, ragged, dtype)
    before = [sample.torch().clone() for sample in batch]
    output, done = policy(batch.to_device(device), return_params=True, rng=ndd.random.RNG(5))
    assert (output.layout, output.dtype, output.shape) == ("HWC", dtype, batch.shape)
    assert str(output.device).partition(":")[0] == device
    spaces = {augment.trivial_augment: augment.TRIVIAL_AUGMENT_WIDE, augment.auto_augment: IMAGE_NET}
    known = {value.name: value for value in spaces.get(policy, CUSTOM_POLICY)}
    assert len({name for row in done for name, _ in row}) > 5
    for item, row, result in zip(batch, done, output.cpu(), strict=True):
        for name, parameter in row:  # at the one parameter that there is
            fixed = Augmentation(name, (parameter, parameter), values=known[name].values, matrix=known[name].matrix)
            item = augment.rand_augment(item, n=1, augmentations=[fixed])
        # A level by which the first step differs is up to 1.9 after the second.
        tolerance = 0 if device == "cpu" else len(row) if dtype is torch.uint8 else 1e-5
        np.testing.assert_allclose(result.torch().double(), item.torch().double(), rtol=0, atol=tolerance)
    assert all(torch.equal(sample.torch(), old) for sample, old in zip(batch, before, strict=True))


@each_policy
@dense_and_ragged
def test_policies_repeat_with_a_seed(policy: Callable[..., Any], ragged: bool, threads: int) -> None:
    batch = images(8, ragged)
    rng = ndd.random.RNG(1)
    first, params = policy(batch, rng=rng, return_params=True)
    second, others = policy(batch, rng=rng, return_params=True)
    assert params != others
    again, same_params = policy(batch, rng=ndd.random.RNG(1), return_params=True)
    same(first, again)
    assert params == same_params
    ndd.random.set_seed(1)
    same(policy(batch), first)
    same(policy(batch), second)


@each_policy
def test_sample_depends_only_on_its_position(policy: Callable[..., Any]) -> None:
    batch = images(12, True)
    for size in (1, 5):
        few = policy(batch.select(range(size)), rng=ndd.random.RNG(3))
        same(few, policy(batch, rng=ndd.random.RNG(3)).select(range(size)))


@each_policy
@pytest.mark.parametrize("size", [0, 1, 9])
def test_generator_advances_by_seven_words(policy: Callable[..., Any], size: int) -> None:
    rng, other = ndd.random.RNG(3), ndd.random.RNG(3)
    batch = images(size, False) if size else ndd.batch([], dtype=torch.uint8, layout="HWC")
    assert policy(batch, rng=rng).batch_size == size
    other.advance(7)
    assert rng.state == other.state


def test_zero_augmentations_keep_images_but_draw() -> None:
    rng, other = ndd.random.RNG(3), ndd.random.RNG(3)
    batch = images(4, True)
    result, done = augment.rand_augment(batch, n=0, return_params=True, rng=rng)
    same(result, batch)
    assert done == [[]] * 4
    other.advance(7)
    assert rng.state == other.state


@pytest.mark.parametrize("mode", list(ndd.EvalMode))
def test_evaluation_modes_do_not_matter(mode: ndd.EvalMode) -> None:
    batch = images(8, True)
    expected = augment.rand_augment(batch, rng=ndd.random.RNG(2))
    with mode:
        result = augment.rand_augment(ndd.cast(batch, dtype=batch.dtype), rng=ndd.random.RNG(2))
    same(result, expected)


@pytest.mark.parametrize("function", [augment.trivial_augment, augment.mixup, augment.cutmix])
def test_policies_break_compiled_graphs(function: Callable[..., Any]) -> None:
    batch = images(4, False)
    compiled = torch.compile(lambda value, rng: function(value, rng=rng).torch() + 1, backend="eager")
    assert torch.equal(compiled(batch, ndd.random.RNG(1)), function(batch, rng=ndd.random.RNG(1)).torch() + 1)
    whole = torch.compile(lambda value: function(value), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="reads the random numbers"):
        whole(batch)


# --- What is drawn ---


def test_trivial_augment_draws_evenly() -> None:
    tiny = ndd.batch(torch.zeros(3000, 1, 1, 3, dtype=torch.uint8), layout="HWC")
    _, done = augment.trivial_augment(tiny, return_params=True, rng=ndd.random.RNG(0))
    counts = Counter(name for ((name, _),) in done)
    assert set(counts) == {value.name for value in augment.TRIVIAL_AUGMENT_WIDE}
    assert all(abs(count - 3000 / 14) < 5 * (3000 / 14) ** 0.5 for count in counts.values())
    turns = [parameter for ((name, parameter),) in done if name == "rotate"]
    assert -135 <= min(turns) < -100
    assert 100 < max(turns) <= 135
    assert abs(np.mean(turns)) < 40
    assert {round(abs(turn) / 4.5, 6) % 1 for turn in turns} == {0}
    assert {parameter for ((name, parameter),) in done if name in ("identity", "equalize", "auto_contrast")} == {0}
    _, done = augment.trivial_augment(tiny, augmentations=["rotate"], num_magnitude_bins=3, return_params=True, rng=ndd.random.RNG(0))
    counts = Counter(abs(parameter) for ((_, parameter),) in done)
    assert set(counts) == {0, 67.5, 135}
    assert all(abs(count - 1000) < 150 for count in counts.values())


def test_rand_augment_draws_evenly_and_independently() -> None:
    tiny = ndd.batch(torch.zeros(3000, 1, 1, 3, dtype=torch.uint8), layout="HWC")
    _, done = augment.rand_augment(tiny, m=30, augmentations=["identity", "rotate", "shear_x"], return_params=True, rng=ndd.random.RNG(0))
    counts = Counter((first[0], second[0]) for first, second in done)
    assert len(counts) == 9
    assert all(abs(count - 3000 / 9) < 5 * (3000 / 9) ** 0.5 for count in counts.values())
    assert {parameter for row in done for name, parameter in row if name == "rotate"} == {30, -30}


def test_auto_augment_draws_with_its_probabilities() -> None:
    tiny = ndd.batch(torch.zeros(3000, 1, 1, 3, dtype=torch.uint8), layout="HWC")
    policy = [[("rotate", 0.25, 9), ("invert", 1.0, None)], [("equalize", 0.0, None)]]
    _, done = augment.auto_augment(tiny, policy=policy, return_params=True, rng=ndd.random.RNG(0))
    counts = Counter(tuple(name for name, _ in row) for row in done)
    assert set(counts) == {(), ("invert",), ("rotate", "invert")}
    assert abs(counts[()] - 1500) < 140
    assert abs(counts["rotate", "invert"] - 375) < 90


# --- Boxes and masks ---

MOVES = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")


def rectangles(ragged: bool) -> tuple[ndd.Batch, ndd.Batch, ndd.Batch]:
    """Images with one white rectangle each, its box, and its mask."""
    generator = np.random.default_rng(0)
    pictures, boxes = [], []
    for i in range(20):
        height, width = ((60, 80), (90, 70), (64, 64))[i % 3 if ragged else 0]
        left, top = generator.integers(15, 30, 2)
        right, bottom = left + generator.integers(5, 20), top + generator.integers(5, 20)
        picture = np.zeros((height, width, 1), np.uint8)
        picture[top:bottom, left:right] = 255
        pictures.append(picture)
        boxes.append(np.array([[left, top, right, bottom]], np.float32))
    masks = [(picture[..., 0] > 0).astype(np.int64) * (2**40 + 1) for picture in pictures]
    return ndd.batch(pictures, layout="HWC"), ndd.batch(boxes), ndd.batch(masks)


@pytest.mark.parametrize("name", MOVES)
@dense_and_ragged
def test_boxes_and_masks_move_with_the_image(name: str, ragged: bool, device: str) -> None:
    pictures, boxes, masks = (value.to_device(device) for value in rectangles(ragged))
    source = {"augmentations": [name], "n": 1, "m": 15, "fill_value": 0, "rng": ndd.random.RNG(4)}
    moved, new_boxes, new_masks = augment.rand_augment(pictures, boxes=boxes, masks=masks, **source)
    assert new_masks.dtype == torch.int64
    assert new_masks.shape == masks.shape
    assert [str(value.device).partition(":")[0] for value in (new_boxes, new_masks)] == [device] * 2
    changed = 0
    for picture, box, old, mask in zip(moved.cpu(), new_boxes.cpu(), boxes.cpu(), new_masks.cpu(), strict=True):
        y, x = np.nonzero(np.asarray(picture)[..., 0] > 127)
        height, width = picture.shape[:2]
        found = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1]) if len(x) else None
        (left, top, right, bottom), before = np.asarray(box)[0], np.asarray(old)[0]
        assert 0 <= left <= right <= width
        assert 0 <= top <= bottom <= height
        if found is not None:  # box corners stick out by a pixel at thin, dark ends of the rectangle
            np.testing.assert_allclose(np.asarray(box)[0], found, atol=1.5)
            changed += bool(np.abs(np.asarray(box)[0] - before).max() > 1)
        values = np.asarray(mask)
        assert set(np.unique(values)) <= {0, 2**40 + 1}
        assert ((values > 0) != (np.asarray(picture)[..., 0] > 127)).sum() <= 3
    assert changed > 10


def test_boxes_outside_the_image_have_no_area() -> None:
    boxes = [[[0, 0, 3, 3], [7, 2, 9, 9], [8, 1, 20, 30]], np.zeros((0, 4), np.float32)]
    pictures = ndd.batch([torch.zeros(10, 10, 3, dtype=torch.uint8)] * 2, layout="HWC")
    left = Augmentation("left", (-5.0, -5.0), matrix=lambda amount, height, width: [[1, 0, amount], [0, 1, 0]])
    _, moved = augment.rand_augment(pictures, n=1, augmentations=[left], boxes=boxes)
    assert moved.shape == [(3, 4), (0, 4)]
    assert moved.select(0).torch().tolist() == [[0, 0, 0, 3], [2, 2, 4, 9], [3, 1, 10, 10]]


def test_value_augmentations_keep_boxes_and_masks() -> None:
    batch = images(6, True)
    boxes = ndd.batch([[[-3.0, 1.5, 200.0, 7.0]]] * 6)
    masks = ndd.batch([torch.randint(0, 9, (*shape[:2], 2), dtype=torch.int16) for shape in batch.shape])
    names = ["brightness", "equalize", "sharpness", "posterize", "identity"]
    _, same_boxes, same_masks = augment.rand_augment(batch, augmentations=names, boxes=boxes, masks=masks)
    same(same_boxes, boxes)
    same(same_masks, masks)


def test_only_drawn_samples_move() -> None:
    batch = images(16, False)
    boxes = ndd.batch([[[-3.0, 1.5, 200.0, 7.0]]] * 16)
    moved, new_boxes, done = augment.rand_augment(
        batch, n=1, augmentations=["identity", "rotate"], boxes=boxes, return_params=True, rng=ndd.random.RNG(0)
    )
    still = [name == "identity" for ((name, _),) in done]
    assert 0 < sum(still) < 16
    for i, stays in enumerate(still):
        assert torch.equal(moved.select(i).torch(), batch.select(i).torch()) == stays
        assert torch.equal(new_boxes.select(i).torch(), boxes.select(i).torch()) == stays


def test_integer_boxes_become_floating_point() -> None:
    _, boxes = augment.trivial_augment(images(2, False), boxes=[[[1, 2, 3, 4]], [[1, 2, 3, 4]]])
    assert boxes.dtype == torch.float32


def test_results_do_not_share_memory() -> None:
    pixels, boxes, masks = torch.zeros(2, 4, 5, 3, dtype=torch.uint8), torch.ones(2, 1, 4), torch.ones(2, 4, 5)
    result = augment.rand_augment(ndd.as_batch(pixels, layout="HWC"), n=1, augmentations=["identity"], boxes=boxes, masks=masks)
    for item in result:
        before = item.torch().clone()
        for value in (pixels, boxes, masks):
            value += 1
        assert torch.equal(item.torch(), before)


def test_moved_masks_are_filled() -> None:
    batch = ndd.batch([torch.zeros(4, 4, 1, dtype=torch.uint8)], layout="HWC")
    right = Augmentation("right", (2, 2), matrix=lambda amount, height, width: [[1, 0, amount], [0, 1, 0]])
    result, masks = augment.rand_augment(batch, n=1, augmentations=[right], masks=[torch.zeros(4, 4, dtype=torch.uint8)], mask_fill_value=255)
    assert result.torch()[0, 0, :, 0].tolist() == [128, 128, 0, 0]
    assert masks.torch()[0, 0].tolist() == [255, 255, 0, 0]
    assert masks.layout == "HW"


# --- Videos ---


@pytest.mark.parametrize("value", CUSTOM_POLICY, ids=[value.name for value in CUSTOM_POLICY])
def test_a_video_equals_its_frames(value: Augmentation) -> None:
    frames = torch.randint(0, 256, (3, 20, 30, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    frames[1] //= 2
    video = ndd.batch([frames, frames[:2, :15]], layout="FHWC")
    masks = ndd.batch([frames[..., 0], frames[:2, :15, :, 0]], layout="FHW")
    result, boxes, moved, [[(_, parameter)], _] = augment.rand_augment(
        video, n=1, m=20, augmentations=[value], masks=masks, boxes=[[[2.0, 3, 9, 9]]] * 2, return_params=True, rng=ndd.random.RNG(1)
    )
    assert (result.layout, result.shape, moved.layout, moved.shape) == ("FHWC", video.shape, "FHW", masks.shape)
    fixed = Augmentation(value.name, (parameter, parameter), values=value.values, matrix=value.matrix)
    for k in range(3):
        image, box, mask = augment.rand_augment(frames[k], n=1, augmentations=[fixed], masks=frames[k, ..., 0], boxes=[[2.0, 3, 9, 9]])
        assert torch.equal(result.select(0).torch()[k], image.torch())
        assert torch.equal(moved.select(0).torch()[k], mask.torch())
        assert torch.equal(boxes.select(0).torch(), box.torch())


def test_single_video_is_accepted() -> None:
    video = ndd.as_tensor(torch.zeros(2, 4, 5, 3), layout="FHWC")
    assert augment.trivial_augment(video).shape == (2, 4, 5, 3)


# --- Users' own ---


def test_custom_augmentations_are_applied() -> None:
    batch = images(10, True)
    blur = Augmentation("blur", (1.0, 3.0), values=lambda chosen, parameters: ndd.gaussian_blur(chosen, sigma=parameters))
    flip = Augmentation("flip", matrix=lambda parameter, height, width: [[-1, 0, width], [0, 1, 0]])
    boxes = ndd.batch([[[1.0, 2.0, 4.0, 5.0]]] * 10)
    output, moved, done = augment.trivial_augment(
        batch, augmentations=[blur, flip, "identity"], boxes=boxes, return_params=True, rng=ndd.random.RNG(0)
    )
    assert {name for ((name, _),) in done} == {"blur", "flip", "identity"}
    for sample, ((name, parameter),), result, box in zip(batch, done, output, moved, strict=True):
        expected = {"blur": lambda: ndd.gaussian_blur(sample, sigma=parameter), "flip": lambda: ndd.flip(sample), "identity": lambda: sample}[name]()  # noqa: B023
        assert torch.equal(result.torch(), expected.torch())
        width = sample.shape[1]
        assert box.torch().tolist() == [[width - 4.0, 2.0, width - 1.0, 5.0] if name == "flip" else [1.0, 2.0, 4.0, 5.0]]


def test_single_image_is_accepted() -> None:
    image = torch.randint(0, 256, (20, 30, 3), dtype=torch.uint8)
    result, boxes, masks, done = augment.trivial_augment(
        image, boxes=torch.tensor([[1.0, 2, 3, 4]]), masks=torch.zeros(20, 30, dtype=torch.bool), return_params=True, rng=ndd.random.RNG(8)
    )
    assert (type(result), result.shape, boxes.shape, masks.shape, masks.dtype, len(done)) == (
        ndd.Tensor,
        (20, 30, 3),
        (1, 4),
        (20, 30),
        torch.bool,
        1,
    )
    of_batch = augment.trivial_augment(ndd.batch(image[None], layout="HWC"), rng=ndd.random.RNG(8))
    assert torch.equal(result.torch(), of_batch.select(0).torch())


# --- Errors ---

BATCH = ndd.batch(torch.zeros(2, 4, 5, 3, dtype=torch.uint8), layout="HWC")


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (TypeError, "Batch or one image", {"images": [1, 2]}),
        (ValueError, "three dimensions", {"images": torch.zeros(2, 4, 5, 3)}),
        (ValueError, "layout", {"images": ndd.batch(torch.zeros(2, 3, 4, 5), layout="CHW")}),
        (ValueError, "uint8 or floating", {"images": ndd.batch(torch.zeros(2, 4, 5, 3, dtype=torch.int32))}),
        (ValueError, "number of channels", {"images": ndd.batch([torch.zeros(2, 2, 3), torch.zeros(2, 2, 1)])}),
        (ValueError, "batch size", {"boxes": [[[0, 0, 1, 1]]]}),
        (ValueError, r"\(M, 4\).*sample 0", {"boxes": ndd.batch(torch.zeros(2, 3, 5))}),
        (ValueError, "masks", {"masks": ndd.batch(torch.zeros(2, 5, 4))}),
        (ValueError, "masks", {"masks": ndd.batch(torch.zeros(2, 1, 4, 5, 3))}),
        (ValueError, "num_magnitude_bins", {"num_magnitude_bins": 1}),
        (ValueError, "rotatee.*rotate", {"augmentations": ["rotatee"]}),
        (TypeError, "Augmentation", {"augmentations": [1]}),
        (ValueError, "empty", {"augmentations": []}),
        (ValueError, "random.RNG", {"rng": 3}),
        (ValueError, "keep the shapes", {"augmentations": [Augmentation("cut", values=lambda chosen, parameters: chosen.slice[1:])]}),
        (ValueError, "keep the shapes", {"augmentations": [Augmentation("cast", values=lambda chosen, parameters: chosen + 1.0)]}),
        (ValueError, "two rows", {"augmentations": [Augmentation("flat", matrix=lambda parameter, height, width: [[1, 0], [0, 1]])]}),
        (ValueError, "inverse", {"augmentations": [Augmentation("flat", matrix=lambda parameter, height, width: [[1, 0, 0], [1, 0, 0]])]}),
    ],
)
def test_policies_reject_invalid_arguments(error: type[Exception], text: str, options: dict[str, Any]) -> None:
    arguments = {"images": BATCH, **options}
    with pytest.raises(error, match=rf"(?s)trivial_augment: .*{text}"):
        augment.trivial_augment(arguments.pop("images"), **arguments)


@pytest.mark.parametrize(
    ("text", "options"), [("m must", {"m": 31}), ("m must", {"m": -1}), ("n must", {"n": -1}), ("bins", {"num_magnitude_bins": 1})]
)
def test_rand_augment_rejects_invalid_arguments(text: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"rand_augment: .*{text}"):
        augment.rand_augment(BATCH, **options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("policy must be one of image_net, reduced_image_net.*got 'imagenet'; did you mean 'image_net'", {"policy": "imagenet"}),
        ("custom policies", {"policy": "svhn", "num_magnitude_bins": 11}),
        ("empty", {"policy": []}),
        ("probability", {"policy": [[("rotate", 1.5, 3)]]}),
        ("magnitude", {"policy": [[("rotate", 1.0, 10)]]}),
        ("a step", {"policy": [[("rotate", 1.0)]]}),
        ("unknown augmentation", {"policy": [[("twirl", 1.0, 3)]]}),
    ],
)
def test_auto_augment_rejects_invalid_policies(text: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"auto_augment: .*{text}"):
        augment.auto_augment(BATCH, **options)


def test_errors_do_not_advance_the_generator() -> None:
    rng = ndd.random.RNG(1)
    before = rng.state
    for value in ({"boxes": ndd.batch(torch.zeros(1, 3, 4))}, {"masks": ndd.batch(torch.zeros(2, 5, 4))}):
        with pytest.raises(ValueError, match="trivial_augment"):
            augment.trivial_augment(BATCH, rng=rng, **value)
    assert rng.state == before


@pytest.mark.parametrize("name", ["auto_augment", "cutmix", "mixup", "mosaic", "rand_augment", "trivial_augment", "Augmentation"])
def test_public_names_are_annotated_and_explained(name: str) -> None:
    value = getattr(augment, name)
    assert ">>> " in (inspect.getdoc(value) or "")
    if name != "Augmentation":
        signature = inspect.signature(value)
        assert all(parameter.annotation is not parameter.empty for parameter in signature.parameters.values())
        assert signature.return_annotation is not signature.empty
        names = [parameter.name for parameter in signature.parameters.values() if parameter.kind is parameter.KEYWORD_ONLY]
        assert all(f"{parameter}" in value.__doc__ for parameter in names)


def test_custom_augmentations_are_checked() -> None:
    with pytest.raises(ValueError, match="not both"):
        Augmentation("both", values=lambda chosen, parameters: chosen, matrix=lambda parameter, height, width: [[1, 0, 0], [0, 1, 0]])
    with pytest.raises(ValueError, match="two numbers"):
        Augmentation("one", (1.0,))


def test_magnitude_per_sample() -> None:
    images = ndd.batch(torch.full((3, 4, 6, 3), 200, dtype=torch.uint8), layout="HWC")
    for m in (ndd.batch([0, 15, 30]), [0, 15, 30], torch.tensor([0, 15, 30]), np.array([0.0, 15.0, 30.0])):
        result, done = augment.rand_augment(images, n=1, m=m, augmentations=["solarize"], return_params=True)
        assert done == [[("solarize", 1.0)], [("solarize", 0.5)], [("solarize", 0.0)]]
        assert result.torch()[:, 0, 0, 0].tolist() == [200, 55, 55]
    done = augment.rand_augment(images, n=2, m=9, probability=[0.0, 1.0, 0.0], return_params=True)[1]
    assert [len(steps) for steps in done] == [0, 2, 0]
    done = augment.rand_augment(images, n=1, m=10, magnitude_std=[0.0, 0.0, float("inf")], augmentations=["solarize"], return_params=True)[1]
    assert done[0] == done[1] != done[2]


def test_severity_per_sample() -> None:
    images = ndd.batch(torch.full((2, 4, 6, 3), 200, dtype=torch.uint8), layout="HWC")
    result = augment.aug_mix(images, augmentations=["posterize", "solarize"], severity=ndd.batch([1, 10]), rng=ndd.random.RNG(2))
    assert result.torch()[0].eq(200).float().mean() > result.torch()[1].eq(200).float().mean()


@pytest.mark.parametrize("name", ["m", "magnitude_std", "probability"])
def test_numbers_for_another_batch_size_raise(name: str) -> None:
    images = ndd.batch(torch.zeros(3, 4, 6, 3, dtype=torch.uint8), layout="HWC")
    with pytest.raises(ValueError, match=rf"{name} has 2 numbers for 3 samples.*ndd.batch"):
        augment.rand_augment(images, **{name: [0.5, 0.5]})
    with pytest.raises(TypeError, match=name):
        augment.rand_augment(images, **{name: "high"})
