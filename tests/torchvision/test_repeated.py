# SPDX-License-Identifier: Apache-2.0
"""Functionals called again on inputs like earlier ones, which repeat the kernel without checking anything: nothing may be remembered wrongly."""

import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from _forks import Forks
from torchvision.transforms.v2 import functional as theirs

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.operators.plans import MAX_PLANS, freeze, plans
from torch_ndd.torchvision.v2 import functional as F

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "flip": lambda f, x: f.horizontal_flip(x),
    "pad": lambda f, x: f.pad(x, [1, 2, 3, 4], fill=[1.0, 2.0, 3.0]),
    "reflect": lambda f, x: f.pad(x, 2, padding_mode="reflect"),
    "invert": lambda f, x: f.invert(x),
    "posterize": lambda f, x: f.posterize(x, 3),
    "rotate": lambda f, x: f.rotate(x, 30.0, expand=True),
    "crop": lambda f, x: f.crop(x, -1, 1, 5, 4),
    "center_crop": lambda f, x: f.center_crop(x, [3, 4]),
    "erase": lambda f, x: f.erase(x, 1, 2, 3, 2, torch.tensor([1, 0, 1]).reshape(3, 1, 1)),
    "permute": lambda f, x: f.permute_channels(x, [2, 0, 1]),
    "brightness": lambda f, x: f.adjust_brightness(x, 1.5),
}


def images(seed: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape or (2, 3, 6, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("name", CALLS)
def test_repeated_call_reads_new_pixels(name: str, dtype: torch.dtype) -> None:
    call = CALLS[name]
    results = []
    for seed in range(3):
        values = images(seed) if dtype is torch.uint8 else images(seed).float() / 255
        expected = call(theirs, values)
        for result in (
            call(F, ndd.as_batch(values, layout="CHW")).torch(),
            call(F, F.invert(F.invert(ndd.batch(values, layout="CHW")))).torch(),  # which may still be computed
            call(F, values),
            torch.stack([call(F, value) for value in values]),
        ):
            torch.testing.assert_close(result, expected, atol=1e-6, rtol=0)
            results.append(result)
    assert len({result.data_ptr() for result in results}) == len(results)


def test_equal_calls_are_repeated() -> None:
    values = images(0, 5, 3, 4, 9)
    F.invert(values)
    before = dict(plans)
    F.invert(values)
    assert plans == before
    assert any(plan is not None and tuple(plan.output_shape) == tuple(values.shape) for plan in before.values())


def test_equal_numbers_of_other_types_are_different_arguments() -> None:
    batch = ndd.as_batch(images(0), layout="CHW")
    for _ in range(2):
        F.posterize(batch, 1)
        with pytest.raises(TypeError, match="bits must be an integer"):
            F.posterize(batch, 1.0)
        with pytest.raises(TypeError, match="bits must be an integer"):
            F.posterize(batch, True)


def test_errors_are_raised_again() -> None:
    batch = ndd.as_batch(images(0), layout="CHW")
    for _ in range(2):
        with pytest.raises(ValueError, match="must not be negative"):
            F.adjust_gamma(batch, -1.0)
        with pytest.raises(TypeError, match="from 0 to 8"):
            F.posterize(images(0), 9)


def test_layouts_of_a_shape_are_different_calls() -> None:
    values = images(0, 2, 3, 3, 3)
    for _ in range(2):
        assert torch.equal(F.horizontal_flip(ndd.as_batch(values, layout="CHW")).torch(), values.flip(3))
        assert torch.equal(F.horizontal_flip(ndd.as_batch(values, layout="HWC")).torch(), values.flip(2))
        result = F.horizontal_flip(ndd.as_batch(values))
        assert result.layout is None
        assert torch.equal(result.torch(), values.flip(3))


def test_tensors_as_arguments_are_compared_by_value() -> None:
    values, fill = images(0), torch.ones(3, 1, 1)
    first = F.erase(values, 0, 0, 2, 2, fill)
    fill.mul_(7)
    assert first[0, 0, 0, 0] == 1
    assert F.erase(values, 0, 0, 2, 2, fill)[0, 0, 0, 0] == 7


def test_strided_tensors_and_single_images_are_repeated() -> None:
    values = images(0)
    strided = values.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for _ in range(2):
        assert torch.equal(F.invert(strided), 255 - values)
        assert torch.equal(F.invert(values[0, 0]), 255 - values[0, 0])
        assert torch.equal(F.invert(values[None]), 255 - values[None])


def test_numbers_per_sample_are_compared() -> None:
    values = images(0)
    for angles in ([0.0, 180.0], [180.0, 0.0]):
        result = F.rotate(ndd.as_batch(values, layout="CHW"), angles).torch()
        for item, image, angle in zip(result, values, angles, strict=True):
            assert torch.equal(item, image.flip(1, 2) if angle else image)


def test_recorded_calls_are_bounded() -> None:
    values = images(0, 1, 3, 2, 2)
    for k in range(MAX_PLANS + 10):
        F.adjust_brightness(values, 1.0 + k / 4096)
    assert len(plans) <= MAX_PLANS


def test_crops_of_tensors_are_views() -> None:
    values = images(0)
    for value in (F.crop(values, 1, 2, 3, 4), F.center_crop(values, [3, 4])):
        assert value.untyped_storage().data_ptr() == values.untyped_storage().data_ptr()
    assert torch.equal(F.crop(values, 1, 2, 3, 4), theirs.crop(values, 1, 2, 3, 4))
    before = values.clone()
    F.crop(ndd.as_batch(values, layout="CHW"), 1, 2, 3, 4).torch().zero_()
    assert torch.equal(values, before)


def test_repeated_calls_hold_no_images() -> None:
    batch = ndd.as_batch(images(0, 2, 3, 900, 901), layout="CHW")
    for _ in range(2):
        result = F.invert(batch)
    memory = [weakref.ref(value.buffer.untyped_storage()) for value in (batch, result)]
    del batch, result
    assert [value() for value in memory] == [None, None]


def test_results_that_go_to_a_gpu_are_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    values = images(0, 2, 3, 900, 902)
    F.invert(values)
    pinned = torch.empty_like(values)
    monkeypatch.setattr(native.memory, "_allocate_pinned", lambda shape, dtype, size: pinned.view(shape))
    native.pin_size(values.nbytes)
    try:
        for value in (F.invert(values), F.invert(ndd.as_batch(values, layout="CHW")).torch()):
            assert value.data_ptr() == pinned.data_ptr()
            assert torch.equal(value, 255 - values)
    finally:
        native.pin_size(values.nbytes, False)


WITHOUT_MEMORY = """
import resource, torch, torch_ndd as ndd
from torch_ndd.torchvision.v2 import functional as F
values = torch.zeros(1, 3, 4000, 4000, dtype=torch.uint8)
kept = [F.invert(given) for given in (values, ndd.as_batch(values, layout="CHW"))]
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (30 << 20), used + (30 << 20)))
for given in (values, ndd.as_batch(values, layout="CHW")):
    try:
        F.invert(given)
    except MemoryError as error:
        print(error)
print(int(kept[0].min()), int(kept[1].torch().min()))
"""


def test_repeated_calls_raise_without_memory(forks: Forks) -> None:
    run = forks.run(WITHOUT_MEMORY)
    assert (run.wait(120), run.errors) == (0, "")
    first, second, least = run.output.splitlines()
    assert least == "255 255"
    for error in (first, second):
        assert re.match(r".*: no memory for 48\.0 MB: an output of shape \(1, 3, 4000, 4000\)", error)


def test_zeros_of_both_signs_are_different_arguments() -> None:
    keys = []
    for value in (0.0, -0.0, [0.0], [-0.0], torch.tensor([0.0]), torch.tensor([-0.0])):
        key: list[Any] = []
        freeze(key, value)
        keys.append(tuple(key))
    assert len(set(keys)) == len(keys)
