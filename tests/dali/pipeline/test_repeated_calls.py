# SPDX-License-Identifier: Apache-2.0
"""Operators of pipelines that are called again with batches of the same shapes: without their bodies, with the same results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.operators.definition import OPERATORS
from torch_ndd._core.operators.plans import BoundOperator
from torch_ndd._core.values.batch import Batch
from torch_ndd.random import RNG

CALLS = 5


def images(seed: int, *sizes: tuple[int, int], dtype: Any = np.uint8) -> Batch:
    random = np.random.default_rng(seed)
    return ndd.batch([random.integers(0, 256, (*size, 3)).astype(dtype) for size in sizes], layout="HWC")


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Return a list that grows with each call of an operator's body."""
    op, calls = OPERATORS[name], list[int]()
    body = op.body

    def count(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return body(*args, **kwargs)

    monkeypatch.setattr(op, "body", count)
    return calls


def same(value: Any, other: Any) -> None:
    assert value.layout == other.layout
    assert value.shape == other.shape
    assert all(torch.equal(a.torch(), b.torch()) for a, b in zip(value.tensors, other.tensors, strict=True))


def test_values_and_arguments_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch, "crop_mirror_normalize")
    constants = {"mean": [1.0, 2.0, 3.0], "std": 2.0, "output_layout": "CHW"}
    prepared = BoundOperator(OPERATORS["crop_mirror_normalize"], constants)
    for k in range(CALLS):
        value, mirror = images(k, (6, 5), (6, 5)), ndd.batch([k % 2, 1 - k % 2])
        calls.clear()
        result = prepared([value], {"mirror": mirror})
        assert len(calls) == (k < 3)
        same(result, ndd.crop_mirror_normalize(value, mirror=mirror, **constants))


def test_each_shape_and_type_is_a_call_of_its_own() -> None:
    prepared = BoundOperator(OPERATORS["flip"], {"horizontal": 1})
    for k in range(CALLS):
        for value in (images(k, (4, 5)), images(k, (5, 4), (5, 4)), images(k, (4, 5), dtype=np.float32), images(k, (2, 3), (3, 2))):
            same(prepared([value], {}), ndd.flip(value, horizontal=1))


def test_resizing_images_of_any_shape_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch, "resize")
    prepared = BoundOperator(OPERATORS["resize"], {"size": [4, 6]})
    for k in range(CALLS):
        value = images(k, (5 + k, 7), (3, 9 - k))
        value.shared_extents = (None, None, 3)  # as decoders have it
        calls.clear()
        result = prepared([value], {})
        assert len(calls) == (k < 3)
        same(result, ndd.resize(value, size=[4, 6]))
    empty = images(0, (5, 7), (0, 9))
    empty.shared_extents = (None, None, 3)
    assert prepared([empty], {}).shape == ndd.resize(empty, size=[4, 6]).shape == [(4, 6, 3), (0, 6, 3)]


@pytest.mark.parametrize("constants", [{"resize_shorter": 4}, {"size": [4, 6], "mode": "not_larger"}, {"resize_x": 5}])
def test_sizes_that_follow_from_the_images_do(constants: dict[str, Any]) -> None:
    prepared = BoundOperator(OPERATORS["resize"], constants)
    for k in range(CALLS):
        value = images(k, (5 + k, 7), (3, 9 - k))
        same(prepared([value], {}), ndd.resize(value, **constants))


@pytest.mark.parametrize(
    ("name", "call", "constants"),
    [
        ("random.coin_flip", ndd.random.coin_flip, {"probability": 0.5}),
        ("random.uniform", ndd.random.uniform, {"range": [0.0, 2.0], "shape": [3]}),
        ("random.uniform", ndd.random.uniform, {"values": [1.0, 5.0, 7.0]}),
        ("random_resized_crop", ndd.random_resized_crop, {"size": [4, 4]}),
        ("noise.gaussian", ndd.noise.gaussian, {"stddev": 3.0}),
    ],
)
def test_what_is_drawn_differs(name: str, call: Callable[..., Any], constants: dict[str, Any]) -> None:
    prepared, inputs = BoundOperator(OPERATORS[name], constants), [] if name.startswith("random.") else [images(0, (9, 8), (9, 8))]
    size: dict[str, Any] = {} if inputs else {"batch_size": 2}
    for k in range(CALLS):
        result = prepared(inputs, {}, words=RNG(k).draw(7), **size)
        same(result, call(*inputs, rng=RNG(k), **constants, **size))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("constants", [{"size": [4, 4]}, {"size": 3, "random_area": 0.5, "random_aspect_ratio": [0.9, 1.1]}])
def test_windows_are_drawn_anew_without_the_body(ragged: bool, constants: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch, "random_resized_crop")
    prepared = BoundOperator(OPERATORS["random_resized_crop"], constants)
    results = []
    for k in range(CALLS):
        value = images(0, (9 + k, 8), (7, 20 - k)) if ragged else images(0, (9, 8), (9, 8))
        value.shared_extents = (None, None, 3) if ragged else None
        calls.clear()
        results.append(prepared([value], {}, words=RNG(k).draw(7)))
        assert len(calls) == (k < 3)
        same(results[-1], ndd.random_resized_crop(value, rng=RNG(k), **constants))
    assert len({result.torch().numpy().tobytes() for result in results[2:]}) > 1
    empty = images(0, (0, 8), (7, 9))
    empty.shared_extents = (None, None, 3)
    with pytest.raises(RuntimeError, match="without pixels"):
        prepared([empty], {}, words=RNG(0).draw(7))


@pytest.mark.parametrize("layout", ["CHW", "FHWC"])
def test_windows_of_other_layouts(layout: str) -> None:
    shape = {"CHW": (3, 9, 8), "FHWC": (2, 9, 8, 3)}[layout]
    batch = ndd.batch(list(np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)), layout=layout)
    prepared = BoundOperator(OPERATORS["random_resized_crop"], {"size": [4, 5]})
    for k in range(CALLS):
        same(prepared([batch], {}, words=RNG(k).draw(7)), ndd.random_resized_crop(batch, size=[4, 5], rng=RNG(k)))


def test_arguments_that_the_body_reads() -> None:
    prepared = BoundOperator(OPERATORS["crop"], {"crop": [2, 2]})
    for k in range(CALLS):
        value, place = images(k, (6, 5), (6, 5)), ndd.batch([k / 4, 0.5])
        same(prepared([value], {"crop_pos_x": place}), ndd.crop(value, crop=[2, 2], crop_pos_x=place))


def test_errors_of_work_name_the_sample() -> None:
    prepared = BoundOperator(OPERATORS["lookup_table"], {"keys": [1], "values": [2.0]})
    for _ in range(CALLS):
        same(prepared([ndd.batch([[1, 0]])], {}), ndd.lookup_table(ndd.batch([[1, 0]]), keys=[1], values=[2.0]))
        with pytest.raises((TypeError, RuntimeError, ValueError), match="lookup_table"):
            prepared([ndd.batch([[1.5, 0.0]])], {}).evaluate()
