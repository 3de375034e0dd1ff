# SPDX-License-Identifier: Apache-2.0
"""Kernels called through torch.ops with arguments that Python never passes: errors, no reads or writes out of bounds.

``make fuzz-kernels`` does it with all arguments of all kernels, in a library with sanitizers; ``audio/test_kernel_sizes.py`` has those of audio.
"""

from typing import Any

import pytest
import torch

import torch_ndd.ops.color._opencv_colors  # noqa: F401  the kernels of translated Albumentations
from torch_ndd._core import native

IMAGES = torch.zeros(3, 8, 6, 3, dtype=torch.uint8)
FLOATS = torch.zeros(3, 8, 6, 3)
ORDER = torch.tensor([1, 2, 0])
SHARES = torch.full((3, 2), 0.5)
BOXES = torch.tensor([[0, 0, 2, 2]] * 3)
LEVELS = torch.zeros(3, 256, dtype=torch.uint8)
STEPS = torch.zeros(3, 10, dtype=torch.float64)
WORDS = torch.zeros(7, dtype=torch.int64)
EACH = torch.ones(3)
LINEAR = torch.ones(1, dtype=torch.int64)
SOURCES = torch.tensor([0, 1, 2])
REGIONS = torch.tensor([[0.0, 0.0, 4.0, 4.0]] * 3)
LUMA = torch.zeros(8, 8, dtype=torch.uint8)
FRAME = torch.zeros(8, 8, 3, dtype=torch.uint8)


def table(*rows: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(rows, dtype=dtype)


def resize_arguments(
    *changed: Any, layout: str = "HWC", output_layout: str = "CHW", axes: int = 3, out: torch.Tensor | None = None
) -> tuple[Any, ...]:
    output = torch.zeros(3, 3, 4, 4) if out is None else out
    return (IMAGES, None, None, None, LINEAR, LINEAR, True, 0, axes, None, EACH[:1], EACH[:1], layout, output_layout, output, None)


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        # Batches of any kernel: `copy` checks nothing else.
        ("copy", (torch.zeros(20), table([-3, 2], [5, 2]), torch.zeros(20), table([-3, 2], [5, 2])), "a negative extent"),
        ("copy", (torch.zeros(20), table([1 << 62, 4], [1, 1]), torch.zeros(20), table([1 << 62, 4], [1, 1])), "too many elements"),
        ("copy", (torch.zeros(20), table([1 << 59], [1 << 59], [1 << 59], [1 << 59], [1]), torch.zeros(1, 20), None), "the buffer is smaller"),
        ("copy", (torch.zeros(20), table([2, 2], dtype=torch.int32), torch.zeros(20), table([2, 2])), "int64 and on the CPU"),
        ("copy", (torch.zeros(20), table([2, 2])[0], torch.zeros(20), table([2, 2])), "with a row for each sample"),
        ("copy", (torch.zeros(1, 4).expand(3, 4), None, torch.zeros(3, 4), None), "a batch must be contiguous"),
        ("copy", (torch.zeros(()), None, torch.zeros(3, 4), None), "an axis of samples"),
        ("stack_padded", (torch.zeros(2, 4), None, 0.0, torch.zeros(3, 4), None), "a batch of 2 samples has no sample 2"),
        ("arithmetic", (FLOATS[:0], None, FLOATS, None, None, None, 0, 6, FLOATS.clone(), None), "a batch of 0 samples has no sample 0"),
        ("arithmetic", (FLOATS, None, FLOATS[:0], None, None, None, 0, 6, FLOATS.clone(), None), "a batch of 0 samples has no sample 0"),
        ("arithmetic", (FLOATS, None, None, None, None, None, 0, 6, FLOATS.clone(), None), "operation 0 has 2 operands, got 1"),
        ("arithmetic", (FLOATS, None, FLOATS, None, FLOATS, None, 0, 6, FLOATS.clone(), None), "operation 0 has 2 operands, got 3"),
        # What is only moved has the type of the output.
        ("zeros", (torch.zeros(1, dtype=torch.int64), EACH.clone(), None), "zeros: the output must have the type of the input"),
        ("ones", (torch.zeros(1, dtype=torch.uint8), EACH.clone(), None), "ones: the output must have the type of the input"),
        ("full", (EACH[:, None].clone(), None, torch.zeros(3, 9, dtype=torch.uint8), None), "full: the output must have the type of the input"),
        ("zeros_like", (IMAGES, None, EACH[:1], IMAGES.clone(), None), "the type of the input"),
        ("ones_like", (IMAGES, None, LINEAR, IMAGES.clone(), None), "the type of the input"),
        ("full_like", (IMAGES, None, LINEAR, None, IMAGES.clone(), None), "the type of the input"),
        ("grayscale", (FLOATS, None, False, False, torch.zeros(3, 8, 6, 1, dtype=torch.uint8), None), "grayscale: the output must have the type"),
        ("jitter", (FLOATS, None, EACH, 0, ORDER.int(), 4, WORDS, IMAGES.clone(), None), "the type of the input"),
        ("jitter", (FLOATS, None, EACH, 0, ORDER.int(), 4, WORDS, FLOATS[:, :7].clone(), None), "must have 144 elements, got 126"),
        ("random_choice", (FLOATS, None, None, None, None, WORDS, IMAGES.clone(), None), "the type of the input"),
        (
            "one_hot",
            (ORDER[:, None].expand(3, 6).clone(), None, 0, 4, 1.0, 0.0, torch.zeros(3, 6, 4), None),
            "must have 4 elements along axis 0, got 6",
        ),
        ("one_hot", (ORDER[:, None].clone(), None, 0, 1 << 62, 1.0, 0.0, torch.zeros(3, 4), None), "elements along axis 0, got 4"),
        *(
            (op, arguments, f"{op.replace('_', '.', 1)}: ddof is out of range: {ddof}")
            for ddof in (-(1 << 63), 1 << 31)
            for op, arguments in (
                ("reductions_variance", (FLOATS, None, EACH, None, 7, ddof, EACH.clone(), None)),
                ("reductions_std_dev", (FLOATS, None, EACH, None, 7, ddof, EACH.clone(), None)),
                ("normalize", (FLOATS, None, None, 0, None, 0, 7, False, ddof, 0.0, 1.0, 0.0, FLOATS.clone(), None)),
            )
        ),
        *(
            ("filter", (FLOATS, None, EACH[:, None, None].clone(), None, None, None, LINEAR.int(), 0, False, 0, axes, FLOATS.clone(), None), "axes")
            for axes in (-(1 << 63), 0, 4)
        ),
        ("blend_batch", (IMAGES, IMAGES, ORDER[:2], SHARES, FLOATS.clone()), "order must have 1 numbers for each of 3 samples, got 2 rows"),
        ("blend_batch", (IMAGES, IMAGES, ORDER[:, None][:, :0], SHARES, FLOATS.clone()), "order must have 1 numbers"),
        ("blend_batch", (IMAGES, IMAGES, ORDER, SHARES[:2], FLOATS.clone()), "shares must have 2 numbers"),
        ("blend_batch", (IMAGES, IMAGES, ORDER, SHARES[:, :1], FLOATS.clone()), "contiguous"),
        ("blend_batch", (IMAGES, IMAGES, ORDER, SHARES[:, :1].clone(), FLOATS.clone()), "shares must have 2 numbers"),
        ("blend_batch", (IMAGES[:2], IMAGES, ORDER, SHARES, FLOATS.clone()), "there must be an image for each of 3 outputs, got 2"),
        ("paste_boxes", (IMAGES, ORDER[:2], BOXES, 0, IMAGES.clone()), "order must have 1 numbers for each of 3 samples, got 2 rows"),
        ("paste_boxes", (IMAGES, ORDER[:, None][:, :0].clone(), BOXES, 0, IMAGES.clone()), "order must have 1 numbers"),
        ("paste_boxes", (IMAGES, ORDER, BOXES[:, :3].clone(), 0, IMAGES.clone()), "boxes must have 4 numbers"),
        ("level_tables", (IMAGES, None, LEVELS, IMAGES[:2].clone(), None), "the output must have 3 samples, got 2"),
        ("level_tables", (IMAGES, None, LEVELS, IMAGES[:, :7].clone(), None), "must have 144 elements, got 126"),
        ("level_tables", (IMAGES, None, LEVELS[:1].expand(3, 256), IMAGES.clone(), None), "contiguous"),
        ("opencv_colors", (IMAGES, None, STEPS, IMAGES[:2].clone(), None), "the output must have 3 samples, got 2"),
        ("opencv_colors", (IMAGES, None, STEPS, IMAGES[:, :7].clone(), None), "must have 144 elements, got 126"),
        ("yuv_to_rgb", (LUMA[..., None][..., :0].clone(), LUMA, LUMA, 8, 0, False, FRAME.clone()), "rows and columns"),
        ("noise_shot", (IMAGES, None, EACH, WORDS, IMAGES[:2].clone(), None), "the output must have 3 samples, got 2"),
        ("noise_shot", (IMAGES, None, EACH, WORDS, FLOATS.clone(), None), "the type of the input"),
        ("noise_shot", (IMAGES, None, EACH, WORDS[:1].expand(7), IMAGES.clone(), None), "contiguous"),
        # Copies of parts: order of axes, indices, types and sizes.
        ("transpose", (FLOATS, None, "023", torch.zeros(3, 8, 3, 6), None), "must be those of its input in some order"),
        ("transpose", (FLOATS, None, "001", torch.zeros(3, 8, 8, 6), None), "must be those of its input in some order"),
        ("transpose", (FLOATS, None, "02", torch.zeros(3, 8, 3, 6), None), "must have 3 axes"),
        ("pack", ([EACH, EACH], torch.zeros(3, 3), None), "sample 2 does not have the shape"),
        ("pack", ([EACH, EACH[:2]], torch.zeros(2, 3), None), "sample 1 does not have the shape"),
        ("pack", ([EACH, EACH.half()], torch.zeros(2, 3), None), "sample 1 does not have the shape"),
        ("take", (FLOATS, None, None, table([0, 0, 0]), table([1, 1, 2]), torch.zeros(3, 8, 6, 3), None), "does not have those from 0 on"),
        ("take", (FLOATS, None, None, table([0, 0, 3]), table([1, 1, 0]), torch.zeros(3, 8, 6), None), "does not have those from 3 on"),
        ("take", (FLOATS, None, None, table([0, 0, -1]), table([1, 1, 0]), torch.zeros(3, 8, 6), None), "does not have those from -1 on"),
        (
            "take",
            (FLOATS, None, None, table([0, -(1 << 63), 0]), table([1, 1, 1]), FLOATS.clone(), None),
            "does not have those from -9223372036854775808",
        ),
        ("take", (FLOATS, None, None, table([7, 0, 0]), table([-2, 1, 1]), torch.zeros(3, 5, 6, 3), None), "does not have those from 7 on"),
        ("take", (FLOATS, None, table([9])[0], table([0, 0, 0]), table([1, 1, 1]), torch.zeros(3, 8, 6, 3), None), "has no sample 9"),
        (
            "take",
            (FLOATS, None, None, table([0, 0, 0]), table([1, 1, 1]), torch.zeros(3, 8, 6, 3, dtype=torch.float64), None),
            "the type of the input",
        ),
        ("crop", (FLOATS, None, table([0, 0, 0]), EACH[:1], False, "HWC", torch.zeros(3, 4), None), "must have the 3 dimensions"),
        ("flip", (FLOATS, None, LINEAR * 0, LINEAR, LINEAR, "HWC", FLOATS[:, :7].clone(), None), "must have 144 elements, got 126"),
        ("flip", (IMAGES.int(), None, LINEAR * 0, LINEAR, LINEAR, "HWC", FLOATS.clone(), None), "the type of the input"),
        ("bb_flip", (torch.zeros(2, 3, 4), None, LINEAR, False, LINEAR, torch.zeros(1, 3, 4), None), "the output must have 2 samples, got 1"),
        # Resizing writes all axes that it does not resample, and finds those of layouts by their letters.
        ("resize", (IMAGES, None, None, None, LINEAR, LINEAR, True, 0, 3, torch.zeros(2, 4, 4, 3), None), "samples and the dimensions of the input"),
        ("resize", (IMAGES, None, None, None, LINEAR, LINEAR, True, 0, 3, torch.zeros(3, 4, 12), None), "samples and the dimensions of the input"),
        ("resize", (IMAGES, None, None, None, LINEAR, LINEAR, True, 0, 3, torch.zeros(3, 4, 4, 1), None), "must have 3 elements along axis 2"),
        ("resize", (IMAGES, None, None, None, LINEAR, LINEAR, True, 0, 8, torch.zeros(3, 4, 4, 3), None), "cannot be resampled together"),
        ("resize", (IMAGES, None, REGIONS[:, :2].clone(), None, LINEAR, LINEAR, True, 0, 3, torch.zeros(3, 4, 4, 3), None), "has no number"),
        (
            "resize",
            (torch.zeros(1, 4, 2, 4, 2, 4), None, None, None, LINEAR, LINEAR, True, 0, 21, torch.zeros(1, 2, 2, 2, 2, 2), None),
            "resampled together",
        ),
        *(
            (op, resize_arguments(layout=layout, output_layout=output_layout), "must have the axes of the images in some order")
            for op in ("resize_crop_mirror", "random_resized_crop")
            for layout, output_layout in (
                ("HWC", "CHX"),
                ("HWC", "CH"),
                ("HWC", "CHWD"),
                ("", "CHW"),
                ("HHC", "CHH"),
                ("HWX", "XHW"),
                ("FHWC", "FCHW"),
            )
        ),
        ("resize_crop_mirror", resize_arguments(out=torch.zeros(2, 3, 4, 4)), "samples and the dimensions of the input"),
        (
            "multi_crop",
            (IMAGES, None, SOURCES, REGIONS, LINEAR, LINEAR, True, 1, 3, True, torch.zeros(3, 4, 4, 1, dtype=torch.uint8), None),
            "along axis 2",
        ),
        ("multi_crop", (IMAGES, None, SOURCES[:2], REGIONS, LINEAR, LINEAR, True, 1, 3, True, IMAGES.clone(), None), "for each output"),
    ],
)
def test_kernel_rejects_what_python_never_passes(op: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        getattr(torch.ops.ndd, op)(*arguments)


def test_image_decoders_reject_tables_of_the_wrong_size() -> None:
    files, table = torch.zeros(30, dtype=torch.uint8), torch.tensor([[10]] * 3)
    sizes, kinds, pixels = torch.zeros(3, 3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 4, 4, 3, dtype=torch.uint8)

    def find_shapes(errors: torch.Tensor | None, sizes: torch.Tensor, kinds: torch.Tensor) -> None:
        torch.ops.ndd.image_shapes(files, table, "decoders.image", "RGB", True, 1 << 20, True, errors, sizes, kinds)

    def decode(errors: torch.Tensor | None, pixels: torch.Tensor) -> None:
        torch.ops.ndd.decoders_image(files, table, None, "decoders.image", "RGB", True, False, 0, errors, "", 0.0, 0, pixels, None)

    for wrong in ((sizes[:2], kinds), (sizes, kinds[:2]), (sizes.int(), kinds), (sizes, kinds.int())):
        with pytest.raises((RuntimeError, ValueError), match="three numbers and one for each of 3 files"):
            find_shapes(None, *wrong)
    for errors in (torch.zeros(2, 9, dtype=torch.uint8), torch.zeros(3, 0, dtype=torch.uint8), torch.zeros(3, 9), torch.zeros(27, dtype=torch.uint8)):
        for call in (lambda errors=errors: find_shapes(errors, sizes, kinds), lambda errors=errors: decode(errors, pixels)):
            with pytest.raises((RuntimeError, ValueError), match="the table of reasons must be uint8"):
                call()
    for out in (pixels[:2], pixels[..., 0].contiguous()):
        with pytest.raises((RuntimeError, ValueError), match="height, width and channels for each of 3 files"):
            decode(None, out)


@pytest.mark.parametrize("start", [-(1 << 63), -(1 << 40), -9, 9, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("mirrored", [False, True])
def test_windows_far_outside_of_their_images_are_filled(start: int, mirrored: bool) -> None:
    starts, fill, mirror = torch.tensor([[start, 0, 0]]), torch.tensor([7.0]), torch.tensor([int(mirrored)], dtype=torch.int32)
    for op in ("pad", "paste"):
        output = torch.zeros_like(IMAGES)
        getattr(torch.ops.ndd, op)(IMAGES + 1, None, starts, fill, native.numbers("Border")["constant"], "HWC", output, None)
        assert output.unique().tolist() == [7]
    output = torch.zeros_like(FLOATS)
    starts = torch.tensor([[0, start, 0]])
    numbers = (torch.zeros(1), torch.ones(1), 1.0, 0.0)
    torch.ops.ndd.crop_mirror_normalize(IMAGES + 1, None, starts, fill, True, mirror, *numbers, "HWC", "HWC", output, None)
    assert output.unique().tolist() == [7.0]


def test_chosen_rows_need_no_alignment() -> None:
    rows = torch.arange(3 * 4 * 2, dtype=torch.int16).reshape(3, 4, 2)
    # Rows of four bytes at an address that is a multiple of two.
    memory = torch.zeros(1 + rows.numel(), dtype=torch.int16)
    moved = memory[1:].view_as(rows).copy_(rows)
    outputs = [torch.zeros(1 + 3 * 5 * 2, dtype=torch.int16)[1:].view(3, 5, 2) for _ in range(2)]
    for values, output in zip((rows, moved), outputs, strict=True):
        torch.ops.ndd.random_choice(values, None, None, None, None, WORDS, output, None)
    assert outputs[0].equal(outputs[1])
    assert all(row in sample.tolist() for sample, chosen in zip(rows, outputs[0], strict=True) for row in chosen.tolist())
