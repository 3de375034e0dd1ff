# SPDX-License-Identifier: Apache-2.0
"""Operators of images take planes such as masks, ``HW``: the result is that of the image of one channel, without its channel."""

import math

import numpy as np
import pytest
import torch
from _cases import Case
from test_operators import CASES

import torch_ndd as ndd

COLOR_ONLY = {
    "color_twist",
    "experimental.debayer",
    "hsv",
    "hue",
    "jpeg_compression_distortion",
    "old_color_twist",
    "optical_flow",
    "permute_channels",
    "saturation",
}
PER_CHANNEL = ("fill_value", "fill_values", "mean", "std")


def _layout_of(case: Case) -> str | None:
    """Return the layout of planes for a case of images."""
    layout = case.layout or ""
    known = layout.endswith("HWC") and layout in (case.definition.options.layouts or ()) and case.call is None
    return layout[:-1] if known else None


def _results(case: Case, ragged: bool, planes: bool) -> list[ndd.Batch]:
    layout = _layout_of(case) or ""
    inputs = []
    for k, samples in enumerate(case.inputs(ragged)):
        if k == 0 or case.definition.variadic:
            inputs.append(ndd.batch([sample[..., 0] if planes else sample[..., :1] for sample in samples], layout=layout if planes else layout + "C"))
        else:
            inputs.append(ndd.batch(samples))
    arguments = case.arguments()
    arguments |= {key: value[0] for key, value in arguments.items() if key in PER_CHANNEL and isinstance(value, list)}
    if planes and isinstance(arguments.get("output_layout"), str):
        arguments["output_layout"] = arguments["output_layout"].replace("C", "")
    output = case.function(*inputs, **arguments)
    return [value.evaluate() for value in (output if isinstance(output, tuple) else (output,))]


OPERATORS = sorted({case.operator for case in CASES if _layout_of(case)} - COLOR_ONLY)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_planes_equal_images_of_one_channel(operator: str, ragged: bool) -> None:
    compared = 0
    for case in CASES:
        if case.operator != operator or not _layout_of(case) or (ragged and not case.ragged) or compared == 4:
            continue
        try:
            expected = _results(case, ragged, planes=False)
        except (RuntimeError, ValueError):  # arguments for several channels
            continue
        for result, images in zip(_results(case, ragged, planes=True), expected, strict=True):
            layout = images.layout or ""
            axis = layout.find("C")
            has_channel = axis >= 0 and all(shape[axis] == 1 for shape in images.shape)
            assert result.layout == (layout.replace("C", "") if has_channel else images.layout), case.id
            for sample, image in zip(result, images, strict=True):
                array = np.asarray(image)
                np.testing.assert_array_equal(np.asarray(sample), array.squeeze(axis) if has_channel else array, err_msg=case.id)
        compared += 1
    assert compared or (ragged and not any(case.ragged for case in CASES if case.operator == operator)), "no case fits one channel"


def _mask(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.int32).reshape(shape)


def test_layout_is_kept_or_guessed_from_two_dimensions() -> None:
    mask = _mask(3, 4)
    for value in (mask, ndd.as_tensor(mask), ndd.as_tensor(mask, layout="HW")):
        output = ndd.flip(value)
        assert output.layout == "HW"
        assert torch.equal(output.torch(), mask.flip(1))
    ragged = ndd.flip(ndd.batch([mask, mask[:2]]), vertical=ndd.batch([1, 0]))
    assert ragged.layout == "HW"
    assert [sample.torch().tolist() for sample in ragged] == [mask.flip(0, 1).tolist(), mask[:2].flip(1).tolist()]


def test_masks_with_frames_are_sequences() -> None:
    masks = ndd.batch([_mask(2, 3, 4), _mask(1, 3, 4)], layout="FHW")
    output = ndd.flip(masks, horizontal=ndd.per_frame(ndd.batch([[1, 0], [1]])))
    assert output.layout == "FHW"
    assert torch.equal(next(iter(output)).torch()[0], _mask(2, 3, 4)[0].flip(1))
    assert torch.equal(next(iter(output)).torch()[1], _mask(2, 3, 4)[1])


def test_pending_masks_and_chains() -> None:
    masks = ndd.batch([_mask(5, 7), _mask(6, 4)], layout="HW")
    with ndd.EvalMode.deferred:
        output = ndd.crop(ndd.flip(masks), crop=[2, 3], crop_pos_x=0, crop_pos_y=0)
    assert [sample.torch().tolist() for sample in output] == [value.flip(1)[:2, :3].tolist() for value in (_mask(5, 7), _mask(6, 4))]


def test_output_layout_of_planes() -> None:
    mask = ndd.as_tensor(_mask(3, 4).float(), layout="HW")
    shapes = {None: ((3, 4), "HW"), "CHW": ((1, 3, 4), "CHW"), "HWC": ((3, 4, 1), "HWC"), "WH": ((4, 3), "WH")}
    for wanted, (shape, layout) in shapes.items():
        output = ndd.crop_mirror_normalize(mask, output_layout=wanted)
        assert (output.shape, output.layout) == (shape, layout)


def test_results_with_more_channels_are_images() -> None:
    output = ndd.color_space_conversion(ndd.as_tensor(torch.ones(3, 4, dtype=torch.uint8)), image_type=ndd.types.GRAY, output_type=ndd.types.RGB)
    assert (output.shape, output.layout) == ((3, 4, 3), "HWC")


def test_color_operators_reject_planes() -> None:
    with pytest.raises(RuntimeError, match="3 channels, got 1"):
        ndd.hue(ndd.as_tensor(torch.ones(3, 4)), hue=20.0)


@pytest.mark.slow
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_compiled_planes_equal_eager_ones(ragged: bool) -> None:
    masks = ndd.batch([_mask(8, 9), _mask(5, 9) if ragged else _mask(8, 9)], layout="HW")

    def chain(masks: ndd.Batch) -> ndd.Batch:
        return ndd.resize(ndd.rotate(ndd.flip(masks), angle=20.0, fill_value=0, interp_type=ndd.types.INTERP_NN), size=[4, 6])

    output = torch.compile(chain, fullgraph=True, backend="aot_eager")(masks)
    expected = chain(masks)
    assert output.layout == expected.layout == "HW"
    assert all(torch.equal(a.torch(), b.torch()) for a, b in zip(output, expected, strict=True))
