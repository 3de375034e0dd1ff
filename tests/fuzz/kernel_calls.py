# SPDX-License-Identifier: Apache-2.0
"""Calls of the kernels that no case of an operator leads to: those of helpers, of policies, of compiled graphs and of other libraries' processors."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torch_ndd.transformers  # noqa: F401
from torch_ndd._core import native
from torch_ndd._core.values import native_plan
from torch_ndd.ops.color import _byte_steps, _opencv_colors, _pixel_chain  # noqa: F401  all modules with kernels
from torch_ndd.ops.geometry import _fill_windows  # noqa: F401

IMAGES = torch.arange(3 * 8 * 6 * 3, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(3, 8, 6, 3)
FLOATS = IMAGES / 255
TABLE = torch.tensor([[8, 6, 3], [4, 6, 3], [8, 3, 3]])
PACKED = IMAGES.reshape(-1)[: int(TABLE.prod(1).sum())].clone()
ORDER = torch.tensor([1, 2, 0])
WORDS = torch.arange(7)
LINEAR = torch.ones(1, dtype=torch.int64)
BOXES = torch.tensor([[[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.9, 0.9]]] * 3)


def whole(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def numbers(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float64)


def make_calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield kernels and arguments."""
    yield "blend_batch", (IMAGES, IMAGES, ORDER, torch.full((3, 2), 0.5), FLOATS.clone())
    yield "paste_boxes", (IMAGES, ORDER, torch.tensor([[0, 0, 2, 2], [1, 2, 6, 8], [3, 3, 3, 3]]), 0, IMAGES.clone())
    yield "multi_crop", (IMAGES, None, ORDER, torch.tensor([[0.0, 0.0, 4.0, 4.0]] * 3), LINEAR, LINEAR, True, 1, 3, True, IMAGES.clone(), None)
    yield "pack", ([FLOATS[0], FLOATS[1]], torch.zeros(2, 8, 6, 3), None)
    yield "take", (FLOATS, None, None, whole(1, 3), torch.tensor([[1, 1, 2]]), torch.zeros(3, 8, 6, 2), None)
    yield "stack_padded", (PACKED, TABLE, 0.0, torch.zeros(3, 8, 6, 3, dtype=torch.uint8), None)
    yield from _make_color_calls()
    yield from _make_window_calls()
    yield from _make_size_calls()
    yield from _make_box_calls()
    yield from _make_file_calls()
    yield from _make_repeated_calls()


def _make_color_calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    levels = torch.arange(256).to(torch.uint8)
    yield "level_tables", (IMAGES, None, levels.repeat(3, 1), IMAGES.clone(), None)
    yield "level_tables", (PACKED, TABLE, levels.repeat(3, 3), PACKED.clone(), TABLE)
    steps = torch.zeros(3, 40, dtype=torch.float64)
    steps[:, ::10] = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    steps[:, 1::10] = 0.5
    yield "opencv_colors", (IMAGES, None, steps, IMAGES.clone(), None)
    kinds = torch.zeros(3, 6 * 10, dtype=torch.float64)
    kinds[0, ::10] = torch.arange(1, 7)
    kinds[1, ::10] = torch.arange(7, 13)
    kinds[2, ::10] = torch.arange(13, 19) % 18
    kinds[:, 1::10] = 0.5
    yield "byte_steps", (IMAGES, None, kinds, torch.zeros(1), 1, 0, False, False, IMAGES.clone(), None)
    kinds[:] = kinds * (kinds[:, ::10].repeat_interleave(10, 1) == 1)
    yield "byte_steps", (IMAGES.permute(0, 3, 1, 2).contiguous(), None, kinds, torch.zeros(3), 1, 0, True, True, torch.zeros(3, 3, 8, 6).byte(), None)
    chain = ([levels.repeat(3, 1), torch.ones(1, 2), torch.ones(3, 5)], [0, 0, 1])
    statistics = (torch.zeros(1, 3), torch.ones(1, 3))
    yield "pixel_chain", (IMAGES, None, *chain, False, ORDER, True, None, *statistics, 1.0, 0.0, "CHW", torch.zeros(3, 3, 8, 6))
    yield "pixel_chain", (PACKED, TABLE, [levels[None]], [0], True, None, False, ORDER, None, None, 1.0, 0.0, "HWC", PACKED.clone())
    luma, frame = torch.zeros(8, 8, dtype=torch.uint8), torch.zeros(8, 8, 3, dtype=torch.uint8)
    yield "yuv_to_rgb", (luma, luma[:4, :4].clone(), luma[:4, :4].clone(), 8, 0, False, frame)
    yield "yuv_to_rgb", (luma.to(torch.uint16), luma.to(torch.uint16), luma.to(torch.uint16), 10, 1, True, frame)


def _make_window_calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    windows = torch.tensor([[1, 2, 3, 2], [0, 0, 8, 6], [0, 0, 0, 0]])
    yield "fill_windows", (IMAGES.clone(), None, windows, torch.zeros(3), False)
    yield "fill_windows", (PACKED.clone(), TABLE, torch.tensor([[1, 0, 3, 2]]), torch.zeros(1), False)
    firsts = torch.tensor([[0], [18], [162]])
    yield "noise_windows", (FLOATS.clone(), None, torch.cat([windows, firsts], 1), WORDS, False)
    yield "random_crop_windows", (whole(3, 2) + 20, WORDS, 0.1, 1.0, 0.75, 1.3, 10, whole(3, 4))
    yield "random_crop_windows", (whole(3, 3) + 20, WORDS, 0.1, 1.0, 0.75, 1.3, 10, torch.zeros(3, 4))
    sounds, bands = torch.linspace(-1, 1, 2400).reshape(3, 800), torch.zeros(257, 20, dtype=torch.float64)
    bands[10:30] = 1
    yield "kaldi_bands", (sounds, None, numbers(400), bands, 160, torch.zeros(3, 4, 20))
    plan = torch.tensor([[16, 16, 16, 1]] * 3)
    spectra = torch.zeros(3, 16, 5)
    yield "spec_augment", (spectra, None, plan, 1, 2.0, WORDS, 1, torch.ones(3), WORDS, spectra.clone(), None)


def _make_size_calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    sides, result = torch.tensor([[480, 640], [30, 20], [7, 900]]), whole(3, 2)
    yield "size_budget", (sides, None, 28, 3136, 1003520, 2, False, 200.0, result)
    yield "size_budget", (sides, torch.tensor([4, 6, 8]), 28, 3136, 1003520, 2, False, 200.0, result)
    yield "size_patches", (sides, 16, 16, 256, -1.0, result)
    yield "size_fit", (sides, 224, 448, -1, -1, True, True, 16, result)
    yield "size_fit", (sides, -1, -1, 224, 224, False, False, 1, result)
    yield "size_canvas", (sides, torch.tensor([[336, 672], [672, 336]]), 336, 336, 1, 0, whole(3, 4))
    yield "size_canvas", (sides, None, 448, 448, 1, 12, whole(3, 4))


def _make_box_calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    mask, counts = torch.zeros(6, dtype=torch.bool), whole(3)
    table = numbers(3, 10)
    yield "rotation_maps", (numbers(3, 1) * 30, numbers(1, 2) * 9, numbers(3, 2) * 12, table)
    yield "map_boxes", (BOXES, None, table, 0, True, False, True, 0.1, BOXES.clone(), mask, counts)
    yield "kept_rows", (BOXES.reshape(6, 4), mask)
    ratios, tables = numbers(6), (torch.zeros(3, 2), torch.zeros(3, 2), BOXES.clone(), mask, torch.zeros(6, dtype=torch.int32), counts)
    rule = (torch.tensor([0.0, 0.1], dtype=torch.float64), numbers(2), ratios, 5, 20, 0.1, True, False, False, "xyXY")
    ends = torch.zeros(3, dtype=torch.int32)
    yield "random_bbox_crop_search", (BOXES, None, None, None, *rule, WORDS, *tables, ends)
    yield "random_bbox_crop_search", (BOXES, None, numbers(3, 2) * 40, numbers(1, 2) * 20, *rule, WORDS, *tables, ends)
    polygons = torch.tensor([[[0, 0, 3], [1, 3, 6]]] * 3, dtype=torch.int32)
    selection = (torch.zeros(6, 4, dtype=torch.int64), whole(3, 2), whole(3, 2))
    masks = torch.tensor([[1], [0], [1]], dtype=torch.int32)
    yield "select_masks_plan", (masks, None, polygons, None, None, 6, 2, False, *selection)
    yield "select_masks_plan", (masks, None, polygons, None, whole(3, 2) + torch.tensor([6, 2]), 0, 0, True, *selection)
    chosen, corners = torch.zeros(3, 1, 3, dtype=torch.int32), torch.zeros(3, 6, 2)
    vertices = (torch.zeros(3, 3, 2), None)
    yield "segmentation_select_masks", (masks, None, polygons, None, corners, None, selection[0], chosen, None, *vertices)


_PLANS: list[native_plan.NativePlan] = []


def _make_repeated_calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    places = [(0, native_plan.WHOLE, 0), (2, native_plan.WHOLE, native.numbers("plan.Place")["output_place"])]
    rows = native.numbers("plan.Rows")["by_tensors"]
    fits, mode = [native.numbers("plan.Fit")["equal_shape"]], native.numbers("stream.Mode")["sync"]
    plan = native_plan.keep_call(torch.ops.ndd.copy.default, (FLOATS, None, FLOATS.clone(), None), places, fits, -1, rows, None)
    assert plan is not None
    _PLANS.append(plan)  # never released: children of this process repeat the call
    yield "again", (plan.handle, [FLOATS], [], mode, 0)
    yield "again_with", (plan.handle, FLOATS, None, mode, 0, 0, 0)


def _make_file_calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    file = io.BytesIO()
    np.save(file, np.arange(12, dtype=np.float32).reshape(3, 4))
    content = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    contents, lengths = content.repeat(3), torch.tensor([[len(content)]] * 3)
    yield "npy_shapes", (contents, lengths, "decoders.numpy", whole(3, 10))
    yield "decoders_numpy", (contents, lengths, "decoders.numpy", torch.zeros(3, 3, 4), None)
    this = Path(__file__)
    paths = torch.frombuffer(bytearray(str(this).encode()), dtype=torch.uint8).repeat(2, 1)
    yield "file_sizes", (paths, None, "io.file.read", whole(2, 1))
    yield "io_file_read", (paths, None, "io.file.read", torch.zeros(2, this.stat().st_size, dtype=torch.uint8), None)
