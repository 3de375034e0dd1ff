# SPDX-License-Identifier: Apache-2.0
"""The kernel that applies all steps of uint8 images equals the operators that apply them one after the other, bit by bit."""

import functools
import sys
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import augment, types
from torch_ndd.augment import Augmentation, _apply, _spaces
from torch_ndd.augment._augmentations import EncodedValues, find_timm_augmentation, in_space
from torch_ndd.dali.auto_aug import _operations

SPACES = {
    "rand": augment.RAND_AUGMENT,
    "trivial": augment.TRIVIAL_AUGMENT_WIDE,
    "image_net": in_space(_spaces.IMAGE_NET),
    "timm": tuple(find_timm_augmentation(name) for name in _spaces.TIMM_INCREASING),
    "timm, decreasing": tuple(find_timm_augmentation(name) for name in (*_spaces.TIMM_DECREASING, "Desaturate")),
}
VALUES = {(space, value.name): value for space, values in SPACES.items() for value in values}
INTERPOLATIONS = (types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC)


def images(layout: str, channels: int, ragged: bool, count: int = 6) -> ndd.Batch:
    generator = torch.Generator().manual_seed(channels)
    sizes = [(24, 41), (37, 20), (1, 9), (3, 3), (2, 50), (64, 33)] if ragged else [(37, 45)]
    samples = []
    for i in range(count):
        size = (*sizes[i % len(sizes)], channels)
        sample = torch.randint(0, 256, (2, *size) if layout == "FHWC" else size, dtype=torch.uint8, generator=generator)
        samples.append(sample // (1 + i % 3) + 20 * (i % 3))  # of several ranges
    return ndd.batch(samples, layout=layout)


def skip_on_emulator(condition: bool) -> None:
    """Skip what a GPU does not do: kernels of the emulator see tensors of the CPU."""
    if condition and "emulated_plugin" in sys.modules:
        pytest.skip("on a GPU these are operators")


def change(batch: ndd.Batch, steps: Any, fill: Any = 128.0, interpolation: types.DALIInterpType = types.INTERP_LINEAR) -> ndd.Batch:
    return _apply.apply_steps("op", batch, steps, None, None, fill, 0.0, interpolation)[0]


def assert_equals_operators(monkeypatch: pytest.MonkeyPatch, apply: Any, uses_kernel: bool = True) -> None:
    calls = []
    with monkeypatch.context() as patch:
        kernel = _apply.with_steps
        patch.setattr(_apply, "with_steps", lambda *arguments: (calls.append(1), kernel(*arguments))[1])
        output = apply()
    assert bool(calls) == uses_kernel
    with monkeypatch.context() as patch:
        patch.setattr(_apply, "takes", lambda *arguments: False)
        expected = apply()
    assert (output.shape, output.layout, output.dtype) == (expected.shape, expected.layout, expected.dtype)
    for i, (sample, other) in enumerate(zip(output.cpu(), expected.cpu(), strict=True)):
        np.testing.assert_array_equal(sample.torch().numpy(), other.torch().numpy(), err_msg=f"sample {i}")


shapes = pytest.mark.parametrize(
    ("layout", "channels", "ragged"), [("HWC", 3, True), ("HWC", 3, False), ("FHWC", 3, True), ("HWC", 1, True), ("HWC", 4, True)]
)


def cover_range(value: Augmentation, count: int) -> list[list[_apply.Step]]:
    return [[(value, value.at(position, position))] for position in torch.linspace(0, 1, count).tolist()]


@pytest.mark.parametrize("value", [pytest.param(value, id="-".join(key)) for key, value in VALUES.items() if value.matrix is None])
@shapes
def test_step_equals_its_operator(
    value: Augmentation, layout: str, channels: int, ragged: bool, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    batch = images(layout, channels, ragged).to_device(device)
    assert_equals_operators(monkeypatch, functools.partial(change, batch, cover_range(value, batch.batch_size)))


@pytest.mark.parametrize("value", [pytest.param(value, id="-".join(key)) for key, value in VALUES.items() if value.matrix is not None])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@shapes
def test_warp_equals_its_operator(
    value: Augmentation,
    interpolation: types.DALIInterpType,
    layout: str,
    channels: int,
    ragged: bool,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
) -> None:
    skip_on_emulator(interpolation == types.INTERP_CUBIC)
    batch = images(layout, channels, ragged).to_device(device)
    steps = cover_range(value, batch.batch_size)
    for fill in (128.0, None, [float(k + 3) for k in range(channels)]):
        uses_kernel = device == "cpu" or interpolation != types.INTERP_CUBIC
        assert_equals_operators(monkeypatch, functools.partial(change, batch, steps, fill, interpolation), uses_kernel)


@pytest.mark.parametrize("name", _operations.KERNELS)
def test_step_of_dali_equals_its_operator(name: str, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    skip_on_emulator(name == "sharpness")
    batch, value = images("HWC", 3, True).to_device(device), _operations.KERNELS[name]
    positions = np.linspace(0.1, 1.0, batch.batch_size)
    parameters: list[Any] = (255 * positions).tolist() if name.startswith("solarize") else positions.tolist()
    if name in ("shear", "translate"):
        parameters = [np.array([0.2 * position, 3.0]) for position in positions]
    elif name == "sharpness":
        parameters = [np.float32(np.full((3, 3), (1 - 2 * position) / 9) + np.diag([0, 2 * position, 0])) for position in positions]
    elif name == "posterize":
        parameters = [np.uint8(0xFF00 >> k & 0xFF) for k in range(batch.batch_size)]
    steps = [[(value, parameter)] for parameter in parameters]
    uses_kernel = device == "cpu" or name != "sharpness"  # on a GPU a filter is an operator
    assert_equals_operators(monkeypatch, functools.partial(change, batch, steps), uses_kernel)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
def test_steps_in_sequence_equal_their_operators(n: int, ragged: bool, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    batch = images("HWC", 3, ragged, 24).to_device(device)
    assert_equals_operators(monkeypatch, lambda: augment.rand_augment(batch, n=n, probability=0.8, rng=ndd.random.RNG(n)))


@pytest.mark.parametrize("policy", _spaces.POLICIES)
def test_steps_of_several_lengths_equal_their_operators(policy: Any, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    batch = images("FHWC", 3, True).to_device(device)
    assert_equals_operators(monkeypatch, lambda: augment.auto_augment(batch, policy=policy, rng=ndd.random.RNG(3)))


def test_kernel_keeps_its_input(device: str) -> None:
    batch = images("HWC", 3, True).to_device(device)
    before = [sample.torch().clone() for sample in batch]
    output = augment.rand_augment(batch, n=0)
    assert output.buffer.data_ptr() != batch.buffer.data_ptr()
    augment.rand_augment(batch, n=3).evaluate()
    assert all(torch.equal(sample.torch(), old) for sample, old in zip(batch, before, strict=True))


def test_steps_without_an_encoding_are_operators(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    batch = images("HWC", 3, True).to_device(device)
    inverted = Augmentation("inverted", values=lambda images, _: ndd.invert(images))
    known = augment.RAND_AUGMENT
    choices = [inverted, *known]
    assert_equals_operators(monkeypatch, lambda: augment.rand_augment(batch, augmentations=choices, rng=ndd.random.RNG(1)), uses_kernel=False)
    sharpness = next(value for value in known if value.name == "sharpness")
    assert isinstance(sharpness.values, EncodedValues)
    negative = Augmentation("negative", (-1.0, -1.0), values=sharpness.values)
    with pytest.raises(ValueError, match="sharpness must not be negative"):
        augment.rand_augment(batch, n=1, augmentations=[negative]).evaluate()
    with pytest.raises(RuntimeError, match="fill_value has 2 numbers, the image has 3 channels"):
        augment.rand_augment(batch, n=1, augmentations=["rotate"], fill_value=[1.0, 2.0]).evaluate()


def test_policy_waits_for_its_images_and_passes_their_errors_on(device: str) -> None:
    encoded = ndd.batch([np.frombuffer(b"not an image", np.uint8)])
    with pytest.raises(RuntimeError):
        augment.rand_augment(ndd.decoders.image(encoded).to_device(device), n=2).evaluate()


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_without_a_fill_value_extend_their_border(interpolation: types.DALIInterpType, dtype: torch.dtype, device: str) -> None:
    skip_on_emulator(interpolation == types.INTERP_CUBIC)
    image = torch.full((30, 40, 3), 200).to(dtype) / (1 if dtype is torch.uint8 else 255)
    batch = ndd.batch([image.to(dtype)] * 6, layout="HWC").to_device(device)
    moves = ["shear_x", "translate_x", "translate_y", "rotate"]
    output = augment.aug_mix(batch, augmentations=moves, severity=9, interp_type=interpolation, rng=ndd.random.RNG(2))
    torch.testing.assert_close(output.cpu().torch(), batch.cpu().torch(), rtol=0, atol=1 if dtype is torch.uint8 else 1e-5)
