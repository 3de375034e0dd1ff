# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _cases import Case, Each, Samples, arrays, images

import torch_ndd as ndd


def erase_reference(
    image: np.ndarray,
    anchor: list[float],
    shape: list[float],
    fill_value: object = 0.0,
    axes: tuple[int, ...] = (0, 1),
    channel: int = -1,
    scale: bool = False,
    centered: bool = False,
) -> np.ndarray:
    """The reference: boxes in sequence, pixel by pixel: a position is inside if trunc(begin) <= position < trunc(end)."""
    image = image.copy()
    for k in range(0, len(anchor), len(axes)):
        inside = np.ones(image.shape, bool)
        for j, axis in enumerate(axes):
            length = np.float32(image.shape[axis] if scale else 1)
            size, begin = np.float32(shape[k + j]) * length, np.float32(anchor[k + j]) * length
            begin = begin - size / 2 if centered else begin
            places = np.arange(image.shape[axis])
            here = (places >= np.trunc(begin)) & (places < np.trunc(begin + size))
            inside &= here.reshape([-1 if d == axis else 1 for d in range(image.ndim)])
        fill = np.atleast_1d(np.asarray(fill_value, float))
        fill = fill.reshape([-1 if d == channel else 1 for d in range(image.ndim)]) if fill.size > 1 else fill
        image = np.where(inside, fill, image).astype(image.dtype)
    return image


def mask_reference(image: np.ndarray, tile: int, ratio: float, angle: float, shift_x: float, shift_y: float, rows: int = 0) -> np.ndarray:
    f = np.float32
    y, x = np.mgrid[: image.shape[rows], : image.shape[rows + 1]].astype(f)
    c, s, size = f(np.cos(f(angle))) / f(tile), f(np.sin(f(angle))) / f(tile), f(tile)
    u, v = c * x + (-s * y - f(shift_x) / size), s * x + (c * y - f(shift_y) / size)
    kept = (u - np.floor(u) >= f(ratio)) | (v - np.floor(v) >= f(ratio))
    return image * kept.reshape([n if rows <= d < rows + 2 else 1 for d, n in enumerate(image.shape)])


def on_canvas(image: np.ndarray, fill_value: object, ratio: float, paste_x: float, paste_y: float, min_canvas_size: float = 0) -> np.ndarray:
    f = np.float32
    height, width = (int(max(f(ratio) * f(n), f(min_canvas_size))) for n in image.shape[:2])
    canvas = np.empty((height, width, image.shape[2]), image.dtype)
    canvas[:] = fill_value
    top, left = int(f(paste_y) * f(height - image.shape[0])), int(f(paste_x) * f(width - image.shape[1]))
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def several(*sizes: tuple[int, int], dtype: str = "uint8", frames: int = 0):
    def make(ragged: bool) -> tuple[Samples, ...]:
        generator = np.random.default_rng(3)
        outputs = []
        for height, width in sizes:
            shapes = [(*((frames,) if frames else ()), height + 2 * i * ragged, width + i * ragged, 3) for i in range(3)]
            outputs.append([generator.integers(0, 200, shape).astype(dtype) for shape in shapes])
        return tuple(outputs)

    return make


def paste_reference(
    *images: np.ndarray, output_size: list[int], regions: list[tuple[tuple[int, int], tuple[int, int] | None, tuple[int, int]]], **_: object
):
    """Regions are (from, size, to) for each input; None for everything that remains."""
    canvas = np.zeros((*images[0].shape[:-3], *output_size, 3), images[0].dtype)
    for image, (begin, size, to) in zip(images, regions, strict=True):
        rows, columns = size or (image.shape[-3] - begin[0], image.shape[-2] - begin[1])
        part = image[..., begin[0] : begin[0] + rows, begin[1] : begin[1] + columns, :]
        canvas[..., to[0] : to[0] + rows, to[1] : to[1] + columns, :] = part
    return canvas


BOXES = {
    "anchor": Each([[0.1, 0.2, 0.5, 0.5], [0.0, 0.9, -0.3, 0.2], [2.0, 0.0, 0.3, 0.3]]),
    "shape": Each([[0.2, 0.3, 0.3, 0.1], [1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 0.4, 0.4]]),
}
MOSAIC = {
    "in_anchors": Each([[[0, 0], [2, 1]], [[1, 1], [0, 0]], [[3, 0], [0, 2]]]),
    "shapes": Each([[[3, 4], [5, 5]], [[1, 1], [6, 7]], [[2, 2], [0, 3]]]),
    "out_anchors": Each([[[0, 0], [1, 2]], [[9, 9], [2, 2]], [[4, 5], [4, 5]]]),
}
CASES = [
    Case(
        "erase",
        "boxes",
        images("HWC"),
        {**BOXES, "normalized": True, "fill_value": Each([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])},
        layout="HWC",
        reference=lambda image, anchor, shape, fill_value, **_: erase_reference(image, anchor, shape, fill_value, channel=2, scale=True),
    ),
    Case(
        "erase",
        "planes",
        images("CHW", "float32"),
        {"anchor": [3.5, 2.5], "shape": [4.5, 30], "centered_anchor": True, "axis_names": "WH", "fill_value": 0.5},
        layout="CHW",
        reference=lambda image, anchor, shape, **_: erase_reference(image, anchor, shape, 0.5, (2, 1), centered=True),
    ),
    *(
        Case(  # each row has the fill of its channel
            "erase",
            f"planes of colors, {dtype}",
            images("CHW", dtype),
            {**BOXES, "axis_names": "HW", "normalized": True, "fill_value": Each([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [7.0, 8.0, 9.0]])},
            layout="CHW",
            reference=lambda image, anchor, shape, fill_value, **_: erase_reference(image, anchor, shape, fill_value, (1, 2), channel=0, scale=True),
        )
        for dtype in ("uint8", "float32")
    ),
    Case(  # rows longer than what a warp takes at a time
        "erase",
        "long rows",
        images("HWC", H=3, W=1500),
        {"anchor": [1, 10, 0, 1360], "shape": [1, 1400, 3, 77], "axes": [0, 1], "fill_value": [1.0, 2.0, 3.0]},
        layout="HWC",
        reference=lambda image, anchor, shape, fill_value, **_: erase_reference(image, anchor, shape, fill_value, channel=2),
    ),
    Case(  # more layers than a row of the CUDA kernel may have
        "erase",
        "many",
        arrays((50, 21), "int16"),
        {"anchor": [float(k) for k in range(40)], "shape": [2.0] * 40, "axes": [1], "fill_value": -1},
        reference=lambda image, anchor, shape, **_: erase_reference(image, anchor, shape, -1, (1,)),
    ),
    Case(
        "erase",
        "rows",
        arrays((9, 5), "int64"),
        {"anchor": [2, 7], "shape": [3, 100], "axes": [0], "fill_value": -1},
        reference=lambda image, anchor, shape, **_: erase_reference(image, anchor, shape, -1, (0,)),
    ),
    *(
        Case(
            "grid_mask",
            f"{layout} {dtype}",
            images(layout, dtype, low=1, high=100),
            {
                "tile": Each([4, 7, 10]),
                "ratio": Each([0.5, 0.3, 0.7]),
                "angle": Each([0.0, 0.4, -2.0]),
                "shift_x": Each([0.0, 1.5, -3.0]),
                "shift_y": Each([2.0, 0.25, 100.0]),
            },
            layout=layout,
            reference=lambda image, layout=layout, **args: mask_reference(image, **args, rows=layout.index("H")),
        )
        for layout, dtype in (("HWC", "uint8"), ("HW", "uint8"), ("CHW", "float32"), ("FHWC", "int16"), ("HWC", "float64"))
    ),
    Case(
        "paste",
        "canvases",
        images("HWC"),
        {
            "ratio": Each([1.5, 2.0, 1.0]),
            "paste_x": Each([0.0, 0.3, 1.0]),
            "paste_y": Each([1.0, 0.7, 0.5]),
            "min_canvas_size": Each([0.0, 50.0, 30.5]),
            "fill_value": [1, 2, 3],
        },
        layout="HWC",
        reference=lambda image, **args: on_canvas(image, **args),
    ),
    Case(
        "paste",
        "two channels",
        images("HWC", "float32", C=2),
        {"ratio": 1.3, "fill_value": [0.5, 1.5], "n_channels": 2},
        layout="HWC",
        reference=lambda image, ratio, **_: on_canvas(image, [0.5, 1.5], ratio, 0.5, 0.5),
    ),
    Case(
        "multi_paste",
        "regions",
        several((9, 10), (7, 8)),
        {**MOSAIC, "output_size": Each([[12, 13], [10, 11], [9, 20]])},
        layout="HWC",
        reference=lambda *inputs, in_anchors, shapes, out_anchors, output_size: paste_reference(
            *inputs, output_size=output_size, regions=list(zip(in_anchors, shapes, out_anchors, strict=True))
        ),
    ),
    Case(
        "multi_paste",
        "relative",
        several((10, 20), (10, 20), dtype="float32"),
        {
            "in_anchors_rel": Each([[[0.5, 0.25], [0.0, 0.0]]] * 3),
            "shapes_rel": Each([[[0.5, 0.25], [0.1, 0.6]]] * 3),
            "out_anchors_rel": Each([[[0.0, 0.5], [0.25, 0.0]]] * 3),
            "output_size": [20, 30],
        },
        layout="HWC",
        ragged=False,
        reference=lambda *inputs, output_size, **_: paste_reference(
            *inputs, output_size=output_size, regions=[((5, 5), (5, 5), (0, 15)), ((0, 0), (1, 12), (5, 0))]
        ),
    ),
    Case(
        "multi_paste",
        "ids",
        lambda ragged: ([several((9, 10))(ragged)[0][0]] * 3,),
        {"in_ids": Each([[0, 0]] * 3), "out_anchors": Each([[[0, 0], [2, 2]], [[1, 1], [3, 0]], [[2, 0], [0, 2]]]), "output_size": [13, 14]},
        layout="HWC",
        ragged=False,
        reference=lambda image, out_anchors, output_size, **_: paste_reference(
            image, image, output_size=output_size, regions=[((0, 0), None, to) for to in out_anchors]
        ),
    ),
    Case(
        "multi_paste",
        "frames",
        several((9, 10), (7, 8), dtype="int16", frames=3),
        {"out_anchors": [[0, 0], [5, 6]], "output_size": [20, 30], "dtype": ndd.float32},
        layout="FHWC",
        reference=lambda *inputs, output_size, **_: paste_reference(
            *inputs, output_size=output_size, regions=[((0, 0), None, (0, 0)), ((0, 0), None, (5, 6))]
        ).astype(np.float32),
    ),
]

IMAGES = [np.full((4, 5, 1), k + 1, np.uint8) for k in range(3)]


def test_samples_of_a_batch_are_mixed() -> None:
    batch = ndd.batch(IMAGES, layout="HWC")
    ids, anchors = [[1, 2], [0, 0], [2, 1]], [[0, 0], [1, 1]]
    with ndd.EvalMode.deferred:  # a sample waits for all of its sources
        out = ndd.multi_paste(batch + np.uint8(0), in_ids=ndd.batch(ids), out_anchors=anchors, output_size=[5, 6])
    for (under, over), sample in zip(ids, out, strict=True):
        expected = np.zeros((5, 6, 1), np.uint8)
        expected[:4, :5], expected[1:, 1:] = under + 1, over + 1
        assert np.array_equal(np.asarray(sample), expected)


def test_samples_may_have_different_numbers_of_regions() -> None:
    batch = ndd.batch(IMAGES, layout="HWC")
    ids = ndd.batch([np.array([0, 1]), np.array([2]), np.array([], int)])
    out = ndd.multi_paste(batch, in_ids=ids)
    assert [int(np.asarray(sample).max()) for sample in out] == [2, 3, 0]
    boxes = ndd.batch([np.float32([0, 0]), np.float32([0, 0, 3, 3]), np.float32([])])
    erased_ = ndd.erase(batch, anchor=boxes, shape=ndd.batch([np.float32([4, 5]), np.float32([1, 1, 1, 1]), np.float32([])]))
    assert [int((np.asarray(value) == 0).sum()) for value in erased_] == [20, 2, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output_size": [3, 9]}, "sample 0, region 0: must lie within the output, but along axis 0 it goes from 0 to 4 of 3"),
        ({"in_anchors": [[0, 2]], "shapes": [[1, 9]]}, "sample 0, region 0: must lie within its input, but along axis 1 it goes from 2 to 11 of 5"),
        ({"shapes_rel": [[1.5, 1]]}, "'shapes_rel' must be in the range from 0 to 1"),
        ({"in_ids": [3]}, "in_ids must be in the range from 0 to 2, got 3"),
        ({"out_anchors": [[0, 0], [0, 0]]}, "'out_anchors' must have 2 numbers, for height and width, for each of the 1 pasted regions, got 4"),
    ],
)
def test_errors_of_regions(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeError) as error:
        ndd.multi_paste(ndd.batch(IMAGES, layout="HWC"), **arguments).evaluate()
    assert message in str(error.value)


def test_a_region_far_outside_does_not_wrap_around() -> None:
    far = torch.tensor([[[5 * 10**18, 0]]])
    with pytest.raises(RuntimeError, match="'in_anchors' must be a number of pixels, got 5000000000000000000"):
        ndd.multi_paste(ndd.batch(IMAGES[:1], layout="HWC"), in_anchors=far, shapes=far).evaluate()


def test_errors_at_the_call() -> None:
    image = ndd.tensor(IMAGES[0], layout="HWC")
    with pytest.raises(RuntimeError, match="erase: anchor has 3 numbers and shape 3; both must have 2 for each box"):
        ndd.erase(image, anchor=[1, 1, 1], shape=[1, 1, 1])
    with pytest.raises(RuntimeError, match=r"paste: a ratio of less than 1 is not supported, got 0\.5"):
        ndd.paste(image, ratio=0.5, fill_value=0)
    with pytest.raises(RuntimeError, match="multi_paste: all inputs must have the same type"):
        ndd.multi_paste(image, np.zeros((2, 2, 1), np.float32))
    with pytest.raises(RuntimeError) as error:
        ndd.grid_mask(image, tile=0).evaluate()
    assert "grid_mask: sample 0: Tile argument must be positive, got 0" in str(error.value)


def test_boxes_without_numbers_or_at_infinity() -> None:
    image = ndd.tensor(IMAGES[0], layout="HWC")
    nan, inf = float("nan"), float("inf")
    for anchor, shape in (([nan, 0], [1, 1]), ([0, 0], [nan, 1]), ([-inf, 0], [1, 1]), ([inf, 0], [1, 1]), ([-inf, 0], [inf, 1])):
        assert np.array_equal(np.asarray(ndd.erase(image, anchor=anchor, shape=shape)), IMAGES[0])
    assert not np.asarray(ndd.erase(image, anchor=[-5, -5], shape=[inf, inf])).any()
