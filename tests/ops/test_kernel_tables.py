# SPDX-License-Identifier: Apache-2.0
"""Kernels called through torch.ops with tables of results, boxes, windows and sizes that Python never passes: errors, nothing beside the tables."""

from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd.ops.color import _byte_steps  # noqa: F401  kernels of policies
from torch_ndd.ops.geometry import _fill_windows  # noqa: F401  and of translated transforms

SIDES = torch.tensor([[480, 640], [30, 20], [7, 900]])
WORDS = torch.zeros(7, dtype=torch.int64)
IMAGES = torch.zeros(3, 8, 6, 3)
BOXES = torch.zeros(3, 2, 4)
ONE = torch.ones(1)
ROW = torch.ones(3, 1)
MASK = torch.zeros(6, dtype=torch.bool)
POLYGONS = torch.tensor([[[0, 0, 3], [1, 3, 6]]] * 3, dtype=torch.int32)
IDS = torch.tensor([[1], [0], [1]], dtype=torch.int32)
LABELS = torch.zeros(3, 2, dtype=torch.int32)
ENCODED = torch.zeros(3, 5, 4)
CLASSES = torch.zeros(3, 5, dtype=torch.int32)
MATRICES = torch.zeros(3, 2, 3)
HUGE = torch.tensor([[1 << 40, 0, 1 << 40]] * 3)
NPY = torch.zeros(3, 40, dtype=torch.uint8)


def whole(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def int32(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def numbers(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float64)


def search(**changed: Any) -> tuple[Any, ...]:
    """Return the arguments of the search for a window that shows boxes, of which some are others."""
    arguments = {
        **{"boxes": BOXES, "shapes": None, "image": None, "wanted": None, "thresholds": numbers(2), "scaling": numbers(2), "aspect": numbers(6)},
        **{"attempts": 5, "total": 20, "prune": 0.1, "no_crop": True, "all_boxes": False, "overlap": False, "layout": "xyXY", "words": WORDS},
        **{"anchors": torch.zeros(3, 2), "sizes": torch.zeros(3, 2), "mapped": BOXES.clone(), "kept": MASK, "indices": int32(6)},
        **{"counts": whole(3), "results": int32(3)},
    }
    assert changed.keys() <= arguments.keys()
    return tuple((arguments | changed).values())


def encode(**changed: Any) -> tuple[Any, ...]:
    arguments = {
        **{"boxes": BOXES, "shapes": None, "labels": LABELS, "label_shapes": None, "anchors": torch.rand(5, 5), "numbers": torch.ones(8)},
        **{"criteria": 0.5, "offset": False, "scale": 1.0, "encoded": ENCODED, "s": None, "classes": CLASSES, "t": None},
    }
    assert changed.keys() <= arguments.keys()
    return tuple((arguments | changed).values())


def find_object(
    first: torch.Tensor, second: torch.Tensor, labels: torch.Tensor, format: int = 0, masks: torch.Tensor | None = None
) -> tuple[Any, ...]:
    images = IMAGES.int() if masks is None else masks
    return (images, None, None, None, None, ONE, None, 0, False, format, WORDS, first, None, second, None, labels, None)


def paste(inputs: list[torch.Tensor], out: torch.Tensor, shapes: torch.Tensor | None = None) -> tuple[Any, ...]:
    return (inputs, [whole(0)] * len(inputs), None, None, None, None, False, False, False, out, shapes)


def erase(axes: str, channel: int = 2, fill: torch.Tensor = ONE, out: torch.Tensor = IMAGES) -> tuple[Any, ...]:
    return (IMAGES, None, ROW, ROW, fill, axes, channel, False, False, False, out.clone(), None)


def patchify(
    height: int = 2, width: int = 2, merge: int = 1, temporal: int = 1, layout: str = "HWC", out: torch.Tensor | None = None
) -> tuple[Any, ...]:
    return (IMAGES, None, layout, height, width, merge, temporal, False, torch.zeros(3, 12, 12) if out is None else out, None)


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        # Sizes: tables of sides and of results, frames, tiles.
        ("size_fit", (SIDES[:, :1].contiguous(), 224, -1, -1, -1, True, True, 1, whole(3, 2)), "the table of sides must have 6 numbers"),
        ("size_fit", (SIDES.int(), 224, -1, -1, -1, True, True, 1, whole(3, 2)), "numbers of another type"),
        ("size_fit", (SIDES.T.contiguous().T, 224, -1, -1, -1, True, True, 1, whole(3, 2)), "contiguous"),
        ("size_fit", (SIDES, 224, -1, -1, -1, True, True, 1, whole(3, 1)), "the table of results must have 6 numbers"),
        ("size_fit", (SIDES, 224, -1, -1, -1, True, True, 1, int32(3, 2)), "numbers of another type"),
        ("size_fit", (SIDES + (1 << 62), 224, -1, -1, -1, True, True, 1, whole(3, 2)), "is too large"),
        ("size_budget", (SIDES, whole(2), 28, 0, 9999999, 1, False, 200.0, whole(3, 2)), "the table of frames must have 3 numbers"),
        ("size_patches", (SIDES, 16, 16, 256, -1.0, torch.zeros(3, 2)), "numbers of another type"),
        ("size_canvas", (SIDES, None, 0, 448, 1, 12, whole(3, 4)), "a tile must have pixels"),
        ("size_canvas", (SIDES, None, 448, 448, 1, 1 << 60, whole(3, 4)), "at most 4096 tiles"),
        ("size_canvas", (SIDES, None, 448, 448, 9, 8, whole(3, 4)), "there must be a canvas"),
        ("size_canvas", (SIDES, whole(0, 2), 448, 448, 1, 0, whole(3, 4)), "there must be a canvas"),
        ("size_canvas", (SIDES, whole(2, 2) + (1 << 40), 448, 448, 1, 0, whole(3, 4)), "a canvas must have pixels"),
        ("size_canvas", (SIDES, None, 448, 448, 1, 12, whole(3, 2)), "the table of results must have 12 numbers"),
        # Random windows.
        ("random_crop_windows", (SIDES[:, :1].contiguous(), WORDS, 0.1, 1.0, 0.7, 1.3, 10, whole(3, 4)), "a height and a width for each image"),
        ("random_crop_windows", (SIDES, WORDS[:3], 0.1, 1.0, 0.7, 1.3, 10, whole(3, 4)), "too few words"),
        ("random_crop_windows", (SIDES, WORDS, 0.1, 1.0, 0.7, 1.3, 10, whole(2, 4)), "the output must have 12 numbers"),
        ("random_crop_windows", (SIDES, WORDS, 0.1, 1.0, 0.7, 1.3, 10, torch.zeros(3, 3)), "the output must have 12 numbers"),
        ("random_crop_windows", (SIDES, WORDS, 0.1, 1.0, 0.7, 1.3, 1 << 60, whole(3, 4)), "num_attempts"),
        ("random_crop_generator", (SIDES, None, 0.1, 1.0, 0.7, 1.3, 1 << 60, WORDS, int32(3, 2), None, int32(3, 2), None), "num_attempts"),
        ("roi_random_crop", (None, None, whole(1), whole(1), None, None, None, WORDS, whole(3, 2), None), "an end or a shape"),
        ("roi_random_crop", (None, None, whole(1), whole(1), None, whole(1), None, WORDS, int32(3, 2), None), "must be int64"),
        ("batch_permutation", (False, False, WORDS, torch.zeros(3, dtype=torch.int16), None), "must be int32"),
        ("noise_windows", (torch.zeros(3, 8), None, whole(3, 5) + 1, WORDS, False), "rows, columns and channels"),
        ("noise_windows", (IMAGES.clone(), None, torch.tensor([[0, 0, 2, 2, (1 << 63) - 1]]), WORDS, False), "there is no number"),
        ("noise_windows", (IMAGES.clone(), None, torch.tensor([[0, 0, 2, 2, -8]]), WORDS, False), "there is no number"),
        ("fill_windows", (torch.zeros(3, 8), None, whole(3, 4) + 1, ONE, False), "rows, columns and channels"),
        ("random_uniform", (None, None, ONE, torch.ones(2, 4), WORDS, torch.zeros(3, 5), None), "values must have a row for each sample"),
        ("random_uniform", (None, None, ONE, torch.full((3, 4), 9.0), WORDS, torch.zeros(3, 5), None), "values must not be empty"),
        ("random_uniform", (None, None, ONE, torch.ones(3, 0), WORDS, torch.zeros(3, 5), None), "values must not be empty"),
        ("random_uniform", (None, None, ONE, torch.ones(3, 4).double(), WORDS, torch.zeros(3, 5), None), "numbers of another type"),
        ("random_choice", (IMAGES, None, None, None, None, WORDS, IMAGES[:0].clone(), None), "the output must have 3 samples, got 0"),
        # Boxes, points and masks.
        ("kept_rows", (BOXES[0], MASK[:1]), "the mask must have 2 numbers"),
        ("kept_rows", (BOXES[0], torch.ones(2, dtype=torch.uint8)), "numbers of another type"),
        ("kept_rows", (torch.zeros(()), MASK), "the rows must be contiguous"),
        ("map_boxes", (BOXES.double(), None, numbers(3, 10), 0, True, False, True, 0.1, BOXES, MASK, whole(3)), "boxes must be float32"),
        ("map_boxes", (BOXES, None, numbers(2, 10), 0, True, False, True, 0.1, BOXES, MASK, whole(3)), "the table must have 30 numbers"),
        ("map_boxes", (BOXES, None, numbers(1, 9), 0, True, False, True, 0.1, BOXES, MASK, whole(3)), "the table must have 10 numbers"),
        ("map_boxes", (BOXES, None, numbers(1, 10), 0, True, False, True, 0.1, BOXES[:2], MASK, whole(3)), "the output must have 24 numbers"),
        ("map_boxes", (BOXES, None, numbers(1, 10), 0, True, False, True, 0.1, BOXES, MASK[:5], whole(3)), "the mask must have 6 numbers"),
        ("map_boxes", (BOXES, None, numbers(1, 10), 0, True, False, True, 0.1, BOXES, MASK, whole(2)), "the table of counts must have 3 numbers"),
        ("rotation_maps", (numbers(2, 1), numbers(1, 2), numbers(1, 2), numbers(3, 10)), "has no number 0 for sample 2"),
        ("rotation_maps", (numbers(1, 1), numbers(1, 1), numbers(1, 2), numbers(3, 10)), "has no number 1 for sample 0"),
        ("rotation_maps", (numbers(1, 1), numbers(1, 2), numbers(1, 2), numbers(3, 9)), "the table must have 30 numbers"),
        ("random_bbox_crop_search", search(layout="xyXYzZab"), "the layout of boxes"),
        ("random_bbox_crop_search", search(layout="xyHH"), "the layout of boxes"),
        ("random_bbox_crop_search", search(layout=""), "the layout of boxes"),
        ("random_bbox_crop_search", search(attempts=0), "num_attempts must be at least 1"),
        ("random_bbox_crop_search", search(scaling=numbers(1)), "scaling must have 2 numbers"),
        ("random_bbox_crop_search", search(aspect=numbers(2)), "aspect_ratio must have 6 numbers"),
        ("random_bbox_crop_search", search(thresholds=torch.ones(2)), "numbers of another type"),
        ("random_bbox_crop_search", search(boxes=BOXES.double()), "boxes must be float32"),
        ("random_bbox_crop_search", search(wanted=numbers(1, 2)), "crop_shape needs input_shape"),
        ("random_bbox_crop_search", search(image=numbers(2, 2)), "has no number 0 for sample 2"),
        ("random_bbox_crop_search", search(image=numbers(1, 1)), "has no number 1 for sample 0"),
        ("random_bbox_crop_search", search(image=numbers(1, 2) * 1e300, wanted=numbers(1, 2)), "extents must be numbers of pixels"),
        *(
            ("random_bbox_crop_search", search(**{name: value}), "must have . numbers" if len(value) < 24 else "24 numbers")
            for name, value in (
                ("anchors", torch.zeros(2, 2)),
                ("sizes", torch.zeros(5)),
                ("kept", MASK[:5]),
                ("indices", int32(5)),
                ("counts", whole(2)),
                ("results", int32(2)),
            )
        ),
        ("random_bbox_crop_search", search(mapped=BOXES[:2].clone()), "the output must have 24 numbers"),
        ("coord_flip", (BOXES, None, ROW, ROW, ROW, ROW, ROW, ROW, "HWCF", BOXES.clone(), None), "layout must have the axes x, y and z"),
        ("coord_transform", (BOXES, None, None, None, None, 0, 0, 0, False, BOXES[:, :1].clone(), None), "must have 8 elements, got 4"),
        ("coord_transform", (BOXES, None, None, None, None, 0, 0, 0, True, torch.zeros(3, 5, 2, 2, 4), None), "points have coordinates"),
        ("coord_transform", (ONE.expand(3).contiguous(), None, None, None, None, 0, 0, 0, False, BOXES, None), "points have coordinates"),
        ("box_encoder", encode(boxes=BOXES.double()), "must be float32"),
        ("box_encoder", encode(anchors=torch.rand(4, 5)), "anchors must have five rows"),
        ("box_encoder", encode(anchors=torch.rand(5, 6)), "must have 24 elements, got 20"),
        ("box_encoder", encode(numbers=torch.ones(7)), "the table of means must have 8 numbers"),
        ("box_encoder", encode(encoded=ENCODED[:2].clone()), "the output must have 3 samples, got 2"),
        ("box_encoder", encode(classes=CLASSES[:, :4].clone()), "must have 5 elements, got 4"),
        ("box_encoder", encode(classes=CLASSES.long()), "labels have one type"),
        ("segmentation_random_mask_pixel", (IMAGES, None, ONE, None, None, WORDS, whole(3, 2), None), "3 coordinates for each of 3 samples"),
        ("segmentation_random_mask_pixel", (IMAGES, None, ONE, None, None, WORDS, int32(3, 3), None), "must be int64"),
        ("segmentation_random_object_bbox", find_object(int32(3, 2), int32(3, 3), int32(3)), "a box and a label for each of 3 samples"),
        ("segmentation_random_object_bbox", find_object(int32(3, 3), int32(3, 2), int32(3)), "a box and a label for each of 3 samples"),
        ("segmentation_random_object_bbox", find_object(int32(3, 3), int32(0), int32(3), 2), "a box and a label for each of 3 samples"),
        ("segmentation_random_object_bbox", find_object(int32(3, 3), int32(3, 3), int32(2)), "a box and a label for each of 3 samples"),
        ("segmentation_random_object_bbox", find_object(whole(3, 3), int32(3, 3), int32(3)), "the outputs must be int32"),
        ("segmentation_random_object_bbox", find_object(int32(3, 3), int32(3, 3), int32(3), 0, int32(3)), "masks must be integers, in rows"),
        ("select_masks_plan", (IDS.long(), None, POLYGONS, None, None, 6, 2, False, whole(6, 4), whole(3, 2), whole(3, 2)), "must be int32"),
        ("select_masks_plan", (IDS, None, POLYGONS[:2], None, None, 6, 2, False, whole(6, 4), whole(3, 2), whole(3, 2)), "for each of 3 samples"),
        ("select_masks_plan", (IDS, None, POLYGONS, None, None, 6, 2, False, whole(5, 4), whole(3, 2), whole(3, 2)), "the selection must have 24"),
        ("select_masks_plan", (IDS, None, POLYGONS, None, None, 6, 2, False, whole(6, 4), whole(2, 2), whole(3, 2)), "the table of polygons must"),
        ("select_masks_plan", (IDS, None, POLYGONS, None, None, 6, 2, False, whole(6, 4), whole(3, 2), whole(3)), "the table of results must"),
        ("select_masks_plan", (IDS, None, POLYGONS, None, whole(2, 2), 0, 0, True, whole(6, 4), whole(3, 2), whole(3, 2)), "the table of vertices"),
        *(
            ("segmentation_select_masks", (IDS, None, POLYGONS, None, torch.zeros(3, 6, 2), None, table, int32(3, 1, 3), None, out, None), message)
            for table, out, message in (
                (whole(5, 4), torch.zeros(3, 3, 2), "the selection must have 24 numbers"),
                (whole(6, 4) + 7, torch.zeros(3, 3, 2), "is not within the vertices"),
                (torch.tensor([[0, 0, 4, 0]] * 6), torch.zeros(3, 3, 2), "is not within the vertices"),
                (torch.tensor([[0, 0, 3, 4]] * 6), torch.zeros(3, 3, 2), "is not within the vertices"),
                (torch.tensor([[0, -1, 3, 0]] * 6), torch.zeros(3, 3, 2), "is not within the vertices"),
                (torch.tensor([[0, 0, 3, -1]] * 6), torch.zeros(3, 3, 2), "is not within the vertices"),
                (whole(6, 4), torch.zeros(3, 3, 2, dtype=torch.float64), "the samples and the types of the inputs"),
                (whole(6, 4), torch.zeros(2, 3, 2), "the samples and the types of the inputs"),
            )
        ),
        # Transforms and filters of sounds, whose tables would take the memory.
        ("power_spectrum", (IMAGES, None, 0, 1 << 40, 2, IMAGES.clone(), None), "too small for transforms of 1099511627776"),
        ("spectrogram", (ONE[None], None, None, 1 << 40, 4, 4, 2, True, True, False, torch.zeros(1, 1), None), "too small for transforms"),
        ("audio_resample", (ONE[None], None, ONE, 1e30, True, ONE[None].clone(), None), "quality of resampling must be from 0 to 100"),
        ("mel_filter_bank", (IMAGES, None, 1, 16000.0, 0.0, 8000.0, (1 << 62) + 1, False, True, IMAGES.clone(), None), "elements, got 144"),
        # Steps of colors on eight planes, and matrices for no output.
        ("hue", (IMAGES.byte(), None, ONE, IMAGES[:0].byte(), None), "the output must have 3 samples, got 0"),
        (
            "byte_steps",
            (IMAGES.byte(), None, numbers(3, 10) * 3, ONE, 1, 0, False, True, IMAGES.byte(), None),
            "is not for the layout or the channels",
        ),
        # Filters of images.
        *(
            ("filter", (IMAGES, None, weights, None, None, None, whole(1), 0, False, first, spatial, out, None), message)
            for weights, first, spatial, out, message in (
                (torch.ones(3, 3, 3), 2, 2, IMAGES.clone(), "do not have the axes that are filtered"),
                (torch.ones(3, 3, 3), -1, 2, IMAGES.clone(), "do not have the axes that are filtered"),
                (torch.ones(3, 3, 3), 0, 1 << 40, IMAGES.clone(), "do not have the axes that are filtered"),
                (torch.ones(3, 3), 0, 2, IMAGES.clone(), "do not have the axes that are filtered"),
                (torch.ones(2, 3, 3), 0, 2, IMAGES.clone(), "filters for each of 3 samples"),
                (torch.ones(3, 3, 3), 0, 2, IMAGES[:0].clone(), "filters for each of 3 samples"),
                (torch.ones(3, 3, 3), 0, 2, IMAGES[:, :7].clone(), "another size than the filtered image"),
                (torch.ones(3, 3, 3), 0, 2, IMAGES[..., :2].clone(), "another size than the filtered image"),
            )
        ),
        *(
            (
                "experimental_dilate",
                (IMAGES, None, torch.tensor([[-1, -1]]), torch.tensor([[3, 3]]), count, 0, 0, IMAGES.clone(), None),
                "iterations",
            )
            for count in (0, -1, 1 << 40)
        ),
        # Layers, patches, matrices, chains.
        ("multi_paste", paste([], IMAGES.clone()), "there must be inputs"),
        ("multi_paste", paste([IMAGES], torch.zeros(3, 8, 6)), "there must be inputs, and images or videos"),
        ("multi_paste", paste([IMAGES[..., 0].contiguous()], IMAGES.clone()), "the inputs must be images or videos of one type"),
        ("multi_paste", paste([IMAGES.byte(), IMAGES], IMAGES.clone()), "the inputs must be images or videos of one type"),
        ("erase", erase("0", out=IMAGES[:, :7]), "must have 144 elements, got 126"),
        ("erase", erase("0", out=IMAGES[:2]), "must have 3 samples, got 2"),
        ("erase", erase("3"), "the axes must be those of the images"),
        ("erase", erase("x"), "the axes must be those of the images"),
        ("erase", erase(""), "do not have the axes of the arguments"),
        ("erase", erase("0", 3, torch.zeros(1, 3)), "do not have the axes of the arguments"),
        *(
            ("patchify", patchify(*extents), "patches must have 1 to 1048576 pixels")
            for wrong in (0, -1, 1 << 40)
            for extents in ((wrong, 2, 1, 1), (2, wrong, 1, 1), (2, 2, wrong, 1), (2, 2, 1, wrong))
        ),
        ("patchify", patchify(layout="HW"), "tokens for each sample"),
        ("patchify", patchify(layout="HWX"), "the layout must have the axes"),
        ("patchify", patchify(layout="HHC"), "the layout must have the axes"),
        ("patchify", patchify(out=torch.zeros(3, 144)), "tokens for each sample"),
        ("patchify", patchify(out=torch.zeros(3, 12, 12).double()), "tokens for each sample"),
        ("transforms_translation", (MATRICES, None, ROW, 0, 1, False, torch.zeros(3, 7, 8), None), "must have 1 to 6 rows"),
        ("transforms_translation", (MATRICES, None, ROW, 0, 1, False, torch.zeros(3, 2, 2), None), "must have 1 to 6 rows"),
        ("transforms_translation", (MATRICES, None, ROW, 0, 1, False, MATRICES.double(), None), "matrices of float32"),
        ("transforms_translation", (MATRICES, None, ROW, 0, 1, False, torch.zeros(3, 6), None), "matrices of float32"),
        ("transforms_translation", (MATRICES[:, :1].clone(), None, ROW, 0, 1, False, MATRICES.clone(), None), "matrices of another size"),
        ("transforms_combine", ([MATRICES, MATRICES.double()], [whole(0)] * 2, False, MATRICES.clone(), None), "matrices of one type"),
        (
            "pixel_chain",
            (IMAGES.byte(), None, [torch.zeros(2, 256).byte()], [0], False, None, False, None, None, None, 1.0, 0.0, "HWC", IMAGES.byte()),
            "a stage must have 1 numbers for each of 3 samples, got 2 rows",
        ),
        # Files.
        ("npy_shapes", (NPY, None, "op", whole(3, 1)), "a type and a number of dimensions"),
        ("npy_shapes", (NPY, None, "op", int32(3, 9)), "numbers of another type"),
        ("npy_shapes", (NPY, None, "op", whole(2, 9)), "must have 27 numbers"),
        ("decoders_numpy", (NPY, None, "op", torch.zeros(0, 4), None), "an array for each of 3 files"),
        ("file_sizes", (NPY, None, "op", whole(2)), "the table of sizes must have 3 numbers"),
        ("file_sizes", (NPY, None, "op", int32(3)), "numbers of another type"),
        ("io_file_read", (NPY, None, "op", NPY[:2], None), "bytes for each of 3 files"),
        ("io_file_read", (NPY, None, "op", whole(3, 4), None), "bytes for each of 3 files"),
        # Samples without elements, of which some products of extents have more than 64 bits.
        ("copy", (torch.zeros(0), HUGE, torch.zeros(0), HUGE), "too many elements"),
        ("copy", (torch.zeros(0), HUGE.flip(1), torch.zeros(0), HUGE.flip(1)), "too many elements"),
    ],
)
def test_kernel_rejects_tables_that_do_not_fit(op: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        getattr(torch.ops.ndd, op)(*arguments)


def test_empty_rows_are_kept() -> None:
    assert torch.ops.ndd.kept_rows(torch.zeros(6, 4, 0), torch.ones(6, dtype=torch.bool)).shape == (6, 4, 0)


def test_samples_without_elements_take_neither_time_nor_memory() -> None:
    frames = torch.tensor([[1 << 40, 0, 0, 3]])
    torch.ops.ndd.multi_paste(*paste([torch.zeros(1, 4, 4, 3)], torch.zeros(0), frames))
    points = torch.tensor([[1 << 40, 0, 2]])
    torch.ops.ndd.coord_transform(torch.zeros(0), torch.tensor([[0, 2]]), None, None, None, 0, 0, 0, True, torch.zeros(0), points)
    wide = torch.tensor([[0, 1 << 40, 3]])
    torch.ops.ndd.grid_mask(torch.zeros(0), wide, ONE, ONE, ONE, ONE, ONE, 0, torch.zeros(0), wide)


def test_the_search_for_windows_still_finds_them() -> None:
    boxes = ndd.batch([np.array([[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.9, 0.9]], np.float32)])
    anchor, shape, *_ = ndd.random_bbox_crop(boxes, input_shape=[40, 30], crop_shape=[20, 10])
    assert shape.torch().tolist() == [[20.0, 10.0]]
    assert (anchor.torch() >= 0).all()
