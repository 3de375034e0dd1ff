# SPDX-License-Identifier: Apache-2.0
"""Windows and sizes of samples are computed by native code in calls, and on columns in graphs: both agree, and both refuse the same arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _plans import clear_plans

import torch_ndd as ndd
from torch_ndd._core.operators import plans
from torch_ndd.ops.geometry import _crop_window, _resize_plan, slice

SAMPLES = 24


def _images(ragged: bool, seed: int = 3) -> ndd.Batch:
    generator = np.random.default_rng(seed)
    extents = generator.integers(5, 12, (SAMPLES, 2)) if ragged else np.full((SAMPLES, 2), 9)
    return ndd.batch([generator.integers(0, 256, (*extent, 3), dtype=np.uint8) for extent in extents.tolist()], layout="HWC")


_seed = {0: 0}  # of the numbers


def _draw(low: float, high: float, *columns: int, dtype: Any = np.float32) -> ndd.Batch:
    return ndd.batch(np.random.default_rng(_seed[0] + int(high * 100)).uniform(low, high, (SAMPLES, *columns)).astype(dtype))


def _draw_tenths(low: float, high: float, *columns: int) -> ndd.Batch:
    return ndd.batch([np.round(np.asarray(numbers) * 10) / np.float32(10) for numbers in _draw(low, high, *columns).tensors])


CALLS: dict[str, Callable[[ndd.Batch], Any]] = {
    **{
        f"crop, {policy}, {rounding}": lambda x, policy=policy, rounding=rounding: ndd.crop(
            x, crop=_draw(-1, 14 if policy != "error" else 5, 2), crop_pos_x=_draw(0, 1), out_of_bounds_policy=policy, rounding=rounding
        )
        for policy in ("error", "pad", "trim_to_shape")
        for rounding in ("round", "truncate", "half_to_even")
    },
    "crop, integers": lambda x: ndd.crop(x, crop_h=_draw(1, 4, dtype=np.int32), crop_w=_draw(1, 4, dtype=np.int64), crop_pos_y=0.3),
    "crop, doubles": lambda x: ndd.crop(x, crop=[4, 3], crop_pos_x=_draw(0, 1, dtype=np.float64)),
    "crop, one size": lambda x: ndd.crop(x, crop=[4, 3]),
    "crop_mirror_normalize": lambda x: ndd.crop_mirror_normalize(x, crop=_draw(1, 4.9, 2), crop_pos_y=_draw(0, 1), mirror=1),
    **{
        f"slice, {policy}": lambda x, policy=policy: ndd.slice(
            x, start=_draw(-4, 8, 2), shape=_draw(0, 9, 2), axis_names="HW", out_of_bounds_policy=policy
        )
        for policy in ("pad", "trim_to_shape")
    },
    "slice, relative": lambda x: ndd.slice(x, rel_start=_draw(0, 0.5, 2), rel_end=_draw(0.5, 1, 2)),
    "slice, halves": lambda x: ndd.slice(x, rel_start=_draw_tenths(0, 0.5, 2), rel_end=_draw_tenths(0.5, 1, 2)),
    "slice, halves of a sum": lambda x: ndd.slice(
        x, rel_start=_draw_tenths(0, 0.9, 2), rel_shape=_draw_tenths(0.2, 0.9, 2), out_of_bounds_policy="pad"
    ),
    "slice, mixed": lambda x: ndd.slice(x, start=_draw(0, 3, 2, dtype=np.int32), rel_end=[0.9, 0.8]),
    "slice, one for all axes": lambda x: ndd.slice(x, rel_start=_draw(0, 0.5), rel_shape=0.25, axis_names="HW"),
    "slice, rest": lambda x: ndd.slice(x, start=[1, 2]),
    "slice, by position": lambda x: ndd.slice(x, _draw(0, 0.4, 2), _draw(0, 0.5, 2)),
    **{
        f"resize, {mode}, {rounding}": lambda x, mode=mode, rounding=rounding: ndd.resize(
            x, size=_draw(-7, 20, 2), mode=mode, size_rounding=rounding, max_size=13
        )
        for mode in ("default", "stretch", "not_larger", "not_smaller")
        for rounding in ("round", "truncate", "ceil")
    },
    "resize, shorter": lambda x: ndd.resize(x, resize_shorter=_draw(3, 15), max_size=[11, 14]),
    "resize, longer": lambda x: ndd.resize(x, resize_longer=_draw(3, 15, dtype=np.int32), subpixel_scale=False),
    "resize, shorter of all": lambda x: ndd.resize(x, resize_shorter=6),
    "resize, one axis": lambda x: ndd.resize(x, resize_x=_draw(3, 15)),
    "resize, one axis and a number": lambda x: ndd.resize(x, resize_x=_draw(3, 15), resize_y=7),
    "resize, regions": lambda x: ndd.resize(x, size=[7, 0], roi_start=_draw(0, 0.6, 2), roi_end=_draw(0.3, 1, 2), roi_relative=True),
    "resize, empty region": lambda x: ndd.resize(x, size=[4, 5], roi_start=_draw(0, 4, 2), roi_end=_draw(0, 4, 2)),
    "tensor_resize, scales": lambda x: ndd.tensor_resize(x, scales=_draw(0.3, 2, 3), alignment=_draw(0, 1, 3), axes=[0, 1, 2]),
    "tensor_resize, sizes": lambda x: ndd.tensor_resize(x, sizes=_draw(3, 9, 2), axes=[1, 0], alignment=[0.2], mode="not_smaller"),
}


FUNCTIONS: list[tuple[Any, str]] = [(_crop_window, "find_windows"), (slice, "find_windows"), (_resize_plan, "find_sizes")]


def _use_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls compute everything in Python, without plans, and learn nothing from it."""
    monkeypatch.setattr(plans, "run_plan", lambda *arguments: None)
    monkeypatch.setattr(plans, "_start_records", lambda *arguments: None)
    for module, function in FUNCTIONS:
        monkeypatch.setattr(module, function, lambda *args, **options: None)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", CALLS)
def test_native_windows_equal_those_of_columns(name: str, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    images, found = _images(ragged), []
    for module, function in FUNCTIONS:
        original = getattr(module, function)

        def observe(*args: Any, _original: Any = original, **options: Any) -> Any:
            found.append(_original(*args, **options))
            return found[-1]

        monkeypatch.setattr(module, function, observe)
    output = CALLS[name](images)
    assert found or not ragged
    assert all(window is not None for window in found)
    _use_columns(monkeypatch)
    expected = CALLS[name](images)
    assert output.shape == expected.shape
    # Native code may know more extents to be equal.
    known, others = output.shared_extents or (), expected.shared_extents or ()
    assert all(other in (None, extent) for extent, other in zip(known, others, strict=True))
    assert all(torch.equal(sample.torch(), other.torch()) for sample, other in zip(output, expected, strict=True))


# Numbers for each sample, and images of other sizes: repeated without the body.
REPEATED: dict[str, Callable[[ndd.Batch], Any]] = {
    **{name: call for name, call in CALLS.items() if not name.startswith(("tensor_resize", "crop_mirror", "slice, by position"))},
    **{
        f"slice, {policy}, integers": lambda x, policy=policy: ndd.slice(
            x, start=_draw(-4, 8, 2, dtype=np.int32), shape=_draw(0, 9, 2, dtype=np.int64), axis_names="HW", out_of_bounds_policy=policy
        )
        for policy in ("pad", "trim_to_shape")
    },
    "brightness": lambda x: ndd.brightness(x, brightness=_draw(0, 2)),
    "rotate": lambda x: ndd.rotate(x, angle=_draw(-40, 40), keep_size=True, fill_value=0.0),
    "warp_affine": lambda x: ndd.warp_affine(x, matrix=_draw(-1, 1, 2, 3), fill_value=0.0),
    "crop_mirror_normalize of equal sizes": lambda x: ndd.crop_mirror_normalize(x, crop=[3, 4], crop_pos_y=_draw(0, 1), mirror=1),
    "posterize": lambda x: ndd.posterize(x, bits=4),
    "resize_crop_mirror": lambda x: ndd.resize_crop_mirror(
        x, resize_shorter=_draw(6, 15), crop=_draw(-1, 9, 2), crop_pos_x=_draw(0, 1), mirror=_draw(0, 3, dtype=np.uint8)
    ),
    "resize_crop_mirror, fractions for integers": lambda x: ndd.resize_crop_mirror(x, size=[9, 8], crop=[4, 5], crop_pos_y=0.2, mirror=_draw(0, 3.4)),
    "resize_crop_mirror, regions": lambda x: ndd.resize_crop_mirror(
        x, size=[7, 0], roi_start=_draw(0, 0.6, 2), roi_end=_draw(0.3, 1, 2), roi_relative=True, crop_w=_draw(1, 5), crop_h=3, rounding="half_to_even"
    ),
    "resize_crop_mirror, torch's rule": lambda x: ndd.resize_crop_mirror(
        x,
        size=_draw(1, 12, 2, dtype=np.int32),
        crop=_draw(1, 9, 2),
        crop_pos_y=_draw(0, 1),
        mirror=_draw(0, 4, dtype=np.int64),
        rule="torch",
        rounding="truncate",
    ),
    "resize_crop_mirror, torch's rule, normalized": lambda x: ndd.resize_crop_mirror(
        x, resize_longer=_draw(6, 15), crop=[4, 5], mirror=_draw(0, 4, dtype=np.int32), rule="torch", mean=[1, 2, 3], output_layout="CHW"
    ),
    "resize_crop_mirror of a constant size": lambda x: ndd.resize_crop_mirror(x, resize_shorter=12, crop=[6, 7], crop_pos_x=0.9, rule="torch"),
}


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", REPEATED)
def test_repeated_calls_follow_the_numbers_of_each_sample(name: str, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_plans()
    calls = 8
    outputs: list[ndd.Batch] = []
    performed: list[str] = []
    perform = plans.perform

    def observe_call(op: Any, *arguments: Any) -> Any:
        performed.append(op.name)
        return perform(op, *arguments)

    monkeypatch.setattr(plans, "perform", observe_call)
    for seed in range(calls):
        monkeypatch.setitem(_seed, 0, seed)
        outputs.append(REPEATED[name](_images(ragged, seed)))
    assert len(performed) <= 4
    _use_columns(monkeypatch)
    for seed, output in enumerate(outputs):
        monkeypatch.setitem(_seed, 0, seed)
        expected = REPEATED[name](_images(ragged, seed))
        assert (output.shape, output.layout, output.dtype) == (expected.shape, expected.layout, expected.dtype)
        assert (output.ragged_shapes is None) == (expected.ragged_shapes is None)
        assert all(torch.equal(sample.torch(), other.torch()) for sample, other in zip(output, expected, strict=True))


def test_windows_of_several_sizes_may_have_other_axes_than_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(seed: int) -> ndd.Batch:
        monkeypatch.setitem(_seed, 0, seed)
        return ndd.resize_crop_mirror(_images(True, seed), size=[9, 9], crop=_draw(1, 9, 2), mirror=_draw(0, 2, dtype=np.int32), mean=[1, 2, 3])

    clear_plans()
    outputs = [call(seed) for seed in range(6)]
    _use_columns(monkeypatch)
    for seed, output in enumerate(outputs):
        expected = call(seed)
        assert output.shape == expected.shape
        assert all(torch.equal(sample.torch(), other.torch()) for sample, other in zip(output, expected, strict=True))


def test_repeated_call_explains_wrong_numbers() -> None:
    images = _images(False)
    for position in (0.1, 0.2, 0.3, 0.4, 0.5):
        ndd.crop(images, crop=[4, 4], crop_pos_x=ndd.batch([position] * SAMPLES)).evaluate()
        ndd.rotate(images, angle=ndd.batch([position] * SAMPLES), keep_size=True).evaluate()
    with pytest.raises(RuntimeError, match="sample 2: crop_pos_x must lie between 0 and 1"):
        ndd.crop(images, crop=[4, 4], crop_pos_x=ndd.batch([0.0, 1.0, 2.0] * (SAMPLES // 3)))
    with pytest.raises(RuntimeError, match="sample 1: angle must be finite"):
        ndd.rotate(images, angle=ndd.batch([0.0, float("nan")] * (SAMPLES // 2)), keep_size=True)
    with pytest.raises(ValueError, match="Inconsistent batch size"):
        ndd.crop(images, crop=[4, 4], crop_pos_x=ndd.batch([0.5] * (SAMPLES - 1)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ndd.crop(x, crop=[4, 4], crop_pos_x=_draw(0, 1.4)), "sample .*crop_pos_x must lie between 0 and 1"),
        (lambda x: ndd.crop(x, crop=_draw(1, 14, 2)), "sample .*exceeds axis"),
        (lambda x: ndd.crop(x, crop=_draw(1, 4, 4)), "takes height and width"),
        (lambda x: ndd.slice(x, start=_draw(0, 9, 2), end=_draw(0, 8, 2)), "sample .*before its start"),
        (lambda x: ndd.slice(x, start=_draw(0, 4, 2), shape=_draw(-4, 3, 2)), "sample .*must not be negative"),
        (lambda x: ndd.slice(x, start=ndd.batch([float("nan")] * SAMPLES)), "must be finite"),
        (lambda x: ndd.resize(x, size=_draw(1, 1e30, 2)), "too large"),
        (lambda x: ndd.resize(x, size=_draw(1, 5, 3)), "size has 3 elements"),
        (lambda x: ndd.resize(x, resize_x=ndd.batch([float("inf")] * SAMPLES)), "resize_x must be finite"),
        (lambda x: ndd.resize(x, size=_draw(1, 4.9, 2), roi_start=_draw(0, 1, 2)), "roi_start and roi_end must be given together"),
    ],
)
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_wrong_windows_are_explained(call: Callable[[ndd.Batch], Any], message: str, ragged: bool) -> None:
    with pytest.raises((RuntimeError, ValueError), match=message):
        call(_images(ragged)).evaluate()
