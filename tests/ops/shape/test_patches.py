# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Inputs, Samples

import torch_ndd as ndd


def cut(image: np.ndarray, layout: str, patch_size: int, merge_size: int = 1, temporal: int = 1, order: str = "CTHW") -> np.ndarray:
    """Return the tokens by the formula: one reshape and one permutation."""
    if "F" not in layout:
        image, layout = np.repeat(image[None], temporal, 0), "F" + layout
    frames = image.transpose([layout.index(letter) for letter in "FCHW"])
    frames = np.concatenate([frames, *[frames[-1:]] * (-len(frames) % temporal)])
    count, channels, height, width = frames.shape
    block = patch_size * merge_size
    parts = frames.reshape(count // temporal, temporal, channels, height // block, merge_size, patch_size, width // block, merge_size, patch_size)
    axes = (0, 3, 6, 4, 7, 2, 1, 5, 8) if order == "CTHW" else (0, 3, 6, 4, 7, 1, 5, 8, 2)
    return parts.transpose(axes).reshape(-1, channels * temporal * patch_size**2)


def size_reference(layout: str, dtype: str, multiple: int, **extents: int) -> Inputs:
    """Return images whose sides are multiples."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        generator = np.random.default_rng(5)
        samples = []
        for k in range(3):
            sizes = {"H": (2 + k * ragged) * multiple, "W": (3 - k * ragged) * multiple, "C": 3, "F": 3} | extents
            samples.append(generator.uniform(0, 256, [sizes[letter] for letter in layout]).astype(dtype))
        return (samples,)

    return make


def reference(layout: str) -> Callable[..., Any]:
    def tokens_and_grid(image: np.ndarray, **arguments: object) -> tuple[np.ndarray, np.ndarray]:
        tokens = cut(image, layout, **arguments)  # type: ignore[arg-type]
        sizes = dict(zip(layout, image.shape, strict=True))
        groups = -(-sizes.get("F", 1) // int(arguments.get("temporal", 1)))  # type: ignore[call-overload]
        side = int(arguments["patch_size"])  # type: ignore[call-overload]
        return tokens, np.array([groups, sizes["H"] // side, sizes["W"] // side])

    return tokens_and_grid


def patchify_case(id: str, inputs: Inputs, layout: str, **arguments: Any) -> Case:
    return Case("patchify", id, inputs, arguments, layout, reference(layout), out_layout=None)


CASES = [
    patchify_case("image", size_reference("HWC", "uint8", 8), "HWC", patch_size=4, merge_size=2, temporal=2),
    patchify_case("planes", size_reference("CHW", "float32", 14), "CHW", patch_size=14),
    patchify_case("channels last", size_reference("HWC", "float32", 16), "HWC", patch_size=16, order="HWC"),
    patchify_case("planes to pixels", size_reference("CHW", "int16", 5, C=2), "CHW", patch_size=5, order="HWC"),
    patchify_case("video", size_reference("FHWC", "float16", 6), "FHWC", patch_size=3, merge_size=2, temporal=2),
    patchify_case("planes of videos", size_reference("FCHW", "float64", 4, F=4), "FCHW", patch_size=2, temporal=2),
]


def test_patchify_pads_with_zeros() -> None:
    generator = np.random.default_rng(3)
    samples = [generator.integers(0, 255, (7, 9, 3), np.uint8), generator.integers(0, 255, (8, 8, 3), np.uint8)]
    tokens, grid = ndd.patchify(ndd.batch(samples, layout="HWC"), patch_size=4, pad=True)
    assert grid.torch().tolist() == [[1, 2, 3], [1, 2, 2]]
    np.testing.assert_array_equal(tokens.tensors[0], cut(np.pad(samples[0], ((0, 1), (0, 3), (0, 0))), "HWC", 4))
    np.testing.assert_array_equal(tokens.tensors[1], cut(samples[1], "HWC", 4))


@pytest.mark.parametrize("layout", ["HWC", "CHW", "FHWC", "FCHW"])
@pytest.mark.parametrize(("patch", "merge", "temporal"), [(1, 1, 1), (14, 2, 2), (16, 1, 1), (17, 2, 3), (32, 1, 2), (40, 1, 1)])
@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 3), ("uint8", 1), ("uint8", 4), ("uint16", 3), ("float32", 3)])
def test_patchify_equals_the_formula_for_all_widths(layout: str, patch: int, merge: int, temporal: int, dtype: str, channels: int) -> None:
    """Whose moves of 16 or 32 bytes exceed a patch, and whose pixels are separated 64, 16 and 1 at a time."""
    samples = size_reference(layout, dtype, patch * merge, C=channels)(True)[0]
    tokens, _ = ndd.patchify(ndd.batch(samples, layout=layout), patch_size=patch, merge_size=merge, temporal=temporal)
    for token, sample in zip(tokens.tensors, samples, strict=True):
        np.testing.assert_array_equal(token, cut(sample, layout, patch, merge, temporal))


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_patchify_of_bytes_pads_and_streams(layout: str) -> None:
    """Of a result that exceeds the caches, with rows and columns of zeros behind every image."""
    generator = np.random.default_rng(8)
    images = [generator.integers(1, 256, shape, np.uint8) for shape in ((1501, 1203, 3), (70, 1999, 3), (1, 1, 3), (999, 15, 3))]
    arrays = [image if layout == "HWC" else np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images]
    tokens, grid = ndd.patchify(ndd.batch(arrays, layout=layout), patch_size=14, merge_size=2, temporal=3, pad=True)
    for token, shape, image in zip(tokens.tensors, grid.torch().tolist(), images, strict=True):
        height, width = 14 * shape[1], 14 * shape[2]
        padded = np.pad(image, ((0, height - image.shape[0]), (0, width - image.shape[1]), (0, 0)))
        np.testing.assert_array_equal(token, cut(padded, "HWC", 14, 2, 3))


def test_patchify_of_large_batches_equals_the_formula() -> None:
    """Whose tokens are stored past the caches."""
    generator = np.random.default_rng(4)
    samples = [generator.standard_normal((3, 28 * k, 28 * 20), np.float32) for k in (10, 25, 17, 30)]
    tokens, _ = ndd.patchify(ndd.batch(samples, layout="CHW"), patch_size=14, merge_size=2, temporal=2)
    for token, sample in zip(tokens.tensors, samples, strict=True):
        np.testing.assert_array_equal(token, cut(sample, "CHW", 14, 2, 2))


def test_patchify_repeats_the_last_frame_of_a_video() -> None:
    video = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1)
    tokens, grid = ndd.patchify(ndd.tensor(video, layout="FHWC"), patch_size=1, temporal=2)
    assert tokens.torch().tolist() == [[0, 1], [2, 2]]
    assert grid.torch().tolist() == [2, 1, 1]


def test_patchify_of_images_without_pixels_has_no_tokens() -> None:
    tokens, grid = ndd.patchify(ndd.batch([np.zeros((0, 8, 3), np.uint8), np.zeros((4, 8, 3), np.uint8)], layout="HWC"), patch_size=4)
    assert [sample.shape for sample in tokens.tensors] == [(0, 48), (2, 48)]
    assert grid.torch().tolist() == [[1, 0, 2], [1, 1, 2]]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"patch_size": 4}, RuntimeError, "sample 1: the height of 7 pixels is not a multiple of patch_size"),
        ({"patch_size": 2, "merge_size": 4}, RuntimeError, "sample 1"),
        ({"patch_size": 0}, ValueError, "patch_size"),
        ({"patch_size": [4, 0]}, ValueError, "patch_size"),
        ({"patch_size": True}, ValueError, "patch_size"),
        ({"patch_size": 4, "temporal": 0}, ValueError, "temporal"),
        ({"patch_size": 4, "merge_size": 1 << 40}, ValueError, "merge_size"),
        ({"patch_size": 4, "order": "THWC"}, ValueError, "order"),
    ],
)
def test_patchify_rejects_wrong_arguments(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    images = ndd.batch([np.zeros((8, 8, 3), np.uint8), np.zeros((7, 8, 3), np.uint8)], layout="HWC")
    with pytest.raises(error, match=text):
        ndd.patchify(images, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("merge", [1, 2])
@pytest.mark.parametrize("order", ["yx", "xy"])
def test_positions_are_those_of_the_tokens(merge: int, order: str) -> None:
    """An image whose pixels are their own positions."""
    height, width = 4, 6
    rows, columns = np.mgrid[:height, :width]
    image = np.stack([rows, columns] if order == "yx" else [columns, rows], -1).astype(np.int64)
    tokens, grid = ndd.patchify(ndd.batch([image, image[:, :4]], layout="HWC"), patch_size=1, merge_size=merge)
    positions = ndd.patch_positions(grid, merge_size=merge, order=order)  # type: ignore[arg-type]
    for found, expected in zip(positions.tensors, tokens.tensors, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_positions_repeat_for_each_group_of_frames() -> None:
    assert ndd.patch_positions(ndd.tensor([2, 1, 2])).torch().tolist() == [[0, 0], [0, 1]] * 2


@pytest.mark.parametrize("grid", [[[1, -1]], [[1.5, 2.0]], [[1, 2, 3, 4]], [[3, 4]]])
def test_positions_reject_wrong_grids(grid: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="patch_positions"):
        ndd.patch_positions(grid, merge_size=2)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_tiles_are_cut_row_by_row(layout: str) -> None:
    generator = np.random.default_rng(6)
    images = [generator.integers(0, 255, (12, 8, 3), np.uint8), generator.integers(0, 255, (4, 16, 3), np.uint8)]
    order = [layout.index(letter) for letter in "HWC"]
    batch = ndd.batch([image.transpose(np.argsort(order)) for image in images], layout=layout)
    tiles, counts = ndd.tiles(batch, tile=4)
    expected = [image[y : y + 4, x : x + 4] for image in images for y in range(0, image.shape[0], 4) for x in range(0, image.shape[1], 4)]
    assert counts.tolist() == [6, 4]
    assert tiles.layout == layout
    np.testing.assert_array_equal(np.asarray(tiles).transpose(0, *(1 + axis for axis in order)), np.stack(expected))


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_no_images_have_no_tiles_and_positions(layout: str) -> None:
    images = ndd.batch(np.zeros((0, 8, 8, 3) if layout == "HWC" else (0, 3, 8, 8), np.float32), layout=layout)
    tiles, counts = ndd.tiles(images, tile=4)
    assert tiles.torch().shape == ((0, 4, 4, 3) if layout == "HWC" else (0, 3, 4, 4))
    assert (counts.shape, counts.dtype, tiles.dtype) == ((0,), torch.int64, torch.float32)
    _, grid = ndd.patchify(images, patch_size=4)
    for empty in (grid, np.zeros((0, 2), np.int64)):
        positions = ndd.patch_positions(empty)
        assert (positions.batch_size, positions.dtype) == (0, torch.int64)
        assert positions.packed().values.shape == (0, 2)


def test_a_layout_without_height_and_width_is_named_with_the_shapes() -> None:
    with pytest.raises(ValueError, match=r'patchify: The layout "XYC" .* the shape is \[\(4, 4, 3\)\]'):
        ndd.patchify(ndd.batch([np.zeros((4, 4, 3))], layout="XYC"), patch_size=4)
    with pytest.raises(ValueError, match=r'tiles: .* layout "" and shape \[\(4, 4\)\]'):
        ndd.tiles(ndd.batch([np.zeros((4, 4))]), tile=4)


def test_tiles_reject_other_sides() -> None:
    with pytest.raises(RuntimeError, match="sample 1: the width of 9 pixels"):
        ndd.tiles(ndd.batch([np.zeros((8, 8, 3)), np.zeros((8, 9, 3))], layout="HWC"), tile=4)
    with pytest.raises(ValueError, match="FHWC"):
        ndd.tiles(ndd.batch([np.zeros((1, 8, 8, 3))], layout="FHWC"), tile=4)


def test_packed_shares_memory() -> None:
    tokens, _ = ndd.patchify(ndd.batch([np.ones((4, 8, 3)), np.ones((8, 8, 3))], layout="HWC"), patch_size=4)
    packed = tokens.packed()
    assert packed.values.torch().data_ptr() == tokens.tensors[0].torch().data_ptr()
    assert packed.values.shape == (6, 48)
    assert packed.cu_seqlens.torch().tolist() == [0, 2, 6]
    assert packed.cu_seqlens.dtype is torch.int32
    assert packed.max_seqlen == 4
    assert packed.position_ids.torch().tolist() == [0, 1, 0, 1, 2, 3]
    assert packed.sequence_ids.torch().tolist() == [0, 0, 1, 1, 1, 1]


def test_packed_of_dense_and_empty_batches() -> None:
    dense = ndd.batch([[1, 2], [3, 4]]).packed()
    assert dense.values.torch().tolist() == [1, 2, 3, 4]
    assert dense.cu_seqlens.torch().tolist() == [0, 2, 4]
    gap = ndd.batch([np.zeros((0, 2)), np.ones((1, 2)), np.zeros((0, 2))]).packed()
    assert gap.values.shape == (1, 2)
    assert gap.cu_seqlens.torch().tolist() == [0, 0, 1, 1]
    assert gap.sequence_ids.torch().tolist() == [1]


def test_packed_rejects_samples_that_differ_elsewhere() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        ndd.batch([np.zeros((2, 3)), np.zeros((2, 4))]).packed()
    with pytest.raises(ValueError, match="sequences"):
        ndd.batch([1, 2]).packed()


def test_packed_waits_for_pending_samples() -> None:
    images = ndd.batch([np.full((64 * k, 64, 3), k, np.uint8) for k in (1, 2, 3)], layout="HWC")
    tokens, _ = ndd.patchify(ndd.brightness(images, brightness=2.0), patch_size=16)
    values, starts, *_ = tokens.packed()
    for k in range(3):
        part = values.torch()[int(starts.torch()[k]) : int(starts.torch()[k + 1])]
        assert (part == 2 * (k + 1)).all()
    scaled = (tokens.packed().values * 2).torch()
    assert sorted(set(scaled.flatten().tolist())) == [4, 8, 12]


def test_patchify_compiles_with_sizes_of_the_graph() -> None:
    def prepare(images: ndd.Batch) -> torch.Tensor:
        tokens, _ = ndd.patchify(ndd.cast(images, dtype=torch.float32), patch_size=2)
        return tokens.buffer

    images = ndd.batch([np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.arange(24, dtype=np.uint8).reshape(2, 4, 3)], layout="HWC")
    torch.testing.assert_close(torch.compile(prepare, fullgraph=True)(images), prepare(images).clone())
