# SPDX-License-Identifier: Apache-2.0
"""The maps of ndd.transforms against DALI's: float32 within 2e-5, relative to the largest number of the matrix."""

from typing import Any

import numpy as np
import pytest
from _dali import Program, assert_alike, assert_raises
from _raises import Raises, raising

GIVEN = np.array([[2.0, 0.5, 1.0], [-0.25, 3.0, 5.0]], np.float32)
SPACE = np.array([[2.0, 0.5, 1.0, 3.0], [-0.25, 3.0, 5.0, 0.5], [1.0, 0.0, -1.5, 2.0]], np.float32)
POINTS = np.array([[1.0, 2.0], [-3.0, 0.5], [7.0, 0.0]], np.float32)


def assert_near(program: Program, raises: Raises | None = None) -> None:
    if (results := assert_alike(program, raises)) is not None:
        for ours, theirs in zip(results[0].samples, results[1].samples, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-5 * max(1.0, float(np.abs(theirs).max(initial=0))))


FLAT: list[tuple[str, dict[str, Any]]] = [
    ("translation", {"offset": [1.0, 2.0]}),
    ("scale", {"scale": [2.0, 3.0]}),
    ("scale", {"scale": [2.0, -3.0], "center": [10.0, 20.0]}),
    ("scale", {"scale": [0.0, 3.0], "center": [10.0, 4.0]}),
    ("rotation", {"angle": 30.0}),
    ("rotation", {"angle": -130.0, "center": [10.0, 20.0]}),
    ("shear", {"shear": [2.0, 3.0]}),
    ("shear", {"angles": [45.0, -30.0], "center": [10.0, 20.0]}),
    ("crop", {"from_start": [0.0, 1.0], "from_end": [1.0, 2.0], "to_start": [0.2, 0.3], "to_end": [0.8, 0.5]}),
    ("crop", {"from_start": [1.0, 1.0], "from_end": [0.0, 2.0]}),
    ("crop", {"from_start": [1.0, 1.0], "from_end": [0.0, 2.0], "absolute": True}),
    ("crop", {"to_start": [1.0, 1.0], "to_end": [0.0, 2.0], "absolute": True}),
]
DEEP: list[tuple[str, dict[str, Any]]] = [
    ("translation", {"offset": [1.0, 2.0, 3.0]}),
    ("scale", {"scale": 2.0, "ndim": 3}),
    ("scale", {"scale": [2.0, 3.0, 0.5], "center": [1.0, 2.0, 3.0]}),
    ("rotation", {"angle": 40.0, "axis": [1.0, 2.0, 3.0]}),
    ("rotation", {"angle": 40.0, "axis": [0.0, -2.0, 0.0], "center": [1.0, 2.0, 3.0]}),
    ("shear", {"shear": np.arange(1, 7, dtype=np.float32).reshape(3, 2)}),
    ("shear", {"angles": np.arange(10, 70, 10, dtype=np.float32).reshape(3, 2), "center": [1.0, 2.0, 3.0]}),
    ("crop", {"to_end": [2.0, 3.0, 4.0]}),
]


@pytest.mark.parametrize(("name", "args"), FLAT + DEEP)
def test_each_map_alone(name: str, args: dict[str, Any]) -> None:
    assert_near(lambda module: getattr(module.transforms, name)(**args))
    assert_near(lambda module: getattr(module.transforms, name)(**args, batch_size=2))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("matrix", "name", "args"), [(GIVEN, *value) for value in FLAT] + [(SPACE, *value) for value in DEEP])
def test_after_another_map(matrix: np.ndarray, name: str, args: dict[str, Any], reverse: bool) -> None:
    assert_near(lambda module: getattr(module.transforms, name)(module.tensor(matrix), **args, reverse_order=reverse))


def test_arguments_for_each_sample() -> None:
    for name, argument in (("translation", "offset"), ("scale", "scale"), ("shear", "shear"), ("crop", "from_end")):
        assert_near(lambda module, name=name, argument=argument: getattr(module.transforms, name)(**{argument: module.batch([*POINTS])}))
    assert_near(lambda module: module.transforms.rotation(angle=module.batch([*POINTS[:, 0]]), center=module.batch([*POINTS])))
    assert_near(lambda module: module.transforms.translation(module.batch([GIVEN, -GIVEN]), offset=module.batch([*POINTS[:2]])))


def test_arguments_for_each_frame() -> None:
    assert_near(lambda module: module.transforms.translation(offset=module.per_frame(POINTS)))
    assert_near(lambda module: module.transforms.rotation(angle=module.per_frame([0.0, 90.0, 33.0])))
    assert_near(lambda module: module.transforms.translation(module.tensor(GIVEN), offset=module.per_frame(POINTS)))
    assert_near(lambda module: module.transforms.translation(module.per_frame(np.stack([GIVEN] * 3)), offset=module.per_frame(POINTS)))
    assert_near(lambda module: module.transforms.scale(module.per_frame(np.stack([GIVEN, -GIVEN])), scale=[2.0, 3.0]))


def test_maps_are_combined_in_order() -> None:
    other = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]], np.float32)
    for reverse in (False, True):
        assert_near(lambda module, reverse=reverse: module.transforms.combine(module.tensor(GIVEN), module.tensor(other), reverse_order=reverse))
        assert_near(lambda module, reverse=reverse: module.transforms.combine(*map(module.tensor, (GIVEN, other, GIVEN)), reverse_order=reverse))
    assert_near(lambda module: module.transforms.combine(module.batch([GIVEN, other]), module.tensor(other)))
    assert_near(lambda module: module.transforms.combine(module.per_frame(np.stack([GIVEN, other])), module.tensor(other)))
    assert_near(lambda module: module.transforms.combine(module.per_frame(np.stack([GIVEN, other])), module.per_frame(np.stack([other, GIVEN]))))


@pytest.mark.parametrize(
    "program",
    [
        raising(RuntimeError, lambda module: module.transforms.translation(offset=[1.0] * 7)),
        raising(RuntimeError, lambda module: module.transforms.translation(module.tensor(GIVEN), offset=[1.0, 2.0, 3.0])),
        raising(RuntimeError, lambda module: module.transforms.translation(module.tensor(np.eye(3, dtype=np.float32)), offset=[1.0, 2.0])),
        raising(RuntimeError, lambda module: module.transforms.rotation(angle=3.0, axis=[1.0, 2.0])),
        raising(TypeError, lambda module: module.transforms.rotation()),
        raising(RuntimeError, lambda module: module.transforms.shear()),
        raising(RuntimeError, lambda module: module.transforms.shear(shear=[1.0, 2.0, 3.0])),
        raising(RuntimeError, lambda module: module.transforms.crop(from_start=[0.1, 0.2], to_end=[3.0, 4.0, 5.0])),
        raising(RuntimeError, lambda module: module.transforms.combine(module.tensor(GIVEN), module.tensor(SPACE))),
        raising(TypeError, lambda module: module.transforms.combine(module.tensor(GIVEN))),
    ],
)
def test_wrong_arguments_are_rejected(program: Program, raises: Raises | None) -> None:
    assert_raises(program, raises)
