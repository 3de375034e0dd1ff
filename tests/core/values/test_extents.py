# SPDX-License-Identifier: Apache-2.0
"""What a ragged batch knows its samples to share: in eager mode, and as constants in graphs without repeated compilation."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree

import torch_ndd as ndd
from torch_ndd import Batch
from torch_ndd._core.values import extents

pytestmark = pytest.mark.usefixtures("new_compiler")
SIZES = ((8, 9), (10, 13), (6, 9))


def images(*sizes: tuple[int, int], channels: int = 3, layout: str | None = "HWC", seed: int = 0) -> Batch:
    generator = np.random.default_rng(seed)
    shapes = [(channels, *size) if layout == "CHW" else (*size, channels) for size in sizes or SIZES]
    return ndd.batch([generator.integers(0, 256, shape).astype(np.uint8) for shape in shapes], layout=layout)


def lasting_extents(batch: Batch) -> tuple[int | None, ...]:
    """Check what is known without reading the shapes."""
    assert batch.ragged_shapes is not None
    assert batch.shared_extents is not None
    for axis, extent in enumerate(batch.shared_extents):
        assert extent is None or {shape[axis] for shape in batch.shape} == {extent}
        assert extent is None or batch.shared_extent(axis) == extent
    return batch.shared_extents


MADE: dict[str, tuple[Callable[[Batch], Any], tuple[int | None, ...]]] = {
    "batch": (lambda x: x, (None, None, 3)),
    "with a layout later": (lambda x: ndd.as_batch(ndd.batch([np.zeros((n, n, 5)) for n in (1, 2)]), layout="HWC"), (None, None, 5)),
    "without a layout": (lambda x: images(layout=None), (None, None, 3)),
    "maps without a layout": (lambda x: ndd.per_frame(ndd.batch([np.zeros((n, 2, 3)) for n in (1, 2)])), (None, 2, 3)),
    "planes": (lambda x: images(layout="CHW"), (3, None, None)),
    "copy": (copy.copy, (None, None, 3)),
    "deep copy": (copy.deepcopy, (None, None, 3)),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), (None, None, 3)),
    "pytree": (lambda x: pytree.tree_map(lambda value: value.clone(), x), (None, None, 3)),
    "another type": (lambda x: ndd.as_batch(x, dtype=torch.float32), (None, None, 3)),
    "some samples": (lambda x: x.select([2, 1]), (None, None, 3)),
    "samples from here to there": (lambda x: x.select(slice(0, 2)), (None, None, 3)),
    "list of samples": (lambda x: ndd.as_batch(list(x)), (None, None, 3)),
    "part": (lambda x: x.slice[:, 1:, 0:2], (None, None, 2)),
    "plane": (lambda x: x.slice[..., 0], (None, None)),
    "reversed": (lambda x: x.slice[:, :, ::-2], (None, None, 2)),
    "one like it": (lambda x: ndd.brightness(x, brightness=1.5), (None, None, 3)),
    "one number": (lambda x: x * 2, (None, None, 3)),
    "a number a channel": (lambda x: x + np.float32([1, 2, 3]), (None, None, 3)),
    "channels of one": (lambda x: images(channels=1) + np.float32([1, 2, 3]), (None, None, 3)),
    "two of them": (lambda x: x + x, (None, None, 3)),
    "one width": (lambda x: ndd.resize(x, resize_x=20), (None, 20, 3)),
    "one height": (lambda x: ndd.resize(x, resize_y=20), (20, None, 3)),
    "fitted": (lambda x: ndd.resize(x, size=[20, 20], mode="not_larger"), (None, None, 3)),
    "rotated": (lambda x: ndd.rotate(x, angle=30.0), (None, None, 3)),
    "transposed": (lambda x: ndd.transpose(ndd.resize(x, resize_x=20), perm=[2, 0, 1]), (3, None, 20)),
    "one more axis": (lambda x: ndd.expand_dims(x, axes=[0]), (1, None, None, 3)),
    "reshaped": (lambda x: ndd.reshape(x, shape=[-1, 3]), (None, 3)),
    "gray": (lambda x: ndd.color_space_conversion(x, image_type=ndd.types.RGB, output_type=ndd.types.GRAY), (None, None, 1)),
    "normalized planes": (lambda x: ndd.crop_mirror_normalize(x, pad_output=True), (4, None, None)),
    "a window of one height": (lambda x: ndd.crop(x, crop=[4, 0]), (4, None, 3)),
    "stacked": (lambda x: ndd.stack(x, x), (2, None, None, 3)),
    "joined": (lambda x: ndd.cat(x, x, axis=1), (None, None, 3)),
    "a mean a row": (lambda x: ndd.reductions.mean(x, axes=1, keep_dims=True), (None, 1, 3)),
    "frames": (lambda x: ndd.element_extract(ndd.stack(x, x), element_map=[1]), (None, None, 3)),
    "permuted": (lambda x: ndd.permute_batch(x, indices=[2, 0, 1]), (None, None, 3)),
}


@pytest.mark.parametrize("kind", MADE)
def test_batch_knows_its_lasting_extents(kind: str) -> None:
    function, expected = MADE[kind]
    assert lasting_extents(function(images())) == expected


def test_accidentally_equal_extents_are_found_but_not_kept() -> None:
    batch = images((8, 9), (10, 9))
    assert lasting_extents(batch) == (None, None, 3)
    assert [batch.shared_extent(axis) for axis in (0, 1, -1)] == [None, 9, 3]
    assert lasting_extents(ndd.flip(batch)) == (None, None, 3)
    dense = images((8, 9), (8, 9))
    assert dense.shared_extents is None
    assert [dense.shared_extent(axis) for axis in (0, -1)] == [8, 3]
    assert images().select([]).shared_extent(0) is None


@pytest.mark.parametrize(
    ("shapes", "layout", "expected"),
    [
        ([(2, 5, 3), (4, 5, 3)], None, (None, None, 3)),
        ([(2, 5), (3, 5)], None, (None, None)),  # more than channels or coordinates: maybe a width
        ([(4,), (4,)], None, (None,)),
        ([(2, 7, 9), (2, 7, 8)], "CHW", (2, None, None)),
        ([(3, 7, 9), (1, 7, 8)], "CHW", (None, None, None)),
        ([(3, 3), (2, 3)], "HW", (None, None)),
        ([], None, ()),
    ],
)
def test_find_lasting_extents(shapes: list[tuple[int, ...]], layout: str | None, expected: tuple[int | None, ...]) -> None:
    assert extents.find_lasting_extents(shapes, layout) == expected


def test_extents_in_a_pickle_are_checked() -> None:
    """A size that is not that of the samples would make operators write out of bounds."""
    state = images().__getstate__() | {"fixed": (7, None, 3)}
    output = Batch.__new__(Batch)
    output.__setstate__(state)
    assert lasting_extents(output) == (None, None, 3)


def test_extents_survive_a_treespec_in_json() -> None:
    _, spec = pytree.tree_flatten({"images": images(), "dense": images((8, 9), (8, 9))})
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_decoders_know_the_channels() -> None:
    from core.operators.test_compile import files

    encoded = files(3)
    for output_type, channels in ((ndd.types.RGB, 3), (ndd.types.GRAY, 1), (ndd.types.YCbCr, 3), (ndd.types.ANY_DATA, None)):
        assert lasting_extents(ndd.decoders.image(encoded, output_type=output_type)) == (None, None, channels)
    assert lasting_extents(ndd.decoders.image_crop(encoded, crop=[40, 0])) == (40, None, 3)


def chain(x: Batch) -> Batch:
    return ndd.normalize(ndd.color_twist(ndd.resize(ndd.flip(x), resize_x=20), hue=30.0), mean=9.0, stddev=2.0)


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def equal(ours: Batch, theirs: Batch, tolerance: float = 0.0) -> None:
    assert ours.shape == theirs.shape
    for sample, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(sample), np.asarray(other), rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["batch", "without a layout", "resized"])
def test_graph_is_not_recompiled_for_heights_that_happen_to_be_equal(kind: str) -> None:
    """Two graphs, the second one for any shapes."""

    def make_input(k: int) -> Batch:
        sizes = ((20, 30), (20, 40)), ((20, 31), (25, 31), (9, 31)), ((21, 33), (25, 34)), ((9, 9), (9, 8), (8, 9)), ((50, 40), (50, 30), (7, 30))
        x = images(*sizes[k], layout=None if kind == "without a layout" else "HWC", seed=k)
        return ndd.resize(x, resize_x=24 + 2 * k) if kind == "resized" else x

    run = torch.compile(chain, fullgraph=True, backend="aot_eager")
    for k in range(5):
        batch = make_input(k)
        equal(run(batch), chain(batch), 1e-4)
    assert graphs() <= 2


def test_graph_is_recompiled_for_other_channels() -> None:
    run = torch.compile(lambda x: ndd.resize(x, size=[7, 7]), fullgraph=True, backend="aot_eager")
    for channels in (3, 1, 3, 4, 2, 1):
        batch = images(channels=channels)
        equal(run(batch), ndd.resize(batch, size=[7, 7]))
    assert graphs() <= 3


def test_graph_rejects_a_wrong_number_of_channels() -> None:
    """With the operator's own message if it is known at trace time, and at run time otherwise."""
    run = torch.compile(lambda x: ndd.hsv(ndd.resize(x, size=[7, 7]), hue=9.0), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="hsv: the image must have 3 channels, got 1"):
        run(images(channels=1))
    unknown = images()
    unknown.shared_extents = None
    equal(run(unknown), ndd.hsv(ndd.resize(unknown, size=[7, 7]), hue=9.0), 1.0)
    unknown = images(channels=4)
    unknown.shared_extents = None
    with pytest.raises(RuntimeError):
        run(unknown).evaluate()


def test_extents_cross_the_boundary_of_a_graph() -> None:
    resized = torch.compile(lambda x: ndd.resize(x, resize_x=20), fullgraph=True, backend="aot_eager")(images())
    assert lasting_extents(resized) == (None, 20, 3)
    output = torch.compile(lambda x: ndd.transpose(x, perm=[2, 1, 0]), fullgraph=True, backend="aot_eager")(resized)
    assert lasting_extents(output) == (3, 20, None)
    equal(output, ndd.transpose(ndd.resize(images(), resize_x=20), perm=[2, 1, 0]))


@pytest.mark.slow
@pytest.mark.parametrize("before", ["crop", "rotate", "random_resized_crop", "resize_crop_mirror", "one size", "one width"])
def test_colors_after_a_resize(before: str) -> None:
    first: Callable[[Batch], Batch] = {
        "crop": lambda x: ndd.crop(x, crop=[5, 6]),
        "rotate": lambda x: ndd.rotate(x, angle=30.0),
        "random_resized_crop": lambda x: ndd.random_resized_crop(x, size=[6, 5]),
        "resize_crop_mirror": lambda x: ndd.resize_crop_mirror(x, size=[10, 12], crop=[4, 5]),
        "one size": lambda x: ndd.resize(x, size=[10, 12]),
        "one width": lambda x: ndd.resize(x, resize_x=12),
    }[before]

    def colors(x: Batch) -> tuple[Batch, ...]:
        y = first(x)
        return (
            ndd.color_twist(y, hue=20.0),
            ndd.hsv(y, saturation=0.5),
            ndd.hue(y, hue=9.0),
            ndd.saturation(y, saturation=0.5),
            ndd.color_space_conversion(y, image_type=ndd.types.RGB, output_type=ndd.types.YCbCr),
            ndd.normalize(y, mean=9.0, stddev=20.0),
            ndd.paste(y, fill_value=[1, 2, 3], ratio=1.5),
            ndd.jpeg_compression_distortion(y, quality=50),
        )

    run = torch.compile(colors, fullgraph=True, backend="inductor" if before == "one width" else "aot_eager")
    ndd.random.set_seed(1)
    process = run(images())
    ndd.random.set_seed(1)
    for ours, theirs in zip(process, colors(images()), strict=True):
        equal(ours, theirs, 0.02 if ours.dtype.is_floating_point else 0.0)


def test_error_names_differing_batch_sizes() -> None:
    mixed = ndd.batch([np.zeros((4, 5, c), np.uint8) for c in (3, 1)], layout="HWC")
    assert lasting_extents(mixed) == (None, None, None)
    with pytest.raises(RuntimeError, match="hsv: sample 1: the image must have 3 channels, got 1"):
        ndd.hsv(mixed, hue=3.0)
