# SPDX-License-Identifier: Apache-2.0
"""A list, an array or a tensor with a value for each sample is taken like a Batch, where it cannot be a value for all of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.operators import plans

PIXELS = torch.arange(2 * 6 * 8 * 3, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(2, 6, 8, 3)
KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": lambda values: values,
    "tuple": tuple,
    "torch": torch.tensor,
    "numpy": np.array,
    "numpy backwards": lambda values: np.array(values[::-1])[::-1],
    "numpy of the other byte order": lambda values: np.array(values, np.array(values).dtype.newbyteorder("S")),
    "Tensor": lambda values: ndd.as_tensor(torch.tensor(values)),
}
NUMBERS: list[tuple[Callable[..., Any], str, list[Any]]] = [
    (ndd.rotate, "angle", [10.0, 20.0]),
    (ndd.rotate, "angle", [10, 20]),
    (ndd.flip, "horizontal", [1, 0]),
    (ndd.brightness, "brightness", [0.5, 2.0]),
    (ndd.resize, "resize_shorter", [3, 5]),
    (ndd.resize, "size", [[3, 4], [5, 6]]),
    (ndd.crop_mirror_normalize, "mean", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
]


def _images(ragged: bool, count: int = 2) -> ndd.Batch:
    return ndd.batch([PIXELS[k % 2][: 6 - k if ragged else 6] for k in range(count)], layout="HWC")


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("operator", "name", "values"), NUMBERS)
def test_values_are_those_of_a_batch(operator: Callable[..., Any], name: str, values: list[Any], kind: str, ragged: bool) -> None:
    images = _images(ragged)
    expected = operator(images, **{name: ndd.batch(values)})
    for _ in range(4):  # later calls are repeated without the body
        output = operator(images, **{name: KINDS[kind](values)})
        assert output.shape == expected.shape
        assert all(torch.equal(sample.torch(), other.torch()) for sample, other in zip(output, expected, strict=True))


@pytest.mark.parametrize(("operator", "name", "values"), NUMBERS)
def test_lists_that_stay_lists_are_repeated_correctly(operator: Any, name: str, values: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans.OperatorCalls, "_as_rows", lambda *arguments: None)
    images = _images(False)
    expected = operator(images, **{name: ndd.batch(values)})
    for _ in range(5):
        output = operator(images, **{name: values})
        assert all(torch.equal(sample.torch(), other.torch()) for sample, other in zip(output, expected, strict=True))


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_for_other_samples_are_refused(kind: str, ragged: bool) -> None:
    angles = KINDS[kind]([10.0, 20.0])
    for _ in range(4):
        ndd.rotate(_images(ragged), angle=angles)
    with pytest.raises((TypeError, ValueError), match=r"rotate: argument 'angle' takes one number per sample.*3 samples.*ndd\.batch"):
        ndd.rotate(_images(ragged, 3), angle=angles)
    with pytest.raises((TypeError, ValueError), match="angle"):
        ndd.rotate(PIXELS[0], angle=angles)


def test_several_numbers_stay_those_of_all_samples() -> None:
    images = _images(False)
    assert ndd.resize(images, size=[3, 4]).shape == [(3, 4, 3)] * 2
    assert ndd.resize(images, size=torch.tensor([3, 4])).shape == [(3, 4, 3)] * 2
    matrix = [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert torch.equal(ndd.warp_affine(images, matrix=matrix).torch()[:, :, :-1], PIXELS[:, :, 1:])


def test_operators_without_inputs() -> None:
    assert ndd.random.normal(mean=[0.0, 100.0], stddev=[0.0, 0.0], batch_size=2).torch().tolist() == [0.0, 100.0]


def test_compiled_values() -> None:
    def turn(images: ndd.Batch) -> ndd.Batch:
        return ndd.rotate(images, angle=[10.0, 20.0], keep_size=True)

    output = torch.compile(turn, fullgraph=True, backend="aot_eager")(_images(False))
    assert torch.equal(output.torch(), turn(_images(False)).torch())


CHANGING: dict[str, Callable[[ndd.Batch, dict[str, ndd.Batch]], ndd.Batch]] = {
    "rotate, growing": lambda images, n: ndd.rotate(images, angle=n["number"]),
    "rotate, growing by a constant": lambda images, n: ndd.rotate(images, angle=30.0),
    "rotate by a constant": lambda images, n: ndd.rotate(images, angle=30.0, keep_size=True),
    "paste": lambda images, n: ndd.paste(images, ratio=1.5, fill_value=[7], paste_x=n["part"], paste_y=0.25),
    "paste, several ratios": lambda images, n: ndd.paste(images, ratio=n["ratio"], fill_value=[1, 2, 3], min_canvas_size=9, paste_y=n["part"]),
    "paste by constants": lambda images, n: ndd.paste(images, ratio=2, fill_value=[7]),
    "flip": lambda images, n: ndd.flip(images, horizontal=n["mirror"]),
    "erase": lambda images, n: ndd.erase(images, anchor=n["pair"], shape=[0.5, 0.5], axis_names="HW", normalized=True, fill_value=[3, 4, 5]),
    "resize_crop_mirror": lambda images, n: ndd.resize_crop_mirror(images, resize_shorter=20, crop=[9, 11], crop_pos_x=0.2, mirror=n["mirror"]),
    "resize_crop_mirror, torch's rule, normalized": lambda images, n: ndd.resize_crop_mirror(
        images, size=[20, 30], crop=[9, 11], crop_pos_y=0.9, mirror=n["mirrors"], rule="torch", mean=[1, 2, 3], std=[4, 5, 6], output_layout="CHW"
    ),
    "resize_crop_mirror, torch's rule, in the middle": lambda images, n: ndd.resize_crop_mirror(
        images, size=[9, 11], mirror=n["mirrors"], rule="torch"
    ),
    "resize_crop_mirror, everything": lambda images, n: ndd.resize_crop_mirror(images, size=[9, 11]),
    "resize_crop_mirror, a shorter side": lambda images, n: ndd.resize_crop_mirror(images, resize_shorter=20, crop=[9, 11], mirror=1),
    "grid_mask": lambda images, n: ndd.grid_mask(images, tile=4, ratio=n["part"]),
}


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", CHANGING)
def test_repeated_calls_follow_shapes_and_numbers(name: str, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)

    def draw() -> tuple[ndd.Batch, dict[str, ndd.Batch]]:
        sizes = rng.integers(4, 12, (3, 2)) if ragged else np.array([[16, 60]] * 3)
        images = ndd.batch([rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes], layout="HWC")
        drawn = {"number": rng.uniform(-90, 90, 3), "part": rng.uniform(0, 1, 3), "ratio": rng.uniform(1, 3, 3), "pair": rng.uniform(0, 1, (3, 2))}
        numbers = {key: ndd.batch(value.astype(np.float32)) for key, value in drawn.items()}
        return images, {**numbers, "mirror": ndd.batch(rng.integers(0, 2, 3, dtype=np.int32)), "mirrors": ndd.batch(rng.integers(0, 4, 3))}

    calls = [draw() for _ in range(12)]
    with monkeypatch.context() as patch:
        patch.setattr(plans, "run_plan", lambda *arguments: None)
        expected = [CHANGING[name](*call) for call in calls]
    repeated = []

    def run_plan(*arguments: Any) -> Any:
        repeated.append(result := run(*arguments))
        return result

    run = plans.run_plan
    monkeypatch.setattr(plans, "run_plan", run_plan)
    for call, other in zip(calls, expected, strict=True):
        output = CHANGING[name](*call)
        assert output.shape == other.shape
        assert all(torch.equal(a.torch(), b.torch()) for a, b in zip(output, other, strict=True))
    assert sum(result is not None for result in repeated) >= 6


def test_repeated_call_that_changes_shapes_checks_its_numbers() -> None:
    images = _images(True)
    for _ in range(5):
        ndd.rotate(images, angle=ndd.batch([10.0, 20.0]))
        ndd.paste(images, ratio=ndd.batch([1.5, 2.0]), fill_value=0)
    with pytest.raises(RuntimeError, match="angle must be finite"):
        ndd.rotate(images, angle=ndd.batch([10.0, float("nan")])).evaluate()
    with pytest.raises(RuntimeError, match="ratio of less than 1"):
        ndd.paste(images, ratio=ndd.batch([1.5, 0.5]), fill_value=0).evaluate()
